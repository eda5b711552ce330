"""Adam, without torch's compiler."""

from __future__ import annotations

import torch
from torch import Tensor

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # Adam's defaults


class Adam:
    """Adam on one parameter, in place, with weight decay added to the gradient, as in ``torch.optim.Adam``.

    ``torch.optim`` imports torch's compiler, which takes seconds in a process that may live for ten.
    """

    def __init__(self, parameter: Tensor, weight_decay: float, epsilon: float = _EPSILON) -> None:
        self._parameter = parameter
        self._decay, self._epsilon = weight_decay, epsilon
        self._mean, self._square = torch.zeros_like(parameter), torch.zeros_like(parameter)
        self._steps = 0

    @property
    def state(self) -> dict[str, Tensor]:
        """The running means of the gradient and of its square."""
        return {"mean": self._mean, "square": self._square}

    def resume(self, state: dict[str, Tensor], steps: int) -> None:
        """Continue from the ``state`` after that many steps."""
        self._mean.copy_(state["mean"])
        self._square.copy_(state["square"])
        self._steps = steps

    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """Take one step against the gradient."""
        self._steps += 1
        gradient = gradient.add(self._parameter, alpha=self._decay)
        self._mean.lerp_(gradient, 1.0 - _BETA_1)
        self._square.mul_(_BETA_2).addcmul_(gradient, gradient, value=1.0 - _BETA_2)
        scale = self._square.sqrt().div_((1.0 - _BETA_2**self._steps) ** 0.5).add_(self._epsilon)
        self._parameter.addcdiv_(self._mean, scale, value=-learning_rate / (1.0 - _BETA_1**self._steps))
