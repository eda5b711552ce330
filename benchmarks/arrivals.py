"""Classes that come later: extending a model with three arrivals, against refitting and against predicting alone.

    python benchmarks/arrivals.py --data FOLDER

FOLDER holds ``features/*.npz`` (see benchmarks/protocol.py); src/rpim/benchmark/arrivals.py says how the rows are
divided. RPIM has lambda 0.1, beta 0.2 and weight decay 0.01. The first fit is told its number of classes; afterwards
nobody is told anything. Cells that are in the .jsonl file are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from protocol import DATA_SETS
from rpim import RPIM, FeatureSet
from rpim.benchmark.arrivals import GROUPS, N_ARRIVALS, WAYS, draw, run
from rpim.benchmark.protocol import divide


def table(cells: list[dict[str, Any]], data_sets: list[str]) -> str:
    """All and by group, mean over seeds, a row for each set, arrival and way."""
    lines = [
        "| set | arrival | way | all | " + " | ".join(GROUPS) + " | classes found / true | seconds |",
        "|---|---|---|---|" + "---|" * len(GROUPS) + "---|---|",
    ]
    for data_set in [*data_sets, "average"]:
        for arrival in range(1, N_ARRIVALS + 1):
            for way in WAYS:
                own = [
                    c for c in cells
                    if data_set in (c["data_set"], "average") and (c["arrival"], c["way"]) == (arrival, way)
                ]  # fmt: skip
                if not own:
                    continue
                shares = []
                for part in ("all", *GROUPS):
                    values = [100 * c[part] for c in own if c[part] is not None]
                    shares.append(f"{np.mean(values):.1f} ±{np.std(values):.1f}")
                counts = "—" if data_set == "average" else "/".join(
                    f"{np.mean([c[name] for c in own]):.0f}" for name in ("classes_found", "classes")
                )
                seconds = f"{np.mean([c['seconds'] for c in own]):.1f}"
                lines.append(f"| {data_set} | {arrival} | {way} | " + " | ".join([*shares, counts, seconds]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=DATA_SETS, default=list(DATA_SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/arrivals.jsonl"))
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    for seed in arguments.seeds:
        for data_set in arguments.sets:
            parts = divide(FeatureSet.read(arguments.data / "features" / f"{DATA_SETS[data_set]}.npz"))
            stages = draw(parts.truth, seed)
            for way in arguments.ways:
                key = {"data_set": data_set, "seed": seed, "way": way}
                if any(key.items() <= cell.items() for cell in _read(arguments.output)):
                    continue
                n_classes = int((stages.of_class == 0).sum())
                model = RPIM(n_classes, trade_off=0.1, beta=0.2, weight_decay=0.01, random_state=0, calibrate=False)
                cells = [{**key, **cell} for cell in run(model, parts.train.rows(), parts.truth, stages, way)]
                with arguments.output.open("a") as file:
                    file.writelines(json.dumps(cell) + "\n" for cell in cells)
                    file.flush()
                    os.fsync(file.fileno())
                print(*cells, sep="\n", flush=True)
    cells = [c for c in _read(arguments.output) if c["seed"] in arguments.seeds and c["data_set"] in arguments.sets]
    print(table(cells, arguments.sets))


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    main()
