"""How far to believe RPIM's probabilities, outlier scores and classes: calibration, junk rows, stability, over seeds.

    python benchmarks/sureness.py --data FOLDER --suite classes
    python benchmarks/sureness.py --data FOLDER --suite junk
    python benchmarks/sureness.py --data FOLDER --suite junk --seeds 3 4

FOLDER holds ``features/*.npz`` and ``splits/class_splits.json`` (see benchmarks/protocol.py). "classes" is the default
RPIM on the sets as they are; in "junk", a tenth of the unlabelled rows is replaced by rows of another set under the
same encoder. Every cell (suite, data set, seed) is appended to a .jsonl file as soon as it is done, and cells that are
there are not run again. The truth of unlabelled rows is used for one thing: what is written down at the end.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp, softmax
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score

from cells import add_cell, is_done, read_cells
from protocol import DATA_SETS, Case, load
from rpim import RPIM
from rpim.metrics import contingency, expected_calibration_error
from rpim.outliers import least_fitting
from rpim.stability import stability

OTHER = {"banking77": "clinc150", "clinc150": "banking77", "cub200": "cifar100", "cifar100": "cub200"}
JUNK = 0.1
ABSTAIN = (0.05, 0.1)
FIXED = {"trade_off": 0.1, "weight_decay": 0.01, "beta": 0.2, "random_state": 0}
STABLE = 0.6


def right_rows(truth: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Whether each row lies in the found class that is matched with its true one, as in GCD accuracy v2. (n,)"""
    true_classes, t = np.unique(truth, return_inverse=True)
    classes, p = np.unique(predicted, return_inverse=True)
    found, matched = linear_sum_assignment(
        contingency(t, p, len(true_classes), len(classes)).T, maximize=True
    )  # of each found class its true one
    of_class = np.full(len(classes), -1)
    of_class[found] = matched
    return of_class[p] == t


def logits_of(model: RPIM, X: np.ndarray) -> np.ndarray:
    """The logits as trained. (N, K)"""
    return torch.cat([model.head_.logits(x) for x in model._blocks(X)]).double().numpy()


def classes_cell(folder: Path, data_set: str, seed: int) -> dict[str, object]:
    """Calibration error before and after, stability against the truth, accuracy when abstaining, and what it costs."""
    case = load(folder, data_set, seed)
    calibrate, spent = RPIM._calibrate, []

    def timed(*arguments: object) -> float:
        start = time.perf_counter()
        factor = calibrate(*arguments)
        spent.append(time.perf_counter() - start)
        return factor

    RPIM._calibrate = timed
    start = time.perf_counter()
    model = RPIM(case.n_classes, random_state=0).fit(case.X, case.y)
    seconds = time.perf_counter() - start
    RPIM._calibrate = calibrate
    start = time.perf_counter()
    stable = stability(model, case.X, case.y)
    cell: dict[str, object] = {
        "fit": seconds - spent[0], "calibrating": spent[0], "stability": time.perf_counter() - start,
        "factor": model.calibration_, **{f"hidden_{when}": e for when, e in model.calibration_error_.items()},
    }  # fmt: skip
    truth, labels = case.truth[case.hidden], model.labels_[case.hidden]
    right, known = right_rows(truth, labels), np.isin(truth, case.known)
    logits = logits_of(model, case.X)[case.hidden]
    for when, factor in (("before", 1.0), ("after", model.calibration_)):
        sure = softmax(factor * logits, axis=1).max(axis=1)
        for part, rows in (("all", slice(None)), ("known", known), ("unknown", ~known)):
            cell[f"{part}_{when}"] = expected_calibration_error(sure[rows], right[rows])
            cell[f"{part}_sureness_{when}"] = float(sure[rows].mean())
            cell[f"{part}_right"] = float(right[rows].mean())
    cell |= abstaining(model.outlier_scores(case.X)[case.hidden], right)
    return cell | against_the_truth(model, case, stable)


