"""Open an encoder: by name, by file, or from the metadata of a feature set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rpim._common.errors import InputError
from rpim.embedding.encoders import Encoder
from rpim.embedding.items import Kind
from rpim.embedding.pictures import Preprocessing


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
        from rpim.embedding.images import OnnxEncoder

        return OnnxEncoder(weights or Path(name), preprocessing)
    from rpim.embedding.images import DEFAULT_IMAGES, TimmEncoder, default_encoder

    if name is None:
        name = default_encoder() if weights is None else DEFAULT_IMAGES
    return TimmEncoder(name, weights, device, preprocessing)


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
