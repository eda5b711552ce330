"""The model: a transformation h of the embedding and a linear classifier without bias.

    x' = h(x)
    z  = softmax(tau * x' W^T)

The outlier score of a row is the free energy of its logits, -log sum_k exp(tau <h(x), w_k>) (Liu, Wang, Owens and Li,
"Energy-based Out-of-distribution Detection", NeurIPS 2020): it is large where no prototype is near the row.
docs/results.md compares it with other scores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rpim._common.hardware import row_blocks
from rpim.core.fused import FusedPass
from rpim.core.row_blocks import Workspace
from rpim.core.transforms import CLASSES, Gradients, SemanticBias, Transform
from rpim.data.labels import IntArray

_TRANSFORM = "transform."


@dataclass
class Head:
    """Prototypes W (K x D), the transformation h, and the temperature tau.

    ``offsets``, one per class, are added to x' W^T: with -|w|^2 / 2 the largest logit is the nearest prototype. PIM and
    RPIM train without offsets. ``calibration`` is a factor of the logits in `proba_and_score`, found after the
    training; it changes no predicted class.
    """

    prototypes: Tensor
    transform: Transform
    temperature: float = 25.0
    offsets: Tensor | None = None
    calibration: float = 1.0

    @property
    def parameters(self) -> dict[str, Tensor]:
        """The trained tensors by name."""
        return {"prototypes": self.prototypes, **self.transform.parameters}

    def tensors(self) -> dict[str, Tensor]:
        """All tensors of the head, as `from_tensors` takes them."""
        found = {"prototypes": self.prototypes}
        found |= {f"{_TRANSFORM}{name}": value for name, value in self.transform.parameters.items()}
        return found if self.offsets is None else {**found, "offsets": self.offsets}

    @property
    def transform_name(self) -> str:
        """The transformation, as `from_tensors` takes it."""
        return type(self.transform).__name__

    @classmethod
    def from_tensors(
        cls, tensors: Mapping[str, Tensor], transform_name: str, temperature: float, calibration: float = 1.0
    ) -> Head:
        """Build a head from what `tensors` and `transform_name` gave; other tensors are ignored.

        Raises
        ------
        KeyError
            If the prototypes are missing, or there is no such transformation.
        """
        parameters = {
            name.removeprefix(_TRANSFORM): value for name, value in tensors.items() if name.startswith(_TRANSFORM)
        }
        transform = CLASSES[transform_name](parameters)
        return cls(tensors["prototypes"], transform, temperature, tensors.get("offsets"), calibration)

    def copy(self) -> Head:
        """A head with tensors of its own."""
        tensors = {name: value.clone() for name, value in self.tensors().items()}
        return Head.from_tensors(tensors, self.transform_name, self.temperature, self.calibration)

    def new_pass(self, cache: bool = False, workspace: Workspace | None = None) -> PlainPass | FusedPass:
        """Start a forward and backward pass over the rows.

        ``cache`` trades memory for time; ``workspace`` is memory for the results of a block.
        """
        if type(self.transform) is SemanticBias:
            return FusedPass(self.prototypes, self.transform.parameters, self.temperature, workspace)
        return PlainPass(self, cache, workspace)

    def proba_and_score(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Calibrated z of any number of rows, and their outlier scores. (N, K), (N,)"""
        z, scores = x.new_empty(len(x), len(self.prototypes)), x.new_empty(len(x))
        for rows, logits in self._logits(x):
            scores[rows] = self._energy(x[rows], logits)
            z[rows] = torch.softmax(logits.mul_(self.calibration), dim=1)
        return z, scores

    def outlier_scores(self, x: Tensor) -> Tensor:
        """The outlier score of each row; larger for rows that fit no class. (N,)"""
        scores = x.new_empty(len(x))
        for rows, logits in self._logits(x):
            scores[rows] = self._energy(x[rows], logits)
        return scores

    def logits(self, x: Tensor) -> Tensor:
        """tau * x' W^T of any number of rows, without calibration. (N, K)"""
        return torch.cat([logits for _, logits in self._logits(x)])

    def predict(self, x: Tensor) -> Tensor:
        """The class of each row. (N,)"""
        labels = torch.empty(len(x), dtype=torch.long, device=x.device)
        for rows, logits in self._logits(x):
            labels[rows] = logits.argmax(dim=1)
        return labels

    def _energy(self, x: Tensor, logits: Tensor) -> Tensor:
        """-log sum_k exp(logit_k). (n,)"""
        energy = -torch.logsumexp(logits, dim=1)
        if self.offsets is None:
            return energy
        # With offsets the logits are -tau |x - w|^2 / 2 without the term |x|^2, which all classes of a row share.
        return energy.add_((x * x).sum(dim=1), alpha=0.5 * self.temperature)

    def _logits(self, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
        head_pass = self.new_pass()
        for number, rows in enumerate(row_blocks(*x.shape)):
            logits = head_pass.logits(x[rows], number)
            yield rows, logits if self.offsets is None else logits.add_(self.offsets, alpha=self.temperature)


def softmax_of(logits: Tensor, z: Tensor, log_z: Tensor) -> None:
    """Write z = softmax(logits) and log z into this memory. (n, K)

    By exp2: torch's exp takes up to four times as long, depending on the processor.
    """
    torch.log_softmax(logits, dim=1, out=log_z)
    torch.mul(log_z, math.log2(math.e), out=z).exp2_()


class PlainPass:
    """A forward and backward pass through h and the classifier, for any transformation with a backward pass.

    A block is known by its number, so that the backward pass can reuse what the forward pass computed: the transformed
    rows, an N x D matrix, which are cached or computed again.
    """

    def __init__(self, head: Head, cache: bool, workspace: Workspace | None) -> None:
        self._head = head
        self._cache = cache
        self._workspace = workspace
        self._cached: dict[int, tuple[Tensor, Any]] = {}
        self._gradients = {name: torch.zeros_like(value) for name, value in head.parameters.items()}

    def _forward(self, x: Tensor, number: int) -> tuple[Tensor, Any]:
        found = self._cached.get(number)
        if found is None:
            found = self._head.transform.forward(x)
            if self._cache:
                self._cached[number] = found
        return found

    def logits(self, x: Tensor, number: int) -> Tensor:
        """tau * h(x) W^T of a block of rows. (n, K)"""
        x_new = self._forward(x, number)[0]
        workspace = self._workspace.classes[: len(x)] if self._workspace else None
        return torch.mm(x_new, self._head.prototypes.T, out=workspace).mul_(self._head.temperature)

    def backward(self, x: Tensor, number: int, log_z: Tensor, gradient: Tensor) -> None:
        """Add to the gradients of the parameters, given d(objective)/d(logits) of the block."""
        x_new, saved = self._forward(x, number)
        head = self._head
        self._gradients["prototypes"].addmm_(gradient.T, x_new, alpha=head.temperature)
        if head.transform.parameters:
            d_x_new = (gradient @ head.prototypes).mul_(head.temperature)  # (n, D)
            head.transform.backward(x, x_new, saved, d_x_new, self._gradients)

    def sums(self) -> list[Tensor]:
        """The sums over the rows of this worker, for the all-reduce."""
        return list(self._gradients.values())

    def gradients(self) -> Gradients:
        """The gradient of each parameter, after the backward pass of all blocks."""
        return self._gradients


def least_fitting(scores: NDArray[np.float32], share: float) -> tuple[IntArray, float]:
    """The rows with the largest outlier scores, that share of all rows, and the threshold that separates them.

    >>> rows, threshold = least_fitting(np.array([1.0, 5.0, 2.0, 4.0], dtype=np.float32), 0.5)
    >>> sorted(rows.tolist()), threshold
    ([1, 3], 3.0)
    """
    n_out = round(share * len(scores))
    if n_out == 0:
        return np.empty(0, dtype=np.int64), float("inf")
    order = np.argsort(-scores, kind="stable")
    last_out = float(scores[order[n_out - 1]])
    first_kept = float(scores[order[n_out]]) if n_out < len(scores) else -np.inf
    # Halfway, so that rounding, which depends on the block size, moves no row across the threshold.
    return order[:n_out], (last_out + first_kept) / 2.0
