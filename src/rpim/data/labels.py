"""Labels in the user's own type: unlabelled rows, codes, new names; and checks of features, ids and texts.

Features may be several embeddings of the same rows, of several encoders: they are one matrix with known columns. Only
what normalizes, projects or splits it asks for its `widths`, the number of columns of each embedding.
"""

from __future__ import annotations

import itertools
import math
import numbers
import os
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpim._common.errors import InputError, first_line, some_rows
from rpim._common.hardware import row_blocks

UNLABELLED = -1
_UNLABELLED_TEXTS = ("", str(UNLABELLED))
_MAX_LABEL = {"f": 2**52, "i": 2**62, "u": 2**62}
"""The largest labels that leave numbers for new classes, by the kind of their type."""
EMBEDDINGS = "embeddings"
"""Where the metadata of features lists their embeddings, if there are several."""

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.floating[Any]]


def _is_missing(value: Any) -> bool:
    """None, NaN, pandas' NA, the empty string or -1, as a number or as text."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, str):
        return value in _UNLABELLED_TEXTS
    if isinstance(value, numbers.Real):
        return bool(value == UNLABELLED or value != value)
    return False


def unlabelled_rows(y: ArrayLike) -> BoolArray:
    """True where a row has no label: None, NaN, the empty string or -1, as a number or as text.

    >>> unlabelled_rows(["cat", "", None, "dog", "-1"]).tolist()
    [False, True, True, False, True]
    >>> unlabelled_rows([3, -1, 0]).tolist()
    [False, True, False]
    """
    values = np.asarray(y)
    if values.dtype.kind in "iu":
        return np.asarray(values == UNLABELLED)
    if values.dtype.kind == "f":
        return np.asarray((values == UNLABELLED) | np.isnan(values))
    if values.dtype.kind == "U":
        # numpy has turned the None in a list such as ["cat", None] into text: use the original values.
        if isinstance(y, np.ndarray):
            return np.isin(values, _UNLABELLED_TEXTS)
        values = np.asarray(y, dtype=object)
    return np.fromiter((_is_missing(v) for v in values.ravel()), dtype=bool, count=values.size)


def encode_labels(y: ArrayLike) -> tuple[IntArray, NDArray[Any]]:
    """Split labels into codes (-1 where there is none) and the sorted known classes.

    >>> codes, known = encode_labels(["dog", "", "cat", "dog"])
    >>> codes.tolist(), known.tolist()
    ([1, -1, 0, 1], ['cat', 'dog'])
    """
    if not isinstance(y, np.ndarray) and np.asarray(y).dtype.kind == "U":
        y = np.asarray(y, dtype=object)
    values = np.asarray(y)
    if values.ndim != 1 or values.dtype.kind in "mMcV":
        raise InputError(
            f"The labels have shape {values.shape} and type {values.dtype}; give a list of one number or text a row."
        )
    missing = unlabelled_rows(values)
    present = values[~missing]
    if present.dtype.kind == "O":
        kinds = {next((k for k in (str, numbers.Real) if isinstance(v, k)), type(v)) for v in present}
        if len(kinds) > 1:
            raise InputError(
                "The labels mix text and numbers; give every labelled row a label of one type "
                "(unlabelled rows may be -1, None, NaN or an empty string)."
            )
        if present.size:
            present = np.asarray(present.tolist())
    has_numbers = present.dtype.kind in "iufO" and present.size > 0
    largest = max(np.array([present.min(), present.max()]).tolist(), key=abs) if has_numbers else 0
    if abs(largest) > _MAX_LABEL.get(present.dtype.kind, 0):
        raise InputError(
            f"The labels go up to {largest}, so that new classes would have no numbers: give smaller ones, or text."
        )
    codes = np.full(len(values), UNLABELLED, dtype=np.int64)
    known, inverse = np.unique(present, return_inverse=True)
    codes[~missing] = inverse
    return codes, known


def name_new_classes(known: NDArray[Any], n_new: int, after: int = 0) -> NDArray[Any]:
    """Append names for the new classes to the known classes, in their type; text is numbered from ``after + 1``.

    >>> name_new_classes(np.array(["cat", "new-1"]), 2).tolist()
    ['cat', 'new-1', 'new-2', 'new-3']
    >>> name_new_classes(np.array(["cat", "elk, which was new-1"]), 1, after=1).tolist()
    ['cat', 'elk, which was new-1', 'new-2']
    >>> name_new_classes(np.array([0, 4]), 2).tolist()
    [0, 4, 5, 6]
    >>> name_new_classes(np.array([], dtype=str), 2).tolist()
    ['group-1', 'group-2']
    """
    if n_new == 0:
        return known
    if known.dtype.kind in "iuf":
        first = max(int(np.floor(known.max())) + 1, 0) if len(known) else 0
        fits = known.dtype.kind == "f" or first + n_new - 1 <= np.iinfo(known.dtype).max
        return np.concatenate([known, np.arange(first, first + n_new, dtype=known.dtype if fits else np.int64)])
    used, prefix = {str(name) for name in known}, "new" if len(known) else "group"
    free = (f"{prefix}-{number}" for number in itertools.count(after + 1) if f"{prefix}-{number}" not in used)
    return np.concatenate([known, np.asarray(list(itertools.islice(free, n_new)))])


def name_rows(codes: IntArray, classes: NDArray[Any]) -> NDArray[Any]:
    """Map codes to classes; the code -1 becomes "", NaN or -1, in the type of the classes.

    >>> name_rows(np.array([1, -1]), np.array(["cat", "dog"])).tolist()
    ['dog', '']
    >>> name_rows(np.array([1, -1]), np.array([3, 4])).tolist()
    [4, -1]
    """
    named: NDArray[Any] = classes[codes]
    without = codes < 0
    if not without.any():
        return named
    if named.dtype.kind in "bu":  # which cannot hold -1
        named = named.astype(np.int64)
    named[without] = {"U": "", "f": np.nan}.get(named.dtype.kind, UNLABELLED)
    return named


def feature_matrix(values: ArrayLike, name: str, first_row: int = 0) -> FloatArray:
    """Check that `values` are a finite (N, D) float array; errors count rows from `first_row`."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name} is a masked array: fill or remove the masked rows.")
    try:
        # asarray would drop the type memmap.
        array: NDArray[Any] = values if isinstance(values, np.memmap) else np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"{name} cannot be made an array ({first_line(error)}): give N x D floats.") from error
    kind = array.dtype.kind
    if kind == "O":
        raise InputError(f"{name} is an object array, of unequal rows or of things not numbers: give N x D floats.")
    if kind not in "fiu":
        what = {"b": "True/False values", "c": "complex numbers"}.get(kind, f"{array.dtype} values, not numbers")
        raise InputError(f"{name} holds {what}: give features of float16, float32 or float64.")
    if array.ndim != 2:
        raise InputError(f"{name} has shape {array.shape}, not two dimensions: give rows of features.")
    if 0 in array.shape:
        lacking = "rows" if len(array) == 0 else "columns"
        raise InputError(f"{name} has shape {array.shape}, so it has no {lacking}: give at least one.")
    if kind in "iu":
        array = array.astype(np.float32)
    elif array.dtype.itemsize not in (2, 4, 8):
        array = array.astype(np.float64)
    bad: list[int] = []
    for block in row_blocks(*array.shape):
        finite = np.isfinite(array[block]).all(axis=1)
        bad.extend((np.flatnonzero(~finite) + block.start + first_row).tolist())
    if bad:
        raise InputError(f"{name} has NaN, missing or infinite values in {some_rows(bad)}: remove or embed again.")
    return array


