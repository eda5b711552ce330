"""The start of a single training: initial prototypes, and the assumed class sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rpim.core.kmeans import Rule, merged_clusters, nearest_centroid, semi_supervised_kmeans

ClassSizes = Literal["equal", "estimated"]


@dataclass(frozen=True)
class Start:
    """Initial prototypes, and the class of each row."""

    prototypes: Tensor  # (K, D)
    labels: Tensor  # (N,)

    def shares(self, class_sizes: ClassSizes) -> Tensor | None:
        """The class shares that the training assumes; None for equal ones. (K,)"""
        return estimated_shares(self.labels, self.prototypes) if class_sizes == "estimated" else None


def estimated_shares(labels: Tensor, prototypes: Tensor) -> Tensor:
    """The share of the rows in each class, with add-one smoothing: an empty class may still gain rows. (K,)

    >>> estimated_shares(torch.tensor([0, 0, 0, 1, 1]), torch.zeros(3, 2)).tolist()
    [0.5, 0.375, 0.125]
    """
    counts = torch.bincount(labels, minlength=len(prototypes)).to(prototypes.dtype) + 1.0
    return counts / counts.sum()


def single_start(
    x: Tensor, labels: Tensor, n_classes: int, *, n_init: int, rule: Rule | None = None, generator: torch.Generator
) -> Start:
    """The best of ``n_init`` restarts of semi-supervised k-means by inertia; the paper's has ``PIM_RULE``.

    Parameters
    ----------
    x : (N, D)
        The rows, the labelled ones first.
    labels : (n_labelled,)
        Codes of the first rows.
    """
    best = semi_supervised_kmeans(x, labels, n_classes, n_init=n_init, rule=rule, generator=generator)
    return Start(best.centroids, best.labels)


def merged_start(x: Tensor, labels: Tensor, n_classes: int, *, generator: torch.Generator) -> Start:
    """Merged clusters; each row is in the class of the nearest one, and labelled rows are pinned to their class.

    Parameters
    ----------
    x : (N, D)
        The rows, the labelled ones first.
    labels : (n_labelled,)
        Codes of the first rows.
    """
    prototypes = merged_clusters(x, labels, n_classes, generator=generator)
    nearest, _ = nearest_centroid(x, prototypes)
    nearest[: len(labels)] = labels
    return Start(prototypes, nearest)
