"""The committee against a single fit and against an earlier version: accuracy, confidence, long tails, wrong labels.

    python benchmarks/committee.py --data FOLDER --suite main
    python benchmarks/committee.py --data FOLDER --suite main --before CHECKOUT/src
    python benchmarks/committee.py --data FOLDER --suite small|sizes|tails|labels|states|members|axes
    python benchmarks/committee.py --data FOLDER --suite members axes

FOLDER holds ``features/*.npz`` and ``splits/class_splits.json`` (see benchmarks/protocol.py). ``--before`` names the
``src`` folder of another checkout, whose default RPIM is fitted to the same cases in a process of its own, right after
ours. Every cell is appended to a .jsonl file as soon as it is done, and cells that are there are not run again. Cells
of one data set and seed share members that would be the same; their seconds count all the same. The truth of
unlabelled rows is used for one thing: the figures at the end.

main    default RPIM on the sets as they are
small   12 classes, 5 of them known, 30 labelled rows a class: mean confidence against accuracy
tails   classes whose sizes fall by 5:1, 20:1 and 100:1
labels  5 % of the labels flipped, at random or to the nearest known class
states  the same case under several values of random_state
members 1 to 32 members
axes    what the committee is without one of its parts
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from cells import add_cell, is_done, read_cells
from protocol import DATA_SETS, TAILS, Case, load
from rpim import RPIM, gcd_accuracy
from rpim.metrics import contingency, expected_calibration_error

Variant = dict[str, Any]


def small_case(case: Case, seed: int, n_classes: int = 12, n_known: int = 5, n_labelled: int = 30) -> Case:
    """Some classes of a case, with a few labels of fewer."""
    random = np.random.RandomState(seed)
    chosen = random.permutation(np.unique(case.truth))[:n_classes]
    rows = np.flatnonzero(np.isin(case.truth, chosen))
    truth = np.searchsorted(np.sort(chosen), case.truth[rows])
    known = np.sort(random.permutation(n_classes)[:n_known])
    y = np.full(len(rows), -1)
    for c in known:
        of_class = random.permutation(np.flatnonzero(truth == c))
        y[of_class[: min(n_labelled, len(of_class) - 1)]] = c
    return Case(case.X[rows], y, truth, known, n_classes)


def uneven_case(case: Case, seed: int, n_classes: int, ratio: float) -> Case:
    """Some classes, whose sizes fall from 80 rows by a ratio; of half of them three in ten rows are labelled."""
    random = np.random.RandomState(seed)
    chosen = random.permutation(np.unique(case.truth))[:n_classes]
    sizes = 80 * ratio ** -(np.arange(n_classes) / (n_classes - 1))
    drawn = [
        random.permutation(np.flatnonzero(case.truth == c))[: round(n)] for c, n in zip(chosen, sizes, strict=True)
    ]
    rows = np.concatenate(drawn)
    truth = np.searchsorted(np.sort(chosen), case.truth[rows])
    known = np.sort(random.permutation(n_classes)[: n_classes // 2])
    y = np.full(len(rows), -1)
    for c in known:
        of_class = random.permutation(np.flatnonzero(truth == c))
        y[of_class[: max(2, round(0.3 * len(of_class)))]] = c
    return Case(case.X[rows], y, truth, known, n_classes)


def flipped(case: Case, seed: int, how: str, share: float = 0.05) -> tuple[np.ndarray, np.ndarray]:
    """The labels with a share of them changed, and which were. (N,), (N,)"""
    random = np.random.RandomState(seed)
    labelled = np.flatnonzero(case.y >= 0)
    rows = random.permutation(labelled)[: round(share * len(labelled))]
    unit = case.X / np.linalg.norm(case.X, axis=1, keepdims=True)
    means = np.stack([unit[case.y == c].mean(axis=0) for c in case.known])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    similarity = means @ means.T
    np.fill_diagonal(similarity, -1.0)
    y, place = case.y.copy(), {c: i for i, c in enumerate(case.known.tolist())}
    for row in rows:
        own = place[int(y[row])]
        others = np.delete(np.arange(len(case.known)), own)
        y[row] = case.known[similarity[own].argmax() if how == "nearest" else random.choice(others)]
    was = np.zeros(len(y), dtype=bool)
    was[rows] = True
    return y, was


def fit_and_measure(case: Case, y: np.ndarray, parameters: Variant, wrong: np.ndarray | None = None) -> dict[str, Any]:
    """Fit the default RPIM, but for these parameters, and measure; it runs in earlier versions too."""
    model = RPIM(case.n_classes, **{"random_state": 0, **parameters})
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model.fit(case.X, y)
    seconds = time.process_time() - start
    probabilities = model.predict_proba(case.X)[case.hidden]
    truth, labels = case.truth[case.hidden], model.labels_[case.hidden]
    confidence = probabilities[np.arange(len(labels)), np.searchsorted(model.classes_, labels)]
    right = right_rows(truth, labels)
    cell = {
        **gcd_accuracy(truth, labels, case.known).as_dict(),
        "calibration_error": float(expected_calibration_error(confidence, right)),
        "confidence": float(confidence.mean()),
        "seconds": seconds,  # of CPU time, so that a busy machine does not count
        "expected_accuracy": getattr(model, "expected_accuracy_", float("nan")),
    }
    if wrong is not None:
        from sklearn.metrics import average_precision_score, roc_auc_score

        given = y >= 0
        suspicion = -np.nan_to_num(model.label_quality_[given], nan=1.0)
        found = np.array([issue.row for issue in model.label_issues_], dtype=int)
        cell |= {
            "issues": len(found),
            "wrong_found": int(wrong[found].sum()),
            "wrong": int(wrong.sum()),
            "suggested_right": float(
                np.mean(
                    [issue.suggested == case.truth[issue.row] for issue in model.label_issues_ if wrong[issue.row]]
                    or [np.nan]
                )
            ),
        }
        if wrong.any():
            cell |= {
                "auroc": float(roc_auc_score(wrong[given], suspicion)),
                "average_precision": float(average_precision_score(wrong[given], suspicion)),
            }
    return cell


def right_rows(truth: np.ndarray, predicted: np.ndarray) -> np.ndarray:
    """Whether each row lies in the found class that is matched with its true one, as in GCD accuracy v2. (n,)"""
    true_classes, t = np.unique(truth, return_inverse=True)
    classes, p = np.unique(predicted, return_inverse=True)
    found, matched = linear_sum_assignment(contingency(t, p, len(true_classes), len(classes)).T, maximize=True)
    of_class = np.full(len(classes), -1)
    of_class[found] = matched
    return of_class[p] == t


@contextlib.contextmanager
def without(part: str) -> Iterator[None]:
    """Within it, a committee lacks one of its parts."""
    if part == "nothing":
        yield
        return
    from rpim.estimators import committee, members

    def unchanged(probabilities: Any, *_: Any) -> Any:
        return probabilities

    replaced: dict[str, Any] = {
        "hidden labels": (members, "N_FOLDS", 10**9),
        "neighbors": (committee, "propagate", unchanged),
        "balance": (committee, "balance", unchanged),
        "other representations": (members, "KINDS", {"raw": None}),
        "whitening": (members, "KINDS", {"raw": None, "centred": 0.0}),
    }
    module, name, value = replaced[part]
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


class SharedMembers(contextlib.AbstractContextManager["SharedMembers"]):
    """Within it, a member of the same plan on the same rows and labels is trained once: it would be the same again."""

    def __init__(self) -> None:
        self.saved_seconds = 0.0
        """CPU seconds that the training of the reused members took when they were trained."""

    def __enter__(self) -> SharedMembers:
        from rpim.estimators.members import Trainer

        trained: dict[Any, Any] = {}
        self._trainer, self._train = Trainer, Trainer.__call__

        def call(trainer: Trainer, plan: Any, *fitted: Any) -> Any:
            labels, folds = (hash(tuple(values.tolist())) for values in (trainer.labels, trainer.folds))
            key = plan, trainer.x.double().sum().item(), labels, folds
            if key in trained:
                self.saved_seconds += trained[key][1]
            else:
                start = time.thread_time()
                trained[key] = self._train(trainer, plan, *fitted), time.thread_time() - start
            return trained[key][0]

        Trainer.__call__ = call  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: Any) -> None:
        self._trainer.__call__ = self._train  # type: ignore[method-assign]


def cells_of(suites: list[str], sets: list[str], seeds: list[int]) -> Iterator[tuple[str, str, int, Variant]]:
    """Suite, data set, seed and what is varied, of every cell."""
    variants: dict[str, list[Variant]] = {
        "main": [{}],
        "small": [{}],
        "sizes": [{"n_classes": k, "ratio": ratio} for k in (8, 20) for ratio in (1.0, 3.0, 10.0)],
        "tails": [{"tail": tail} for tail in TAILS],
        "labels": [{"flip": "none"}, {"flip": "random"}, {"flip": "nearest"}],
        "states": [{"random_state": state} for state in range(5)],
        "members": [{"n_members": n} for n in (1, 2, 4, 8, 16, 32)],
        "axes": [
            {"without": part}
            for part in (
                "nothing",
                "hidden labels",
                "neighbors",
                "balance",
                "other representations",
                "whitening",
            )
        ]
        + [{"normalize": True}],  # without square roots
    }
    for seed in seeds:
        for data_set in sets:
            for suite in suites:
                for variant in variants[suite]:
                    yield suite, data_set, seed, variant


def run_cell(suite: str, folder: Path, data_set: str, seed: int, variant: Variant) -> dict[str, Any]:
    """One fit, measured."""
    case = load(folder, data_set + variant.get("tail", ""), seed)
    case = small_case(case, seed) if suite == "small" else case
    case = uneven_case(case, seed, **variant) if suite == "sizes" else case
    y, wrong = case.y, None
    if "flip" in variant:
        y, wrong = (
            (y, np.zeros(len(y), dtype=bool)) if variant["flip"] == "none" else flipped(case, seed, variant["flip"])
        )
    parameters = {name: variant[name] for name in ("n_members", "random_state", "normalize") if name in variant}
    with without(variant.get("without", "nothing")):
        return fit_and_measure(case, y, parameters, wrong)


def in_other_checkout(source: Path, arguments: list[str]) -> dict[str, Any]:
    """The same cell with the rpim of another checkout."""
    # Its own protocol.py goes before ours, which may ask for names that it does not have.
    here = Path(__file__).resolve()
    paths = [source.resolve(), source.resolve().parent / "benchmarks", here.parent]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    run = f"import runpy, sys; sys.argv[0] = {str(here)!r}; runpy.run_path({str(here)!r}, run_name='__main__')"
    command = [sys.executable, "-P", "-c", run, *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    cell: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return cell


def table(cells: list[dict[str, Any]], columns: list[str]) -> str:
    """A row for each version, variant and data set: means over seeds, with the standard deviation of All."""
    keys = sorted({(c["version"], json.dumps(c["variant"]), c["data_set"]) for c in cells})
    lines = ["| version | variant | data set | seeds | All/Known/Unknown | " + " | ".join(columns) + " |"]
    lines.append("|---" * (5 + len(columns)) + "|")
    for version, variant, data_set in keys:
        rows = [
            c for c in cells if (c["version"], json.dumps(c["variant"]), c["data_set"]) == (version, variant, data_set)
        ]
        shares = "/".join(f"{100 * np.mean([c[part] for c in rows]):.1f}" for part in ("all", "known", "unknown"))
        spread = f" ±{100 * np.std([c['all'] for c in rows]):.1f}"
        numbers = [f"{np.nanmean([c.get(name, np.nan) for c in rows]):.3g}" for name in columns]
        lines.append(f"| {version} | {variant} | {data_set} | {len(rows)} | {shares}{spread} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    suites = ["main", "small", "sizes", "tails", "labels", "states", "members", "axes"]
    parser.add_argument("--suite", nargs="+", default=["main"], choices=suites)
    parser.add_argument("--sets", nargs="+", choices=list(DATA_SETS), default=list(DATA_SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--before", type=Path, help="the src folder of another checkout")
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a variant as JSON: this cell alone, printed
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/committee.jsonl"))
    arguments = parser.parse_args()
    folder = arguments.data
    if arguments.one is not None:
        [suite], [data_set], [seed] = arguments.suite, arguments.sets, arguments.seeds
        print(json.dumps(run_cell(suite, folder, data_set, seed, json.loads(arguments.one))))
        return
    keeping, case = contextlib.ExitStack(), None
    for suite, data_set, seed, variant in cells_of(arguments.suite, arguments.sets, arguments.seeds):
        if (data_set, seed) != case:
            keeping.close()
            shared = keeping.enter_context(SharedMembers())
            case = data_set, seed
        for version in ("this", *(["before"] if arguments.before else [])):
            key = {"suite": suite, "data_set": data_set, "seed": seed, "variant": variant, "version": version}
            if is_done(arguments.output, key):
                continue
            if version == "this":
                shared.saved_seconds = 0.0
                cell = run_cell(suite, folder, data_set, seed, variant)
                cell["seconds"] += shared.saved_seconds
            else:
                one = ["--data", str(folder), "--suite", suite, "--sets", data_set, "--seeds", str(seed)]
                cell = in_other_checkout(arguments.before, [*one, "--one", json.dumps(variant)])
            rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in cell.items()}
            add_cell(arguments.output, {**key, **rounded})
    done = [c for c in read_cells(arguments.output) if c["seed"] in arguments.seeds and c["data_set"] in arguments.sets]
    for suite in arguments.suite:
        columns = ["calibration_error", "confidence", "seconds"]
        if suite == "labels":
            columns = ["auroc", "average_precision", "issues", "wrong_found", "wrong", "suggested_right"]
        print(f"\n{suite}\n\n{table([c for c in done if c['suite'] == suite], columns)}")


if __name__ == "__main__":
    main()
