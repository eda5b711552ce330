"""Principal directions."""

from __future__ import annotations

import torch
from torch import Tensor


class SumOfSquares:
    """The Gram matrix X^T X, summed block by block in double precision.

    Directions with almost equal eigenvalues rotate with the last bits of this sum, so these must not depend on the
    block boundaries.
    """

    def __init__(self, n_features: int, device: torch.device) -> None:
        self.total = torch.zeros(n_features, n_features, dtype=torch.float64, device=device)  # (D, D)

    def add(self, x: Tensor) -> None:
        """Add the rows of a block."""
        x = x.double()
        self.total.addmm_(x.T, x)


def principal_directions(x: Tensor, n_directions: int) -> Tensor:
    """The leading principal directions of the rows, not centred so that angles are kept. (D, n)"""
    return leading_directions(x.T @ x, n_directions).to(x.dtype)


def leading_directions(gram: Tensor, n_directions: int) -> Tensor:
    """The same from the Gram matrix, in single precision. (D, n)"""
    directions: Tensor = torch.linalg.eigh(gram.double())[1]
    return directions[:, -n_directions:].flip(1).float().contiguous()
