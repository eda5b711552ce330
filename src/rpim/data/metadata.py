"""Metadata columns: what a user knows about each row beside its label, such as a date, a source or a price.

No method uses them. A column is an array of numbers, with NaN for a missing one, or of strings, with "" for a missing
one. Strings are in an array of objects: a numpy array of strings pads each to the longest.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpim._common.errors import InputError
from rpim.data.formats.columns import is_metadata_name

_NUMBERS = (numbers.Real, decimal.Decimal)
_BOOLEANS = (bool, np.bool_)
_SCALARS = (str, datetime.date, datetime.time, *_NUMBERS, *_BOOLEANS)


def metadata_columns(given: Mapping[str, ArrayLike], n_rows: int) -> dict[str, NDArray[Any]]:
    """Check metadata columns: no name of another field, and one number or string per row.

    >>> found = metadata_columns({"price": [3, None], "seen": [datetime.date(2024, 1, 5), None]}, 2)
    >>> found["price"].tolist(), found["seen"].tolist()
    ([3.0, nan], ['2024-01-05', ''])
    """
    for name in given:
        if not isinstance(name, str) or not is_metadata_name(name):
            raise InputError(f"columns has {name!r}, which is the name of another field in files: rename it.")
    return {name: column_array(values, name, n_rows) for name, values in given.items()}


def scalar_columns(found: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Keep the columns of a table whose values are scalars, such as numbers, strings and dates."""
    return {
        name: values
        for name, values in found.items()
        if all(_is_missing(cell) or isinstance(cell, _SCALARS) for cell in values)
    }


def column_array(values: Any, name: str, n_rows: int) -> NDArray[Any]:
    """Convert one column to numbers or strings.

    Booleans, dates and times become strings, and so do mixed values.

    Raises
    ------
    InputError
        If there is not one value per row, or they are lists or the like.
    """
    is_array = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
    if isinstance(values, str) or np.ndim(values) == 0 or (is_array and values.ndim != 1):
        raise InputError(f"The column {name!r} is not a flat list: give one value per row.")
    if len(values) != n_rows:
        raise InputError(f"The column {name!r} has {len(values)} values but X has {n_rows} rows: give one per row.")
    if is_array and values.dtype.kind in "iuf":
        return np.asarray(values)
    if is_array and values.dtype.kind == "M":
        values = np.where(np.isnat(values), "", np.datetime_as_string(values))
    if is_array and values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    cells = [None if _is_missing(cell) else cell for cell in listed]
    odd = next((cell for cell in cells if cell is not None and not isinstance(cell, _SCALARS)), None)
    if odd is not None:
        raise InputError(f"The column {name!r} has values of type {type(odd).__name__}: give numbers or text.")
    if all(cell is None or (isinstance(cell, _NUMBERS) and not isinstance(cell, _BOOLEANS)) for cell in cells):
        with contextlib.suppress(OverflowError):  # a number beyond all floats is a text
            return np.asarray([np.nan if cell is None else float(cell) for cell in cells])
    kept: dict[str, str] = {}  # equal strings share one object
    texts = np.empty(n_rows, dtype=object)
    texts[:] = [kept.setdefault(text, text) for text in map(_as_string, cells)]
    return texts


def _is_missing(cell: Any) -> bool:
    """None, NaN, and the NA and NaT of pandas."""
    if isinstance(cell, numbers.Real):
        return bool(cell != cell)
    return cell is None or type(cell).__name__ in ("NAType", "NaTType")


def _as_string(cell: Any) -> str:
    if isinstance(cell, _BOOLEANS):
        return "true" if cell else "false"
    return "" if cell is None else str(cell)
