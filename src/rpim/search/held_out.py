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
    on_trial: Callable[[int], None] = lambda n: None,
) -> tuple[Setting, list[float]]:
    """The setting with the best mean score over the divisions, and all the means.

    The first setting is where the search stands; another one takes its place only where it wins by more than 1.5 times
    the standard error of their difference, division by division: what looks better by chance alone changes little. It
    is a race: from the third division on, whoever trails by more than that error is not tried again (its score stays
    the mean of what it ran).
    """
    scores = np.full((len(settings), len(divisions)), np.nan)
    running = list(range(len(settings)))
    for j, division in enumerate(divisions):
        on_trial(len(settings) - len(running))
        for i in running:
            scores[i, j] = division.score(predict(settings[i], division))
            on_trial(1)
        if j > 1:
            gains = {i: _gain(scores[i] - scores[0]) for i in running}
            running = [i for i in running if i == 0 or sum(gains[i]) >= 0.0]
    # Paired with the first, since the divisions differ from each other more than the settings do.
    wins = {i: mean for i in running for mean, error in [_gain(scores[i] - scores[0])] if mean > 1.5 * error}
    best = max(wins, key=wins.__getitem__, default=0)
    return settings[best], np.nanmean(scores, axis=1).tolist()


def _gain(differences: np.ndarray) -> tuple[float, float]:
    """The mean of paired differences so far, and its standard error (zero for a single one)."""
    run = differences[~np.isnan(differences)]
    return float(run.mean()), float(run.std(ddof=1) / len(run) ** 0.5) if len(run) > 1 else 0.0
