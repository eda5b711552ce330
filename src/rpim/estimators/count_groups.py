"""The number of groups where no row has a label.

Without labels nothing says how fine the classes should be: birds, or species of birds. What can be seen is how many
groups are reproducible (Lange, Roth, Braun and Buhmann, "Stability-Based Validation of Clustering Solutions", Neural
Computation 2004). Two halves of the rows are clustered apart, both clusterings assign all rows, and their adjusted
mutual information is high where both find the same groups. It falls for good once groups are split at random, so the
number of groups is the last peak of the curve over K.

    AMI(K) = (I(A; B) - E I) / (mean(H(A), H(B)) - E I)        A, B: the two assignments into K groups
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.signal import find_peaks
from sklearn.metrics import adjusted_mutual_info_score
from torch import Tensor
from torch.nn.functional import normalize

from rpim.core.kmeans import class_means, nearest_centroid
from rpim.core.preprocessing import principal_directions
from rpim.estimators.problem import ClassCount

N_SPLITS = 5
HALF = 2000
"""Largest number of rows in a half: Ward's clustering takes the square of it."""
_N_DIRECTIONS = 128
_PROMINENCE = 0.02  # how far the curve falls on both sides of a peak
_ROWS_PER_GROUP = 6  # in a half, at the largest K

FloatArray = NDArray[np.float64]


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
    low = float(values.min()) - 1.0
    _, found = find_peaks(np.pad(values, 1, constant_values=low), prominence=_PROMINENCE, plateau_size=1)
    return int(found["right_edges"][-1]) - 1


def _assignments(x: Tensor, half: Tensor, grid: list[int]) -> list[NDArray[np.int64]]:
    """The group of each row for every K, by the centroids of Ward's clusters of one half. (N,) each"""
    tree = linkage(x[half].double().cpu().numpy(), "ward")
    found = []
    for k in grid:
        clusters = torch.from_numpy(fcluster(tree, k, "maxclust").astype(np.int64) - 1).to(x.device)
        n_clusters = int(clusters.max()) + 1
        centroids = class_means(x[half], clusters, x.new_zeros(n_clusters, x.shape[1]))
        found.append(nearest_centroid(x, centroids)[0].cpu().numpy())
    return found
