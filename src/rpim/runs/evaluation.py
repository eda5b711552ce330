"""A discovery compared with the true classes: accuracy on the unlabelled rows, and the confusion matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from rpim._common.errors import InputError
from rpim._common.files import StrPath
from rpim.data.checks import label_array
from rpim.data.feature_set import FeatureSet
from rpim.data.formats.label_files import read_true_classes
from rpim.data.labels import IntArray, unlabelled_rows
from rpim.metrics import (
    GCDAccuracy,
    adjusted_rand_index,
    contingency,
    gcd_accuracy,
    gcd_accuracy_v1,
    normalized_mutual_information,
    orca_accuracy,
)
from rpim.runs.discovery import Discovery
from rpim.runs.saved_model import plain

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


METRICS: dict[str, Callable[[ArrayLike, ArrayLike, ArrayLike], GCDAccuracy]] = {
    "v2": gcd_accuracy,
    "v1": gcd_accuracy_v1,
    "orca": orca_accuracy,
}


@dataclass(frozen=True)
class Evaluation:
    """Accuracy on the unlabelled rows with a known truth and a class; a share without rows is NaN."""

    metric: str
    rows: int
    left_out: int
    """Rows with a known truth that were given no class, and count neither as right nor as wrong."""
    all: float
    known: float
    unknown: float
    nmi: float
    ari: float

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON: None where a number is NaN."""
        return {name: plain(value) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return str(GCDAccuracy(self.all, self.known, self.unknown))


def evaluate(discovery: Discovery, truth: ArrayLike, metric: str = "v2") -> Evaluation:
    """Compare the unlabelled rows with the truth.

    Parameters
    ----------
    discovery : Discovery
    truth : array-like with one value per row
        Rows whose truth is -1, None, NaN or "" are left out.
    metric : {"v2", "v1", "orca"}
        Which reading of GCD accuracy.
    """
    values = np.asarray(truth)
    if values.ndim != 1 or len(values) != len(discovery):
        raise InputError(f"The truth has shape {values.shape} but the run has {len(discovery)} rows: give one per row.")
    known = discovery.model.known_classes_
    if (values.dtype.kind in "UO") != (known.dtype.kind == "U"):
        kinds = ("text", "numbers") if values.dtype.kind in "UO" else ("numbers", "text")
        raise InputError(f"The truth holds {kinds[0]} but the labels of the run are {kinds[1]}: give the same names.")
    rows = ~discovery.assignments.labelled & ~unlabelled_rows(values)
    left_out = rows & discovery.assignments.left_out
    rows &= ~left_out
    if not rows.any():
        raise InputError("No unlabelled row has a truth, so there is nothing to evaluate: give the truth of some.")
    true, predicted = values[rows], discovery.labels[rows]
    accuracy = METRICS[metric](true, predicted, known)
    return Evaluation(
        metric=metric,
        rows=int(rows.sum()),
        left_out=int(left_out.sum()),
        **accuracy.as_dict(),
        nmi=normalized_mutual_information(true, predicted),
        ari=adjusted_rand_index(true, predicted),
    )


def read_truth(path: StrPath, ids: NDArray[Any], column: str | None = None) -> NDArray[Any]:
    """The truth of the rows with these ids, in their order.

    Parameters
    ----------
    path : path
        Any labels file (.npy, .csv, .txt, .json, .parquet), an .npz with ``truth``, or PIM's folder. Where it has ids
        they are matched with `ids`; otherwise it has one value per row.
    ids : array of the run's ids
    column : str, optional
        The column (or .npz key), where it is not called truth, targets, label, labels or y.
    """
    file = Path(path)
    values: Any = FeatureSet.read(file).truth if file.is_dir() else read_true_classes(file, ids, column)
    try:
        return label_array(values, "truth", len(ids))
    except InputError as error:
        raise InputError(f"{path}: {str(error).replace('but X has', 'but the run has')}") from error
