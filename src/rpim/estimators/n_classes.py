"""Estimate the number of classes without a fit, as ``n_classes=None`` does."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from rpim._common.errors import choose
from rpim.estimators.class_count import ESTIMATORS, ClassCount
from rpim.estimators.rpim import RPIM


def estimate_n_classes(
    X: ArrayLike,
    y: ArrayLike,
    *,
    method: str = ESTIMATORS[0],
    at_least: int | None = None,
    at_most: int | None = None,
    normalize: bool = True,
    random_state: Any = None,
    verbose: bool = False,
) -> ClassCount:
    """Estimate the number of classes, known and new together, with a 95 % interval.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features)
        Embeddings.
    y : array-like of shape (n_rows,)
        The labels of the rows that have one; -1, None, NaN or "" for the others.
    method : {"neighbors", "max-acc", "max-acc-pim"}
        "neighbors" counts how many of the rows around labelled ones are labelled too; it takes seconds. "max-acc" is
        GCD's: the number of k-means clusters that fits the labels best. "max-acc-pim" is the same over PIM.
    at_least, at_most : int, optional
        Bounds of the answer.
    normalize : bool
        Scale rows to unit length.
    random_state : int, RandomState instance or None
        Makes the estimate repeatable.
    verbose : bool
        Show progress with the time left on a terminal.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> X, y = make_blobs(1200, n_features=16, centers=12, cluster_std=0.5, random_state=0)
    >>> seen = [c if c < 8 and i % 2 else -1 for i, c in enumerate(y)]
    >>> estimate_n_classes(X, seen, random_state=0).n_classes
    12
    """
    choose("The method", method, ESTIMATORS)
    model = RPIM(normalize=normalize, random_state=random_state, verbose=verbose)
    return model._count_classes(X, y, method, at_least, at_most)
