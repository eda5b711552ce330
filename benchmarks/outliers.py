"""Which score tells rows that belong to no class: AUROC of candidates, and what abstaining by the energy does.

    python benchmarks/outliers.py --data FOLDER

FOLDER holds ``features/*.npz`` and ``splits/class_splits.json`` (see benchmarks/protocol.py). A tenth of the unlabelled
rows is replaced by rows of another set under the same encoder; the model is the default RPIM. Every cell (data
set, seed) is appended to a .jsonl file as soon as it is done, and cells that are there are not run again. The truth of
unlabelled rows is used for one thing: what is written down at the end.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from scipy.special import logsumexp, softmax
from sklearn.metrics import roc_auc_score

from cells import add_cell, is_done, read_cells
from committee import right_rows
from protocol import DATA_SETS, load
from rpim import RPIM
from rpim.core.head import least_fitting

OTHER = {"banking77": "clinc150", "clinc150": "banking77", "cub200": "cifar100", "cifar100": "cub200"}
JUNK = 0.1
ABSTAIN = (0.05, 0.1)


def logits_of(model: RPIM, X: np.ndarray) -> np.ndarray:
    """The logits as trained. (N, K)"""
    return torch.cat([model.head_.logits(x) for _, x in model._blocks(X)]).double().numpy()


def abstaining(scores: np.ndarray, right: np.ndarray) -> dict[str, float]:
    """The share of right rows among those that keep a class."""
    kept = {"right": float(right.mean())}
    for share in ABSTAIN:
        kept[f"right_kept_{share}"] = float(np.delete(right, least_fitting(scores, share)[0]).mean())
    return kept


def junk_cell(folder: Path, data_set: str, seed: int) -> dict[str, object]:
    """AUROC of every candidate score for telling junk, and what abstaining by the energy does to the rows kept."""
    case, other = load(folder, data_set, seed), load(folder, OTHER[data_set], seed)
    random = np.random.RandomState(seed)
    hidden = np.flatnonzero(case.hidden)
    replaced = random.permutation(hidden)[: round(JUNK * len(hidden))]
    X = case.X.astype(np.float32)
    X[replaced] = other.X[random.permutation(len(other.X))[: len(replaced)]]
    junk = np.isin(hidden, replaced)
    model = RPIM(case.n_classes, random_state=0).fit(X, case.y)
    cell: dict[str, object] = {
        name: float(roc_auc_score(junk, scores[case.hidden])) for name, scores in candidates(model, X).items()
    }
    right = np.zeros(len(hidden), dtype=bool)  # junk is never right; the matching is that of the other rows
    right[~junk] = right_rows(case.truth[hidden][~junk], model.labels_[hidden][~junk])
    scores = model.outlier_scores(X)[hidden]
    cell |= abstaining(scores, right)
    for share in ABSTAIN:
        cell[f"junk_in_left_out_{share}"] = float(junk[least_fitting(scores, share)[0]].mean())
    return cell


def candidates(model: RPIM, X: np.ndarray) -> dict[str, np.ndarray]:
    """Scores of every row, larger = fits less. (N,) each"""
    x = torch.cat([x for _, x in model._blocks(X)]).double().numpy()
    refined, logits = model.transform(X).astype(np.float64), logits_of(model, X)
    classes = np.searchsorted(model.classes_, model.labels_)
    z = softmax(logits, axis=1)
    raw_means, refined_means = (_means(rows, classes, len(model.classes_)) for rows in (x, refined))
    energy = -logsumexp(logits, axis=1)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    residual = np.sqrt(np.maximum(1.0 - ((unit @ model.components_.T) ** 2).sum(axis=1), 0.0))
    class_distance, relative = _mahalanobis(x, classes, raw_means)
    return {
        "energy of the logits": energy,
        "energy + residual (ViM)": energy + residual * logits.max(axis=1).mean() / residual.mean(),
        "residual outside the principal directions": residual,
        "Mahalanobis, shared covariance": class_distance,
        "relative Mahalanobis": relative,
        "10th nearest neighbor": _neighbor_distance(x, 10),
        "cosine to the nearest class mean": 1.0 - (_unit(x) @ _unit(raw_means).T).max(axis=1),
        "cosine to the nearest class mean, refined": 1.0 - (_unit(refined) @ _unit(refined_means).T).max(axis=1),
        "cosine to the nearest prototype": 1.0 - (_unit(refined) @ _unit(model.head_.prototypes.numpy()).T).max(axis=1),
        "entropy": -(z * np.log(np.maximum(z, 1e-30))).sum(axis=1),
        "1 - largest probability": 1.0 - z.max(axis=1),
    }


def _unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)


def _means(rows: np.ndarray, classes: np.ndarray, n_classes: int) -> np.ndarray:
    sums = np.zeros((n_classes, rows.shape[1]))
    np.add.at(sums, classes, rows)
    return sums / np.maximum(np.bincount(classes, minlength=n_classes), 1)[:, None]


def _mahalanobis(x: np.ndarray, classes: np.ndarray, means: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distance to the nearest class mean, and that less the distance to the mean of all. (N,), (N,)"""
    within, around = x - means[classes], x - x.mean(axis=0)
    ridge = 1e-6 * np.eye(x.shape[1])
    root = np.linalg.cholesky(np.linalg.inv(within.T @ within / len(x) + ridge))
    rows, centres = x @ root, means @ root
    near = ((centres**2).sum(axis=1) - 2.0 * rows @ centres.T).min(axis=1) + (rows**2).sum(axis=1)
    overall = (around @ np.linalg.inv(around.T @ around / len(x) + ridge) * around).sum(axis=1)
    return near, near - overall


