"""The transformations h of the embedding, each with its backward pass.

A transformation has ``parameters`` (name -> tensor). ``forward`` returns x' for a block of rows and what ``backward``
needs of it; ``backward`` takes d(objective)/d(x') and *adds* the gradients of the parameters to ``gradients``, so that
they add up over blocks and workers. The full semantic bias has no ``backward``: `FusedPass` computes its gradients.
Shapes: n rows in the block, D features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

Gradients = dict[str, Tensor]


class Transform:
    """h(x) = x, and the interface of the others."""

    name: ClassVar[str] = "none"

    def __init__(self, parameters: Mapping[str, Tensor]) -> None:
        self.parameters: dict[str, Tensor] = dict(parameters)

    @classmethod
    def initial(cls, like: Tensor, rank: int | None = None, generator: torch.Generator | None = None) -> Transform:
        """The identity (but for V of a low-rank bias), for rows with the width, dtype and device of ``like``."""
        return cls({})

    def randomized(self, generator: torch.Generator) -> Transform:
        """The transformation with the weights and biases of ``torch.nn.Linear`` before training."""

        def uniform(values: Tensor, n_inputs: int) -> Tensor:
            drawn = torch.rand(values.shape, dtype=values.dtype, generator=generator).to(values.device)
            return drawn.mul_(2.0).sub_(1.0).div_(n_inputs**0.5)

        width = max((values.shape[-1] for values in self.parameters.values()), default=0)
        return type(self)(
            {
                name: uniform(values, values.shape[1] if values.ndim == 2 else width)
                for name, values in self.parameters.items()
            }
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        """x' of a block of rows, and what ``backward`` needs of it."""
        return x, None

    def backward(self, x: Tensor, x_new: Tensor, saved: Any, gradient: Tensor, gradients: Gradients) -> None:
        """Add to the gradients of the parameters, given d(objective)/d(x')."""
        raise NotImplementedError(f"{type(self).__name__} has no backward pass of its own")

    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x)[0]


def _identity(like: Tensor) -> Tensor:
    return torch.eye(like.shape[-1], dtype=like.dtype, device=like.device)


def _normalize(u: Tensor) -> tuple[Tensor, Tensor]:
    """u / |u| of each row, in place, and 1 / |u|. (n, D), (n, 1)"""
    scale = 1.0 / u.norm(dim=1, keepdim=True).clamp_min(torch.finfo(u.dtype).tiny ** 0.5)
    return u.mul_(scale), scale


def _normalize_backward(x_new: Tensor, scale: Tensor, gradient: Tensor) -> Tensor:
    """The gradient with respect to u of x' = u / |u|: the part orthogonal to x', divided by |u|. (n, D)"""
    along = (x_new * gradient).sum(dim=1, keepdim=True)
    return gradient.addcmul(x_new, along, value=-1.0).mul_(scale)


class SemanticBias(Transform):
    """h(x) = (x + Bx + b) / norm, RPIM's transformation. B and b start at zero, so that h starts as the identity."""

    name = "semantic-bias"

    @classmethod
    def initial(cls, like: Tensor, rank: int | None = None, generator: torch.Generator | None = None) -> Transform:
        if rank is not None:
            return LowRankSemanticBias.initial(like, rank, generator)
        d = like.shape[-1]
        return cls({"B": like.new_zeros(d, d), "b": like.new_zeros(d)})

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        u = torch.addmm(self.parameters["b"], x, self.parameters["B"].T).add_(x)  # (n, D)
        return _normalize(u)


class LowRankSemanticBias(Transform):
    """h(x) = (x + UVx + b) / norm, a semantic bias of rank r. U (D x r) starts at zero, V (r x D) at random values."""

    name = "semantic-bias"

    @classmethod
    def initial(cls, like: Tensor, rank: int | None = None, generator: torch.Generator | None = None) -> Transform:
        d = like.shape[-1]
        r = d if rank is None else rank
        v = torch.randn(r, d, dtype=like.dtype, generator=generator).to(like.device) / d**0.5
        return cls({"U": like.new_zeros(d, r), "V": v, "b": like.new_zeros(d)})

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        inner = x @ self.parameters["V"].T  # (n, r)
        u = torch.addmm(self.parameters["b"], inner, self.parameters["U"].T).add_(x)
        x_new, scale = _normalize(u)
        return x_new, (inner, scale)

    def backward(self, x: Tensor, x_new: Tensor, saved: Any, gradient: Tensor, gradients: Gradients) -> None:
        inner, scale = saved
        du = _normalize_backward(x_new, scale, gradient)
        gradients["U"].addmm_(du.T, inner)
        gradients["V"].addmm_((du @ self.parameters["U"]).T, x)
        gradients["b"] += du.sum(dim=0)


