"""From the user's rows to the rows that a head takes: normalized, and projected onto principal directions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """L2-normalized rows; a row of zeros stays zero."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, np.where(norms > 0, norms, 1.0), dtype=np.float32)


@dataclass(frozen=True)
class Preprocessing:
    """The same preprocessing for the rows of a fit and for new rows."""

    normalize: bool
    components: Tensor | None  # (D, d) principal directions, None to keep all features
    device: torch.device

    def __call__(self, rows: NDArray[Any]) -> Tensor:
        """Preprocess some rows. (n, d)"""
        x = self.normalized(rows)
        if self.components is None:
            return x
        x = x @ self.components
        return x.div_(x.norm(dim=1, keepdim=True).clamp_min_(1e-12)) if self.normalize else x

    def normalized(self, rows: NDArray[Any]) -> Tensor:
        """Normalize some rows, where that is asked for, without projecting them. (n, D)"""
        rows = np.array(rows, dtype=np.float32)  # a copy: the user's array may be read-only
        return torch.from_numpy(unit_rows(rows) if self.normalize else rows).to(self.device)
