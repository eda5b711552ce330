"""Samples of partly labelled rows."""

from __future__ import annotations

import numpy as np

from rpim.data.labels import IntArray

LABELLED_ROWS_PER_CLASS = 20
"""The minimum number of labelled rows of each known class in a sample, if the class has as many."""


def sample_rows(codes: IntArray, n_rows: int, seed: int) -> IntArray:
    """Sorted indices of a random sample with some labelled rows of each class; all rows if there are no more. (n,)

    Parameters
    ----------
    codes : (N,)
        The class of each row, -1 for unlabelled ones.
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
    rank = np.arange(len(by_class)) - first[codes[by_class]]  # of a row within its class
    chosen[by_class[rank < LABELLED_ROWS_PER_CLASS]] = True
    return np.flatnonzero(chosen)
