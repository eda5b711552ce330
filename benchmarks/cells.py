"""The cells of a benchmark in a .jsonl file: on the disk as soon as they are done, so that a run can go on."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

Cell = dict[str, Any]


def read_cells(path: Path) -> list[Cell]:
    """The cells that are done."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def is_done(path: Path, key: Cell) -> bool:
    """Whether there is a cell that says all of this."""
    return any(key.items() <= cell.items() for cell in read_cells(path))


def add_cell(path: Path, cell: Cell) -> None:
    """Write the cell down, and print it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(json.dumps(cell) + "\n")
        file.flush()
        os.fsync(file.fileno())
    print(cell, flush=True)
