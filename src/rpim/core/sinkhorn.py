"""Balanced pseudo-labels by Sinkhorn's algorithm."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

ScoreBlocks = Callable[[], Iterable[tuple[slice, Tensor]]]
"""Iterates over q once, block by block: the positions of the rows on this worker, and their scores (n, K)."""


class Scaling(NamedTuple):
    """Pseudo-labels as two vectors: Y^[i,k] = rows[i] * q[i,k] * columns[k].

    The N x K matrix itself is never stored.
    """

    rows: Tensor  # (N,)
    columns: Tensor  # (K,)
    largest: Tensor  # (N,) the largest pseudo-label of each row

    def pseudo_labels(self, q: Tensor, rows: slice) -> Tensor:
        """Y^ of some rows, given their scores q. (n, K)"""
        return q * self.columns * self.rows[rows, None]


def sinkhorn(
    score_blocks: ScoreBlocks,
    mass: Tensor,
    n_rows: int,
    n_local_rows: int,
    iterations: int = 3,
    all_reduce: Callable[[Tensor], Tensor] = lambda total: total,
    workspace: Tensor | None = None,
    shares: Tensor | None = None,
) -> Scaling:
    """Scale the columns of q to equal mass N/K and its rows to one, in turn, ending with the rows.

    An iteration is one pass over q. Only its K column sums go from one block to another, and ``all_reduce`` sums them
    over the workers.

    Parameters
    ----------
    score_blocks : callable
        Iterates over q, positive scores; the paper scales the probabilities z themselves (epsilon = 1).
    mass : (K,)
        The column sums of q over all rows.
    n_rows, n_local_rows : int
        N, and the number of rows on this worker.
    iterations : int
        Each scales the columns, then the rows.
    workspace : (block, K), optional
        Memory for the products of a block.
    shares : (K,), optional
        The share of the mass that each column is scaled to; equal by default.
    """
    target = n_rows / len(mass) if shares is None else n_rows * shares
    tiny = torch.finfo(mass.dtype).tiny
    rows, largest = mass.new_empty(n_local_rows), mass.new_empty(n_local_rows)
    columns = mass
    for iteration in range(iterations):
        # The factor of a class without mass stays finite: its column stays zero, and the others share the rows.
        columns = target / mass.clamp_min(tiny**0.5)
        mass = torch.zeros_like(mass)
        for where, q in score_blocks():
            rows[where] = 1.0 / (q @ columns).clamp_min(tiny)
            if iteration < iterations - 1:
                mass += rows[where] @ q
            else:
                scaled = torch.mul(q, columns, out=None if workspace is None else workspace[: len(q)])
                largest[where] = scaled.amax(dim=1).mul_(rows[where])
        if iteration < iterations - 1:
            mass = all_reduce(mass)
    return Scaling(rows, columns, largest)
