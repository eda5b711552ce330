"""Several embeddings of the same rows, of several encoders: one matrix with known columns.

Everything below works on one matrix; only what normalizes, projects or splits it asks for its `widths`, the number of
columns of each embedding.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError

EMBEDDINGS = "embeddings"
"""Where the metadata of features lists their embeddings, if there are several."""


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
