"""The encoder interface, and opening an encoder by name, by file, or from the metadata of a feature set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim.embedding.items import Kind
from rpim.embedding.pictures import Preprocessing


class Encoder(ABC):
    """Base class of encoders: prepared items in, rows out.

    Attributes
    ----------
    kind : "images" or "texts"
        The kind of items.
    name : str
        Display name.
    weights : str or None
        File or folder of local weights, if given.
    weights_hash : str
        SHA-256 of the weights.
    prepare : callable
        From the content of an item to the input of `encode`; picklable, unlike the encoder. Raises `Unusable` with the
        reason if an item cannot be embedded.
    batch_size : int
        Default batch size.
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
        """What else determines the rows: preprocessing, precision, library."""

    @property
    def identity(self) -> str:
        """Name and short hash of the weights; rows with the same identity are comparable."""
        return f"{self.name}@{self.weights_hash[:12]}"

    def metadata(self) -> dict[str, Any]:
        """Metadata of the encoder, so that later rows are embedded the same way."""
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
    """bfloat16 if the hardware supports it natively, else float32."""
    if device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.bfloat16
    if device.type == "cpu" and torch.cpu._is_amx_tile_supported():
        return torch.bfloat16
    return torch.float32


def open_encoder(
    kind: Kind,
    name: str | None = None,
    weights: Path | None = None,
    device: str | None = None,
    preprocessing: Preprocessing | None = None,
) -> Encoder:
    """An encoder for images or texts.

    Parameters
    ----------
    kind : "images" or "texts"
    name : str, optional
        For images one of `rpim.embedding.images.IMAGE_ENCODERS`, any model of timm's, an .onnx file, or what
        ``rpim finetune`` wrote; for texts a model of sentence-transformers or its folder.
    weights : path, optional
        Its weights, where there is no network: a file for images, a folder for texts.
    device : str, optional
        A torch device; a GPU where there is one.
    preprocessing : Preprocessing, optional
        In place of the encoder's own.
    """
    if kind == "texts":
        from rpim.embedding.text import DEFAULT_TEXTS, SentenceEncoder

        return SentenceEncoder(name or DEFAULT_TEXTS, weights, device)
    if name is not None and name.lower().endswith(".onnx"):
        from rpim.embedding.onnx_file import OnnxEncoder

        return OnnxEncoder(weights or Path(name), preprocessing)
    from rpim.embedding.images import DEFAULT_IMAGES, TimmEncoder

    return TimmEncoder(name or DEFAULT_IMAGES, weights, device, preprocessing)


def encoder_of(metadata: dict[str, Any], weights: Path | None = None, device: str | None = None) -> Encoder:
    """Reopen the encoder of features from their metadata.

    Raises
    ------
    InputError
        If the metadata is missing, or the weights are missing or have changed.
    """
    said = metadata.get("embedding")
    if not isinstance(said, dict) or not {"kind", "encoder", "weights_sha256"} <= said.keys():
        raise InputError(
            "The features of the run were not embedded by rpim embed, so new items cannot be embedded the same way: "
            "embed them as you embedded the run, and give their features."
        )
    stored = said.get("weights")
    if weights is None and stored is not None:
        weights = Path(stored)
        if not weights.exists():
            raise InputError(f"The weights of {said['encoder']} are no longer at {stored}: give --weights.")
    own = said.get("preprocessing", {})
    encoder = open_encoder(
        said["kind"], said["encoder"], weights, device, Preprocessing.from_dict(own) if "mean" in own else None
    )
    if encoder.weights_hash != said["weights_sha256"]:
        raise InputError(
            f"The weights of {said['encoder']} differ from those of the run: give the original ones with --weights."
        )
    return encoder
