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

All products of a block with x are one: forward  x [V, A^T b, S]^T,  backward  [P, q, q x]^T x = [E, g, Q]. A wide
product reads the rows once, and runs at a higher rate than narrow ones, above all if its width is a multiple of 16.
S and Q are symmetric, so that beyond the first panel of columns only one of their two triangles is computed.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rpim.core.row_blocks import Workspace, padded
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
        self._wb = (prototypes @ self._b).mul_(temperature)  # (K,)
        self._bb = self._b @ self._b
        # The columns of the wide products: K classes, one of A^T b or q, some that align, and D of S or Q.
        self._k, self._first = n_classes, padded(n_classes)
        self._panels = panels(d)
        self._v_s = prototypes.new_zeros(self._first + d, d)
        torch.mul(prototypes @ self._a, temperature, out=self._v_s[:n_classes])  # V
        self._v_s[n_classes] = self._b @ self._a
        s = torch.mm(self._a.T, self._a, out=self._v_s[self._first :])
        for panel in self._panels:
            s[panel, panel.stop :] *= 2.0  # x^T S x counts S_ij and S_ji, of which only the upper one is used
        self._norms: dict[int, Tensor] = {}
        self._sums: dict[str, Tensor] = {
            "E g Q": prototypes.new_zeros(self._first + d, d),
            "e": prototypes.new_zeros(n_classes),
            "s": prototypes.new_zeros(1),
        }

    def logits(self, x: Tensor, number: int) -> Tensor:
        """tau * h(x) W^T of a block of rows. (n, K)"""
        wide = self._wide(x)
        if number in self._norms:
            torch.mm(x, self._v_s[: self._first].T, out=wide[:, : self._first])
        else:
            self._multiply_by_all(x, wide)
            squared = wide[:, self._first :].mul_(x).sum(dim=1).add_(wide[:, self._k], alpha=2.0).add_(self._bb)
            self._norms[number] = squared.clamp_min_(torch.finfo(x.dtype).tiny ** 0.5).rsqrt_()[:, None]
        workspace = self._workspace.classes[: len(x)] if self._workspace else None
        return torch.add(wide[:, : self._k], self._wb, out=workspace).mul_(self._norms[number])

    def _wide(self, x: Tensor) -> Tensor:
        """Memory for the columns of a block. (n, columns)"""
        return self._workspace.wide[: len(x)] if self._workspace else x.new_empty(len(x), len(self._v_s))

    def _multiply_by_all(self, x: Tensor, wide: Tensor) -> None:
        """x [V, A^T b, S]^T, of S the triangle."""
        for panel in self._panels:
            columns = self._columns(panel)
            torch.mm(x[:, panel.start :], self._v_s[columns, panel.start :].T, out=wide[:, columns])

    def _columns(self, panel: slice) -> slice:
        """The columns of a product: those of the panel, and with the first panel those of the classes."""
        return slice(self._first + panel.start if panel.start else 0, self._first + panel.stop)

    def backward(self, x: Tensor, number: int, log_z: Tensor, gradient: Tensor) -> None:
        """Add to E, e, Q, g and s, given d(objective)/d(logits) of the block; overwrites ``log_z``."""
        wide, r = self._wide(x), self._norms[number]
        # <P_i, x_i' W^T> = <gradient_i, logits_i> = <gradient_i, log z_i>, as a row of the gradient sums to zero.
        q = log_z.mul_(gradient).sum(dim=1, keepdim=True).mul_(r).mul_(r)  # (n, 1)
        p = torch.mul(gradient, r, out=wide[:, : self._k])
        wide[:, self._k : self._k + 1] = q
        torch.mul(x, q, out=wide[:, self._first :])
        for panel in self._panels:
            columns = self._columns(panel)
            self._sums["E g Q"][columns, panel.start :].addmm_(wide[:, columns].T, x[:, panel.start :])
        self._sums["e"] += p.sum(dim=0)
        self._sums["s"] += q.sum()

    def sums(self) -> list[Tensor]:
        """The sums over the rows of this worker, for the all-reduce."""
        return list(self._sums.values())

    def gradients(self) -> Gradients:
        """The gradient of each parameter, after the backward pass of all blocks."""
        e_g_q, e_1, s = self.sums()
        e_x, g, q = e_g_q[: self._k] * self._tau, e_g_q[self._k], e_g_q[self._first :]
        e_1 = e_1 * self._tau
        q = q.triu() + q.triu(1).T
        return {
            "prototypes": (e_x @ self._a.T).addr_(e_1, self._b),
            "B": (self._w.T @ e_x).sub_(self._a @ q).addr_(self._b, g, alpha=-1.0),
            "b": self._w.T @ e_1 - self._a @ g - s * self._b,
        }
