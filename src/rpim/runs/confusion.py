"""Who is taken for whom: true classes against found ones, and how much of the known ends among the unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from rpim.data.labels import IntArray
from rpim.metrics import contingency

ENOUGH_ROWS = 10
"""A class of fewer rows says little about a method."""


@dataclass(frozen=True, eq=False)
class Confusion:
    """Rows of each true class in each found one, a found class standing in the column of the class it is matched with.

    The matching is that of GCD accuracy v2, so the share of rows on the diagonal is All. Known classes come first.
    """

    counts: IntArray  # (K, K or more); columns beyond K are found classes that are matched with none
    classes: IntArray  # (K,) the true classes, in the order of the rows
    n_known: int

    @property
    def shares(self) -> NDArray[np.float64]:
        """Of the rows of each true class. (K, K or more)"""
        shares: NDArray[np.float64] = self.counts / self.counts.sum(axis=1, keepdims=True)
        return shares

    @property
    def blocks(self) -> NDArray[np.float64]:
        """[[known in known, known in unknown], [unknown in known, unknown in unknown]], as shares of each row.

        A found class that is matched with none counts as unknown. NaN where there are no rows.
        """
        k = self.n_known
        sums = np.array([[part[:, :k].sum(), part[:, k:].sum()] for part in (self.counts[:k], self.counts[k:])])
        with np.errstate(invalid="ignore"):
            blocks: NDArray[np.float64] = sums / sums.sum(axis=1, keepdims=True)
        return blocks


def confusion(truth: IntArray, predicted: IntArray, known: IntArray) -> Confusion:
    """Match the found classes with the true ones, and count.

    Examples
    --------
    >>> confusion(np.array([0, 0, 1, 1]), np.array([7, 7, 5, 7]), known=np.array([1])).counts.tolist()
    [[1, 1], [0, 2]]
    """
    true_classes, t = np.unique(truth, return_inverse=True)
    found, p = np.unique(predicted, return_inverse=True)
    counts = contingency(t, p, len(true_classes), len(found))
    matched, columns = linear_sum_assignment(counts, maximize=True)
    rest = np.setdiff1d(np.arange(len(found)), columns)
    square = np.zeros((len(true_classes), len(true_classes)), dtype=np.int64)
    square[:, matched] = counts[:, columns]
    is_known = np.isin(true_classes, known)
    order = np.concatenate([np.flatnonzero(is_known), np.flatnonzero(~is_known)])
    ordered = np.hstack([square[np.ix_(order, order)], counts[np.ix_(order, rest)]])
    return Confusion(ordered, true_classes[order], int(is_known.sum()))


def most_confused(truth: IntArray, predicted: IntArray, known: IntArray, n: int = 1) -> list[int]:
    """The unknown classes of which the largest share is given a known class, the worst first; none without a row so.

    Classes of fewer than 10 rows count only where there is no larger one. Of equals the one with more rows is first.

    Examples
    --------
    >>> most_confused(np.array([5, 5, 6, 6]), np.array([9, 0, 0, 0]), known=np.array([0]), n=2)
    [6, 5]
    """
    unknown = truth[~np.isin(truth, known)]
    taken = np.isin(predicted, known)[~np.isin(truth, known)]
    classes, codes, sizes = np.unique(unknown, return_inverse=True, return_counts=True)
    shares = np.bincount(codes, weights=taken, minlength=len(classes)) / np.maximum(sizes, 1)
    enough = sizes >= ENOUGH_ROWS
    candidates = [k for k in range(len(classes)) if shares[k] > 0 and (enough[k] or not enough.any())]
    candidates.sort(key=lambda k: (-shares[k], -sizes[k], classes[k]))
    return [int(classes[k]) for k in candidates[:n]]


def taken_by(truth: IntArray, predicted: IntArray, known: IntArray, unknown_class: int) -> int | None:
    """The known class that is given to most rows of this class."""
    given: NDArray[Any] = predicted[(truth == unknown_class) & np.isin(predicted, known)]
    return int(np.bincount(given).argmax()) if len(given) else None
