"""Which classes come back: the fit repeated on resamples of the rows, and each class compared with its best match.

A class that is really in the data is found again in most of the data; one that happened to come out of this fit is not.
After Hennig, "Cluster-wise assessment of cluster stability" (Computational Statistics & Data Analysis, 2007): the
stability of a class is the mean, over resamples, of the largest Jaccard index that any class of the repeated fit has
with it. His rule of thumb (in the manual of the R package fpc): below 0.6 a cluster is not to be trusted, from 0.75 on
it is stable, from 0.85 on highly so.

Only rows without a label are compared: the others are where they are because somebody said so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state

from rpim.assignments import class_codes
from rpim.calibration import enough_rows
from rpim.labels import IntArray, encode_labels
from rpim.methods.base import DiscoveryEstimator
from rpim.metrics import contingency
from rpim.parallel import side_by_side
from rpim.progress import Progress
from rpim.row_files import RowFiles

SHARE = 0.8
"""Of the rows, in a resample: as many as possible, and still another set each time."""

FloatArray = NDArray[np.float64]


def stability(
    model: DiscoveryEstimator,
    X: NDArray[np.floating] | RowFiles,
    y: NDArray[np.generic],
    views: Sequence[NDArray[np.floating]] = (),
    *,
    n_resamples: int = 5,
    random_state: int | np.random.RandomState | None = 0,
    verbose: bool = False,
) -> FloatArray:
    """How well each class of a fitted model comes back, from 0 to 1; NaN for a class without an unlabelled row. (K,)

    Parameters
    ----------
    model : fitted estimator
        Repeated with the setting that it found, and for RIM, TIM, PIM and RPIM with a shorter training.
    X, y, views
        What it was fitted to.
    """
    codes, _ = encode_labels(y)
    found = class_codes(model.labels_, model.classes_)
    n_classes = len(model.classes_)
    random = check_random_state(random_state)
    samples = [resample(codes, n_classes, random) for _ in range(n_resamples)]
    seeds = random.randint(2**31 - 1, size=n_resamples).tolist()
    with Progress(verbose, "repeating on resamples") as progress:
        progress.expect(n_resamples)

        def repeat(numbered: tuple[IntArray, int]) -> FloatArray:
            rows, seed = numbered
            again = clone(model).set_params(**model.parameters_of_a_repetition(), random_state=seed)
            again.set_params(n_classes=min(n_classes, len(rows)))
            again.fit(X[rows], y[rows], [view[rows] for view in views])
            counted = (codes[rows] < 0) & (found[rows] >= 0)
            repeated = class_codes(again.labels_, again.classes_)
            progress.advance(1)
            return best_jaccard(found[rows][counted], repeated[counted], n_classes, len(again.classes_))

        scores = np.stack(side_by_side(repeat, zip(samples, seeds, strict=True)))
    there = ~np.isnan(scores)
    with np.errstate(invalid="ignore"):
        mean: FloatArray = np.where(there, scores, 0.0).sum(axis=0) / there.sum(axis=0)
    return mean


def resample(codes: IntArray, n_classes: int, random: np.random.RandomState) -> IntArray:
    """Numbers of rows drawn without replacement, in order; every known class keeps a labelled row."""
    n_rows = min(round(SHARE * len(codes)), enough_rows(n_classes))
    order = random.permutation(len(codes))
    _, first = np.unique(codes[order], return_index=True)  # the first row of each class, and of those without label
    kept = order[first]
    others = np.delete(order, first)[: max(n_rows - len(kept), 0)]
    return np.sort(np.concatenate([kept, others]))


def best_jaccard(classes: IntArray, others: IntArray, n_classes: int, n_others: int) -> FloatArray:
    """The largest |A and B| / |A or B| of each class A with any class B of the others; NaN where A is empty. (K,)

    >>> best_jaccard(np.array([0, 0, 0, 1]), np.array([2, 2, 0, 0]), 3, 3).round(2).tolist()
    [0.67, 0.5, nan]
    """
    shared = contingency(classes, others, n_classes, n_others)
    sizes = shared.sum(axis=1)
    either = sizes[:, None] + shared.sum(axis=0) - shared
    best: FloatArray = np.where(sizes > 0, (shared / np.maximum(either, 1)).max(axis=1), np.nan)
    return best
