"""Held-out splits: the paper chooses the weight decay on one, self-training its threshold.

A split is made of the labelled rows alone: half of the known classes are treated as new, and a quarter of the rows of
the others lose their label. The truth is known, so any hyperparameters can be scored.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rpim.core.row_blocks import InMemoryBlocks
from rpim.metrics import gcd_accuracy

MIN_CLASSES = 4
"""Fewer known classes cannot be split into two halves of at least two."""
MAX_ROWS = 10_000
"""Largest number of labelled rows in a split (but at least four of each class): enough to compare hyperparameters."""


@dataclass(frozen=True)
class HeldOutSplit:
    """A smaller discovery problem made of labelled rows, whose truth is known."""

    x: Tensor  # (n, D), the rows that keep their label first
    labels: Tensor  # (n_kept,)
    truth: np.ndarray  # (n,) known classes are 0 .. n_known - 1
    n_known: int
    n_classes: int

    def engine(self) -> InMemoryBlocks:
        """The rows, ready to train on; each training needs its own."""
        return InMemoryBlocks(self.x, self.labels, self.n_classes)

    def score(self, predicted: Tensor) -> float:
        """GCD accuracy (All) on the rows whose label was hidden."""
        hidden = slice(len(self.labels), None)
        return gcd_accuracy(self.truth[hidden], predicted[hidden].cpu().numpy(), np.arange(self.n_known)).all


def can_split(labels: Tensor) -> bool:
    """Whether there are enough classes and rows for a held-out split."""
    sizes = torch.bincount(labels)
    return bool(len(sizes) >= MIN_CLASSES and int(sizes.min()) >= 1 and len(labels) >= 2 * len(sizes))


def held_out_split(x: Tensor, labels: Tensor, generator: torch.Generator, share_new: float = 0.5) -> HeldOutSplit:
    """Hide the labels of a share of the classes (the paper: half), and of a quarter of the rows of the others."""
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
    return HeldOutSplit(x[index], truth[:n_kept].clone(), truth.cpu().numpy(), n_known, n_classes)
