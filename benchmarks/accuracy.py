"""All / Known / Unknown of settings of PIM and RPIM on real embeddings, over seeds.

    python benchmarks/accuracy.py --data FOLDER --suite main
    python benchmarks/accuracy.py --data FOLDER --suite ablation --sets banking77 cub200

FOLDER holds ``features/*.npz`` and ``splits/class_splits.json`` (see benchmarks/protocol.py). Every cell (suite,
setting, data set, seed) is appended to a .jsonl file as soon as it is done, and cells that are there are not run again.
The truth of unlabelled rows is used for one thing: the accuracy that is written down at the end.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cells import add_cell, is_done, read_cells
from protocol import DATA_SETS, TAILS, load
from rpim import PIM, RPIM, InfoMaxObjective, gcd_accuracy
from rpim.estimators.base import DiscoveryEstimator

# The paper's search and start, made affordable on two cores: 200 steps at five times the learning rate instead of 1000
# (the suite "schedule" shows what that changes), 256 principal components, 20 restarts of k-means.
PAPER = {"search": "paper", "n_members": 1, "learning_rate": 5e-3, "max_iter": 200, "n_init": 20}
FIXED = {"trade_off": 0.1, "weight_decay": 0.01}


def single(n_classes: int, **objective: Any) -> RPIM:
    """A single fit of RPIM with these parameters of the objective."""
    return RPIM(n_classes, objective=InfoMaxObjective(**{**FIXED, **objective}), n_members=1, random_state=0)


CHOSEN = ("trade_off", "beta", "weight_decay", "class_sizes", "n_members")
"""What the fit has found, kept beside the accuracy."""

Make = Callable[[int], DiscoveryEstimator]


def suites() -> dict[str, dict[str, Make]]:
    """The settings of each table; a setting makes an estimator for a number of classes."""
    ablation: dict[str, Make] = {}
    for h in ("none", "semantic-bias"):
        for r in (False, True):
            for s in (False, True):
                name = " + ".join(["L_pim"] + ["h"] * (h != "none") + ["L_R"] * r + ["L_S"] * s)
                parts = {"h": h, "pseudo_labels": r, "mixed_labels": s}
                ablation[name] = lambda k, p=parts: single(k, **p)
    readings: dict[str, Make] = {"default": single}
    changes = {
        "supervision": ["added"],
        "beta": [0.05, 0.4],
        "sinkhorn_epsilon": [0.25, 0.5],
        "sinkhorn_iterations": [1, 10],
    }
    for parameter, values in changes.items():
        for value in values:
            readings[f"{parameter}={value}"] = lambda k, c={parameter: value}: single(k, **c)
    return {
        "main": {
            "PIM (paper's search)": lambda k: PIM(
                k, **PAPER, objective=InfoMaxObjective(weight_decay=0.01), random_state=0
            ),
            "PIM (default)": lambda k: PIM(k, random_state=0),
            "RPIM (default)": lambda k: RPIM(k, random_state=0),
            "RPIM (a single fit)": single,
        },
        "equal-lambda": {
            "PIM": lambda k: PIM(k, **PAPER, objective=InfoMaxObjective(**FIXED), random_state=0),
            "RPIM (paper)": lambda k: RPIM(k, **PAPER, objective=InfoMaxObjective(**FIXED, beta=0.05), random_state=0),
        },
        "schedule": {
            "PIM (paper's search, 1000 steps at 1e-3)": lambda k: PIM(
                k, preset="paper", objective=InfoMaxObjective(weight_decay=0.01), random_state=0
            ),
        },
        "ablation": ablation,
        "readings": readings,
    }


def run_cell(make: Make, folder: Path, data_set: str, seed: int) -> dict[str, object]:
    """Fit once and measure."""
    case = load(folder, data_set, seed)
    model = make(case.n_classes)
    start = time.perf_counter()
    model.fit(case.X, case.y)
    seconds = time.perf_counter() - start
    accuracy = gcd_accuracy(case.truth[case.hidden], model.labels_[case.hidden], case.known)
    chosen = {name: getattr(model, f"{name}_") for name in CHOSEN}
    return {**accuracy.as_dict(), "seconds": round(seconds, 1), **chosen}


def table(cells: list[dict[str, object]], settings: list[str], data_sets: list[str]) -> str:
    """Mean and spread (standard deviation over seeds) as Markdown, with the average over data sets."""

    def values(setting: str, data_set: str, part: str) -> list[float]:
        return [100 * float(str(c[part])) for c in cells if c["setting"] == setting and c["data_set"] == data_set]

    lines = ["| setting | " + " | ".join(data_sets) + " | average |", "|---|" + "---|" * (len(data_sets) + 1)]
    for setting in settings:
        row, means = [], []
        for data_set in data_sets:
            shares = [values(setting, data_set, part) for part in ("all", "known", "unknown")]
            if not shares[0]:
                row.append("—")
                continue
            means.append([np.mean(v) for v in shares])
            spread = f" ±{np.std(shares[0]):.1f}/{np.std(shares[2]):.1f}"
            row.append("/".join(f"{np.mean(v):.1f}" for v in shares) + spread)
        average = "/".join(f"{m:.1f}" for m in np.mean(means, axis=0)) if len(means) == len(data_sets) else "—"
        lines.append(f"| {setting} | " + " | ".join(row) + f" | {average} |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    everything = suites()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--suite", choices=everything, default="main")
    parser.add_argument("--settings", nargs="+", help="only these settings of the suite")
    parser.add_argument(
        "--sets",
        nargs="+",
        choices=[*DATA_SETS, *(n + tail for n in DATA_SETS for tail in TAILS)],
        default=list(DATA_SETS),
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/accuracy.jsonl"))
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    settings = arguments.settings or list(everything[arguments.suite])
    for seed in arguments.seeds:
        for data_set in arguments.sets:
            for setting in settings:
                key = {"suite": arguments.suite, "setting": setting, "data_set": data_set, "seed": seed}
                if not is_done(arguments.output, key):
                    made = run_cell(everything[arguments.suite][setting], arguments.data, data_set, seed)
                    add_cell(arguments.output, {**key, **made})
    cells = [c for c in read_cells(arguments.output) if c["suite"] == arguments.suite and c["seed"] in arguments.seeds]
    print(table(cells, settings, arguments.sets))


if __name__ == "__main__":
    main()
