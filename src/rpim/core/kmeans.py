"""k-means and semi-supervised k-means, and the start of a training that they give: prototypes and class sizes.

Labelled rows are pinned to the centroid of their class; the other centroids are seeded by k-means++ among the
unlabelled rows, away from the labelled centroids. Distances come from one matrix product per pass, block by block:
never more than a block x K matrix.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

ClassSizes = Literal["equal", "estimated"]
_SEED_ROWS = 20  # per cluster, from which the seeds of small clusters are drawn
_MANY_SEEDS = 2000  # beyond, they are drawn group by group
_GROUP_ROUNDS = 5  # of k-means for the groups
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
    return _ward(centroids[used].double(), sizes[used].double(), len(known), n_clusters).to(x.dtype)


def _small_clusters(x: Tensor, n_clusters: int, max_iter: int, generator: torch.Generator) -> Clustering:
    """k-means with seeds from a subset of the rows: seeding on all rows costs as much as the iterations."""
    some = x[torch.randperm(len(x), generator=generator)[: _SEED_ROWS * n_clusters].to(x.device)]
    no_labels = torch.empty(0, dtype=torch.long, device=x.device)
    return _lloyd(x, (x * x).sum(dim=1), no_labels, _seeds(some, n_clusters, generator), max_iter, tol=0.0)


def _seeds(x: Tensor, n_clusters: int, generator: torch.Generator) -> Tensor:
    """k-means++; many seeds are drawn within groups of similar rows, about as many groups as seeds in each. (K, D)

    A seed is then compared with the rows of its group alone, and the cost grows with the square root of the seeds.
    """
    if n_clusters <= _MANY_SEEDS:
        return plus_plus(x, (x * x).sum(dim=1), x[:0], n_clusters, generator)
    groups = _small_clusters(x, math.isqrt(n_clusters), _GROUP_ROUNDS, generator)
    sizes = torch.bincount(groups.labels, minlength=len(groups.centroids))
    # In proportion to the rows: the number of seeds up to the end of each group, rounded.
    ends = (sizes.cumsum(0).double() * n_clusters / len(x)).round().long()
    counts = ends.diff(prepend=ends.new_zeros(1))
    parts = torch.split(x[torch.argsort(groups.labels, stable=True)], sizes.tolist())
    drawn = zip(parts, counts.tolist(), strict=True)
    return torch.cat([plus_plus(p, (p * p).sum(dim=1), x[:0], n, generator) for p, n in drawn if n])


def _ward(centroids: Tensor, sizes: Tensor, n_known: int, n_clusters: int) -> Tensor:
    """Merge clusters until ``n_clusters`` are left, never two of the first ``n_known``, which keep their position.

    Clusters that are each other's nearest are merged at once: Ward's criterion is reducible, so that no other merge
    comes between them (Murtagh, "A survey of recent advances in hierarchical clustering algorithms", 1983). The result
    is that of one merge at a time in the order of their costs, but no cost matrix is stored or updated.
    """
    n_merges = len(sizes) - n_clusters
    parent = torch.arange(len(sizes), device=sizes.device)
    first, second, costs = parent[:0], parent[:0], sizes[:0]  # of every merge so far
    c, s, names = centroids, sizes, parent.clone()  # of the clusters that are left
    while n_merges > 0:
        nearest, cost = _cheapest_merges(c, s, int((names < n_known).sum()))
        # Mutual pairs are merged even if cheaper merges elsewhere may make them one too many: those are dropped below.
        limit = costs.sort().values[n_merges - 1] if len(costs) >= n_merges else torch.inf
        number = torch.arange(len(s), device=s.device)
        i = torch.nonzero((nearest[nearest] == number) & (number < nearest) & (cost < limit)).flatten()
        if len(i) == 0:
            break
        j = nearest[i]  # a known cluster is the first of the two, and keeps its position
        first, second = torch.cat([first, names[i]]), torch.cat([second, names[j]])
        costs = torch.cat([costs, cost[i]])
        both = s[i] + s[j]
        c = c.index_copy(0, i, (s[i, None] * c[i] + s[j, None] * c[j]) / both[:, None])
        s = s.index_copy(0, i, both)
        left = torch.ones_like(s, dtype=torch.bool).index_fill_(0, j, False)
        c, s, names = c[left], s[left], names[left]
    # Of a merge and the merges within it, the latter are cheaper, or as cheap and come first.
    kept = torch.argsort(costs, stable=True)[:n_merges].sort().values
    for i, j in zip(first[kept].tolist(), second[kept].tolist(), strict=True):
        parent[parent == j] = i
    _, member_of = torch.unique(parent, return_inverse=True)
    weight = sizes.new_zeros(n_clusters).index_add_(0, member_of, sizes)
    total = centroids.new_zeros(n_clusters, centroids.shape[1]).index_add_(0, member_of, centroids * sizes[:, None])
    return total / weight[:, None]


def _cheapest_merges(c: Tensor, sizes: Tensor, n_known: int) -> tuple[Tensor, Tensor]:
    """The cluster whose merge with each increases the sum of squared distances least, and by how much. (n,), (n,)

    Infinite between two of the first ``n_known``.
    """
    nearest, cost = torch.empty(len(c), dtype=torch.long, device=c.device), torch.empty_like(sizes)
    squared = (c * c).sum(dim=1)
    for rows in torch.split(torch.arange(len(c), device=c.device), max(1, _BLOCK_ELEMENTS // len(c))):
        apart = torch.addmm(squared, c[rows], c.T, alpha=-2.0).add_(squared[rows, None]).clamp_min_(0.0)
        apart.mul_(sizes[rows, None]).mul_(sizes).div_(sizes[rows, None] + sizes)  # (b, n)
        apart[rows < n_known, :n_known] = torch.inf
        apart.scatter_(1, rows[:, None], torch.inf)
        cost[rows], nearest[rows] = torch.min(apart, dim=1)
    return nearest, cost


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
