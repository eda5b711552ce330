"""Random samples of rows that no class is missing from."""

from __future__ import annotations

import numpy as np

from rpim.data.labels import IntArray

LABELLED_ROWS_PER_CLASS = 20
"""A sample has at least this many labelled rows of each known class, or all of them."""


def rank_within_class(codes: IntArray, drawn: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Sort rows that were drawn at random by class, so that the first n of each class are n rows drawn at random.

    Parameters
    ----------
    codes : (N,)
        The class of each row.
    drawn : (n,)
        Rows in random order.

    Returns
    -------
    rows : (n,)
        The rows, class by class, in the order in which they were drawn.
    rank : (n,)
        The number of each row within its class: 0, 1, 2, ...
    size : (n,)
        How many rows of its class were drawn.

    Examples
    --------
    >>> rows, rank, size = rank_within_class(np.array([1, 0, 1, 1]), np.array([3, 1, 0, 2]))
    >>> rows.tolist(), rank.tolist(), size.tolist()
    ([1, 3, 0, 2], [0, 0, 1, 2], [1, 3, 3, 3])
    """
    rows = drawn[np.argsort(codes[drawn], kind="stable")]
    _, starts, sizes = np.unique(codes[rows], return_index=True, return_counts=True)
    return rows, np.arange(len(rows)) - np.repeat(starts, sizes), np.repeat(sizes, sizes)


def sample_rows(codes: IntArray, n_rows: int, seed: int) -> IntArray:
    """Draw rows at random, and add labelled rows of the classes that have too few; all rows if there are no more. (n,)

    Parameters
    ----------
    codes : (N,)
        The class of each labelled row, -1 for the others.
    n_rows : int
        How many rows to draw, before those that are added.
    seed : int

    Returns
    -------
    Row numbers in ascending order.
    """
    if len(codes) <= n_rows:
        return np.arange(len(codes))
    drawn = np.random.RandomState(seed % 2**32).permutation(len(codes))
    labelled, rank, _ = rank_within_class(codes, drawn[codes[drawn] >= 0])
    chosen = np.zeros(len(codes), dtype=bool)
    chosen[drawn[:n_rows]] = True
    chosen[labelled[rank < LABELLED_ROWS_PER_CLASS]] = True
    return np.flatnonzero(chosen)
