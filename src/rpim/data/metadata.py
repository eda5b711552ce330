"""Further columns: what a user knows of each row beside its label, such as a date, a source or a price.

No method looks at them. A column is an array of numbers, with NaN where one is missing, or of texts, with "" there: an
array of objects, since in numpy's own arrays of text every value takes the room of the longest.
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
from rpim.data.formats.columns import is_free

_NUMBERS = (numbers.Real, decimal.Decimal)
_TRUTH = (bool, np.bool_)
_SCALARS = (str, datetime.date, datetime.time, *_NUMBERS, *_TRUTH)


def further_columns(given: Mapping[str, ArrayLike], n_rows: int) -> dict[str, NDArray[Any]]:
    """The columns, checked: names that stand for nothing else, and one number or text per row.

    >>> found = further_columns({"price": [3, None], "seen": [datetime.date(2024, 1, 5), None]}, 2)
    >>> found["price"].tolist(), found["seen"].tolist()
    ([3.0, nan], ['2024-01-05', ''])
    """
    for name in given:
        if not isinstance(name, str) or not is_free(name):
            raise InputError(f"columns has {name!r}, which stands for something else in files: call it otherwise.")
    return {name: column_array(values, name, n_rows) for name, values in given.items()}


def plain_columns(found: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Of the columns of a table those whose values are numbers, text and the like, and not lists or records."""
    return {
        name: values
        for name, values in found.items()
        if all(_is_missing(cell) or isinstance(cell, _SCALARS) for cell in values)
    }


def column_array(values: Any, name: str, n_rows: int) -> NDArray[Any]:
    """The values of one column as numbers or text.

    Truth values and times become text, and so does a mixture.

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
    if all(cell is None or (isinstance(cell, _NUMBERS) and not isinstance(cell, _TRUTH)) for cell in cells):
        with contextlib.suppress(OverflowError):  # a number beyond all floats is a text
            return np.asarray([np.nan if cell is None else float(cell) for cell in cells])
    kept: dict[str, str] = {}  # a value that comes a thousand times is held once
    texts = np.empty(n_rows, dtype=object)
    texts[:] = [kept.setdefault(text, text) for text in map(_written, cells)]
    return texts


def _is_missing(cell: Any) -> bool:
    """None, NaN, and the NA and NaT of pandas."""
    if isinstance(cell, numbers.Real):
        return bool(cell != cell)
    return cell is None or type(cell).__name__ in ("NAType", "NaTType")


def _written(cell: Any) -> str:
    if isinstance(cell, _TRUTH):
        return "true" if cell else "false"
    return "" if cell is None else str(cell)