class Linear(Transform):
    """h(x) = Wx, without bias. W starts as the identity."""

    name = "linear"
    bias: ClassVar[bool] = False

    @classmethod
    def initial(cls, like: Tensor, rank: int | None = None, generator: torch.Generator | None = None) -> Transform:
        parameters = {"W": _identity(like)}
        if cls.bias:
            parameters["b"] = like.new_zeros(like.shape[-1])
        return cls(parameters)

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        x_new = x @ self.parameters["W"].T
        if self.bias:
            x_new += self.parameters["b"]
        return x_new, None

    def backward(self, x: Tensor, x_new: Tensor, saved: Any, gradient: Tensor, gradients: Gradients) -> None:
        gradients["W"].addmm_(gradient.T, x)
        if self.bias:
            gradients["b"] += gradient.sum(dim=0)


class LinearBias(Linear):
    """h(x) = Wx + b. Starts as the identity."""

    name = "linear-bias"
    bias = True


class SemanticScaleBias(Transform):
    """h(x) = (s(x) * x + b(x)) / norm, with s(x) = Sx + s and b(x) = Bx + b. s starts at one, all else at zero."""

    name = "semantic-scale-bias"

    @classmethod
    def initial(cls, like: Tensor, rank: int | None = None, generator: torch.Generator | None = None) -> Transform:
        d = like.shape[-1]
        zeros, ones = like.new_zeros, like.new_ones
        return cls({"S": zeros(d, d), "s": ones(d), "B": zeros(d, d), "b": zeros(d)})

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        p = self.parameters
        scale = torch.addmm(p["s"], x, p["S"].T)
        u = torch.addmm(p["b"], x, p["B"].T).addcmul_(scale, x)
        return _normalize(u)

    def backward(self, x: Tensor, x_new: Tensor, saved: Any, gradient: Tensor, gradients: Gradients) -> None:
        du = _normalize_backward(x_new, saved, gradient)
        gradients["B"].addmm_(du.T, x)
        gradients["b"] += du.sum(dim=0)
        ds = du.mul_(x)
        gradients["S"].addmm_(ds.T, x)
        gradients["s"] += ds.sum(dim=0)


class MLP(Transform):
    """h(x) = W2 (W1 x + b1) + b2: two linear layers with bias, as the paper stacks them. Both start as the identity."""

    name = "mlp"

    @classmethod
    def initial(cls, like: Tensor, rank: int | None = None, generator: torch.Generator | None = None) -> Transform:
        d = like.shape[-1]
        return cls({"W1": _identity(like), "b1": like.new_zeros(d), "W2": _identity(like), "b2": like.new_zeros(d)})

    def forward(self, x: Tensor) -> tuple[Tensor, Any]:
        p = self.parameters
        hidden = torch.addmm(p["b1"], x, p["W1"].T)
        return torch.addmm(p["b2"], hidden, p["W2"].T), hidden

    def backward(self, x: Tensor, x_new: Tensor, saved: Any, gradient: Tensor, gradients: Gradients) -> None:
        gradients["W2"].addmm_(gradient.T, saved)
        gradients["b2"] += gradient.sum(dim=0)
        dh = gradient @ self.parameters["W2"]
        gradients["W1"].addmm_(dh.T, x)
        gradients["b1"] += dh.sum(dim=0)


TRANSFORMS: dict[str, type[Transform]] = {
    t.name: t for t in (Transform, SemanticBias, Linear, LinearBias, SemanticScaleBias, MLP)
}
"""By the name that users choose them by."""

CLASSES: dict[str, type[Transform]] = {t.__name__: t for t in (*TRANSFORMS.values(), LowRankSemanticBias)}
"""By the name under which they are saved."""
