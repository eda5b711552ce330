"""What an encoder is: the contract that images, texts and .onnx files share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from rpim.embedding.items import Kind


class Encoder(ABC):
    """Turns prepared items into rows.

    Attributes
    ----------
    kind : "images" or "texts"
        What it takes.
    name : str
        What a person calls it.
    weights : str or None
        The file or folder that its weights came from, where it was given one.
    weights_hash : str
        SHA-256 of the weights.
    prepare : callable
        From the content of an item to what `encode` takes. It can be sent to another process, which the encoder cannot.
        It raises `Unusable` with the reason where an item cannot be embedded.
    batch_size : int
        How many items at once, where nobody says otherwise.
    """

    kind: ClassVar[Kind]
    batch_size: int = 32
    name: str
    weights: str | None
    weights_hash: str
    prepare: Callable[[Any], Any]

    @abstractmethod
    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """The rows of prepared items. (n, D)"""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What else decides how a row comes out: preprocessing, precision, library."""

    @property
    def identity(self) -> str:
        """Name and weights in short: rows with the same one can be compared."""
        return f"{self.name}@{self.weights_hash[:12]}"

    def metadata(self) -> dict[str, Any]:
        """What a feature set keeps of its encoder, so that later rows are embedded the same way."""
        return {
            "encoder": self.identity,
            "embedding": {
                "kind": self.kind,
                "encoder": self.name,
                "weights": self.weights,
                "weights_sha256": self.weights_hash,
                **self.describe(),
            },
        }


def fast_precision(device: torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies in it, float32 elsewhere: there bfloat16 would be many times slower."""
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    if device.type == "cpu" and torch.cpu._is_amx_tile_supported():
        return torch.bfloat16
    return torch.float32
