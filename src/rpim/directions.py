"""The principal directions of the rows."""

from __future__ import annotations

import torch
from torch import Tensor


def principal_directions(x: Tensor, n_directions: int) -> Tensor:
    """The directions that carry most of the rows, the first most (not centred, so that angles stay). (D, n)"""
    directions: Tensor = torch.linalg.eigh((x.T @ x).double())[1]
    return directions[:, -n_directions:].flip(1).to(x.dtype).contiguous()
