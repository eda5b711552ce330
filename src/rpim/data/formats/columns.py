"""Which column of a file is which field, and what the cells of a text file mean."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rpim._common.errors import InputError

# What a column, or an .npz key, may be called. The nameless column is the index that pandas writes first.
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


def is_free(name: str) -> bool:
    """Whether a column of this name, or an .npz key, stands for nothing that rows have anyway.

    >>> is_free("price"), is_free("Label"), is_free("view_2")
    (True, False, False)
    """
    fixed = name == "metadata_json" or VIEW.fullmatch(name) is not None
    return not fixed and not any(is_called(name, field) for field in NAMES)


def free_names(names: Sequence[str], taken: Iterable[str]) -> list[str]:
    """The names of further columns: free ones that are not taken and come once, but for the index of pandas."""
    others, times = set(taken), Counter(names)
    return [
        name
        for name in names
        if name not in others and is_free(name) and times[name] == 1 and not name.startswith("__index_level_")
    ]


def find_column(path: Path, names: Sequence[str], field: str, wanted: str | None = None) -> str | None:
    """The column of a field, by its usual names or the one that is wanted."""
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
    """Field -> column, for the fields with one value per row that are there; by the usual names or those wanted."""
    found = {field: find_column(path, names, field, wanted.get(field)) for field in PER_ROW}
    return {field: name for field, name in found.items() if name is not None}


def labels_from_text(cells: list[str]) -> list[Any]:
    """Numbers if every cell is one or empty, otherwise text; -1 is unlabelled in both."""
    numbers = [cell for cell in cells if cell not in _NO_NUMBER]
    if are_whole(numbers):
        return [None if cell in _NO_NUMBER else int(cell) for cell in cells]
    if all(_WHOLE.fullmatch(cell) or DECIMAL.fullmatch(cell) for cell in numbers):
        return [None if cell in _NO_NUMBER else float(cell) for cell in cells]
    return ["" if cell == "-1" else cell for cell in cells]


def are_whole(cells: Iterable[str]) -> bool:
    """Whether every cell is a whole number, written as Python would write it."""
    return all(_WHOLE.fullmatch(cell) for cell in cells)


def column_from_text(cells: list[str]) -> list[Any]:
    """Numbers if every cell is one or empty, otherwise text.

    >>> column_from_text(["3", "", "2.5"]), column_from_text(["0041", "12"])
    ([3.0, None, 2.5], ['0041', '12'])
    """
    if all(cell in _NO_NUMBER or _WHOLE.fullmatch(cell) or DECIMAL.fullmatch(cell) for cell in cells):
        return [None if cell in _NO_NUMBER else float(cell) for cell in cells]
    return cells


def ids_from_text(cells: list[str]) -> list[Any]:
    """Numbers if every cell is a whole one, otherwise text."""
    return [int(cell) for cell in cells] if are_whole(cells) else cells
