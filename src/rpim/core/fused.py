"""A fused forward and backward pass of RPIM's head: the transformed rows x' are never stored.

With A = I + B, the semantic bias is x' = r (Ax + b), where r = 1 / |Ax + b| is one number per row. So

    x' W^T    = r (x V^T + Wb),             V = WA             one N x K x D product on the raw rows
    1 / r^2   = x^T S x + 2 <A^T b, x> + <b, b>,  S = A^T A     one N x D x D product
    dW        = E A^T + e b^T,              E = sum_i r_i P_i x_i^T,  e = sum_i r_i P_i
    dB        = W^T E - A Q - b g^T,        Q = sum_i q_i x_i x_i^T,  g = sum_i q_i x_i
    db        = W^T e - A g - s b,          s = sum_i q_i

where P_i is the gradient with respect to x_i' W^T and q_i = r_i^2 <P_i, x_i' W^T>. Compared with a plain forward and
backward pass this saves one of three N x K x D products and all but two passes over an N x D matrix. The sums over rows
(E, e, Q, g, s) are as small as the parameters.

S and Q are symmetric, so that their products are computed for one of the two triangles alone, in panels of columns:
three quarters of the operations for D = 128, and nearly half for large D.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rpim.core.row_blocks import Workspace
from rpim.core.transforms import Gradients

PANEL = 64
"""Columns in a panel of S and Q: narrower ones save more operations, but small products are slower ones."""


def panels(n_features: int) -> list[slice]:
    """The columns, cut into panels.

    >>> panels(100)
    [slice(0, 64, None), slice(64, 100, None)]
    """
    return [slice(i, min(i + PANEL, n_features)) for i in range(0, n_features, PANEL)]


class FusedPass:
    """One forward and backward pass over the rows, for a head with the full semantic bias."""

    def __init__(
        self,
        prototypes: Tensor,
        parameters: Mapping[str, Tensor],
        temperature: float,
        workspace: Workspace | None = None,
    ) -> None:
        n_classes, d = prototypes.shape
        self._workspace = workspace
        self._w, self._b, self._tau = prototypes, parameters["b"], temperature
        self._a = parameters["B"] + torch.eye(d, dtype=prototypes.dtype, device=prototypes.device)  # (D, D)
        self._v = (prototypes @ self._a).mul_(temperature)  # (K, D)
        self._wb = (prototypes @ self._b).mul_(temperature)  # (K,)
        self._panels = panels(d)
        self._s = self._a.T @ self._a  # (D, D)
        for panel in self._panels:
            self._s[panel.stop :, panel] *= 2.0  # x^T S x counts S_ij and S_ji, of which only the lower one is used
        self._ab = self._b @ self._a  # (D,)
        self._bb = self._b @ self._b
        self._norms: dict[int, Tensor] = {}
        self._sums: dict[str, Tensor] = {
            "E": prototypes.new_zeros(n_classes, d),
            "e": prototypes.new_zeros(n_classes),
            "Q": prototypes.new_zeros(d, d),
            "g": prototypes.new_zeros(d),
            "s": prototypes.new_zeros(1),
        }

    def logits(self, x: Tensor, number: int) -> Tensor:
        """tau * h(x) W^T of a block of rows. (n, K)"""
        r = self._r(x, number)
        workspace = self._workspace.classes[: len(x)] if self._workspace else None
        return torch.addmm(self._wb, x, self._v.T, out=workspace).mul_(r)

    def _r(self, x: Tensor, number: int) -> Tensor:
        """1 / |Ax + b| of each row, computed once and cached: it is one number per row. (n, 1)"""
        if number not in self._norms:
            product = self._workspace.features[: len(x)] if self._workspace else torch.empty_like(x)
            for panel in self._panels:
                torch.mm(x[:, panel.start :], self._s[panel.start :, panel], out=product[:, panel])
            squared = product.mul_(x).sum(dim=1)
            squared += torch.addmv(self._bb, x, self._ab, alpha=2.0)
            self._norms[number] = squared.clamp_min_(torch.finfo(x.dtype).tiny ** 0.5).rsqrt_()[:, None]
        return self._norms[number]

    def backward(self, x: Tensor, number: int, log_z: Tensor, gradient: Tensor) -> None:
        """Add to E, e, Q, g and s, given d(objective)/d(logits) of the block; overwrites ``log_z`` and ``gradient``."""
        r = self._r(x, number)
        # <P_i, x_i' W^T> = <gradient_i, logits_i> = <gradient_i, log z_i>, as a row of the gradient sums to zero.
        q = log_z.mul_(gradient).sum(dim=1, keepdim=True).mul_(r).mul_(r)  # (n, 1)
        p = gradient.mul_(r)
        weighted = torch.mul(x, q, out=self._workspace.features[: len(x)] if self._workspace else None)  # (n, D)
        self._sums["E"].addmm_(p.T, x)
        self._sums["e"] += p.sum(dim=0)
        for panel in self._panels:
            self._sums["Q"][panel, panel.start :].addmm_(weighted[:, panel].T, x[:, panel.start :])
        self._sums["g"] += weighted.sum(dim=0)
        self._sums["s"] += q.sum()

    def sums(self) -> list[Tensor]:
        """The sums over the rows of this worker, for the all-reduce."""
        return list(self._sums.values())

    def gradients(self) -> Gradients:
        """The gradient of each parameter, after the backward pass of all blocks."""
        e_x, e_1, q, g, s = self.sums()
        e_x, e_1 = e_x * self._tau, e_1 * self._tau
        q = q.triu() + q.triu(1).T
        return {
            "prototypes": (e_x @ self._a.T).addr_(e_1, self._b),
            "B": (self._w.T @ e_x).sub_(self._a @ q).addr_(self._b, g, alpha=-1.0),
            "b": self._w.T @ e_1 - self._a @ g - s * self._b,
        }
