"""Balanced pseudo-labels: Sinkhorn's alternate scaling of the probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

Parts = Callable[[], Iterable[tuple[slice, Tensor]]]
"""Goes through q once: some rows (where they stand among the rows of this place) and their part of it, (n, K)."""


class Scaling(NamedTuple):
    """Pseudo-labels as two vectors: Y^[i,k] = rows[i] * q[i,k] * columns[k].

    The N x K matrix itself is needed only where somebody looks at it.
    """

    rows: Tensor  # (N,)
    columns: Tensor  # (K,)
    largest: Tensor  # (N,) the largest pseudo-label of each row

    def pseudo_labels(self, q: Tensor, rows: slice) -> Tensor:
        """Y^ of some rows, given their part of q. (n, K)"""
        return q * self.columns * self.rows[rows, None]


def sinkhorn(
    parts: Parts,
    mass: Tensor,
    n_rows: int,
    n_rows_here: int,
    iterations: int = 3,
    all_reduce: Callable[[Tensor], Tensor] = lambda total: total,
    workspace: Tensor | None = None,
    shares: Tensor | None = None,
) -> Scaling:
    """Scale the columns of q to equal mass N/K and its rows to one, in turn, ending with the rows.

    Only sums over rows cross from one block of rows to another: K numbers a round, which ``all_reduce`` totals over
    the places where there are rows. A round is one pass over q.

    Parameters
    ----------
    parts : callable
        Gives q, positive scores, block by block; the paper scales the probabilities z themselves (epsilon = 1).
    mass : (K,)
        The column sums of q over all rows.
    n_rows, n_rows_here : int
        N, and how many of them are in this place.
    iterations : int
        Rounds of columns, then rows.
    workspace : (block, K), optional
        Memory to work in, for blocks no larger than it.
    shares : (K,), optional
        The share of the mass that each column is scaled to, where it is not equal.
    """
    wanted = n_rows / len(mass) if shares is None else n_rows * shares
    tiny = torch.finfo(mass.dtype).tiny
    rows, largest = mass.new_empty(n_rows_here), mass.new_empty(n_rows_here)
    columns = mass
    for round_ in range(iterations):
        # A class without mass keeps a finite factor: its column stays zero, the others share the rows.
        columns = wanted / mass.clamp_min(tiny**0.5)
        mass = torch.zeros_like(mass)
        for where, q in parts():
            rows[where] = 1.0 / (q @ columns).clamp_min(tiny)
            if round_ < iterations - 1:
                mass += rows[where] @ q
            else:
                scaled = torch.mul(q, columns, out=None if workspace is None else workspace[: len(q)])
                largest[where] = scaled.amax(dim=1).mul_(rows[where])
        if round_ < iterations - 1:
            mass = all_reduce(mass)
    return Scaling(rows, columns, largest)
