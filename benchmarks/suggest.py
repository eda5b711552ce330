"""What to label next: accuracy after more labels, chosen by ``Discovery.suggest``, at random, or by least confidence.

    python benchmarks/suggest.py --data FOLDER
    python benchmarks/suggest.py --data FOLDER --numbers 200 --sets cub200 --seeds 0

FOLDER is that of benchmarks/protocol.py. After a first fit, n of its unlabelled rows get their true label, and a refit
with the same K follows; a label of an unknown class makes it a known one. A third of the unlabelled rows, drawn by the
seed, is held out: no strategy may choose them, and accuracy is measured on them alone, so that every strategy is judged
by the same rows, none of which was labelled. Held-out rows take part in the fits, without labels. Known and Unknown are
those of the first fit. "suggest in rounds" labels 50 rows at a time, each round chosen after a refit. Two are no
strategies but bounds, which know the truth: "true classes" chooses like ``suggest``, among the true classes instead of
those that were found; "true errors" takes a typical row of each unknown class, then of the largest groups of errors.
Cells that are done are not run again; the first fits are kept in ``--runs``.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from cells import Cell, add_cell, is_done, read_cells
from protocol import DATA_SETS, Case, fit_committee, kept_fit, load
from rpim import Discovery, gcd_accuracy
from rpim.metrics import contingency
from rpim.runs.assignments import class_codes
from rpim.runs.suggestions import choose_rows

HELD_OUT = 1 / 3
ROUND = 50  # labels between two refits: what `rpim suggest` gives at a time
ROUNDS = "suggest in rounds"
Fit = dict[str, Any]


def held_out_rows(case: Case, seed: int) -> np.ndarray:
    """The rows on which accuracy is measured. (N,)"""
    unlabelled = np.random.RandomState(1000 + seed).permutation(np.flatnonzero(case.hidden))
    held_out = np.zeros(len(case.y), dtype=bool)
    held_out[unlabelled[: round(HELD_OUT * len(unlabelled))]] = True
    return held_out


def refit(case: Case, labelled: np.ndarray, n_members: int) -> Discovery:
    """A committee of this size, with the true labels of these rows too."""
    y = case.y.copy()
    y[labelled] = case.truth[labelled]
    return fit_committee(dataclasses.replace(case, y=y), n_members)


def seen(case: Case, found: Discovery) -> Fit:
    """What the strategies see: the class of every row, its confidence, and its embedding."""
    return {
        "labels": found.labels,
        "codes": class_codes(found.labels, found.classes),
        "confidence": found.confidence,
        "vectors": found.model.transform(case.X.astype(np.float32)),
        "n_known": len(found.model.known_classes_),
        "true_codes": class_codes(case.truth, np.append(case.known, np.setdiff1d(case.truth, case.known))),
    }


def by_suggestion(fit: Fit, rows: np.ndarray, n: int, seed: int) -> np.ndarray:
    """The rule of `Discovery.suggest`."""
    return rows[choose_rows(fit["codes"][rows], fit["confidence"][rows], fit["n_known"], n, fit["vectors"][rows])]


def without_features(fit: Fit, rows: np.ndarray, n: int, seed: int) -> np.ndarray:
    """The same rule without embeddings, as for a run whose features are gone."""
    return rows[choose_rows(fit["codes"][rows], fit["confidence"][rows], fit["n_known"], n)]


def at_random(fit: Fit, rows: np.ndarray, n: int, seed: int) -> np.ndarray:
    """Any rows."""
    return np.random.RandomState(seed).permutation(rows)[:n]


def least_confident(fit: Fit, rows: np.ndarray, n: int, seed: int) -> np.ndarray:
    """The rows with the lowest confidence."""
    return rows[np.argsort(fit["confidence"][rows], kind="stable")[:n]]


def by_true_classes(fit: Fit, rows: np.ndarray, n: int, seed: int) -> np.ndarray:
    """The same rule where every class was found without an error: typical rows of each unknown class, by its size."""
    codes = fit["true_codes"][rows]
    certain = np.ones(len(rows), dtype=np.float32)
    return rows[choose_rows(codes, certain, fit["n_known"], n, fit["vectors"][rows])]


def by_true_errors(fit: Fit, rows: np.ndarray, n: int, seed: int) -> np.ndarray:
    """A row of each unknown class, then of the largest groups of errors: rows of one class that are in one other."""
    true, found = fit["true_codes"][rows], fit["codes"][rows]
    n_classes = int(max(true.max(), found.max())) + 1
    counts = contingency(true, found, n_classes, n_classes)
    matched = linear_sum_assignment(counts, maximize=True)
    errors = counts.copy()
    errors[matched] = 0
    first = [(k, int(counts[k].argmax())) for k in range(fit["n_known"], n_classes) if counts[k].any()]
    ranked = np.argsort(-errors, axis=None, kind="stable")[: np.count_nonzero(errors)]
    others = [tuple(map(int, np.divmod(cell, n_classes))) for cell in ranked]
    chosen = []
    for k, c in dict.fromkeys([*first, *others]):
        own = np.flatnonzero((true == k) & (found == c))
        vectors = fit["vectors"][rows[own]]
        chosen.append(int(own[np.linalg.norm(vectors - vectors.mean(axis=0), axis=1).argmin()]))
    left = np.random.RandomState(seed).permutation(np.setdiff1d(np.arange(len(rows)), chosen))
    return rows[np.append(chosen, left)[:n].astype(np.int64)]


STRATEGIES: dict[str, Callable[[Fit, np.ndarray, int, int], np.ndarray]] = {
    "suggest": by_suggestion,
    "random": at_random,
    "least confidence": least_confident,
    ROUNDS: by_suggestion,
    "suggest without features": without_features,
    "true classes": by_true_classes,
    "true errors": by_true_errors,
}


def measure(case: Case, labels: np.ndarray, held_out: np.ndarray) -> Cell:
    """All, Known and Unknown on the held-out rows, and All on every row that was unlabelled at first."""
    found = gcd_accuracy(case.truth[held_out], labels[held_out], case.known).as_dict()
    everywhere = gcd_accuracy(case.truth[case.hidden], labels[case.hidden], case.known).all
    return {**found, "all_unlabelled": float(everywhere)}


def table(cells: list[Cell]) -> str:
    """A row for each number of labels and data set: accuracies of the strategies, and gains over random choice."""
    names = [name for name in ("none", *STRATEGIES) if any(cell["strategy"] == name for cell in cells)]
    ours = [name for name in ("suggest", ROUNDS) if name in names]
    gained = [f"gain, {name}{part}" for name in ours for part in ("", ", all unlabelled rows")]
    lines = [f"| labels | data set | seeds | {' | '.join(names + gained)} |"]
    lines.append("|---" * (3 + len(names) + len(gained)) + "|")
    gains: dict[int, list[list[float]]] = {}
    for n, data_set in sorted({(cell["n"], cell["data_set"]) for cell in cells if cell["n"]}):
        of_seed = {
            (cell["strategy"], cell["seed"]): cell
            for cell in cells
            if cell["data_set"] == data_set and cell["n"] in (0, n)
        }
        seeds = [s for name, s in of_seed if name == "random" and all((one, s) in of_seed for one in ours)]
        if not seeds:
            continue
        shown = [_shares([of_seed[name, s] for s in seeds if (name, s) in of_seed], len(seeds)) for name in names]
        gain = [
            100 * float(np.mean([of_seed[name, s][part] - of_seed["random", s][part] for s in seeds]))
            for name in ours
            for part in ("all", "all_unlabelled")
        ]
        gains.setdefault(n, []).append(gain)
        lines.append(f"| {n} | {data_set} | {len(seeds)} | {' | '.join(shown + [f'{one:+.1f}' for one in gain])} |")
    for n, of_sets in gains.items():
        mean = [f"{one:+.1f}" for one in np.mean(of_sets, axis=0)]
        lines.append(f"| {n} | mean | {' | ' * len(names)} | {' | '.join(mean)} |")
    return "\n".join(lines)


def _shares(cells: list[Cell], n_seeds: int) -> str:
    """All/Known/Unknown, and the number of seeds if some are missing."""
    means = [100 * float(np.mean([cell[part] for cell in cells])) for part in ("all", "known", "unknown") if cells]
    missing = f" ({len(cells)})" if 0 < len(cells) < n_seeds else ""
    return "/".join(f"{mean:.1f}" for mean in means) + missing


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=list(DATA_SETS), default=list(DATA_SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--numbers", nargs="+", type=int, default=[200, 100, 50], help="how many labels are added")
    parser.add_argument("--strategies", nargs="+", choices=list(STRATEGIES), default=list(STRATEGIES)[:3])
    parser.add_argument("--members", type=int, default=4)
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/suggest.jsonl"))
    parser.add_argument("--runs", type=Path, default=Path("build/fits"), help="where the first fits are kept")
    chosen = parser.parse_args()
    for n, seed, data_set in [(n, s, d) for n in chosen.numbers for s in chosen.seeds for d in chosen.sets]:
        key = {"data_set": data_set, "seed": seed, "members": chosen.members}
        missing = [name for name in chosen.strategies if not is_done(chosen.output, {**key, "strategy": name, "n": n})]
        if not missing:
            continue
        case = load(chosen.data, data_set, seed)
        held_out = held_out_rows(case, seed)
        found = kept_fit(case, chosen.members, chosen.runs / f"{data_set}-{seed}-{chosen.members}")
        first = seen(case, found)
        start = {**key, "strategy": "none", "n": 0}
        if not is_done(chosen.output, start):
            add_cell(chosen.output, {**start, **measure(case, first["labels"], held_out)})
        for name in missing:
            fit, labelled = first, np.array([], dtype=np.int64)
            began = time.perf_counter()
            while len(labelled) < n:
                rows = np.setdiff1d(np.flatnonzero(case.hidden & ~held_out), labelled)
                of_round = min(ROUND, n - len(labelled)) if name == ROUNDS else n
                labelled = np.append(labelled, STRATEGIES[name](fit, rows, of_round, seed))
                fit = seen(case, refit(case, labelled, chosen.members))
            unknown = np.setdiff1d(case.truth[labelled], case.known)
            cell = {**measure(case, fit["labels"], held_out), "unknown_classes_labelled": len(unknown)}
            add_cell(chosen.output, {**key, "strategy": name, "n": n, **cell, "seconds": time.perf_counter() - began})
    print(table([cell for cell in read_cells(chosen.output) if cell["seed"] in chosen.seeds]))


if __name__ == "__main__":
    main()
