"""The principal directions of the rows."""

from __future__ import annotations

import torch
from torch import Tensor


def principal_directions(x: Tensor, n_directions: int) -> Tensor:
    """The directions that carry most of the rows, the first most (not centred, so that angles stay). (D, n)"""
    return leading_directions(x.T @ x, n_directions)


def leading_directions(gram: Tensor, n_directions: int) -> Tensor:
    """The same from the sum of the rows' outer products, which can be added up block by block. (D, n)"""
    directions: Tensor = torch.linalg.eigh(gram.double())[1]
    return directions[:, -n_directions:].flip(1).to(gram.dtype).contiguous()
