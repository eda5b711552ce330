"""The number of classes: how far off each estimator is, what that costs in accuracy, and how long it takes.

    python benchmarks/classes.py --data FOLDER
    python benchmarks/classes.py --data FOLDER --known largest --estimators neighbors --count-only

FOLDER holds ``features/*.npz`` (see benchmarks/protocol.py). Known are a quarter, a half and three quarters of the
classes, drawn by the seed (or the largest), whatever published list a set has; half of the rows of a known class are
labelled. RPIM is fitted at the true number of classes and at each estimate, with lambda 0.1, beta 0.2 and weight decay
0.01, so that the search of these does not blur the comparison. Cells that are in the .jsonl file are not run again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from cells import add_cell, is_done, read_cells
from protocol import DATA_SETS, TAILS, Case, largest_known, load
from rpim import RPIM, InfoMaxObjective, estimate_n_classes, gcd_accuracy
from rpim.estimators.count_classes import ESTIMATORS

SHARES = (0.25, 0.5, 0.75)


def run_cell(case: Case, estimator: str, known_accuracy: dict[int, tuple[float, float]] | None) -> dict[str, Any]:
    """Estimate, and fit at the estimate; what was fitted at this number already is in ``known_accuracy``."""
    start = time.perf_counter()
    found = estimate_n_classes(case.X, case.y, method=estimator, random_state=0)
    seconds = time.perf_counter() - start
    counted = {
        "n_classes": case.n_classes,
        "estimate": found.n_classes,
        "low": found.low,
        "high": found.high,
        "seconds": round(seconds, 2),
    }
    if known_accuracy is None:
        return counted
    if found.n_classes not in known_accuracy:
        known_accuracy[found.n_classes] = fit(case, found.n_classes)
    all_, fit_seconds = known_accuracy[found.n_classes]
    true_all, _ = known_accuracy[case.n_classes]
    return {**counted, "fit_seconds": round(fit_seconds, 2), "all": all_, "all_at_the_truth": true_all}


def fit(case: Case, n_classes: int) -> tuple[float, float]:
    """All accuracy of RPIM at this number of classes, and the seconds it took."""
    model = RPIM(n_classes, objective=InfoMaxObjective(trade_off=0.1, weight_decay=0.01), random_state=0)
    start = time.perf_counter()
    model.fit(case.X, case.y)
    seconds = time.perf_counter() - start
    return gcd_accuracy(case.truth[case.hidden], model.labels_[case.hidden], case.known).all, seconds


def table(cells: list[dict[str, Any]], data_sets: list[str], shares: list[float]) -> str:
    """Mean relative error, the largest, the loss of All and the cost, as Markdown; a row for each set and share."""
    lines = [
        "| set | known | true | " + " | ".join(f"{name}: estimates | error" for name in ESTIMATORS) + " |",
        "|---|---|---|" + "---|---|" * len(ESTIMATORS),
    ]
    for data_set in data_sets:
        for share in shares:
            here = [c for c in cells if c["data_set"] == data_set and c["share"] == share]
            if not here:
                continue
            row = [data_set, f"{share:.0%}", str(here[0]["n_classes"])]
            for name in ESTIMATORS:
                own = [c for c in here if c["estimator"] == name]
                row.append(", ".join(str(c["estimate"]) for c in own) or "—")
                row.append(f"{100 * np.mean(_errors(own)):.0f} %" if own else "—")
            lines.append("| " + " | ".join(row) + " |")
    lines += [
        "",
        "| estimator | problems | mean error | largest | within 10 % | truth in the interval | loss of All, mean "
        "| largest | time, in fits |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in ESTIMATORS:
        own = [c for c in cells if c["estimator"] == name]
        if not own:
            continue
        fitted = [c for c in own if "all" in c]
        errors, loss = _errors(own), [100 * (c["all_at_the_truth"] - c["all"]) for c in fitted]
        inside = [c["low"] <= c["n_classes"] <= c["high"] for c in own]
        cost = np.median([c["seconds"] / c["fit_seconds"] for c in fitted]) if fitted else np.nan
        lines.append(
            f"| {name} | {len(own)} | {100 * np.mean(errors):.1f} % | {100 * np.max(errors):.0f} % | "
            f"{np.mean(np.array(errors) <= 0.1):.0%} | {np.mean(inside):.0%} | "
            + (f"{np.mean(loss):.1f} ±{np.std(loss):.1f} | {np.max(loss):.1f} |" if fitted else "— | — |")
            + f" {cost:.2f} |"
        )
    return "\n".join(lines)


def _errors(cells: list[dict[str, Any]]) -> list[float]:
    return [abs(c["estimate"] / c["n_classes"] - 1.0) for c in cells]


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument(
        "--sets",
        nargs="+",
        choices=[*DATA_SETS, *(n + tail for n in DATA_SETS for tail in TAILS)],
        default=list(DATA_SETS),
    )
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--known", choices=["drawn", "largest"], default="drawn")
    parser.add_argument("--count-only", action="store_true", help="no fits, and so no accuracy")
    parser.add_argument("--estimators", nargs="+", choices=ESTIMATORS, default=list(ESTIMATORS))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/classes.jsonl"))
    arguments = parser.parse_args()
    for seed in arguments.seeds:
        for data_set in arguments.sets:
            for share in arguments.shares:
                problem = {"data_set": data_set, "share": share, "seed": seed, "known": arguments.known}
                keys = {name: {**problem, "estimator": name} for name in arguments.estimators}
                missing = [name for name, key in keys.items() if not is_done(arguments.output, key)]
                if not missing:
                    continue
                case = load(arguments.data, data_set, seed, share)
                case = largest_known(case, seed) if arguments.known == "largest" else case
                accuracy = None if arguments.count_only else {case.n_classes: fit(case, case.n_classes)}
                for estimator in missing:
                    made = run_cell(case, estimator, accuracy)
                    add_cell(arguments.output, {**keys[estimator], **made})
    cells = [
        c
        for c in read_cells(arguments.output)
        if c["seed"] in arguments.seeds and c["data_set"] in arguments.sets and c["known"] == arguments.known
    ]
    print(table(cells, arguments.sets, arguments.shares))


if __name__ == "__main__":
    main()
