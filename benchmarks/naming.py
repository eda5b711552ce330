"""How often the keywords of a discovered class name the true class: RPIM on text sets, over seeds.

    python benchmarks/naming.py --data FOLDER

FOLDER holds ``features/*.npz`` with ``texts`` and ``label_names`` (see benchmarks/protocol.py). Each new class stands
for the true class that most of its rows have. It is named if one of its first four keywords holds a content word of the
true class's name, but for the ending. Since a keyword may be a phrase, the first four words of the keywords other than
scikit-learn's English stop words are counted too; that is what to compare with the four words that class-based TF-IDF
ranks first, and with the four most frequent words other than those stop words. So is the suggested name, of two or
three words. Words that fit any class say little, so how many names of other new classes they hold is counted as well.
The truth is used for one thing: what is written down at the end.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

from cells import add_cell, is_done, read_cells
from protocol import DATA_SETS
from rpim import RPIM, FeatureSet, InfoMaxObjective
from rpim.benchmark.protocol import make_case, split_features
from rpim.runs.keywords import keywords, suggest_names, words_of

TEXT_SETS = ("banking77", "clinc150")
N_WORDS = 4
STEM = 5
FIXED = {"objective": InfoMaxObjective(trade_off=0.1, weight_decay=0.01), "random_state": 0}
COMPARED = ("four keywords", "their first four words", "suggested name", "class-based TF-IDF", "frequent words")


def run_cell(folder: Path, data_set: str, seed: int) -> dict[str, object]:
    """The share of new classes that are named, and how many names of other new classes the same words hold."""
    path = folder / "features" / f"{DATA_SETS[data_set]}.npz"
    parts = split_features(FeatureSet.read(path))
    case = make_case(parts, seed)
    with np.load(path, allow_pickle=False) as stored:
        names = [str(stored["label_names"][c]) for c in parts.classes]
    model = RPIM(case.n_classes, **FIXED).fit(case.features.X, case.y)
    texts, codes = case.features.texts, np.searchsorted(model.classes_, model.labels_)
    found = keywords(texts, codes, len(model.classes_))
    suggested = [""] * len(case.known) + suggest_names(found[len(case.known) :], taken=[names[c] for c in case.known])
    by_formula = class_tf_idf(texts, codes, len(model.classes_))
    of_class: dict[str, list[list[str]]] = {name: [] for name in COMPARED}
    truth = []
    for k in range(len(case.known), len(model.classes_)):
        rows = np.flatnonzero(codes == k)
        if len(rows) == 0:
            continue
        truth.append(names[np.bincount(case.truth[rows]).argmax()])
        four = found[k][:N_WORDS]
        terms = (
            four,
            [word for word in " ".join(four).split() if word not in ENGLISH_STOP_WORDS][:N_WORDS],
            [suggested[k]],
            by_formula[k],
            frequent_words(texts[i] for i in rows),
        )
        for name, words in zip(COMPARED, terms, strict=True):
            of_class[name].append(words)
    cell: dict[str, object] = {}
    for name, lists in of_class.items():
        hits = np.array([[holds(words, content_words(true)) for true in truth] for words in lists])  # (found, true)
        others = hits & (np.array(truth)[:, None] != np.array(truth))
        cell |= {name: float(np.diag(hits).mean()), f"others, {name}": float(others.sum(axis=1).mean())}
    return cell


def content_words(name: str) -> list[str]:
    """The words of a class's name without English stop words; all of them where nothing else is left."""
    words = words_of(name.replace("_", " "))
    return [word for word in words if word not in ENGLISH_STOP_WORDS] or words


def class_tf_idf(texts: list[str], codes: np.ndarray, n_classes: int) -> list[list[str]]:
    """The words that class-based TF-IDF (Grootendorst, "BERTopic", 2022) ranks first, function words and all."""
    documents = [" ".join(texts[i] for i in np.flatnonzero(codes == k)) for k in range(n_classes)]
    vectoriser = CountVectorizer(tokenizer=words_of, token_pattern=None, lowercase=False)
    frequencies = vectoriser.fit_transform(documents).toarray()  # (n_classes, V)
    n_used = np.count_nonzero(frequencies.any(axis=1))
    scores = frequencies * np.log1p(frequencies.sum() / n_used / frequencies.sum(axis=0))
    return vectoriser.get_feature_names_out()[np.argsort(-scores, axis=1, kind="stable")[:, :N_WORDS]].tolist()


def frequent_words(texts: Iterable[str]) -> list[str]:
    """The baseline."""
    counts = Counter(word for text in texts for word in words_of(text) if word not in ENGLISH_STOP_WORDS)
    return [word for word, _ in counts.most_common(N_WORDS)]


def holds(terms: list[str], truth: list[str]) -> bool:
    """Whether a word of the terms and one of the truth begin with the same five letters, or as many as they have."""
    return any(
        word[:STEM].startswith(true[:STEM]) or true[:STEM].startswith(word[:STEM])
        for term in terms
        for word in term.split()
        for true in truth
        if min(len(word), len(true)) > 2 or word == true
    )


def table(cells: list[dict], data_sets: list[str]) -> str:
    """The shares in percent with their spread over seeds, and the mean number of other classes' names."""
    lines = ["| | " + " | ".join(data_sets) + " |", "|---|" + "---|" * len(data_sets)]
    for name in COMPARED:
        of_set = [[c for c in cells if c["data_set"] == d] for d in data_sets]
        shares = [[100 * c[name] for c in own] for own in of_set]
        others = [np.mean([c[f"others, {name}"] for c in own]) for own in of_set]
        shown = (f"{np.mean(v):.1f} ±{np.std(v):.1f} ({n:.1f})" for v, n in zip(shares, others, strict=True))
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=TEXT_SETS, default=list(TEXT_SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/naming.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in arguments.seeds:
        for data_set in arguments.sets:
            key = {"data_set": data_set, "seed": seed}
            if not is_done(arguments.output, key):
                cell = run_cell(arguments.data, data_set, seed)
                rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in cell.items()}
                add_cell(arguments.output, {**key, **rounded})
    cells = [c for c in read_cells(arguments.output) if c["seed"] in arguments.seeds]
    print(table(cells, arguments.sets))


if __name__ == "__main__":
    main()
