"""The model: a transformation h of the embedding and a linear classifier without bias.

    x' = h(x)
    z  = softmax(tau * x' W^T)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rpim.transforms import Gradients, Transform


@dataclass
class Head:
    """Prototypes W (K x D), the transformation h, and the temperature tau."""

    prototypes: Tensor
    transform: Transform
    temperature: float = 25.0

    @property
    def parameters(self) -> dict[str, Tensor]:
        """All that is trained, by name."""
        return {"prototypes": self.prototypes, **self.transform.parameters}

    def logits(self, x: Tensor) -> tuple[Tensor, Any]:
        """tau * h(x) W^T of a block of rows, and what ``backward`` needs again. (n, K)"""
        x_new, kept = self.transform.forward(x)
        return (x_new @ self.prototypes.T).mul_(self.temperature), (x_new, kept)

    def backward(self, x: Tensor, kept: Any, gradient: Tensor, gradients: Gradients) -> None:
        """Add the gradients of all parameters, given d(objective)/d(logits) of the block."""
        x_new, kept_by_transform = kept
        gradients["prototypes"].addmm_(gradient.T, x_new, alpha=self.temperature)
        if self.transform.parameters:
            d_x_new = (gradient @ self.prototypes).mul_(self.temperature)  # (n, D)
            self.transform.backward(x, x_new, kept_by_transform, d_x_new, gradients)

    def probabilities(self, x: Tensor) -> Tensor:
        """z of a block of rows. (n, K)"""
        return torch.softmax(self.logits(x)[0], dim=1)

    def zero_gradients(self) -> Gradients:
        """One buffer of zeros for each parameter."""
        return {name: torch.zeros_like(value) for name, value in self.parameters.items()}

    def copy(self) -> Head:
        """A head of its own with the same numbers."""
        transform = type(self.transform)({k: v.clone() for k, v in self.transform.parameters.items()})
        return Head(self.prototypes.clone(), transform, self.temperature)
