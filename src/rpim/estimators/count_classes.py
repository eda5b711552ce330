"""The number of classes, where it is not given: estimated from neighbors, or by Max-ACC as published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from torch import Tensor

from rpim._common.errors import InputError
from rpim._common.progress import Progress
from rpim.core.head import Head
from rpim.core.kmeans import Rule, kmeans
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import Schedule, train
from rpim.core.transforms import Transform
from rpim.estimators.count_groups import N_SPLITS, count_groups
from rpim.estimators.problem import ClassCount
from rpim.metrics import IntArray, contingency, matched_rows

ESTIMATORS = ("neighbors", "max-acc", "max-acc-pim")
"""How the number of classes can be estimated; the first is what ``n_classes=None`` does."""


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

    Small neighborhoods hold few wrong rows, large ones more labels: we pick the size with the smallest jackknife
    standard error (leave one known class out); the jackknife also removes the bias of the ratio. The estimate assumes
    that known classes are a random draw of all classes, in size and in overlap: if the largest classes were labelled
    first, K is too small.

    The share c is what Elkan and Noto, "Learning Classifiers from Only Positive and Unlabeled Data", KDD 2008, estimate
    from a classifier; here neighbors do it, corrected for those that are wrong.

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


_N_RESAMPLES = 500
_TEMPERATURE = 25.0


@dataclass(frozen=True)
class Budget:
    """How thoroughly Max-ACC clusters and searches."""

    n_evaluations: int
    """Most values of K that Brent's method tries."""
    n_init: int
    rule: Rule
    objective: Objective
    schedule: Schedule


BUDGETS = {
    "default": Budget(
        n_evaluations=20,
        n_init=2,
        rule=Rule(max_iter=20),
        objective=Objective(trade_off=0.1, labels=False, pseudo_labels=False, mixed_labels=False),
        schedule=Schedule(learning_rate=1e-2, max_iter=60),
    ),
    "paper": Budget(
        n_evaluations=500,
        n_init=10,
        rule=Rule(max_iter=300),
        objective=Objective(trade_off=1.0, labels=False, pseudo_labels=False, mixed_labels=False),
        schedule=Schedule(learning_rate=1e-3, max_iter=1000, weight_decay=0.01),
    ),
}
"""Shortened, and as published: scikit-learn's k-means and SciPy's Brent with their defaults; PIM, of which no code for
this is public, with lambda 1, as its authors say, and its own training."""
PUBLISHED_MAX = 1000
"""The largest K that GCD's search tries."""


def max_acc(
    x: Tensor,
    labels: Tensor,
    *,
    clusterer: Literal["kmeans", "pim"] = "kmeans",
    at_least: int,
    at_most: int,
    budget: Budget = BUDGETS["default"],
    generator: torch.Generator,
    on_trial: Callable[[], None] = lambda: None,
) -> ClassCount:
    """Max-ACC, the published estimate of the number of classes.

    A clustering of all rows into K clusters, made without labels, is scored by its Hungarian accuracy on the labelled
    rows. Too few clusters merge known classes, too many split them, so the score peaks near the true number; Brent's
    method finds the peak with a handful of clusterings. GCD clusters with k-means, PIM with PIM itself.
    What it cannot see: an unknown class that is split, or merged with another one, costs nothing on the labelled rows.

    Vaze et al., "Generalized Category Discovery", CVPR 2022; Chiaroni et al., "Parametric Information Maximization for
    Generalized Category Discovery", ICCV 2023.

    The curve of the result has every K that was tried.

    Parameters
    ----------
    x : (N, D)
        The rows, the labelled ones first.
    labels : (n_labelled,)
    clusterer : {"kmeans", "pim"}
        What clusters the rows: k-means, or PIM trained without labels from its centroids.
    """
    n_known = int(labels.max()) + 1
    truth = labels.cpu().numpy()
    seed = int(torch.randint(2**31, (1,), generator=generator))
    hits: dict[int, IntArray] = {}
    """For each K the labelled rows of each known class that are in its cluster."""

    def loss(k: float) -> float:
        n_clusters = round(k)
        if n_clusters not in hits:
            # The same seed for every K: the curve then differs by K alone.
            found = _cluster(x, n_clusters, clusterer, budget, torch.Generator().manual_seed(seed))
            counts = contingency(truth, found[: len(labels)].cpu().numpy(), n_known, n_clusters)
            hits[n_clusters] = matched_rows(counts)
            on_trial()
        return -int(hits[n_clusters].sum())

    if at_most > at_least:
        options = {"maxiter": budget.n_evaluations, "xatol": 0.5}  # K is whole
        minimize_scalar(loss, bounds=(at_least, at_most), method="bounded", options=options)
    loss(at_least)
    best = max(hits, key=lambda k: (-loss(k), k))
    # Too few clusters may merge an unknown class with a known one at no cost to L; one too many begins to split. So of
    # equals the largest, and Brent, who may stop anywhere on a plateau, is followed to its far end.
    while best < at_most and loss(best + 1) <= loss(best):
        best += 1
    low, high = _interval(hits, generator)
    curve = {k: float(hits[k].sum() / len(truth)) for k in sorted(hits)}
    return ClassCount(best, min(low, best), max(high, best), curve, best)


