"""Scoring settings on classes whose labels were hidden: the search that needs no truth of the unlabelled rows.

From the labelled rows alone a smaller problem of the same kind is built (the paper builds it to choose the weight
decay): a part of the known classes play the unknown ones, and of the others a quarter of the rows lose their label.
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

from rpim.engine import InMemory
from rpim.metrics import gcd_accuracy
from rpim.parallel import side_by_side

Setting = TypeVar("Setting")

MIN_CLASSES = 4
"""Fewer known classes cannot be divided into two halves of at least two."""
MAX_ROWS = 10_000
"""A division draws no more labelled rows than this (but at least four of each class): enough to tell settings apart."""
MARGIN = 0.005
"""What a setting must gain on average, in accuracy, before it replaces the one in use."""


@dataclass(frozen=True)
class Division:
    """A smaller discovery problem made of labelled rows, whose truth is known."""

    x: Tensor  # (n, D), the rows that keep their label first
    labels: Tensor  # (n_kept,)
    truth: np.ndarray  # (n,) known classes are 0 .. n_known - 1
    n_known: int
    n_classes: int

    def engine(self) -> InMemory:
        """The rows, ready to train on; each training needs its own."""
        return InMemory(self.x, self.labels, self.n_classes)

    def score(self, predicted: Tensor) -> float:
        """GCD accuracy (All) on the rows whose label was hidden."""
        hidden = slice(len(self.labels), None)
        return gcd_accuracy(self.truth[hidden], predicted[hidden].cpu().numpy(), np.arange(self.n_known)).all


def can_divide(labels: Tensor) -> bool:
    """Whether there are enough classes and rows for a smaller problem."""
    sizes = torch.bincount(labels)
    return bool(len(sizes) >= MIN_CLASSES and int(sizes.min()) >= 1 and len(labels) >= 2 * len(sizes))


def divide(x: Tensor, labels: Tensor, generator: torch.Generator, share_new: float = 0.5) -> Division:
    """Hide the labels of a share of the classes, and of a quarter of the rows of the others.

    The paper hides half of the classes; the closer to the share of new classes in the problem at hand the better.
    """
    n_classes = int(labels.max()) + 1
    share = min(1.0, MAX_ROWS / len(labels))
    order = torch.randperm(n_classes, generator=generator).to(labels.device)
    n_known = n_classes - min(max(int(share_new * n_classes), 1), n_classes - 2)
    code = torch.empty_like(order)
    code[order] = torch.arange(n_classes, device=labels.device)  # the first n_known codes keep their label
    coded = code[labels]
    kept, hidden = [], []
    for c in range(n_classes):
        rows = torch.nonzero(coded == c).flatten()
        rows = rows[torch.randperm(len(rows), generator=generator).to(rows.device)]
        rows = rows[: max(4, round(len(rows) * share))]
        # A known class keeps at least one row: of a class of one row nothing is hidden.
        n_hidden = min(max(1, round(len(rows) * 0.25)), len(rows) - 1) if c < n_known else len(rows)
        hidden.append(rows[:n_hidden])
        kept.append(rows[n_hidden:])
    index = torch.cat(kept + hidden)
    truth = coded[index]
    n_kept = sum(map(len, kept))
    return Division(x[index], truth[:n_kept].clone(), truth.cpu().numpy(), n_known, n_classes)


def best_setting(
    settings: Sequence[Setting],
    judges: Sequence[Callable[[Setting], float]],
    on_trial: Callable[[int], None] = lambda n: None,
) -> tuple[Setting, list[float]]:
    """The setting with the best mean score over the judges (one for each division), and all the means.

    The first setting is where the search stands. Another takes its place only where it wins by `MARGIN` and by twice
    the standard error of the difference, judge by judge: the divisions are few and noisy, and what looks better by
    chance alone must not count. It is a race: from the third judge on, whoever is more than a standard error short of
    that margin is not tried again (its score stays the mean of what it ran). With one judge the best score wins.
    """
    scores = np.full((len(settings), len(judges)), np.nan)
    running = list(range(len(settings)))
    for j, judge in enumerate(judges):
        scores[running, j] = side_by_side(judge, [settings[i] for i in running])
        on_trial(len(running))
        if j > 1:
            gains = {i: _gain(scores[i] - scores[0]) for i in running}
            running = [i for i in running if i == 0 or sum(gains[i]) >= MARGIN]
            if running == [0]:
                break
    # Paired with the first, since the divisions differ from each other more than the settings do.
    margin = MARGIN if len(judges) > 1 else 0.0
    gains = {i: _gain(scores[i] - scores[0]) for i in running}
    wins = {i: mean for i, (mean, error) in gains.items() if mean > max(2.0 * error, margin)}
    best = max(wins, key=wins.__getitem__, default=0)
    return settings[best], np.nanmean(scores, axis=1).tolist()


def _gain(differences: np.ndarray) -> tuple[float, float]:
    """The mean of paired differences so far, and its standard error (zero for a single one)."""
    run = differences[~np.isnan(differences)]
    return float(run.mean()), float(run.std(ddof=1) / len(run) ** 0.5) if len(run) > 1 else 0.0