def _neighbor_distance(x: np.ndarray, k: int) -> np.ndarray:
    rows = _unit(x).astype(np.float32)
    return np.concatenate(
        [
            1.0 - np.partition(rows[i : i + 1000] @ rows.T, -(k + 1), axis=1)[:, -(k + 1)]  # the row itself is nearest
            for i in range(0, len(rows), 1000)
        ]
    )


def table(cells: list[dict], data_sets: list[str], rows: list[tuple[str, list[str]]], scale: float, digits: int) -> str:
    """A line per (name, keys): for each data set the means of the keys over seeds, and the spread of the first."""
    lines = ["| | " + " | ".join(data_sets) + " | average |", "|---|" + "---|" * (len(data_sets) + 1)]
    for name, keys in rows:
        of_set = [[[scale * c[key] for c in cells if c["data_set"] == d] for key in keys] for d in data_sets]
        shown = [
            "/".join(f"{np.nanmean(v):.{digits}f}" for v in values) + f" ±{np.nanstd(values[0]):.{digits}f}"
            for values in of_set
        ]
        average = "/".join(f"{np.mean([np.nanmean(v[j]) for v in of_set]):.{digits}f}" for j in range(len(keys)))
        lines.append(f"| {name} | " + " | ".join(shown) + f" | {average} |")
    return "\n".join(lines)


def junk_tables(cells: list[dict], data_sets: list[str]) -> str:
    """Everything of the suite "junk" as Markdown."""
    about = {"data_set", "seed", "suite", *(k for k in cells[0] if k.startswith(("right", "junk_in")))}
    names = sorted((k for k in cells[0] if k not in about), key=lambda k: -np.mean([c[k] for c in cells]))
    kept = [
        ("right among the rows kept: all, 95 %, 90 %", ["right", *(f"right_kept_{s}" for s in ABSTAIN)]),
        ("junk among the 5 % / 10 % left out", [f"junk_in_left_out_{s}" for s in ABSTAIN]),
    ]
    return "\n\n".join(
        [table(cells, data_sets, [(name, [name]) for name in names], 100.0, 1), table(cells, data_sets, kept, 100.0, 1)]
    )


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=list(DATA_SETS), default=list(DATA_SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/outliers.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for seed in arguments.seeds:
        for data_set in arguments.sets:
            key = {"suite": "junk", "data_set": data_set, "seed": seed}
            if is_done(arguments.output, key):
                continue
            cell = {**key, **junk_cell(arguments.data, data_set, seed)}
            rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in cell.items()}
            add_cell(arguments.output, rounded)
    cells = [c for c in read_cells(arguments.output) if c["suite"] == "junk" and c["seed"] in arguments.seeds]
    print(junk_tables([c for c in cells if c["data_set"] in arguments.sets], arguments.sets))


if __name__ == "__main__":
    main()