def _cluster(x: Tensor, n_clusters: int, clusterer: str, budget: Budget, generator: torch.Generator) -> Tensor:
    run = kmeans(x, n_clusters, n_init=budget.n_init, rule=budget.rule, generator=generator)
    if clusterer == "kmeans":
        return run.labels
    head = Head(run.centroids, Transform({}), _TEMPERATURE)
    train(InMemoryBlocks(x, run.labels[:0], n_clusters), head, budget.objective, budget.schedule)
    return head.predict(x)


def _interval(hits: dict[int, IntArray], generator: torch.Generator) -> tuple[int, int]:
    """Where the peak would be with other known classes: 95 % of the peaks when these are drawn anew (the bootstrap)."""
    tried = np.array(sorted(hits))
    per_class = np.stack([hits[k] for k in tried])  # (tried, n_known)
    n_known = per_class.shape[1]
    drawn = torch.randint(n_known, (_N_RESAMPLES, n_known), generator=generator).numpy()
    peaks = [tried[per_class[:, classes].sum(axis=1).argmax()] for classes in drawn]
    low, high = np.percentile(peaks, [2.5, 97.5])
    return int(low), int(high)


def count_classes(
    x: Tensor,
    labels: Tensor,
    *,
    method: str = ESTIMATORS[0],
    preset: str = "default",
    at_least: int | None = None,
    at_most: int | None = None,
    generator: torch.Generator,
    progress: Progress,
) -> ClassCount:
    """Estimate the number of classes.

    Parameters
    ----------
    x : (N, D)
        The rows, the labelled ones first.
    labels : (n_labelled,)
        Codes 0 .. n_known - 1. Without any, groups are counted (`count_groups`).
    method : {"neighbors", "max-acc", "max-acc-pim"}
    preset : {"default", "paper"}
        The budget of Max-ACC: shortened, or as published.
    at_least, at_most : int, optional
        Bounds of the answer: by default the known classes, and so many that a new one has five rows.
    """
    n_known, n_unlabelled = int(labels.max()) + 1 if len(labels) else 0, len(x) - len(labels)
    low, high = _bounds(n_known, n_unlabelled, at_least, at_most)
    progress.stage("counting the classes")
    if low == high:
        return ClassCount(low, low, low, {}, low)
    if n_known == 0:
        if method != "neighbors":
            raise InputError(f"The method {method!r} compares with labels, but no row has one: leave it out.")
        progress.expect(N_SPLITS)
        return count_groups(x, generator=generator, on_split=lambda: progress.advance(1)).within(low, high)
    if method == "neighbors":
        progress.expect(min(len(labels), MAX_ROWS))
        return count_by_neighbors(x, labels, generator=generator, on_rows=progress.advance).within(low, high)
    if at_most is None:  # the shortened search wants a range that is not too wide
        high = min(high, max(low, PUBLISHED_MAX if preset == "paper" else 4 * n_known + 20))
    budget = BUDGETS[preset]
    progress.expect(min(budget.n_evaluations, 20))
    return max_acc(
        x,
        labels,
        clusterer="pim" if method == "max-acc-pim" else "kmeans",
        at_least=low,
        at_most=high,
        budget=budget,
        generator=generator,
        on_trial=lambda: progress.advance(1),
    )


def _bounds(n_known: int, n_unlabelled: int, at_least: int | None, at_most: int | None) -> tuple[int, int]:
    if n_unlabelled == 0:
        return n_known, n_known
    low = max(n_known, 2) if at_least is None else at_least
    high = max(low, n_known + n_unlabelled // 5) if at_most is None else min(at_most, n_known + n_unlabelled)
    if at_least is not None and at_least < n_known:
        raise InputError(f"At least {at_least} classes are asked for, but {n_known} are known already: ask for more.")
    if low > n_known + n_unlabelled:
        raise InputError(
            f"At least {low} classes are asked for, but {n_unlabelled} unlabelled rows and {n_known} known classes "
            f"can make no more than {n_known + n_unlabelled}."
        )
    if high < low:
        raise InputError(f"No number of classes is at least {low} and at most {high}: swap the two, or leave one out.")
    return low, high
