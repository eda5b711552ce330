"""Open an encoder: by name, by file, or from the metadata of a feature set."""

from __future__ import annotations

import os
import shlex
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
    sha256: str | None = None,
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
    sha256 : str, optional
        The expected `weights_hash` of the encoder; others are refused.
    """
    if kind == "texts":
        from rpim.embedding.text import DEFAULT_TEXTS, SentenceEncoder

        return SentenceEncoder(name or DEFAULT_TEXTS, weights, device, sha256)
    if name is not None and name.lower().endswith(".onnx"):
        from rpim.embedding.onnx_file import OnnxEncoder

        return OnnxEncoder(weights or Path(name), preprocessing, sha256)
    from rpim.embedding.images import DEFAULT_IMAGES, TimmEncoder, default_encoder

    if name is None:
        name = default_encoder() if weights is None else DEFAULT_IMAGES
    return TimmEncoder(name, weights, device, preprocessing, sha256)


_FACTS = ("kind", "encoder", "weights_sha256")


def encoder_of(metadata: dict[str, Any], weights: Path | None = None, device: str | None = None) -> Encoder:
    """Reopen the encoder of features from their metadata.

    A run folder may come from anybody: no file that it names is opened, only `weights` and what is published under the
    name of the encoder.

    Raises
    ------
    InputError
        If the metadata is missing, the weights have changed, or are a file and `weights` is not given.
    """
    said = metadata.get("embedding")
    if not isinstance(said, dict) or not all(isinstance(said.get(fact), str) for fact in _FACTS):
        raise InputError(
            "The features of the run were not embedded by rpim embed, so new items cannot be embedded the same way: "
            "embed them as you embedded the run, and give their features."
        )
    kind, name, sha256 = (said[fact] for fact in _FACTS)
    stored = said.get("weights") or (name if _is_file(name) else None)
    if weights is None and stored is not None:
        raise InputError(
            f"The run was embedded with the weights in {stored}, and files that a run names are not opened unasked: "
            f"give --weights {shlex.quote(str(stored))} if you trust them."
        )
    own = said.get("preprocessing")
    preprocessing = Preprocessing.from_dict(own) if isinstance(own, dict) and "mean" in own else None
    if kind not in ("images", "texts") or name.endswith(".safetensors"):
        raise InputError(f"The run says that it holds {kind} embedded by {name}, which is no encoder: embed it again.")
    return open_encoder("texts" if kind == "texts" else "images", name, weights, device, preprocessing, sha256)


def _is_file(name: str) -> bool:
    """Whether the name of an encoder would be taken for a file or folder."""
    return name.lower().endswith((".onnx", ".safetensors")) or os.path.exists(name)
