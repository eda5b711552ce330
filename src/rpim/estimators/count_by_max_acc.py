"""Max-ACC, the published estimate of the number of classes.

For a number of clusters K, a clustering of all rows that never looks at the labels is scored by its Hungarian accuracy
on the labelled ones. Too few clusters merge known classes, too many split them, so the score peaks near the true
number; Brent's method finds the peak with a handful of clusterings. GCD clusters with k-means, PIM with PIM itself.
What it cannot see: an unknown class that is split, or merged with another one, costs nothing on the labelled rows.

Vaze et al., "Generalized Category Discovery", CVPR 2022; Chiaroni et al., "Parametric Information Maximization for
Generalized Category Discovery", ICCV 2023.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from rpim.core.head import Head
from rpim.core.kmeans import kmeans
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import Schedule, train
from rpim.core.transforms import Transform
from rpim.estimators.class_count import ClassCount
from rpim.metrics import IntArray, contingency, matched_rows

N_EVALUATIONS = 20
_N_RESAMPLES = 500
_TEMPERATURE = 25.0
_PIM = Objective(trade_off=0.1, labels=False, pseudo_labels=False, mixed_labels=False)
_PIM_SCHEDULE = Schedule(learning_rate=1e-2, max_iter=60)


def max_acc(
    x: Tensor,
    labels: Tensor,
    *,
    clusterer: Literal["kmeans", "pim"] = "kmeans",
    at_least: int,
    at_most: int,
    generator: torch.Generator,
    on_trial: Callable[[], None] = lambda: None,
) -> ClassCount:
    """The K between the bounds with the best accuracy on L; the curve has all that were tried.

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
            found = _cluster(x, n_clusters, clusterer, torch.Generator().manual_seed(seed))
            counts = contingency(truth, found[: len(labels)].cpu().numpy(), n_known, n_clusters)
            hits[n_clusters] = matched_rows(counts)
            on_trial()
        return -int(hits[n_clusters].sum())

    if at_most > at_least:
        minimize_scalar(
            loss, bounds=(at_least, at_most), method="bounded", options={"maxiter": N_EVALUATIONS, "xatol": 0.5}
        )
    loss(at_least)
    best = max(hits, key=lambda k: (-loss(k), k))
    # Too few clusters may merge an unknown class with a known one at no cost to L; one too many begins to split. So of
    # equals the largest, and Brent, who may stop anywhere on a plateau, is followed to its far end.
    while best < at_most and loss(best + 1) <= loss(best):
        best += 1
    low, high = _interval(hits, generator)
    curve = {k: float(hits[k].sum() / len(truth)) for k in sorted(hits)}
    return ClassCount(best, min(low, best), max(high, best), curve, best)


def _cluster(x: Tensor, n_clusters: int, clusterer: str, generator: torch.Generator) -> Tensor:
    run = kmeans(x, n_clusters, n_init=2, max_iter=20, generator=generator)
    if clusterer == "kmeans":
        return run.labels
    head = Head(run.centroids, Transform({}), _TEMPERATURE)
    train(InMemoryBlocks(x, run.labels[:0], n_clusters), head, _PIM, _PIM_SCHEDULE)
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
