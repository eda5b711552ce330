"""The encoder of a name, a file, or an earlier feature set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpim._common.errors import InputError
from rpim.embedding.items import Kind
from rpim.embedding.pictures import Preprocessing

if TYPE_CHECKING:
    from rpim.embedding.encoder import Encoder


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
    """The encoder that features were made with, by what they keep of it.

    Raises
    ------
    InputError
        If they do not say, or its weights are not at hand or are others now.
    """
    said = metadata.get("embedding")
    if not isinstance(said, dict) or not {"kind", "encoder", "weights_sha256"} <= said.keys():
        raise InputError(
            "The run was not made of embeddings by rpim embed, so that new items cannot be embedded the same way: "
            "embed them as those of the run were, and give their features."
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
            f"The weights of {said['encoder']} are not those that the run was embedded with: give them by --weights."
        )
    return encoder