def abstaining(scores: np.ndarray, right: np.ndarray) -> dict[str, float]:
    """The share of right rows among those that keep a class."""
    kept = {"right": float(right.mean())}
    for share in ABSTAIN:
        kept[f"right_kept_{share}"] = float(np.delete(right, least_fitting(scores, share)[0]).mean())
    return kept


def against_the_truth(model: RPIM, case: Case, stable: np.ndarray) -> dict[str, float]:
    """Rank correlations, over the discovered classes with rows, of stability and sureness with F-score and purity."""
    sure = model.predict_proba(case.X).max(axis=1)
    columns: dict[str, list[float]] = {"stability": [], "sureness": [], "f": [], "purity": []}
    for k in range(len(case.known), case.n_classes):
        rows = case.hidden & (model.labels_ == model.classes_[k])
        if not rows.any():
            continue
        true, counts = np.unique(case.truth[rows], return_counts=True)
        sizes = np.array([(case.hidden & (case.truth == c)).sum() for c in true])
        columns["f"].append(float((2 * counts / (rows.sum() + sizes)).max()))
        columns["purity"].append(float(counts.max() / rows.sum()))
        columns["stability"].append(float(stable[k]))
        columns["sureness"].append(float(sure[rows].mean()))
    f, is_stable = np.array(columns["f"]), np.array(columns["stability"]) >= STABLE
    pairs = {
        f"{by}_{what}": float(spearmanr(columns[by], columns[what])[0])
        for by in ("stability", "sureness") for what in ("f", "purity")
    }  # fmt: skip
    return pairs | {"stable_share": float(is_stable.mean()), "f_stable": float(f[is_stable].mean()),
                    "f_unstable": float(f[~is_stable].mean()) if (~is_stable).any() else float("nan")}  # fmt: skip


