"""What extend says of its own result: the interval of the number of classes, and the warning of two classes in one.

    python benchmarks/extend.py --data FOLDER

FOLDER holds ``features/*.npz`` (see benchmarks/protocol.py). The rows come in the batches of `rpim.benchmark.batches`;
the first model is a single fit that is given its number of classes. Every cell (data set, seed) is appended to a .jsonl
file as soon as it is done, and cells that are there are not run again.
"""

from __future__ import annotations

import argparse
import re
import warnings
from pathlib import Path

import numpy as np

from cells import Cell, add_cell, is_done, read_cells
from protocol import DATA_SETS
from rpim import RPIM, FeatureSet, InfoMaxObjective
from rpim.benchmark.batches import N_BATCHES, BatchesDraw
from rpim.benchmark.protocol import split_features

TWO, ONE = "two", "one"


def composition(truth: np.ndarray) -> str:
    """Whether the rows of a found class are of two true classes (a quarter or more are of the second), or of one."""
    counts = np.sort(np.bincount(truth, minlength=2))[::-1] / len(truth)
    return TWO if counts[1] >= 0.25 and counts[1] * len(truth) >= 5 else ONE if counts[0] >= 0.75 else "several"


def cell(folder: Path, data_set: str, seed: int) -> Cell:
    """Extend by each batch in turn; what was said, and what is true."""
    parts = split_features(FeatureSet.read(folder / "features" / f"{DATA_SETS[data_set]}.npz"))
    case = BatchesDraw("extend").case(parts, seed)
    objective = InfoMaxObjective(trade_off=0.1, beta=0.2, weight_decay=0.01)
    model = RPIM(case.n_classes, objective=objective, n_members=1, random_state=seed)
    X, of_row = case.features.rows(normalize=model.normalize), case.stages.of_row
    model.fit(X[of_row == 0], case.y[of_row == 0])
    batches = []
    for batch in range(1, N_BATCHES + 1):
        before, rows = len(model.classes_), of_row == batch
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.extend(X[rows])
        said = {int(name) for one in caught for name in re.findall(r"class (\d+) may be two", str(one.message))}
        added = [c for c in model.classes_[before:].tolist() if (model.labels_ == c).any()]
        kinds = {c: composition(case.truth[rows][model.labels_ == c]) for c in added}
        batches.append(
            {
                "n_classes": len(model.classes_),
                "low": getattr(model, "n_classes_low_", len(model.classes_)),
                "high": getattr(model, "n_classes_high_", len(model.classes_)),
                "true": int((case.stages.of_class <= batch).sum()),
                **{k: sum(kind == k for kind in kinds.values()) for k in (TWO, ONE)},
                **{f"{k}_warned": sum(c in said and kind == k for c, kind in kinds.items()) for k in (TWO, ONE)},
            }
        )
    return {"data_set": data_set, "seed": seed, "batches": batches}


def table(cells: list[Cell]) -> str:
    """One row per data set, in Markdown."""
    lines = [
        "| set | true number inside the interval | mean width | two classes in one: warned | one class: warned |",
        "|---|---|---|---|---|",
    ]
    for name in [*DATA_SETS, "all"]:
        found = [batch for one in cells if name in (one["data_set"], "all") for batch in one["batches"]]
        inside = sum(batch["low"] <= batch["true"] <= batch["high"] for batch in found)
        width = np.mean([(batch["high"] - batch["low"]) / batch["true"] for batch in found])
        n = {key: sum(batch[key] for batch in found) for key in (TWO, ONE, f"{TWO}_warned", f"{ONE}_warned")}
        warned = " | ".join(f"{n[f'{kind}_warned']} of {n[kind]}" for kind in (TWO, ONE))
        lines.append(f"| {name} | {inside} of {len(found)} | {width:.0%} | {warned} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "extend.jsonl")
    options = parser.parse_args()
    for seed in options.seeds:
        for name in DATA_SETS:
            if not is_done(options.output, {"data_set": name, "seed": seed}):
                add_cell(options.output, cell(options.data, name, seed))
    print(table([one for one in read_cells(options.output) if one["seed"] in options.seeds]))


if __name__ == "__main__":
    main()
