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
from rpim._common.files import RUN_FILE, StrPath
from rpim.data.feature_set import FeatureSet
from rpim.data.formats.label_files import read_true_classes
from rpim.data.labels import IntArray, label_array, unlabelled_rows
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
from rpim.runs.run_folder import read_run_file
from rpim.runs.saved_model import json_value

ENOUGH_ROWS = 10
"""Smaller classes say little about a method."""


@dataclass(frozen=True, eq=False)
class Confusion:
    """Confusion matrix of true and found classes; each found class is in the column of its matched true class.

    The matching is that of GCD accuracy v2, so the share of rows on the diagonal is All. Known classes come first.
    """

    counts: IntArray  # (K, K or more); columns beyond K are unmatched found classes
    classes: IntArray  # (K,) the true classes, in the order of the rows
    n_known: int

    @property
    def shares(self) -> NDArray[np.float64]:
        """Row-normalized counts. (K, K or more)"""
        shares: NDArray[np.float64] = self.counts / self.counts.sum(axis=1, keepdims=True)
        return shares

    @property
    def blocks(self) -> NDArray[np.float64]:
        """[[known in known, known in unknown], [unknown in known, unknown in unknown]], as shares of each row.

        Unmatched found classes count as unknown. NaN without rows.
        """
        k = self.n_known
        sums = np.array([[part[:, :k].sum(), part[:, k:].sum()] for part in (self.counts[:k], self.counts[k:])])
        with np.errstate(invalid="ignore"):
            blocks: NDArray[np.float64] = sums / sums.sum(axis=1, keepdims=True)
        return blocks


def confusion(truth: IntArray, predicted: IntArray, known: IntArray) -> Confusion:
    """Confusion matrix after matching found classes with true ones.

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
    """The unknown classes with the largest share of rows assigned to known classes, worst first.

    Classes with fewer than 10 rows count only if there is no larger one. Ties are broken by size.

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
    """The known class to which most of the confused rows of this class are assigned."""
    given: NDArray[Any] = predicted[(truth == unknown_class) & np.isin(predicted, known)]
    return int(np.bincount(given).argmax()) if len(given) else None


METRICS: dict[str, Callable[[ArrayLike, ArrayLike, ArrayLike], GCDAccuracy]] = {
    "v2": gcd_accuracy,
    "v1": gcd_accuracy_v1,
    "orca": orca_accuracy,
}


@dataclass(frozen=True)
class Evaluation:
    """Accuracy on unlabelled rows with a true class, rejected rows excluded; NaN for a group without rows."""

    metric: str
    rows: int
    left_out: int
    """Rejected rows with a true class; they are excluded from the accuracy."""
    all: float
    known: float
    unknown: float
    nmi: float
    ari: float

    def as_dict(self) -> dict[str, Any]:
        """JSON-serializable: NaN becomes None."""
        return {name: json_value(value) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return str(GCDAccuracy(self.all, self.known, self.unknown))


def evaluate(
    discovery: Discovery, truth: ArrayLike, metric: str = "v2", *, known: NDArray[Any] | None = None
) -> Evaluation:
    """Evaluate the unlabelled rows against the true classes.

    Parameters
    ----------
    discovery : Discovery
    truth : array-like with one value per row
        Rows whose true class is -1, None, NaN or "" are excluded.
    metric : {"v2", "v1", "orca"}
        Definition of GCD accuracy.
    known : array, optional
        The known classes by the names that they have in `truth` (default: those of the model).
    """
    values = np.asarray(truth)
    if values.ndim != 1 or len(values) != len(discovery):
        raise InputError(
            f"The truth has shape {values.shape} but the run has {len(discovery)} rows: give one value per row."
        )
    known = discovery.model.known_classes_ if known is None else known
    if (values.dtype.kind in "UO") != (known.dtype.kind == "U"):
        kinds = ("text", "numbers") if values.dtype.kind in "UO" else ("numbers", "text")
        raise InputError(f"The truth holds {kinds[0]} but the labels of the run are {kinds[1]}: give the same names.")
    rows = ~discovery.assignments.labelled & ~unlabelled_rows(values)
    left_out = rows & discovery.assignments.left_out
    rows &= ~left_out
    if not rows.any():
        raise InputError(
            "No unlabelled row has a true class, so there is nothing to evaluate: give the true classes of some."
        )
    # A known class counts under the name that the data have, whatever a person has called it since.
    given_name = {name: found for name, found in discovery.found_names.items() if found in known.astype(str)}
    true, predicted = values[rows], discovery.labels[rows]
    if predicted.dtype.kind == "U":  # numbers become text with the first decision
        true, known = true.astype(str), known.astype(str)
        predicted = np.asarray([given_name.get(name, name) for name in predicted.tolist()])
    accuracy = METRICS[metric](true, predicted, known)
    return Evaluation(
        metric=metric,
        rows=int(rows.sum()),
        left_out=int(left_out.sum()),
        **accuracy.as_dict(),
        nmi=normalized_mutual_information(true, predicted),
        ari=adjusted_rand_index(true, predicted),
    )


def known_classes(run: Path) -> NDArray[Any]:
    """The classes that have labels in the data of a run, whatever a person has called them since."""
    facts = read_run_file(run)
    return np.asarray(facts["classes"][: facts["n_known"]], dtype=facts["label_type"])


def read_truth(path: StrPath, ids: NDArray[Any], column: str | None = None) -> NDArray[Any]:
    """Read the true classes of the rows with these ids, in order.

    Parameters
    ----------
    path : path
        Any labels file (.npy, .csv, .txt, .json, .parquet), an .npz with ``truth``, or a PIM folder. If the file has
        ids, they are matched with `ids`; otherwise it has one value per row.
    ids : array of the run's ids
    column : str, optional
        Column (or .npz key), if it is not called truth, targets, label, labels or y.
    """
    file = Path(path)
    if (file / RUN_FILE).is_file():
        raise InputError(f"{path} is a run folder: give a file with the true classes, such as a .csv with id,label.")
    values: Any = FeatureSet.read(file).truth if file.is_dir() else read_true_classes(file, ids, column)
    try:
        return label_array(values, "truth", len(ids))
    except InputError as error:
        raise InputError(f"{path}: {str(error).replace('but X has', 'but the run has')}") from error
