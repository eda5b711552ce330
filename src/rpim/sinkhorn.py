"""Balanced pseudo-labels: Sinkhorn's alternate scaling of the probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Scaling(NamedTuple):
    """Pseudo-labels as two vectors: Y^[i,k] = rows[i] * q[i,k] * columns[k], with q = z^(1/epsilon).

    The N x K matrix itself is needed only where somebody looks at it.
    """

    rows: Tensor  # (N,)
    columns: Tensor  # (K,)

    def pseudo_labels(self, q: Tensor, rows: slice) -> Tensor:
        """Y^ of some rows, given their part of q. (n, K)"""
        return q * self.columns * self.rows[rows, None]


def sinkhorn(
    q: Tensor, iterations: int = 3, add_up: Callable[[Tensor], Tensor] | None = None, n_rows: int | None = None
) -> Scaling:
    """Scale the columns of q to equal mass N/K and its rows to one, in turn, ending with the rows.

    Only sums over rows cross from one block of rows to another: K numbers a round, which ``add_up`` totals over
    the workers where the rows are spread.

    Parameters
    ----------
    q : (N, K)
        Positive scores; the paper scales the probabilities z themselves (epsilon = 1).
    iterations : int
        Rounds of columns, then rows.
    """
    total = q.shape[0] if n_rows is None else n_rows
    tiny = torch.finfo(q.dtype).tiny
    target = total / q.shape[1]
    rows = q.new_ones(q.shape[0])
    columns = q.new_ones(q.shape[1])
    for _ in range(iterations):
        mass = rows @ q  # (K,)
        if add_up is not None:
            mass = add_up(mass)
        # A class without mass keeps a finite factor: its column stays zero, the others share the rows.
        columns = target / mass.clamp_min(tiny**0.5)
        rows = 1.0 / (q @ columns).clamp_min(tiny)
    return Scaling(rows, columns)
