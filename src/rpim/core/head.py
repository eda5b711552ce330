"""The model: a transformation h of the embedding and a linear classifier without bias.

    x' = h(x)
    z  = softmax(tau * x' W^T)

Once trained, two numbers a row are read off the same logits: the probabilities, sharpened or softened by a factor that
was found after the training (see calibration.py), and how little the row fits any class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rpim._common.blocks import row_blocks
from rpim.core.fused import FoldedPass
from rpim.core.row_blocks import Workspace
from rpim.core.transforms import Gradients, SemanticBias, Transform


@dataclass
class Head:
    """Prototypes W (K x D), the transformation h, and the temperature tau.

    ``offsets``, where a method has them, are added to x' W^T, a number a class: with -|w|^2 / 2 the largest logit is
    the nearest prototype. PIM and RPIM train without. ``calibration`` is a factor of the logits in the probabilities
    that are given out; training knows nothing of it, and no class changes by it.
    """

    prototypes: Tensor
    transform: Transform
    temperature: float = 25.0
    offsets: Tensor | None = None
    calibration: float = 1.0

    @property
    def parameters(self) -> dict[str, Tensor]:
        """All that is trained, by name."""
        return {"prototypes": self.prototypes, **self.transform.parameters}

    def begin(self, cache: bool = False, workspace: Workspace | None = None) -> PlainPass | FoldedPass:
        """What one pass over the rows goes through, forward and backward.

        ``cache`` trades memory for time; ``workspace`` is memory for the results of a block.
        """
        if type(self.transform) is SemanticBias:
            return FoldedPass(self.prototypes, self.transform.parameters, self.temperature, workspace)
        return PlainPass(self, cache, workspace)

    def probabilities(self, x: Tensor) -> Tensor:
        """z of any number of rows, calibrated. (N, K)"""
        return self.assess(x)[0]

    def assess(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Calibrated z of any number of rows, and how little each fits any class. (N, K), (N,)"""
        z, scores = x.new_empty(len(x), len(self.prototypes)), x.new_empty(len(x))
        for rows, logits in self._logits(x):
            scores[rows] = self._energy(x[rows], logits)
            z[rows] = torch.softmax(logits.mul_(self.calibration), dim=1)
        return z, scores

    def outlier_scores(self, x: Tensor) -> Tensor:
        """How little each row fits any class; larger fits less. (N,)"""
        scores = x.new_empty(len(x))
        for rows, logits in self._logits(x):
            scores[rows] = self._energy(x[rows], logits)
        return scores

    def logits(self, x: Tensor) -> Tensor:
        """tau * x' W^T of any number of rows, as trained. (N, K)"""
        return torch.cat([logits for _, logits in self._logits(x)])

    def predict(self, x: Tensor) -> Tensor:
        """The class of each row. (N,)"""
        labels = torch.empty(len(x), dtype=torch.long, device=x.device)
        for rows, logits in self._logits(x):
            labels[rows] = logits.argmax(dim=1)
        return labels

    def _energy(self, x: Tensor, logits: Tensor) -> Tensor:
        """-log sum_k exp(logit_k): large where no class claims the row (Liu et al., NeurIPS 2020). (n,)"""
        energy = -torch.logsumexp(logits, dim=1)
        if self.offsets is None:
            return energy
        # There the logits are -tau |x - w|^2 / 2 without what all classes share; between rows it differs.
        return energy.add_((x * x).sum(dim=1), alpha=0.5 * self.temperature)

    def _logits(self, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
        through = self.begin()
        for number, rows in enumerate(row_blocks(*x.shape)):
            logits = through.logits(x[rows], number)
            yield rows, logits if self.offsets is None else logits.add_(self.offsets, alpha=self.temperature)


class PlainPass:
    """Forward and backward through h and the classifier as they are written, for any transformation.

    A block of rows is known by a number, so that what its forward pass found can serve its backward pass: here the
    refined rows, an N x D matrix, which are kept or computed again.
    """

    def __init__(self, head: Head, cache: bool, workspace: Workspace | None) -> None:
        self._head = head
        self._keep = cache
        self._workspace = workspace
        self._kept: dict[int, tuple[Tensor, Any]] = {}
        self._gradients = {name: torch.zeros_like(value) for name, value in head.parameters.items()}

    def _forward(self, x: Tensor, number: int) -> tuple[Tensor, Any]:
        found = self._kept.get(number)
        if found is None:
            found = self._head.transform.forward(x)
            if self._keep:
                self._kept[number] = found
        return found

    def logits(self, x: Tensor, number: int) -> Tensor:
        """tau * h(x) W^T of a block of rows. (n, K)"""
        x_new = self._forward(x, number)[0]
        workspace = self._workspace.classes[: len(x)] if self._workspace else None
        return torch.mm(x_new, self._head.prototypes.T, out=workspace).mul_(self._head.temperature)

    def backward(self, x: Tensor, number: int, log_z: Tensor, gradient: Tensor) -> None:
        """Add up the gradients, given d(objective)/d(logits) of the block."""
        x_new, kept = self._forward(x, number)
        head = self._head
        self._gradients["prototypes"].addmm_(gradient.T, x_new, alpha=head.temperature)
        if head.transform.parameters:
            d_x_new = (gradient @ head.prototypes).mul_(head.temperature)  # (n, D)
            head.transform.backward(x, x_new, kept, d_x_new, self._gradients)

    def sums(self) -> list[Tensor]:
        """What has been added up over the rows of this place, to be totalled over all places."""
        return list(self._gradients.values())

    def gradients(self) -> Gradients:
        """The gradient of each parameter, once all rows have gone through."""
        return self._gradients
