"""The number of classes, where it is not given: estimated from neighbors, or by Max-ACC as published (`search.py`).

Without labels nothing says how fine the classes should be: birds, or species of birds. What can be seen is how many
groups are reproducible (Lange, Roth, Braun and Buhmann, "Stability-Based Validation of Clustering Solutions", Neural
Computation 2004). Two halves of the rows are clustered apart, both clusterings assign all rows, and their adjusted
mutual information is high where both find the same groups. It falls for good once groups are split at random, so the
number of groups is the last peak of the curve over K.

    AMI(K) = (I(A; B) - E I) / (mean(H(A), H(B)) - E I)        A, B: the two assignments into K groups
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from rpim._common.errors import InputError
from rpim._common.progress import Progress
from rpim.core.kmeans import class_means, nearest_centroid
from rpim.core.preprocessing import principal_directions
from rpim.estimators.problem import ClassCount
from rpim.estimators.search import BUDGETS, PUBLISHED_MAX, max_acc

ESTIMATORS = ("neighbors", "max-acc", "max-acc-pim")
"""How the number of classes can be estimated; the first is what ``n_classes=None`` does."""


NEIGHBORS = (2, 3, 4, 6, 8, 12, 16, 24)
"""The sizes of neighborhood that are tried."""
MAX_ROWS = 3000
"""Largest number of labelled rows whose neighbors are counted: more would change little."""
_BLOCK_ELEMENTS = 1 << 23  # 32 MB of float32 similarities a block
_LEAST_OWN = 0.3
"""A neighborhood with a smaller share of rows of the own class says more about the others: a smaller one is taken."""
N_SPLITS = 5
HALF = 2000
"""Largest number of rows in a half: Ward's clustering takes the square of it."""
_N_DIRECTIONS = 128
_PROMINENCE = 0.02  # how far the curve falls on both sides of a peak
_ROWS_PER_GROUP = 6  # in a half, at the largest K

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


def count_groups(x: Tensor, *, generator: torch.Generator, on_split: Callable[[], None] = lambda: None) -> ClassCount:
    """Estimate the number of groups by their reproducibility in two halves of the rows.

    The interval of the result is the range of the estimates of single pairs of halves. It says how repeatable the
    estimate is, not how close to the number of classes that a person would name.

    Parameters
    ----------
    x : (N, D)
        Rows of unit length.
    on_split : callable
        Called after each pair of halves, for progress.

    Examples
    --------
    >>> centres = torch.eye(7).repeat_interleave(40, dim=0)
    >>> noise = 0.1 * torch.randn(280, 7, generator=torch.Generator().manual_seed(0))
    >>> count_groups(normalize(centres + noise), generator=torch.Generator().manual_seed(0)).n_classes
    7
    """
    from sklearn.metrics import adjusted_mutual_info_score  # late, as below: a tenth of the time of the import

    rows = torch.randperm(len(x), generator=generator)[: 2 * HALF].to(x.device)
    x = x[rows] - x.mean(dim=0)
    if x.shape[1] > _N_DIRECTIONS:
        x = x @ principal_directions(x, _N_DIRECTIONS)
    x = normalize(x, dim=1, eps=1e-12)
    grid = candidates(len(x) // 2)
    curves = []
    for _ in range(N_SPLITS):
        halves = torch.randperm(len(x), generator=generator).to(x.device).tensor_split(2)
        assigned = [_assignments(x, half, grid) for half in halves]
        curves.append([adjusted_mutual_info_score(a, b) for a, b in zip(*assigned, strict=True)])
        on_split()
    mean = np.mean(curves, axis=0)
    found = grid[last_peak(mean)]
    single = [grid[last_peak(np.asarray(curve))] for curve in curves]
    curve = {k: float(value) for k, value in zip(grid, mean, strict=True)}
    return ClassCount(found, min(*single, found), max(*single, found), curve, found)


def candidates(n_rows: int) -> list[int]:
    """The values of K to try with this many rows in a half: every one up to 12, then each a quarter larger.

    >>> candidates(200)
    [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15, 19, 24, 30]
    """
    found = list(range(2, 13))
    while found[-1] < n_rows:
        found.append(round(1.25 * found[-1]))
    return [k for k in found if k <= max(3, n_rows // _ROWS_PER_GROUP)]


def last_peak(values: FloatArray) -> int:
    """The place of the last peak that stands out of the noise; the end of it if it is flat.

    >>> last_peak(np.array([0.5, 0.8, 0.8, 0.6, 0.4, 0.41, 0.4]))
    2
    """
    from scipy.signal import find_peaks

    low = float(values.min()) - 1.0
    _, found = find_peaks(np.pad(values, 1, constant_values=low), prominence=_PROMINENCE, plateau_size=1)
    return int(found["right_edges"][-1]) - 1


def _assignments(x: Tensor, half: Tensor, grid: list[int]) -> list[NDArray[np.int64]]:
    """The group of each row for every K, by the centroids of Ward's clusters of one half. (N,) each"""
    from scipy.cluster.hierarchy import fcluster, linkage

    tree = linkage(x[half].double().cpu().numpy(), "ward")
    found = []
    for k in grid:
        clusters = torch.from_numpy(fcluster(tree, k, "maxclust").astype(np.int64) - 1).to(x.device)
        n_clusters = int(clusters.max()) + 1
        centroids = class_means(x[half], clusters, x.new_zeros(n_clusters, x.shape[1]))
        found.append(nearest_centroid(x, centroids)[0].cpu().numpy())
    return found
