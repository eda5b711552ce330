"""From rows as users give them to rows as a head takes them: of length one, in the directions that were kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def unit_rows(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rows of length one; a row of zeros stays as it is."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, np.where(norms > 0, norms, 1.0), dtype=np.float32)


@dataclass(frozen=True)
class Preparation:
    """What is done to every row before a head sees it: the same for those of a fit and for new ones."""

    normalize: bool
    components: Tensor | None  # (D, d) principal directions, None to keep the features as they are
    device: torch.device

    def __call__(self, rows: NDArray[Any]) -> Tensor:
        """Some rows, prepared. (n, d)"""
        x = self.scaled(rows)
        if self.components is None:
            return x
        x = x @ self.components
        return x.div_(x.norm(dim=1, keepdim=True).clamp_min_(1e-12)) if self.normalize else x

    def scaled(self, rows: NDArray[Any]) -> Tensor:
        """Some rows, before their directions are chosen. (n, D)"""
        rows = np.array(rows, dtype=np.float32)  # a block of its own: the user's may be read-only
        return torch.from_numpy(unit_rows(rows) if self.normalize else rows).to(self.device)
