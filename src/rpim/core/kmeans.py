"""k-means and semi-supervised k-means, and the start of a training that they give: prototypes and class sizes.

Labelled rows are pinned to the centroid of their class; the other centroids are seeded by k-means++ among the
unlabelled rows, away from the labelled centroids. Distances come from one matrix product per pass, block by block:
never more than a block x K matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

ClassSizes = Literal["equal", "estimated"]
_SEED_ROWS = 20  # per cluster, from which the seeds of small clusters are drawn
_BLOCK_ELEMENTS = 1 << 21  # 8 MB of float32 distances per block, which stay in the last-level cache


@dataclass(frozen=True)
class Rule:
    """How a restart is seeded, when it ends, and by what the best one is chosen."""

    max_iter: int = 50
    tol: float = 1e-4
    """A restart ends when the squared shift of all centroids falls below ``tol`` times the variance of the rows."""
    n_candidates: int | None = None
    """Rows drawn for each seed, of which the best is kept; None for 2 + log K, as in scikit-learn."""
    inertia: Literal["squared", "distance"] = "squared"
    """The sum of squared distances, of labelled rows to their own centroid; or that of distances to the nearest one."""


GCD_RULE = Rule(max_iter=200, tol=0.0, n_candidates=1)
"""Vaze et al.: plain k-means++, up to 200 rounds."""
PIM_RULE = Rule(max_iter=100, tol=0.0, n_candidates=1, inertia="distance")
"""Chiaroni et al.: plain k-means++, up to 100 rounds, until no row changes; the restart with the smallest distances."""


@dataclass(frozen=True)
class Clustering:
    """Centroids, the assignment of each row, and the inertia."""

    centroids: Tensor  # (K, D)
    labels: Tensor  # (N,)
    inertia: float
    n_iter: int


def kmeans(
    x: Tensor,
    n_clusters: int,
    *,
    n_init: int = 10,
    rule: Rule | None = None,
    generator: torch.Generator | None = None,
) -> Clustering:
    """Plain k-means: the best of ``n_init`` restarts by inertia."""
    no_labels = torch.empty(0, dtype=torch.long, device=x.device)
    return semi_supervised_kmeans(x, no_labels, n_clusters, n_init=n_init, rule=rule, generator=generator)


def semi_supervised_kmeans(
    x: Tensor,
    labels: Tensor,
    n_clusters: int,
    *,
    n_init: int = 10,
    rule: Rule | None = None,
    generator: torch.Generator | None = None,
) -> Clustering:
    """k-means whose labelled rows stay in the cluster of their class: the best of ``n_init`` restarts.

    Parameters
    ----------
    x : (N, D)
        The rows, the labelled ones first.
    labels : (n_labelled,)
        Codes 0 .. n_known - 1 of the first rows; cluster k < n_known is class k.
    n_clusters : int
        K, at least the number of known classes.
    rule : Rule, optional
        How restarts begin, end and are compared.
    """
    runs = restarts(x, labels, n_clusters, n_init=n_init, rule=rule, generator=generator)
    return min(runs, key=lambda run: run.inertia)


def restarts(
    x: Tensor,
    labels: Tensor,
    n_clusters: int,
    *,
    n_init: int,
    rule: Rule | None = None,
    generator: torch.Generator | None = None,
) -> list[Clustering]:
    """All restarts of ``semi_supervised_kmeans``, in order."""
    rule = Rule() if rule is None else rule
    generator = generator if generator is not None else torch.Generator().manual_seed(0)
    squared_norms = (x * x).sum(dim=1)  # (N,)
    known = _known_means(x, labels)
    variance = max(float(squared_norms.mean() - (x.mean(dim=0) ** 2).sum()), 1e-6)  # of all features together
    runs = []
    for _ in range(n_init):
        centroids = plus_plus(
            x[len(labels) :], squared_norms[len(labels) :], known, n_clusters, generator, rule.n_candidates
        )
        run = _lloyd(x, squared_norms, labels, centroids, rule.max_iter, rule.tol * variance)
        runs.append(run if rule.inertia == "squared" else replace(run, inertia=_sum_of_distances(x, run.centroids)))
    return runs


def _sum_of_distances(x: Tensor, centroids: Tensor) -> float:
    _, scores = nearest_centroid(x, centroids)
    return float((scores + (x * x).sum(dim=1)).clamp_min(0.0).double().sqrt().sum())


def merged_clusters(
    x: Tensor, labels: Tensor, n_clusters: int, *, generator: torch.Generator, factor: int = 2, max_iter: int = 8
) -> Tensor:
    """Centroids by over-clustering and Ward merging, the labelled classes first. (K, D)

    k-means divides the unlabelled rows into ``factor * K`` small clusters. Together with the labelled classes they are
    merged by Ward's criterion until K are left; labelled classes never merge with each other. k-means alone often puts
    two centroids into one class and one between two others, which no later step repairs. Small clusters seldom span
    two classes.
    """
    unlabelled, known = x[len(labels) :], _known_means(x, labels)
    centroids, sizes = known, torch.bincount(labels)
    if len(unlabelled):
        small = _small_clusters(unlabelled, min(factor * n_clusters, len(unlabelled)), max_iter, generator)
        centroids = torch.cat([known, small.centroids])
        sizes = torch.cat([sizes, torch.bincount(small.labels, minlength=len(small.centroids))])
    used = sizes > 0
    if int(used.sum()) < n_clusters:  # fewer distinct rows than clusters: nothing to merge
        return plus_plus(unlabelled, (unlabelled * unlabelled).sum(dim=1), known, n_clusters, generator)
    merged = _ward(centroids[used].double().cpu().numpy(), sizes[used].double().cpu().numpy(), len(known), n_clusters)
    return torch.as_tensor(merged, dtype=x.dtype, device=x.device)


def _small_clusters(x: Tensor, n_clusters: int, max_iter: int, generator: torch.Generator) -> Clustering:
    """k-means with seeds from a subset of the rows: seeding on all rows costs as much as the iterations."""
    some = x[torch.randperm(len(x), generator=generator)[: _SEED_ROWS * n_clusters].to(x.device)]
    seeds = plus_plus(some, (some * some).sum(dim=1), x[:0], n_clusters, generator)
    no_labels = torch.empty(0, dtype=torch.long, device=x.device)
    return _lloyd(x, (x * x).sum(dim=1), no_labels, seeds, max_iter, tol=0.0)


def _ward(
    centroids: NDArray[np.float64], sizes: NDArray[np.float64], n_known: int, n_clusters: int
) -> NDArray[np.float64]:
    """Merge clusters until ``n_clusters`` are left, never two of the first ``n_known``, which keep their position."""
    is_known = np.arange(len(sizes)) < n_known
    squared = (centroids**2).sum(axis=1)
    apart = np.maximum(squared[:, None] + squared - 2.0 * centroids @ centroids.T, 0.0)
    cost = apart * (sizes[:, None] * sizes / (sizes[:, None] + sizes))  # increase of the sum of squared distances
    cost[(is_known[:, None] & is_known) | np.eye(len(sizes), dtype=bool)] = np.inf
    nearest = cost.argmin(axis=1)
    for _ in range(len(sizes) - n_clusters):
        i = int(cost[np.arange(len(sizes)), nearest].argmin())
        i, j = sorted((i, int(nearest[i])))  # a known one comes first, and keeps its position
        both = sizes[i] + sizes[j]
        # The update of Lance and Williams: the costs of the merged cluster, from those of its two parts.
        merged = ((sizes[i] + sizes) * cost[i] + (sizes[j] + sizes) * cost[j] - sizes * cost[i, j]) / (both + sizes)
        merged[[i, j]] = np.inf
        centroids[i] = (sizes[i] * centroids[i] + sizes[j] * centroids[j]) / both
        sizes[i], sizes[j] = both, 0.0
        cost[j] = cost[:, j] = np.inf
        cost[i] = cost[:, i] = merged
        stale = np.flatnonzero((nearest == i) | (nearest == j) | (cost[:, i] < cost[np.arange(len(sizes)), nearest]))
        nearest[stale] = cost[stale].argmin(axis=1)
        nearest[i] = cost[i].argmin()
    return centroids[sizes > 0]


def nearest_centroid(x: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest centroid of each row, and |c|^2 - 2<x, c> for it (the squared distance less |x|^2). (N,), (N,)"""
    offsets = (centroids * centroids).sum(dim=1)
    block = max(1, _BLOCK_ELEMENTS // len(centroids))
    labels = torch.empty(len(x), dtype=torch.long, device=x.device)
    scores = torch.empty(len(x), dtype=x.dtype, device=x.device)
    for start in range(0, len(x), block):
        rows = slice(start, start + block)
        torch.min(torch.addmm(offsets, x[rows], centroids.T, alpha=-2.0), dim=1, out=(scores[rows], labels[rows]))
    return labels, scores


def plus_plus(
    x: Tensor,
    squared_norms: Tensor,
    known: Tensor,
    n_clusters: int,
    generator: torch.Generator,
    n_candidates: int | None = None,
) -> Tensor:
    """k-means++: each new centroid is a row drawn with probability proportional to its squared distance so far.

    The distances start from the ``known`` centroids, so that new ones are far from them. A few candidates are drawn
    for each, and the one that lowers the sum of distances most is used, as in scikit-learn.
    """
    n_new = n_clusters - len(known)
    n_candidates = n_candidates or 2 + int(torch.log(torch.tensor(float(max(n_new, 1)))))
    centroids = x.new_empty(n_clusters, x.shape[1])
    centroids[: len(known)] = known
    if n_new == 0:
        return centroids
    if len(x) == 0:
        return _repeat_rows(centroids, known, n_new, generator)
    if len(known):
        distance = (nearest_centroid(x, known)[1] + squared_norms).clamp_min_(0.0)
    else:
        first = int(torch.randint(len(x), (1,), generator=generator))
        centroids[0] = x[first]
        distance = (squared_norms + squared_norms[first] - 2.0 * (x @ x[first])).clamp_min_(0.0)
    for k in range(max(len(known), 1), n_clusters):
        # Draw by the cumulative sum: torch.multinomial is limited to 2^24 rows.
        cumulative = distance.double().cumsum(dim=0)
        total = cumulative[-1]
        draws = torch.rand(n_candidates, dtype=torch.float64, generator=generator).to(x.device) * total
        picks = torch.searchsorted(cumulative, draws).clamp_max_(len(x) - 1)
        if float(total) <= 0.0:  # every row coincides with a centroid
            picks = torch.randint(len(x), (n_candidates,), generator=generator).to(x.device)
        candidates = x[picks]  # (c, D)
        # A row for each candidate: columns would be too few for the vector units.
        away = torch.addmm(squared_norms, candidates, x.T, alpha=-2.0).add_(squared_norms[picks, None])
        away = torch.minimum(away.clamp_min_(0.0), distance)  # (c, n)
        best = int(away.sum(dim=1).argmin())
        centroids[k] = candidates[best]
        distance = away[best]
    return centroids


def _repeat_rows(centroids: Tensor, known: Tensor, n_new: int, generator: torch.Generator) -> Tensor:
    """Repeat known centroids as new ones, if there is no unlabelled row to draw from."""
    picks = torch.randint(len(known), (n_new,), generator=generator)
    centroids[len(known) :] = known[picks.to(known.device)]
    return centroids


def _known_means(x: Tensor, labels: Tensor) -> Tensor:
    """The means of the labelled classes, whose rows come first. (n_known, D)"""
    n_known = int(labels.max()) + 1 if len(labels) else 0
    return class_means(x[: len(labels)], labels, x.new_zeros(n_known, x.shape[1]))


def class_means(x: Tensor, labels: Tensor, fallback: Tensor, sizes: Tensor | None = None) -> Tensor:
    """The mean of the rows of each class; for an empty class its row of ``fallback``. (K, D)"""
    sizes = torch.bincount(labels, minlength=len(fallback)) if sizes is None else sizes
    sums = torch.zeros_like(fallback).index_add_(0, labels, x)
    return torch.where(sizes[:, None] > 0, sums / sizes.clamp_min(1)[:, None], fallback)


def _lloyd(
    x: Tensor, squared_norms: Tensor, pinned: Tensor, centroids: Tensor, max_iter: int, tol: float
) -> Clustering:
    n_pinned = len(pinned)
    labels = torch.empty(len(x), dtype=torch.long, device=x.device)
    labels[:n_pinned] = pinned
    unlabelled = x[n_pinned:]
    n_iter = 0
    while n_iter < max_iter:
        n_iter += 1
        labels[n_pinned:], scores = nearest_centroid(unlabelled, centroids)
        sizes = torch.bincount(labels, minlength=len(centroids))
        new = class_means(x, labels, centroids, sizes)
        _repair_empty(new, sizes, unlabelled, scores + squared_norms[n_pinned:], labels[n_pinned:])
        shift = float(((new - centroids) ** 2).sum())
        centroids = new
        if shift <= tol:
            break
    labels[n_pinned:], scores = nearest_centroid(unlabelled, centroids)
    inertia = float((scores + squared_norms[n_pinned:]).clamp_min(0.0).double().sum())
    if n_pinned:
        inertia += float(((x[:n_pinned] - centroids[pinned]) ** 2).sum(dtype=torch.float64))
    return Clustering(centroids, labels, inertia, n_iter)


def _repair_empty(centroids: Tensor, sizes: Tensor, unlabelled: Tensor, distance: Tensor, labels: Tensor) -> None:
    """Move each empty cluster to one of the rows farthest from their centroid."""
    empty = torch.nonzero(sizes == 0).flatten()
    if len(empty) == 0 or len(unlabelled) == 0:
        return
    left = sizes.tolist()
    order = iter(torch.topk(distance, min(len(distance), len(centroids) + len(empty))).indices.tolist())
    for cluster in empty.tolist():
        for row in order:
            home = int(labels[row])
            if left[home] > 1:  # a repair must not empty a cluster itself
                left[home] -= 1
                centroids[cluster] = unlabelled[row]
                break


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