def unit_rows(
    rows: NDArray[Any], dtype: type[np.float32] | type[np.float64] = np.float32, widths: Sequence[int] = ()
) -> FloatArray:
    """The rows scaled to length 1, in this precision; a row of zeros stays zero. (N, D)

    Of several embeddings side by side, with as many columns as `widths` says, each gets the same length. Where a row
    or its squares leave the range of the precision, it is divided by its largest value first, as it was given and in
    double precision.

    >>> unit_rows(np.array([[3e-30, 4e-30], [3e300, 4e300], [0, 0]])).round(6).tolist()
    [[0.6..., 0.8...], [0.6..., 0.8...], [0.0, 0.0]]
    >>> (unit_rows(np.array([[0, -4, 100]]), widths=(2, 1)) ** 2).round(3).tolist()
    [[0.0, 0.5, 0.5]]
    """
    if len(widths) > 1:
        parts = [unit_rows(rows[:, columns], dtype) for columns in column_slices(widths)]
        together: FloatArray = np.concatenate(parts, axis=1)
        together /= math.sqrt(len(widths))
        return together
    limits = np.finfo(dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        values: FloatArray = rows.astype(dtype)
        lengths = np.linalg.norm(values, axis=1)  # (N,)
        is_odd = ~((lengths > np.sqrt(limits.tiny / limits.eps)) & (lengths < np.inf))
    if is_odd.any():
        odd = rows[is_odd].astype(np.float64)
        largest = np.abs(odd).max(axis=1, initial=0.0, keepdims=True)
        odd /= np.where(largest > 0, largest, 1.0)
        values[is_odd], lengths[is_odd] = odd, np.maximum(np.linalg.norm(odd, axis=1), 1.0)
    values /= lengths[:, None]
    return values


def label_array(values: ArrayLike, name: str, n_rows: int) -> NDArray[Any]:
    """Convert `values` to n_rows strings or numbers, with "", -1 or NaN for missing ones."""
    array = _one_per_row(values, name, n_rows)
    if array.dtype.kind == "O":
        return _typed(array, unlabelled_rows(array), name)
    if array.dtype.kind not in "biufU":
        raise InputError(f"{name} holds values of type {array.dtype}: give text or numbers.")
    return np.where(unlabelled_rows(array), "", array) if array.dtype.kind == "U" else array


def id_array(values: ArrayLike | None, n_rows: int, first_row: int = 0) -> NDArray[Any]:
    """Convert `values` to n_rows unique strings or integers; the row numbers if there are none."""
    if values is None:
        return np.arange(first_row, first_row + n_rows, dtype=np.int64)
    array = _one_per_row(values, "ids", n_rows)
    if array.dtype.kind == "O":
        array = _typed(array, np.zeros(n_rows, dtype=bool), "ids")
    if array.dtype.kind not in "iuU":
        raise InputError(f"ids are of type {array.dtype}: give text or whole numbers, with none missing.")
    ordered = np.sort(array)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if repeated.size:
        raise InputError(f"ids has {repeated[0].item()!r} more than once: give each row an id of its own.")
    return array


def text_list(values: Iterable[Any], name: str, n_rows: int, first_row: int = 0) -> list[str]:
    """Convert `values` to a list of n_rows strings; an array would pad each to the longest."""
    if isinstance(values, str):
        raise InputError(f"{name} is one text, {values[:40]!r}: give a list of {n_rows} texts.")
    given = ("" if value is None else value for value in values)
    strings = [os.fspath(value) if isinstance(value, os.PathLike) else value for value in given]
    if len(strings) != n_rows:
        raise InputError(f"{name} has {len(strings)} values but X has {n_rows} rows: give one per row.")
    for row, value in enumerate(strings, start=first_row):
        if not isinstance(value, str):
            raise InputError(f"{name} has {value!r} in row {row}, which is not text.")
    return [str(value) for value in strings]


def _one_per_row(values: Any, name: str, n_rows: int) -> NDArray[Any]:
    """Convert `values` to a flat array of n_rows; None stays None in a list of strings."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "T" or (array.dtype.kind == "U" and not isinstance(values, np.ndarray)):
            array = np.asarray(values, dtype=object)
    except ValueError as error:
        raise InputError(f"{name} is not a flat list of {n_rows} values, one per row of X.") from error
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}: give a flat list of {n_rows} values, one per row of X.")
    if len(array) != n_rows:
        raise InputError(f"{name} has {len(array)} values but X has {n_rows} rows: give one per row.")
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name} has bytes that are not UTF-8 ({error.reason}): give text.") from error
    return array


def _typed(array: NDArray[Any], missing: BoolArray, name: str) -> NDArray[Any]:
    """Convert an object array to strings, ints or floats, with "", -1 or NaN for missing ones."""
    present = array[~missing].tolist()
    if all(isinstance(value, str) for value in (present or array.tolist())):
        return np.asarray(["" if gone else value for value, gone in zip(array, missing, strict=True)], dtype=str)
    try:
        if all(isinstance(value, numbers.Integral | np.bool_) for value in present):
            out = np.full(len(array), UNLABELLED, dtype=np.int64)
            out[~missing] = np.asarray(present, dtype=np.int64)
            return out
    except OverflowError as error:
        raise InputError(f"{name} has a number beyond 64 bits: give it as text.") from error
    if all(isinstance(value, numbers.Real) for value in present):
        return np.asarray([np.nan if gone else float(v) for v, gone in zip(array, missing, strict=True)])
    kinds = ", ".join(sorted({type(value).__name__ for value in present}))
    raise InputError(f"{name} mixes or holds values of type {kinds}: give only text or only numbers.")


def column_slices(widths: Sequence[int]) -> tuple[slice, ...]:
    """The columns of each embedding; all columns without `widths`.

    >>> column_slices([2, 3]), column_slices([])
    ((slice(0, 2, None), slice(2, 5, None)), (slice(None, None, None),))
    """
    ends = list(itertools.accumulate(widths))
    return tuple(map(slice, [0, *ends[:-1]], ends)) or (slice(None),)


def are_several(X: Any) -> TypeGuard[Sequence[Any]]:
    """Whether X is a list of matrices, one per embedding, and not of rows; `side_by_side` refuses an empty one."""
    return isinstance(X, list | tuple) and all(len(getattr(part, "shape", ())) == 2 for part in X)


def side_by_side(parts: Sequence[Any], name: str = "X") -> tuple[NDArray[Any], tuple[int, ...]]:
    """Embeddings as one matrix, and the number of columns of each.

    >>> matrix, widths = side_by_side([np.zeros((2, 3)), np.ones((2, 1))])
    >>> matrix.shape, widths
    ((2, 4), (3, 1))
    """
    if not parts:
        raise InputError(f"{name} is an empty list: give a matrix of rows, or one per embedding.")
    # Rows on disk have a path; reading them here would defeat their purpose.
    odd = next((part for part in parts if not hasattr(part, "__array__") or hasattr(part, "path")), None)
    if odd is not None:
        raise InputError(
            f"{name} has an embedding of type {type(odd).__name__}, but several have to be arrays in memory: give "
            "arrays, or one matrix with all columns and widths."
        )
    arrays = [np.asarray(part) for part in parts]
    if len({len(array) for array in arrays}) > 1:
        sizes = ", ".join(f"{len(array):,}" for array in arrays)
        raise InputError(f"{name} has embeddings of {sizes} rows: give embeddings of the same rows.")
    matrix = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1)
    return matrix, tuple(array.shape[1] for array in arrays)


def named_widths(metadata: Mapping[str, Any], n_features: int) -> dict[str, int]:
    """The number of columns of each embedding by its name, as the metadata of features says; empty if it says nothing.

    >>> named_widths({"embeddings": [{"name": "a", "width": 2}, {"name": "b", "width": 1}]}, 3)
    {'a': 2, 'b': 1}
    """
    said = metadata.get(EMBEDDINGS)
    if not said:
        return {}
    try:
        named = {str(each["name"]): each["width"] for each in said}
    except (TypeError, KeyError) as error:
        raise InputError(
            f"The metadata {EMBEDDINGS!r} is no list of a name and a width each: embed again, or remove it."
        ) from error
    if len(named) < len(said):
        raise InputError(f"Two of the embeddings {', '.join(str(each['name']) for each in said)} have the same name.")
    checked_widths(list(named.values()), n_features)
    return named


def checked_widths(widths: Sequence[int], n_features: int, name: str = "X") -> tuple[int, ...]:
    """The widths as numbers, after a check that they are those of a matrix with that many columns."""
    good = all(isinstance(width, Integral) and not isinstance(width, bool) and width > 0 for width in widths)
    if not widths or not good or sum(widths) != n_features:
        raise InputError(
            f"widths are {', '.join(map(str, widths))}, but {name} has {n_features} columns: give the number of "
            "columns of each embedding."
        )
    return tuple(map(int, widths))
