"""The number of classes, where it is not given: Max-ACC, as GCD estimates it.

For a number of clusters K, plain k-means on all rows is scored by its Hungarian accuracy on the labelled ones. Too few
clusters merge known classes, too many split them, so the score peaks near the true number; Brent's method finds the
peak with a handful of clusterings. What it cannot see: an unknown class that is split, or merged with another unknown
one, costs nothing on the labelled rows.

Vaze et al., "Generalized Category Discovery", CVPR 2022.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from rpim.centroids import kmeans
from rpim.metrics import clustering_accuracy

N_EVALUATIONS = 20


def max_acc(
    x: Tensor,
    labels: Tensor,
    *,
    upper: int | None = None,
    generator: torch.Generator,
    on_trial: Callable[[], None] | None = None,
) -> tuple[int, dict[int, float]]:
    """The K between the number of known classes and ``upper`` with the best accuracy on L, and all that were tried.

    Parameters
    ----------
    x : (N, D)
        The rows, the labelled ones first.
    labels : (n_labelled,)
    upper : int, optional
        By default four times the known classes and twenty more, but with five unlabelled rows to each new class.
    """
    n_known = int(labels.max()) + 1
    n_unlabelled = len(x) - len(labels)
    if n_unlabelled == 0:
        return n_known, {}
    upper = min(4 * n_known + 20, n_known + max(1, n_unlabelled // 5)) if upper is None else upper
    truth = labels.cpu().numpy()
    seed = int(torch.randint(2**31, (1,), generator=generator))
    tried: dict[int, float] = {}

    def loss(k: float) -> float:
        n_clusters = round(k)
        if n_clusters not in tried:
            # The same seed for every K: the curve then differs by K alone.
            run = kmeans(x, n_clusters, n_init=2, max_iter=20, generator=torch.Generator().manual_seed(seed))
            tried[n_clusters] = clustering_accuracy(truth, run.labels[: len(labels)].cpu().numpy())
            if on_trial is not None:
                on_trial()
        return -tried[n_clusters]

    if upper > n_known:
        minimize_scalar(loss, bounds=(n_known, upper), method="bounded",
                        options={"maxiter": N_EVALUATIONS, "xatol": 0.5})
    loss(n_known)
    best = max(tried, key=lambda k: (tried[k], k))
    # Too few clusters may merge an unknown class with a known one at no cost to L; one too many begins to split. So of
    # equals the largest, and Brent, who may stop anywhere on a plateau, is followed to its far end.
    while best < upper and -loss(best + 1) >= tried[best]:
        best += 1
    return best, dict(sorted(tried.items()))
