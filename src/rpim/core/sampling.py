"""A sample of partly labelled rows."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

LABELLED_ROWS_A_CLASS = 20
"""A sample holds so many labelled rows of each known class at least, where it has as many."""


def sample_rows(codes: IntArray, n_rows: int, seed: int) -> IntArray:
    """Numbers of rows in order: all of them, or so many drawn at random, with some labelled ones of each class. (n,)

    Parameters
    ----------
    codes : (N,)
        The class of each labelled row, -1 for the others.
    """
    if len(codes) <= n_rows:
        return np.arange(len(codes))
    random = np.random.RandomState(seed % 2**32)
    drawn = random.permutation(len(codes))
    chosen = np.zeros(len(codes), dtype=bool)
    chosen[drawn[:n_rows]] = True
    labelled = drawn[codes[drawn] >= 0]
    by_class = labelled[np.argsort(codes[labelled], kind="stable")]
    first = np.searchsorted(codes[by_class], np.arange(codes.max() + 2))
    rank = np.arange(len(by_class)) - first[codes[by_class]]  # of a row among those of its class
    chosen[by_class[rank < LABELLED_ROWS_A_CLASS]] = True
    return np.flatnonzero(chosen)
