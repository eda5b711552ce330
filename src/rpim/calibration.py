"""Probabilities that mean what they say: one factor of the logits, found where the truth is known.

Labelled rows were trained on, so what the model says of them shows nothing. Their labels are hidden, fold by fold, and
the whole problem is trained again without them: the labels of some rows of each class, and those of some whole classes,
which the fold then has to discover as the real training had to discover the new ones. A factor found on rows of known
classes alone would call the rows of new classes far too sure, for new classes are harder to get right.

The factor a minimises the mean negative log-likelihood of softmax(a * logits) on the hidden rows (temperature scaling:
Guo, Pleiss, Sun and Weinberger, "On Calibration of Modern Neural Networks", ICML 2017). It changes no class.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment, minimize_scalar
from scipy.special import log_softmax, softmax
from torch import Tensor

from rpim.labels import IntArray
from rpim.metrics import contingency, expected_calibration_error

FOLDS = 4
"""A fold hides a quarter of the known classes and a quarter of the rows of each of the others."""
TRAINED = 2
"""Of the four, two are trained: thousands of hidden rows settle one number."""
MIN_ROWS, MIN_CLASSES = 40, 4
"""With fewer hidden rows in all, or hidden classes a fold, the factor would be chance, and stays 1: one class that a
fold does not find again can halve it."""
LARGEST = 5.0
"""The factor lies between 1 / 5 and 5: where every hidden row is right, none would be large enough."""

FloatArray = NDArray[np.float64]


def enough_rows(n_classes: int) -> int:
    """How many rows show what a training on all of them would: 20,000, or 40 a class. Repeated trainings draw no more,
    so that what they cost, in time and memory, does not grow with the data.
    """
    return max(20_000, 40 * n_classes)


@dataclass(frozen=True)
class Fold:
    """The labelled rows with some labels hidden."""

    rows: Tensor  # (n_labelled,) those that keep their label first, then hidden rows, then rows of hidden classes
    labels: Tensor  # (n_kept,) codes 0 .. n_known - 1
    truth: Tensor  # (n_hidden,) codes of the same kind, hidden classes from n_known on
    n_known: int

    def targets(self, predicted: IntArray) -> IntArray:
        """The class that each hidden row should have had, among those that the fold predicts. (n_hidden,)

        Known classes have their own name; hidden ones are matched one to one with what was discovered.
        """
        truth = self.truth.cpu().numpy()
        n_classes = max(int(truth.max()), int(predicted.max())) + 1
        counts = contingency(truth, predicted, n_classes, n_classes)[self.n_known :, self.n_known :]
        of_class = np.arange(n_classes)
        hidden, found = linear_sum_assignment(counts, maximize=True)
        of_class[self.n_known + hidden] = self.n_known + found
        targets: IntArray = of_class[truth]
        return targets


@dataclass(frozen=True)
class HiddenRows:
    """What a fold's training says of the rows whose label it did not see."""

    logits: FloatArray  # (n, K)
    targets: IntArray  # (n,)
    is_new: NDArray[np.bool_]  # (n,) whether the whole class was hidden


@dataclass(frozen=True)
class Calibration:
    """The factor, and the expected calibration error on the hidden rows without and with it."""

    factor: float
    error_before: float
    error_after: float


def folds(labels: Tensor, generator: torch.Generator, *, hide_classes: bool = True) -> list[Fold]:
    """The folds to train; none where too little could be hidden. Every class that stays keeps a row at least."""
    sizes = torch.bincount(labels)
    n_hidden = len(sizes) // FOLDS if hide_classes else 0
    if hide_classes and n_hidden < MIN_CLASSES:
        return []
    classes = torch.randperm(len(sizes), generator=generator).to(labels.device)
    place = torch.empty_like(labels)  # of a row among those of its class, in random order
    for c in range(len(sizes)):
        place[labels == c] = torch.randperm(int(sizes[c]), generator=generator).to(labels.device)
    made = []
    for number in range(TRAINED):
        class_hidden = torch.zeros_like(sizes, dtype=torch.bool)
        class_hidden[classes[number * n_hidden : (number + 1) * n_hidden]] = True
        of_hidden_class = class_hidden[labels]
        row_hidden = (place % FOLDS == number) & (sizes[labels] > 1) & ~of_hidden_class
        code = torch.cumsum(~class_hidden, 0) - 1
        n_known = int((~class_hidden).sum())
        code[class_hidden] = n_known + torch.arange(len(sizes) - n_known, device=labels.device)
        kept, rows, new = (
            torch.nonzero(which).flatten() for which in (~row_hidden & ~of_hidden_class, row_hidden, of_hidden_class)
        )
        order = torch.cat([kept, rows, new])
        made.append(Fold(order, code[labels[kept]], code[labels[order[len(kept) :]]], n_known))
    return made if sum(len(fold.truth) for fold in made) >= MIN_ROWS else []


def calibrate(hidden: Sequence[HiddenRows], share_new: float) -> Calibration:
    """The best factor, with rows of hidden classes counted as often as new classes have rows in the problem itself."""
    logits = np.concatenate([part.logits for part in hidden])
    targets = np.concatenate([part.targets for part in hidden])
    is_new = np.concatenate([part.is_new for part in hidden])
    weights = np.ones(len(targets))
    if is_new.any() and not is_new.all():
        weights = np.where(is_new, share_new / is_new.mean(), (1.0 - share_new) / (1.0 - is_new.mean()))
    factor = best_factor(logits, targets, weights)
    right = logits.argmax(axis=1) == targets
    before, after = (
        expected_calibration_error(softmax(a * logits, axis=1).max(axis=1), right, weights=weights)
        for a in (1.0, factor)
    )
    return Calibration(factor, before, after)


def negative_log_likelihood(logits: FloatArray, targets: IntArray, weights: FloatArray, factor: float) -> float:
    """The weighted mean of -log softmax(factor * logits)[target]."""
    log_z = log_softmax(factor * logits, axis=1)[np.arange(len(targets)), targets]
    return float(-(weights * log_z).sum() / weights.sum())


def best_factor(logits: FloatArray, targets: IntArray, weights: FloatArray) -> float:
    """The factor of the logits with the least negative log-likelihood (which is convex in it)."""
    found = minimize_scalar(
        lambda log_a: negative_log_likelihood(logits, targets, weights, float(np.exp(log_a))),
        bounds=(-np.log(LARGEST), np.log(LARGEST)), method="bounded", options={"xatol": 1e-3},
    )  # fmt: skip
    return float(np.exp(found.x))
