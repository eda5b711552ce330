"""Label propagation on a k-nearest-neighbor graph.

After Zhou, Bousquet, Lal, Weston and Schölkopf, "Learning with Local and Global Consistency" (NeurIPS 2003): each row
keeps half of its probabilities and takes the other half from its neighbors, for a few iterations; labelled rows keep
their label.

    F <- (1 - alpha) P + alpha mean of F over the k nearest neighbors
"""

from __future__ import annotations

import torch
from torch import Tensor

from rpim.core.objective import one_hot

N_NEIGHBORS = 5
ALPHA = 0.5
ROUNDS = 5
_BLOCK_VALUES = 1 << 23  # 32 MB of float32 similarities per block


def nearest_neighbors(x: Tensor, n_neighbors: int = N_NEIGHBORS) -> Tensor:
    """The k rows with the largest cosine similarity to each row, itself excluded; exact. (N, k)

    Parameters
    ----------
    x : (N, D)
        Rows of length one.

    Examples
    --------
    >>> x = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]))
    >>> nearest_neighbors(x, 1).flatten().tolist()
    [1, 0, 3, 2]
    """
    n_rows = len(x)
    n_neighbors = min(n_neighbors, n_rows - 1)
    found = torch.empty(n_rows, n_neighbors, dtype=torch.long, device=x.device)
    for rows in torch.split(torch.arange(n_rows, device=x.device), max(1, _BLOCK_VALUES // n_rows)):
        similarity = x[rows] @ x.T  # (n, N)
        similarity.scatter_(1, rows[:, None], -torch.inf)
        found[rows] = similarity.topk(n_neighbors, dim=1).indices
    return found


def propagate(
    probabilities: Tensor, neighbors: Tensor, labels: Tensor, *, alpha: float = ALPHA, rounds: int = ROUNDS
) -> Tensor:
    """Propagate probabilities between neighbors. (N, K)

    Parameters
    ----------
    probabilities : (N, K)
        P, the labelled rows first.
    neighbors : (N, k)
    labels : (n_labelled,)
        Codes of the first rows, which keep their label.

    Examples
    --------
    >>> p = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.4, 0.6]])
    >>> propagate(p, torch.tensor([[1], [0], [1]]), torch.tensor([0]), rounds=1)[1:]
    tensor([[0.9500, 0.0500],
            [0.6500, 0.3500]])
    """
    given = one_hot(labels, probabilities.shape[1], probabilities.dtype)
    start = torch.cat([given, probabilities[len(labels) :]])
    if neighbors.shape[1] == 0:
        return start
    spread = start
    for _ in range(rounds):
        spread = (1.0 - alpha) * start + alpha * neighbor_mean(spread, neighbors)
        spread[: len(labels)] = given
    return spread


def neighbor_mean(values: Tensor, neighbors: Tensor) -> Tensor:
    """The mean over the neighbors of each row. (N, K)"""
    total = values[neighbors[:, 0]]
    for column in neighbors.T[1:]:
        total += values[column]
    return total.div_(neighbors.shape[1])
