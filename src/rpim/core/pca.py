"""The principal directions of the rows."""

from __future__ import annotations

import torch
from torch import Tensor


class SumOfSquares:
    """The sum of the rows' outer products, added up block by block in double precision.

    Directions that carry almost as much as each other turn with the last bits of this sum, so these must not depend on
    where blocks begin.
    """

    def __init__(self, n_features: int, device: torch.device) -> None:
        self.total = torch.zeros(n_features, n_features, dtype=torch.float64, device=device)  # (D, D)

    def add(self, x: Tensor) -> None:
        """Add the rows of a block."""
        x = x.double()
        self.total.addmm_(x.T, x)


def principal_directions(x: Tensor, n_directions: int) -> Tensor:
    """The directions that carry most of the rows, the first most (not centred, so that angles stay). (D, n)"""
    return leading_directions(x.T @ x, n_directions).to(x.dtype)


def leading_directions(gram: Tensor, n_directions: int) -> Tensor:
    """The same from the sum of the rows' outer products, in single precision. (D, n)"""
    directions: Tensor = torch.linalg.eigh(gram.double())[1]
    return directions[:, -n_directions:].flip(1).float().contiguous()
