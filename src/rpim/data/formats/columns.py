"""Column names of files, and the types of cells that are text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rpim._common.errors import InputError

# Names of a column, or an .npz key. The column without a name is the index that pandas writes first.
NAMES = {
    "X": ("features", "x", "embeddings", "feats"),
    "labels": ("labels", "label", "y"),
    "truth": ("truth", "targets"),
    "ids": ("ids", "id", ""),
    "texts": ("texts", "text"),
    "paths": ("paths", "path"),
    "split": ("splits", "split"),
}
PER_ROW = ("labels", "truth", "ids", "texts", "paths", "split")

VIEW = re.compile(r"view_(\d+)")
DECIMAL = re.compile(r"-?(0|[1-9]\d{0,17})\.\d+")
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")  # not 007, which a number would turn into 7
_NO_NUMBER = ("", "nan", "NaN")


def is_called(name: str, field: str) -> bool:
    """Whether a column of this name holds the field.

    >>> is_called("Targets", "truth"), is_called("f0", "truth")
    (True, False)
    """
    return name.strip().lower() in NAMES[field]


def is_metadata_name(name: str) -> bool:
    """Whether a column, or .npz key, of this name is metadata: not the name of a field.

    >>> is_metadata_name("price"), is_metadata_name("Label"), is_metadata_name("view_2")
    (True, False, False)
    """
    fixed = name == "metadata_json" or VIEW.fullmatch(name) is not None
    return not fixed and not any(is_called(name, field) for field in NAMES)


def metadata_names(names: Sequence[str], taken: Iterable[str]) -> list[str]:
    """The names of metadata columns: unique, not taken, and not the index of pandas."""
    others, times = set(taken), Counter(names)
    return [
        name
        for name in names
        if name not in others and is_metadata_name(name) and times[name] == 1 and not name.startswith("__index_level_")
    ]


def find_column(path: Path, names: Sequence[str], field: str, wanted: str | None = None) -> str | None:
    """Find the column of a field: the wanted one, or one with a usual name."""
    if wanted is not None:
        if wanted not in names:
            raise InputError(f"{path} has no column {wanted!r}: it has {', '.join(map(repr, names))}.")
        return wanted
    found = [name for name in names if is_called(name, field)]
    if len(found) > 1:
        option = {"labels": "label_column", "X": "feature_column", "split": "split_column"}.get(field)
        other = f" or choose with {option}" if option else ""
        raise InputError(f"{path} has several columns for {field} ({', '.join(found)}): keep one{other}.")
    return found[0] if found else None


def find_per_row(path: Path, names: Sequence[str], wanted: Mapping[str, str | None]) -> dict[str, str]:
    """Map the fields that a file has to their columns: the wanted ones, or those with a usual name."""
    found = {field: find_column(path, names, field, wanted.get(field)) for field in PER_ROW}
    return {field: name for field, name in found.items() if name is not None}


def labels_from_text(cells: list[str]) -> list[Any]:
    """Convert labels to numbers if every cell is one or empty, else leave them as text; -1 is unlabelled in both."""
    numbers = [cell for cell in cells if cell not in _NO_NUMBER]
    if are_whole(numbers):
        return [None if cell in _NO_NUMBER else int(cell) for cell in cells]
    if all(_WHOLE.fullmatch(cell) or DECIMAL.fullmatch(cell) for cell in numbers):
        return [None if cell in _NO_NUMBER else float(cell) for cell in cells]
    return ["" if cell == "-1" else cell for cell in cells]


def are_whole(cells: Iterable[str]) -> bool:
    """Whether every cell is an integer as Python writes it."""
    return all(_WHOLE.fullmatch(cell) for cell in cells)


def column_from_text(cells: list[str]) -> list[Any]:
    """Convert a metadata column to numbers if every cell is one or empty, else leave it as text.

    >>> column_from_text(["3", "", "2.5"]), column_from_text(["0041", "12"])
    ([3.0, None, 2.5], ['0041', '12'])
    """
    if all(cell in _NO_NUMBER or _WHOLE.fullmatch(cell) or DECIMAL.fullmatch(cell) for cell in cells):
        return [None if cell in _NO_NUMBER else float(cell) for cell in cells]
    return cells


def ids_from_text(cells: list[str]) -> list[Any]:
    """Convert ids to integers if all of them are, else leave them as text."""
    return [int(cell) for cell in cells] if are_whole(cells) else cells
