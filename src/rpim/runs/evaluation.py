"""A discovery against the truth, where somebody has it: on the rows that had no label, and for display only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpim._common.errors import InputError
from rpim._common.files import StrPath
from rpim.data.checks import label_array
from rpim.data.feature_set import FeatureSet
from rpim.data.formats.label_files import read_true_classes
from rpim.data.labels import unlabelled_rows
from rpim.metrics import (
    GCDAccuracy,
    adjusted_rand_index,
    gcd_accuracy,
    gcd_accuracy_v1,
    normalized_mutual_information,
    orca_accuracy,
)
from rpim.runs.discovery import Discovery
from rpim.runs.saved_model import plain

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
