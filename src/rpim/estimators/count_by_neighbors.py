"""The number of classes from the labels among a row's neighbors: mark and recapture, as ecologists count fish.

Labelled rows are marked ones. Around a marked row of class y lie rows of its own class and rows of others. Of the
neighbors of all marked rows let

    T   be all of them,
    S   those that carry the same label,
    W   those that carry another label.

Wrong neighbors are marked or not like rows anywhere, so there are W N / |L| of them, and T - W N / |L| of the own
class. Of these S are marked, so a class has the share

    c = S / (T - W N / |L|)

of its rows labelled, and n_known classes have |L| / c rows. If unknown classes are on average as large,

    K = N / (|L| / (c n_known)).

Small neighborhoods hold few wrong rows, large ones more labels: the size with the smallest standard error is taken.
That error comes from leaving out one known class after the other (the jackknife), which also takes away the bias of
the ratio. What it rests on: the known classes are to the unknown ones as any classes are to any others, in size and in
how much they are mixed up. Where a person has labelled the largest classes first, K comes out too small.

The share c is what Elkan and Noto, "Learning Classifiers from Only Positive and Unlabeled Data", KDD 2008, estimate
from a classifier; here neighbors do it, corrected for those that are wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rpim.estimators.class_count import ClassCount

NEIGHBORS = (2, 3, 4, 6, 8, 12, 16, 24)
"""The sizes of neighborhood that are tried."""
MAX_ROWS = 3000
"""Largest number of labelled rows whose neighbors are counted: more would change little."""
_BLOCK_ELEMENTS = 1 << 23  # 32 MB of float32 similarities a block
_LEAST_OWN = 0.3
"""A neighborhood with a smaller share of rows of the own class says more about the others: a smaller one is taken."""

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Recapture:
    """What was counted around the marked rows of each known class, in neighborhoods of one size. (n_known,) each"""

    same: FloatArray
    wrong: FloatArray
    neighbors: FloatArray
    marked: FloatArray
    n_rows: int

    @property
    def own_share(self) -> float:
        """The share of the neighbors that are of the own class: 1 - W N / (|L| T)."""
        return 1.0 - float(self.wrong.sum() / self.neighbors.sum()) * self.n_rows / float(self.marked.sum())

    def log_classes(self) -> tuple[float, float]:
        """Log K without the bias of the ratio, and its standard error, from leaving out each known class in turn."""
        counts = np.stack([self.same, self.wrong, self.neighbors, self.marked])  # (4, n_known)
        total, n = counts.sum(axis=1, keepdims=True), counts.shape[1]
        whole = float(self._log_classes(total, n)[0])
        if n < 3:  # what is left is a single class, which cannot say how classes differ
            return whole, float(np.log(2.0))
        without = self._log_classes(total - counts, n - 1)  # (n_known,)
        error = float(np.sqrt((n - 1) * without.var()))
        return n * whole - (n - 1) * float(without.mean()), error

    def _log_classes(self, counts: FloatArray, n_known: int) -> FloatArray:
        same, wrong, neighbors, marked = counts
        # How many rows there are to a marked one is a fact of the problem, whichever class is left out.
        own = np.maximum(neighbors - wrong * (self.n_rows / self.marked.sum()), 1.0)
        share = np.clip(same, 0.5, own) / own  # c, never nothing and never above one
        return np.asarray(np.log(self.n_rows * n_known * share / marked))


def count_by_neighbors(
    x: Tensor, labels: Tensor, *, generator: torch.Generator, on_rows: Callable[[int], None] = lambda n: None
) -> ClassCount:
    """The number of classes, from how many neighbors of labelled rows are labelled.

    Parameters
    ----------
    x : (N, D)
        The rows, the labelled ones first.
    labels : (n_labelled,)
    on_rows : callable
        Called with the number of rows that were processed, for progress.
    """
    looked = torch.randperm(len(labels), generator=generator)[:MAX_ROWS].to(x.device)
    tried: dict[int, tuple[float, float]] = {}
    for k, counted in _look_around(x, labels, looked, on_rows).items():
        if tried and counted.own_share < _LEAST_OWN:
            break
        tried[k] = counted.log_classes()
    chosen = min(tried, key=lambda k: tried[k][1])
    log_classes, error = tried[chosen]
    low, estimate, high = (round(float(np.exp(log_classes + z * error))) for z in (-1.96, 0.0, 1.96))
    return ClassCount(estimate, low, high, {k: float(np.exp(value)) for k, (value, _) in tried.items()}, chosen)


def _look_around(x: Tensor, labels: Tensor, looked: Tensor, on_rows: Callable[[int], None]) -> dict[int, Recapture]:
    """What is counted around these labelled rows, for each size of neighborhood."""
    n_known, n_labelled = int(labels.max()) + 1, len(labels)
    sizes = [k for k in NEIGHBORS if k < len(x)] or [1]
    unit = x - x.mean(dim=0)  # a direction that all rows share tells no neighbors apart
    unit.div_(unit.norm(dim=1, keepdim=True).clamp_min_(1e-12))
    same = torch.zeros(len(sizes), n_known, dtype=torch.float64, device=x.device)
    wrong = torch.zeros_like(same)
    last = torch.tensor(sizes, device=x.device) - 1
    for rows in torch.split(looked, max(1, _BLOCK_ELEMENTS // len(x))):
        similarity = unit[rows] @ unit.T  # (n, N)
        similarity.scatter_(1, rows[:, None], -torch.inf)
        neighbors = similarity.topk(max(sizes), dim=1).indices
        marked = neighbors < n_labelled
        own = marked & (labels[neighbors.clamp_max(n_labelled - 1)] == labels[rows, None])
        for total, which in ((same, own), (wrong, marked & ~own)):
            total.index_add_(1, labels[rows], which.cumsum(dim=1)[:, last].T.double())
        on_rows(len(rows))
    n_looked, n_marked = (
        torch.bincount(some, minlength=n_known).double().cpu().numpy() for some in (labels[looked], labels)
    )
    return {
        k: Recapture(s, w, k * n_looked, n_marked, len(x))
        for k, s, w in zip(sizes, same.cpu().numpy(), wrong.cpu().numpy(), strict=True)
    }
