"""How good a discovery is, where the truth is known: GCD accuracy in its three published readings, NMI and ARI."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from rpim._common.errors import InputError

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class GCDAccuracy:
    """Accuracy over all rows, over rows of known classes, and over rows of unknown classes.

    A share without rows (no row of a known class, say) is NaN.
    """

    all: float
    known: float
    unknown: float

    def as_dict(self) -> dict[str, float]:
        """{"all": ..., "known": ..., "unknown": ...}"""
        return asdict(self)

    def __str__(self) -> str:
        return f"All {self.all:.1%}  Known {self.known:.1%}  Unknown {self.unknown:.1%}"


def contingency(truth: IntArray, predicted: IntArray, n_truth: int, n_predicted: int) -> IntArray:
    """How many rows of each true class went to each predicted one. (n_truth, n_predicted)"""
    cells = truth * n_predicted + predicted
    return np.bincount(cells, minlength=n_truth * n_predicted).reshape(n_truth, n_predicted)


def _codes(truth: ArrayLike, predicted: ArrayLike, known: ArrayLike | None) -> tuple[Any, ...]:
    true_values, predicted_values = np.asarray(truth), np.asarray(predicted)
    if true_values.ndim != 1 or true_values.shape != predicted_values.shape:
        raise InputError(
            f"The truth has shape {true_values.shape} and the predictions {predicted_values.shape}; "
            "give two lists of the same length."
        )
    if len(true_values) == 0:
        raise InputError("There are no rows to evaluate; give at least one row with a known truth.")
    true_classes, t = np.unique(true_values, return_inverse=True)
    predicted_classes, p = np.unique(predicted_values, return_inverse=True)
    known_values = np.asarray([] if known is None else list(known))  # type: ignore[arg-type]
    if known_values.size and (known_values.dtype.kind == "U") != (true_classes.dtype.kind in "UO"):
        raise InputError(
            f"The known classes are of type {known_values.dtype} and the truth of type {true_classes.dtype}; "
            "give both as text or both as numbers."
        )
    is_known = np.isin(true_classes, known_values)
    return t, p, true_classes, predicted_classes, is_known


def matched_rows(counts: IntArray) -> IntArray:
    """Rows of each true class that lie in the predicted class matched with it, the matching being the best one."""
    t, p = linear_sum_assignment(counts, maximize=True)
    hits = np.zeros(counts.shape[0], dtype=np.int64)
    hits[t] = counts[t, p]
    return hits


def _share(hits: IntArray, sizes: IntArray, where: NDArray[np.bool_]) -> float:
    rows = int(sizes[where].sum())
    return float(hits[where].sum() / rows) if rows else float("nan")


def _shares(hits: IntArray, sizes: IntArray, is_known: NDArray[np.bool_]) -> GCDAccuracy:
    everything = np.ones_like(is_known)
    return GCDAccuracy(_share(hits, sizes, everything), _share(hits, sizes, is_known), _share(hits, sizes, ~is_known))


def gcd_accuracy(truth: ArrayLike, predicted: ArrayLike, known: ArrayLike) -> GCDAccuracy:
    """GCD accuracy "v2", the official one: ONE best matching of predicted with true classes over all rows.

    Parameters
    ----------
    truth, predicted : array-like of shape (n,)
        Labels of any type, of the unlabelled rows alone. The numbers of classes may differ.
    known : array-like
        The true classes that had labels.

    Returns
    -------
    GCDAccuracy
        ``all``, ``known`` and ``unknown``, each from 0 to 1.

    Examples
    --------
    >>> gcd_accuracy([0, 0, 1, 1], ["a", "a", "b", "a"], known=[0])
    GCDAccuracy(all=0.75, known=1.0, unknown=0.5)
    """
    t, p, true_classes, predicted_classes, is_known = _codes(truth, predicted, known)
    counts = contingency(t, p, len(true_classes), len(predicted_classes))
    return _shares(matched_rows(counts), counts.sum(axis=1), is_known)


def gcd_accuracy_v1(truth: ArrayLike, predicted: ArrayLike, known: ArrayLike) -> GCDAccuracy:
    """GCD accuracy "v1": two separate matchings, one among rows of known classes and one among the others.

    A predicted class may serve in both, so it reads higher than v2. All is their mean, weighted by rows.
    """
    t, p, true_classes, predicted_classes, is_known = _codes(truth, predicted, known)
    counts = contingency(t, p, len(true_classes), len(predicted_classes))
    hits = np.zeros(len(true_classes), dtype=np.int64)
    for part in (is_known, ~is_known):
        if part.any():
            hits[part] = matched_rows(counts[part])
    return _shares(hits, counts.sum(axis=1), is_known)


def orca_accuracy(truth: ArrayLike, predicted: ArrayLike, known: ArrayLike) -> GCDAccuracy:
    """ORCA's reading: a known class counts only under its own name; unknown ones by a matching of their own.

    Known is plain accuracy, Unknown the best matching over rows of unknown classes, All the best matching over all
    rows (so All is not their mean).
    """
    t, p, true_classes, predicted_classes, is_known = _codes(truth, predicted, known)
    counts = contingency(t, p, len(true_classes), len(predicted_classes))
    sizes = counts.sum(axis=1)
    plain = np.zeros(len(true_classes), dtype=np.int64)
    for row in np.flatnonzero(is_known):
        plain[row] = counts[row, predicted_classes == true_classes[row]].sum()
    unknown = np.zeros(len(true_classes), dtype=np.int64)
    if (~is_known).any():
        unknown[~is_known] = matched_rows(counts[~is_known])
    everything = np.ones_like(is_known)
    return GCDAccuracy(
        _share(matched_rows(counts), sizes, everything),
        _share(plain, sizes, is_known),
        _share(unknown, sizes, ~is_known),
    )


def clustering_accuracy(truth: ArrayLike, predicted: ArrayLike) -> float:
    """Share of rows that the best matching of predicted with true classes gets right (Hungarian accuracy).

    >>> clustering_accuracy([0, 0, 1, 1], [7, 7, 3, 7])
    0.75
    """
    return gcd_accuracy(truth, predicted, known=[]).all


def normalized_mutual_information(truth: ArrayLike, predicted: ArrayLike) -> float:
    """NMI with the arithmetic mean of both entropies, as scikit-learn's default."""
    from sklearn.metrics import normalized_mutual_info_score

    t, p, *_ = _codes(truth, predicted, None)
    return float(normalized_mutual_info_score(t, p))


