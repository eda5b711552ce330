"""Several encoders as one: the rows of each item, side by side."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim.data.embeddings import EMBEDDINGS
from rpim.embedding.encoders import Encoder

SEPARATOR = " + "


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
