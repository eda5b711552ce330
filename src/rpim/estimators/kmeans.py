"""k-means, the floor of every comparison.

MacQueen, "Some methods for classification and analysis of multivariate observations", 1967; seeded by k-means++ (Arthur
and Vassilvitskii, SODA 2007).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from scipy.optimize import linear_sum_assignment

from rpim.core.kmeans import Clustering, kmeans
from rpim.estimators.base import Problem
from rpim.estimators.gcd import GCD


class KMeans(GCD):
    """k-means on all rows, without a look at the labels; its clusters then get the names of the classes they fit best.

    A label serves to name a cluster alone: the known classes go to the clusters that share most labelled rows with
    them (one to one), and the clusters that are left are the new classes. Parameters and attributes as in `GCD`.

    On stored embeddings nothing had to change.
    """

    def _cluster(self, problem: Problem) -> Clustering:
        found = kmeans(
            problem.x, problem.n_classes, n_init=self.n_init, max_iter=self.max_iter, generator=problem.generator
        )
        at = found.labels[: len(problem.labels)]
        counts = torch.zeros(problem.n_known, problem.n_classes, device=at.device)
        counts.index_put_((problem.labels, at), torch.ones(len(at), device=at.device), accumulate=True)
        _, named = linear_sum_assignment(counts.cpu().numpy(), maximize=True)
        rest = sorted(set(range(problem.n_classes)) - set(named.tolist()))
        return replace(found, centroids=found.centroids[torch.as_tensor([*named.tolist(), *rest], device=at.device)])