def adjusted_rand_index(truth: ArrayLike, predicted: ArrayLike) -> float:
    """ARI: agreement on pairs of rows, zero for a random grouping."""
    from sklearn.metrics import adjusted_rand_score

    t, p, *_ = _codes(truth, predicted, None)
    return float(adjusted_rand_score(t, p))


def expected_calibration_error(
    confidence: ArrayLike, right: ArrayLike, n_bins: int = 15, weights: ArrayLike | None = None
) -> float:
    """Expected calibration error (ECE): the gap between confidence and accuracy.

    Rows are binned by confidence, in bins of equal width. The gaps between mean confidence and accuracy are averaged
    over the bins, weighted by their rows (Naeini et al., AAAI 2015; Guo et al., ICML 2017).

    Parameters
    ----------
    confidence : array-like of shape (n,)
        The probability of the class that a row was given.
    right : array-like of shape (n,)
        Whether that class is the true one.
    n_bins : int
        Number of bins.
    weights : array-like of shape (n,), optional
        Weight of each row; 1 by default.

    Returns
    -------
    float
        From 0, perfectly calibrated, to 1.

    Examples
    --------
    >>> expected_calibration_error([0.75, 0.75, 0.75, 0.75], [True, True, True, False])
    0.0
    >>> expected_calibration_error([1.0, 1.0, 0.5, 0.5], [True, False, True, False])
    0.25
    """
    sure, hits = np.asarray(confidence, dtype=np.float64), np.asarray(right, dtype=np.float64)
    if sure.ndim != 1 or sure.shape != hits.shape or len(sure) == 0:
        raise InputError(
            f"The confidence has shape {sure.shape} and what is right {hits.shape}; "
            "give two lists of the same length, of one row or more."
        )
    bins = np.minimum((sure * n_bins).astype(np.int64), n_bins - 1)
    counted = np.ones_like(sure) if weights is None else np.asarray(weights, dtype=np.float64)
    gaps = np.bincount(bins, weights=counted * (sure - hits), minlength=n_bins)
    return float(np.abs(gaps).sum() / counted.sum())
