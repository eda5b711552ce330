"""Labels in the user's own type: unlabelled rows, codes, and names for new classes."""

from __future__ import annotations

import itertools
import numbers
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpim._common.errors import InputError

UNLABELLED = -1

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


def _is_missing(value: Any) -> bool:
    """None, NaN, pandas' NA, the empty string or -1."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    if isinstance(value, str):
        return value == ""
    if isinstance(value, numbers.Real):
        return bool(value == UNLABELLED or value != value)
    return False


def unlabelled_rows(y: ArrayLike) -> BoolArray:
    """True where a row has no label: -1, None, NaN or the empty string.

    >>> unlabelled_rows(["cat", "", None, "dog"]).tolist()
    [False, True, True, False]
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
            return np.asarray(values == "")
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
    codes = np.full(len(values), UNLABELLED, dtype=np.int64)
    known, inverse = np.unique(present, return_inverse=True)
    codes[~missing] = inverse
    return codes, known


def name_new_classes(known: NDArray[Any], n_new: int) -> NDArray[Any]:
    """Append names for the new classes to the known classes, in their type.

    >>> name_new_classes(np.array(["cat", "new-1"]), 2).tolist()
    ['cat', 'new-1', 'new-2', 'new-3']
    >>> name_new_classes(np.array([0, 4]), 2).tolist()
    [0, 4, 5, 6]
    """
    if n_new == 0:
        return known
    if known.dtype.kind in "iuf":
        first = max(int(np.floor(known.max())) + 1, 0) if len(known) else 0
        fits = known.dtype.kind == "f" or first + n_new - 1 <= np.iinfo(known.dtype).max
        return np.concatenate([known, np.arange(first, first + n_new, dtype=known.dtype if fits else np.int64)])
    used = {str(name) for name in known}
    free = (f"new-{number}" for number in itertools.count(1) if f"new-{number}" not in used)
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
