"""Balanced pseudo-labels: Sinkhorn's alternate scaling of the probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor

Rows = Iterable[tuple[slice, Tensor, Tensor]]
"""Blocks of rows: where they stand among the rows of this place, their part of q, and room of its size. (n, K)"""

OverRows = Callable[[Callable[[Rows], Tensor]], Tensor]
"""Goes through q once: hands all rows to a function, or some at a time, and adds up what it returns."""


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


def sinkhorn(over_rows: OverRows, mass: Tensor, n_rows: int, n_rows_here: int, iterations: int = 3) -> Scaling:
    """Scale the columns of q to equal mass N/K and its rows to one, in turn, ending with the rows.

    Only sums over rows cross from one block of rows to another: K numbers a round. A round is one pass over q.

    Parameters
    ----------
    over_rows : callable
        Goes through q, positive scores; the paper scales the probabilities z themselves (epsilon = 1).
    mass : (K,)
        The column sums of q over all rows.
    n_rows, n_rows_here : int
        N, and how many of them are in this place.
    iterations : int
        Rounds of columns, then rows.
    """
    tiny = torch.finfo(mass.dtype).tiny
    rows, largest = mass.new_empty(n_rows_here), mass.new_empty(n_rows_here)
    columns = mass

    def scale_rows(blocks: Rows) -> Tensor:
        """The column sums of q with its rows scaled. (K,)"""
        held = torch.zeros_like(mass)
        for where, q, _ in blocks:
            rows[where] = 1.0 / (q @ columns).clamp_min(tiny)
            held += rows[where] @ q
        return held

    def scale_rows_at_last(blocks: Rows) -> Tensor:
        for where, q, room in blocks:
            rows[where] = 1.0 / (q @ columns).clamp_min(tiny)
            largest[where] = torch.mul(q, columns, out=room).amax(dim=1).mul_(rows[where])
        return torch.zeros_like(mass)  # there is no next round

    for round_ in range(iterations):
        # A class without mass keeps a finite factor: its column stays zero, the others share the rows.
        columns = (n_rows / len(mass)) / mass.clamp_min(tiny**0.5)
        mass = over_rows(scale_rows if round_ < iterations - 1 else scale_rows_at_last)
    return Scaling(rows, columns, largest)
