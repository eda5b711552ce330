"""Open an encoder, or several as one: by name, by file, or from the metadata of a feature set."""

from __future__ import annotations

import copy
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim.data.labels import EMBEDDINGS
from rpim.embedding.encoders import Encoder
from rpim.embedding.items import Kind
from rpim.embedding.pictures import Preprocessing

SEPARATOR = " + "
_FACTS = ("kind", "encoder", "weights_sha256")


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


def open_encoders(
    kind: Kind, names: Sequence[str] = (), weights: Sequence[Path] = (), device: str | None = None
) -> Encoder:
    """The encoder of that name, or several as one (`JointEncoder`); without a name the default.

    Parameters
    ----------
    kind : "images" or "texts"
    names : sequence of str
        As in `open_encoder`.
    weights : sequence of paths
        Local weights of each encoder, in the order of the names; or none.
    device : str, optional
        A torch device; a GPU where there is one.

    Raises
    ------
    InputError
        If an encoder is given twice, or the number of weights is another.
    """
    twice = next((name for name in names if list(names).count(name) > 1), None)
    if twice is not None and not weights:
        raise InputError(f"The encoder {twice} is given twice: give each encoder once.")
    wanted: list[str | None] = [*names] or [None]
    paths: list[Path | None] = [*weights] or [None] * len(wanted)
    if len(paths) != len(wanted):
        raise InputError(
            f"There are {len(paths)} --weights for {len(wanted)} encoders: give one for each --encoder, in the same "
            "order."
        )
    opened = [open_encoder(kind, name, path, device) for name, path in zip(wanted, paths, strict=True)]
    return opened[0] if len(opened) == 1 else JointEncoder(opened)


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
    stored = _stored(said)
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


def encoders_of(metadata: dict[str, Any], weights: Sequence[Path] = (), device: str | None = None) -> Encoder:
    """Reopen the encoder of features, or all of them as one.

    Parameters
    ----------
    metadata : dict
        Of the features.
    weights : sequence of paths
        Of each encoder, or of those alone that were embedded with local weights, in their order.
    device : str, optional
        A torch device; a GPU where there is one.
    """
    said = metadata.get(EMBEDDINGS)
    each = [{"embedding": one} for one in said] if isinstance(said, list) and said else [metadata]
    local = [_stored(one["embedding"]) is not None for one in each] if len(each) > 1 else [True]
    if weights and len(weights) not in (len(each), sum(local)):
        raise InputError(
            f"There are {len(weights)} --weights, but the run has {len(each)} encoders, {sum(local)} of them with "
            "local weights: give one for each of these, in the order of the run."
        )
    if weights and len(weights) < len(each):
        left = iter(weights)
        given: list[Path | None] = [next(left) if is_local else None for is_local in local]
    else:
        given = list(weights) or [None] * len(each)
    opened = [encoder_of(facts, path, device) for facts, path in zip(each, given, strict=True)]
    return opened[0] if len(opened) == 1 else JointEncoder(opened)


def _stored(said: Any) -> str | None:
    """The file or folder of local weights that the metadata of an encoder names."""
    if not isinstance(said, dict):
        return None
    name = said.get("encoder")
    return said.get("weights") or (name if isinstance(name, str) and _is_file(name) else None)


def _is_file(name: str) -> bool:
    """Whether the name of an encoder would be taken for a file or folder."""
    return name.lower().endswith((".onnx", ".safetensors")) or os.path.exists(name)


@dataclass(frozen=True)
class JointPreparation:
    """From an item to what each encoder takes. An item that one of them cannot use is unusable."""

    each: tuple[Callable[[Any], Any], ...]

    def __call__(self, content: Any) -> tuple[Any, ...]:
        """The input of each encoder."""
        return tuple(prepare(content) for prepare in self.each)

    def augmented(self, content: Any, rng: np.random.Generator) -> tuple[Any, ...]:
        """The same view of a picture, as each encoder takes it."""
        return tuple(prepare.augmented(content, copy.deepcopy(rng)) for prepare in self.each)  # type: ignore[attr-defined]


class JointEncoder(Encoder):
    """Encoders of the same kind of items; the metadata has the identity, hash and width of each.

    Parameters
    ----------
    encoders : sequence of Encoder
        Two at least.

    Raises
    ------
    InputError
        If one is given twice.
    """

    weights = None
    weights_hash = ""

    def __init__(self, encoders: Sequence[Encoder]) -> None:
        names = [encoder.identity for encoder in encoders]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"The encoder {twice} is given twice: give each encoder once.")
        self.encoders = tuple(encoders)
        self.kind = encoders[0].kind
        self.name = SEPARATOR.join(encoder.name for encoder in encoders)
        self.prepare = JointPreparation(tuple(encoder.prepare for encoder in encoders))
        self.widths = [encoder.encode(_blank(encoder)).shape[1] for encoder in encoders]

    @property
    def batch_size(self) -> int:
        """The smallest batch size of the encoders; setting it sets that of each."""
        return min(encoder.batch_size for encoder in self.encoders)

    @batch_size.setter
    def batch_size(self, size: int) -> None:
        for encoder in self.encoders:
            encoder.batch_size = size

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """The rows of all encoders side by side. (n, D)"""
        # Images come as a tensor for each encoder, texts one by one.
        inputs = prepared if self.kind == "images" else list(zip(*prepared, strict=True))
        return np.concatenate(
            [encoder.encode(each) for encoder, each in zip(self.encoders, inputs, strict=True)], axis=1
        )

    def describe(self) -> dict[str, Any]:
        """Nothing that the single encoders do not say."""
        return {}

    @property
    def identity(self) -> str:
        """The identities of all, in their order."""
        return SEPARATOR.join(encoder.identity for encoder in self.encoders)

    def metadata(self) -> dict[str, Any]:
        """The metadata of each encoder, with the number of columns of its rows."""
        each = [
            {"name": encoder.identity, "width": width, **encoder.metadata()["embedding"]}
            for encoder, width in zip(self.encoders, self.widths, strict=True)
        ]
        return {"encoder": self.identity, EMBEDDINGS: each}


def _blank(encoder: Encoder) -> Any:
    """An item for the encoder: it says how wide its rows are only in a row."""
    content: Any = "a" if encoder.kind == "texts" else np.zeros((8, 8, 3), dtype=np.uint8)
    return np.asarray([encoder.prepare(content)]) if encoder.kind == "images" else [encoder.prepare(content)]