def junk_cell(folder: Path, data_set: str, seed: int) -> dict[str, object]:
    """AUROC of every candidate score for telling junk, and what abstaining by the energy does to the rows kept."""
    case, other = load(folder, data_set, seed), load(folder, OTHER[data_set], seed)
    random = np.random.RandomState(seed)
    hidden = np.flatnonzero(case.hidden)
    replaced = random.permutation(hidden)[: round(JUNK * len(hidden))]
    X = case.X.astype(np.float32)
    X[replaced] = other.X[random.permutation(len(other.X))[: len(replaced)]]
    junk = np.isin(hidden, replaced)
    model = RPIM(case.n_classes, **FIXED, calibrate=False).fit(X, case.y)
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
    x = torch.cat(model._blocks(X)).double().numpy()
    refined, logits = model.transform(X).astype(np.float64), logits_of(model, X)
    classes = np.searchsorted(model.classes_, model.labels_)
    z = softmax(logits, axis=1)
    raw_means, refined_means = (_means(rows, classes, len(model.classes_)) for rows in (x, refined))
    energy = -logsumexp(logits, axis=1)
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    residual = np.sqrt(np.maximum(1.0 - ((unit @ model.components_.numpy()) ** 2).sum(axis=1), 0.0))
    class_distance, relative = _mahalanobis(x, classes, raw_means)
    return {
        "energy of the logits": energy,
        "energy + residual (ViM)": energy + residual * logits.max(axis=1).mean() / residual.mean(),
        "residual outside the principal directions": residual,
        "Mahalanobis, shared covariance": class_distance,
        "relative Mahalanobis": relative,
        "10th nearest neighbour": _neighbour_distance(x, 10),
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


def _neighbour_distance(x: np.ndarray, k: int) -> np.ndarray:
    rows = _unit(x).astype(np.float32)
    return np.concatenate([
        1.0 - np.partition(rows[i : i + 1000] @ rows.T, -(k + 1), axis=1)[:, -(k + 1)]  # the row itself is nearest
        for i in range(0, len(rows), 1000)
    ])  # fmt: skip


def table(cells: list[dict], data_sets: list[str], rows: list[tuple[str, list[str]]], scale: float, digits: int) -> str:
    """A line per (name, keys): for each data set the means of the keys over seeds, and the spread of the first."""
    lines = ["| | " + " | ".join(data_sets) + " | average |", "|---|" + "---|" * (len(data_sets) + 1)]
    for name, keys in rows:
        of_set = [[[scale * c[key] for c in cells if c["data_set"] == d] for key in keys] for d in data_sets]
        shown = [
            "/".join(f"{np.nanmean(v):.{digits}f}" for v in values) + f" ±{np.nanstd(values[0]):.{digits}f}"
            for values in of_set
        ]  # fmt: skip
        average = "/".join(f"{np.mean([np.nanmean(v[j]) for v in of_set]):.{digits}f}" for j in range(len(keys)))
        lines.append(f"| {name} | " + " | ".join(shown) + f" | {average} |")
    return "\n".join(lines)


def classes_tables(cells: list[dict], data_sets: list[str]) -> str:
    """Everything of the suite "classes" as Markdown."""
    parts = ("all", "known", "unknown")
    percent = [(f"expected calibration error {when}", [f"{part}_{when}" for part in parts])
               for when in ("before", "after")]  # fmt: skip
    percent += [(f"mean sureness {when}", [f"{part}_sureness_{when}" for part in parts])
                for when in ("before", "after")]  # fmt: skip
    percent += [
        ("share of right rows", [f"{part}_right" for part in parts]),
        ("right among the rows kept: all, 95 %, 90 %", ["right", *(f"right_kept_{s}" for s in ABSTAIN)]),
    ]
    numbers = [
        ("factor", ["factor"]), ("stability with F / purity", ["stability_f", "stability_purity"]),
        ("sureness with F / purity", ["sureness_f", "sureness_purity"]), ("share of classes >= 0.6", ["stable_share"]),
        ("mean F of those / of the others", ["f_stable", "f_unstable"]),
    ]  # fmt: skip
    costs = [("seconds: fit / calibrating / stability", ["fit", "calibrating", "stability"])]
    return "\n\n".join(
        [table(cells, data_sets, percent, 100.0, 1), table(cells, data_sets, numbers, 1.0, 2),
         table(cells, data_sets, costs, 1.0, 0)]
    )  # fmt: skip


def junk_tables(cells: list[dict], data_sets: list[str]) -> str:
    """Everything of the suite "junk" as Markdown."""
    about = {"data_set", "seed", "suite", *(k for k in cells[0] if k.startswith(("right", "junk_in")))}
    names = sorted((k for k in cells[0] if k not in about), key=lambda k: -np.mean([c[k] for c in cells]))
    kept = [("right among the rows kept: all, 95 %, 90 %", ["right", *(f"right_kept_{s}" for s in ABSTAIN)]),
            ("junk among the 5 % / 10 % left out", [f"junk_in_left_out_{s}" for s in ABSTAIN])]  # fmt: skip
    return "\n\n".join([table(cells, data_sets, [(name, [name]) for name in names], 100.0, 1),
                        table(cells, data_sets, kept, 100.0, 1)])  # fmt: skip


SUITES = {"classes": (classes_cell, classes_tables), "junk": (junk_cell, junk_tables)}


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--suite", choices=SUITES, default="classes")
    parser.add_argument("--sets", nargs="+", choices=list(DATA_SETS), default=list(DATA_SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/sureness.jsonl"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run_cell, tables = SUITES[arguments.suite]
    for seed in arguments.seeds:
        for data_set in arguments.sets:
            key = {"suite": arguments.suite, "data_set": data_set, "seed": seed}
            if is_done(arguments.output, key):
                continue
            cell = {**key, **run_cell(arguments.data, data_set, seed)}
            rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in cell.items()}
            add_cell(arguments.output, rounded)
    cells = [c for c in read_cells(arguments.output) if c["suite"] == arguments.suite and c["seed"] in arguments.seeds]
    print(tables([c for c in cells if c["data_set"] in arguments.sets], arguments.sets))


if __name__ == "__main__":
    main()
