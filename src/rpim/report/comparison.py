"""A discovery compared with the true classes: accuracy, confusion matrix, and the most confused pairs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from rpim.data.labels import IntArray, unlabelled_rows
from rpim.metrics import contingency
from rpim.report.thumbnails import png
from rpim.runs.assignments import class_codes
from rpim.runs.discovery import Discovery
from rpim.runs.evaluation import Confusion, Evaluation, confusion, evaluate

MIX_UPS = 12
_INK = (0, 114, 178)


@dataclass(frozen=True)
class MixUp:
    """Rows of a true class in a found class that is not matched with it."""

    true: str
    found: int
    """The number of the found class."""
    rows: int
    share: float
    """Of the rows of the true class."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Accuracy, confusion matrix and the most confused pairs."""

    evaluation: Evaluation
    confusion: Confusion
    names: list[str]
    """Names of the true classes, in the order of the confusion matrix."""
    mix_ups: list[MixUp]
    """The most confused pairs, largest first."""

    def picture(self) -> str:
        """The confusion matrix as a PNG data URL, one pixel per cell; opacity shows the share."""
        shares = self.confusion.shares  # (K, K or more)
        pixels = np.empty((*shares.shape, 4), dtype=np.uint8)
        pixels[..., :3] = _INK
        pixels[..., 3] = (255 * np.sqrt(shares)).round()  # square root, so that small shares are visible
        return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"


def compare(discovery: Discovery, truth: NDArray[Any]) -> Comparison:
    """Compare the unlabelled rows with the true classes.

    Raises
    ------
    InputError
        If the truth has another length or type than the labels, or no unlabelled row has one.
    """
    values = np.asarray(truth)
    evaluation = evaluate(discovery, values)
    rows = ~discovery.assignments.labelled & ~unlabelled_rows(values) & ~discovery.assignments.left_out
    names, true = np.unique(values[rows], return_inverse=True)
    codes = class_codes(discovery.labels, discovery.classes)[rows]
    known = np.flatnonzero(np.isin(names, discovery.model.known_classes_))
    found, texts = confusion(true, codes, known), [str(name) for name in names.tolist()]
    return Comparison(evaluation, found, [texts[k] for k in found.classes], mix_ups(true, codes, texts))


def mix_ups(true: IntArray, found: IntArray, names: Sequence[str], n: int = MIX_UPS) -> list[MixUp]:
    """The unmatched pairs of a true and a found class that share the most rows.

    >>> mix_ups(np.array([0, 0, 0, 1]), np.array([4, 4, 7, 7]), ["cat", "dog"])
    [MixUp(true='cat', found=7, rows=1, share=0.3333333333333333)]
    """
    counts = contingency(true, found, len(names), int(found.max()) + 1)
    sizes = counts.sum(axis=1)
    counts[linear_sum_assignment(counts, maximize=True)] = 0
    largest = np.argsort(-counts, axis=None, kind="stable")[:n]
    pairs = zip(*(part.tolist() for part in np.unravel_index(largest, counts.shape)), strict=True)
    return [MixUp(names[i], j, int(counts[i, j]), float(counts[i, j] / sizes[i])) for i, j in pairs if counts[i, j]]
