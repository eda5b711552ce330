"""Where a single training starts, and what it takes the sizes of the classes to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rpim.core.kmeans import semi_supervised_kmeans

ClassSizes = Literal["equal", "estimated"]


@dataclass(frozen=True)
class Start:
    """Initial prototypes, and the class of each row."""

    prototypes: Tensor  # (K, D)
    labels: Tensor  # (N,)

    def shares(self, class_sizes: ClassSizes) -> Tensor | None:
        """The shares that the classes are taken to have in the training; None for equal ones. (K,)"""
        return estimated_shares(self.labels, self.prototypes) if class_sizes == "estimated" else None


def estimated_shares(labels: Tensor, prototypes: Tensor) -> Tensor:
    """The share of the rows that each class has, as if it had one row more: a class without rows may yet get some. (K,)

    >>> estimated_shares(torch.tensor([0, 0, 0, 1, 1]), torch.zeros(3, 2)).tolist()
    [0.5, 0.375, 0.125]
    """
    counts = torch.bincount(labels, minlength=len(prototypes)).to(prototypes.dtype) + 1.0
    return counts / counts.sum()


def single_start(x: Tensor, labels: Tensor, n_classes: int, *, n_init: int, generator: torch.Generator) -> Start:
    """The centroids of the best of ``n_init`` restarts by inertia, as the paper starts."""
    best = semi_supervised_kmeans(x, labels, n_classes, n_init=n_init, generator=generator)
    return Start(best.centroids, best.labels)
