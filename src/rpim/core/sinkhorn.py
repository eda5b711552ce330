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
    factors: Tensor  # (iterations, K) of the columns in each iteration
    largest: Tensor  # (N,) the largest pseudo-label of each row

    @property
    def columns(self) -> Tensor:
        """The factors of the columns in the last iteration. (K,)"""
        return self.factors[-1]

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
    factors = mass.new_empty(iterations, len(mass))
    rows, largest = mass.new_empty(n_local_rows), mass.new_empty(n_local_rows)
    for iteration in range(iterations):
        columns = factors[iteration] = _factors(mass, n_rows, shares)
        mass = torch.zeros_like(mass)
        for where, q in score_blocks():
            rows[where] = _row_factors(q, columns)
            if iteration < iterations - 1:
                mass += rows[where] @ q
            else:
                largest[where] = _largest(q, columns, rows[where], workspace)
        if iteration < iterations - 1:
            mass = all_reduce(mass)
    return Scaling(rows, factors, largest)


def pipelined_sinkhorn(
    score_blocks: ScoreBlocks,
    factors: Tensor,
    n_rows: int,
    n_local_rows: int,
    all_reduce: Callable[[Tensor], Tensor] = lambda total: total,
    workspace: Tensor | None = None,
    shares: Tensor | None = None,
) -> tuple[Scaling, Tensor]:
    """All iterations in one pass over q, each with the factors that the one before it found a training step ago.

    Returns the pseudo-labels and the factors for the next step. Where q no longer changes, they are those of
    `sinkhorn`: an iteration lags one step behind the one before it.

    Parameters
    ----------
    factors : (iterations, K)
        Of `sinkhorn`, or of the step before.
    score_blocks, n_rows, n_local_rows, all_reduce, workspace, shares
        As in `sinkhorn`.
    """
    rows, largest = factors.new_empty(n_local_rows), factors.new_empty(n_local_rows)
    mass = torch.zeros_like(factors)
    for where, q in score_blocks():
        mass[0] += q.sum(dim=0)
        for iteration, columns in enumerate(factors[:-1], start=1):
            mass[iteration] += _row_factors(q, columns) @ q
        rows[where] = _row_factors(q, factors[-1])
        largest[where] = _largest(q, factors[-1], rows[where], workspace)
    return Scaling(rows, factors, largest), _factors(all_reduce(mass), n_rows, shares)


def _factors(mass: Tensor, n_rows: int, shares: Tensor | None) -> Tensor:
    """What columns with these sums are multiplied by, to have their share of the rows. (..., K)

    The factor of a class without mass stays finite: its column stays zero, and the others share the rows.
    """
    target = n_rows / mass.shape[-1] if shares is None else n_rows * shares
    return target / mass.clamp_min(torch.finfo(mass.dtype).tiny ** 0.5)


def _row_factors(q: Tensor, columns: Tensor) -> Tensor:
    """What scaled rows are multiplied by, to sum to one. (n,)"""
    return 1.0 / (q @ columns).clamp_min(torch.finfo(q.dtype).tiny)


def _largest(q: Tensor, columns: Tensor, rows: Tensor, workspace: Tensor | None) -> Tensor:
    """The largest pseudo-label of each row. (n,)"""
    scaled = torch.mul(q, columns, out=None if workspace is None else workspace[: len(q)])
    return scaled.amax(dim=1).mul_(rows)
