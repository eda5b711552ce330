"""Scoring settings on classes whose labels were hidden: the search that needs no truth of the unlabelled rows.

From the labelled rows alone a smaller problem of the same kind is built (the paper builds it to choose the weight
decay): half of the known classes play the unknown ones, and of the other half a quarter of the rows lose their label.
There the truth is known, so any setting can be scored; the mean over several random divisions is a steadier judge than
any one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from rpim.metrics import gcd_accuracy

Setting = TypeVar("Setting")

MIN_CLASSES = 4
"""Fewer known classes cannot be divided into two halves of at least two."""


@dataclass(frozen=True)
class Division:
    """A smaller discovery problem made of labelled rows, whose truth is known."""

    x: Tensor  # (n, D), the rows that keep their label first
    labels: Tensor  # (n_kept,)
    truth: np.ndarray  # (n,) known classes are 0 .. n_known - 1
    n_known: int
    n_classes: int

    def score(self, predicted: Tensor) -> float:
        """GCD accuracy (All) on the rows whose label was hidden."""
        hidden = slice(len(self.labels), None)
        return gcd_accuracy(self.truth[hidden], predicted[hidden].cpu().numpy(), np.arange(self.n_known)).all


def can_divide(labels: Tensor) -> bool:
    """Whether there are enough classes and rows for a smaller problem."""
    sizes = torch.bincount(labels)
    return bool(len(sizes) >= MIN_CLASSES and int(sizes.min()) >= 2)


def divide(x: Tensor, labels: Tensor, generator: torch.Generator) -> Division:
    """Hide the labels of half of the classes, and of a quarter of the rows of the other half."""
    n_classes = int(labels.max()) + 1
    order = torch.randperm(n_classes, generator=generator).to(labels.device)
    n_known = (n_classes + 1) // 2
    code = torch.empty_like(order)
    code[order] = torch.arange(n_classes, device=labels.device)  # the first n_known codes keep their label
    coded = code[labels]
    keep = torch.zeros(len(labels), dtype=torch.bool, device=labels.device)
    for c in range(n_known):
        rows = torch.nonzero(coded == c).flatten()
        rows = rows[torch.randperm(len(rows), generator=generator).to(rows.device)]
        keep[rows[max(1, round(len(rows) * 0.25)) :]] = True
    index = torch.cat([torch.nonzero(keep).flatten(), torch.nonzero(~keep).flatten()])
    truth = coded[index]
    return Division(
        x[index].contiguous(), truth[: int(keep.sum())].clone(), truth.cpu().numpy(), n_known, n_classes
    )


def best_setting(
    settings: Sequence[Setting],
    divisions: Sequence[Division],
    predict: Callable[[Setting, Division], Tensor],
    on_trial: Callable[[], None] | None = None,
) -> tuple[Setting, list[float]]:
    """The setting with the best mean score over the divisions, and all the means.

    The first setting is where the search stands; another one takes its place only where it wins by more than the
    standard error of their difference, division by division. What looks better by chance alone changes nothing.
    """
    scores = np.empty((len(settings), len(divisions)))
    for i, setting in enumerate(settings):
        for j, division in enumerate(divisions):
            scores[i, j] = division.score(predict(setting, division))
            if on_trial is not None:
                on_trial()
    gain = scores - scores[0]  # paired: the divisions differ from each other more than the settings do
    error = gain.std(axis=1, ddof=1) / len(divisions) ** 0.5 if len(divisions) > 1 else np.zeros(len(settings))
    sure = np.where(gain.mean(axis=1) > error, gain.mean(axis=1), 0.0)
    return settings[int(sure.argmax())], scores.mean(axis=1).tolist()
