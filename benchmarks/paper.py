"""The tables of `rpim benchmark --paper TABLE`, from the cells in benchmarks/results instead of a run.

    python benchmarks/paper.py eta
    python benchmarks/paper.py main --preset paper --seeds 0

Prints what the command writes into OUT/results.md. It needs no features; cells that were not run are missing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cells import Cell, read_cells
from rpim.benchmark.plan import DEFAULT_SEEDS
from rpim.benchmark.studies import STUDIES, Study, studies_of
from rpim.benchmark.tables import markdown

HERE = Path(__file__).parent
FILES = ("methods.jsonl", "ablation.jsonl", "sensitivity.jsonl")


def kept_cells() -> list[Cell]:
    """The cells of the paper's tables, in the order of a plan: by seed, then by set."""
    sets = [*json.loads((HERE / "feature_sets.json").read_text())["sets"]]
    cells = [cell for name in FILES for cell in read_cells(HERE / "results" / name)]
    return sorted(cells, key=lambda cell: (cell["seed"], sets.index(cell["set"])))


def studies(table: str, preset: str = "default", seeds: Sequence[int] = ()) -> list[Study]:
    """What the command would run: on the given seeds, on those of the table, or on the usual ones."""
    found = studies_of(table, preset)
    return [replace(study, seeds=tuple(seeds) or study.seeds or DEFAULT_SEEDS) for study in found]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[*STUDIES, "all"])
    parser.add_argument("--preset", choices=["default", "paper"], default="default")
    parser.add_argument("--seeds", type=int, nargs="+", default=[])
    given = parser.parse_args()
    print(markdown(studies(given.table, given.preset, given.seeds), kept_cells()), end="")


if __name__ == "__main__":
    main()
