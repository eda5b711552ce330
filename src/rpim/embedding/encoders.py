"""The interface of encoders, and batches of items prepared for them; images are decoded in worker processes."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader, Dataset

from rpim.embedding.items import Items, Kind
from rpim.embedding.pictures import Preprocessing, Unusable


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

    kind: Kind
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


TEXTS_AT_ONCE = 16
"""Batches of texts that the encoder gets together: it sorts them by length, so that little is padded."""


class Batch(NamedTuple):
    """Prepared items."""

    positions: list[int]
    prepared: Any  # of each item, or of n images with V views a tensor of uint8 of shape (n * V, 3, size, size);
    # a tuple of tensors for several encoders
    reasons: dict[int, str]  # why the items at other positions are left out


def prepared_batches(
    items: Items,
    positions: Sequence[int],
    encoder: Encoder,
    *,
    views: int,
    workers: int | None,
    seed: int,
    first: int = 0,
) -> Iterator[Batch]:
    """The items at these positions, in this order, `encoder.batch_size` at a time (texts more, see above).

    Where the items are part of others, `first` says which: what is drawn for each does not depend on the part.
    """
    if items.kind == "texts":
        step = encoder.batch_size * TEXTS_AT_ONCE
        for start in range(0, len(positions), step):
            yield _texts(items, positions[start : start + step], encoder)
        return
    if workers is None:
        workers = max(1, (os.cpu_count() or 1) // 2)
    loader: DataLoader[Any] = DataLoader(
        _Pictures(items.content, encoder.prepare, views, seed, first),
        batch_size=encoder.batch_size,
        sampler=positions,
        num_workers=min(workers, -(-len(positions) // encoder.batch_size)),
        collate_fn=_together,
    )
    yield from loader


def _texts(items: Items, positions: Sequence[int], encoder: Encoder) -> Batch:
    batch = Batch([], [], {})
    for position in positions:
        try:
            batch.prepared.append(encoder.prepare(items.content[position]))
            batch.positions.append(position)
        except Unusable as reason:
            batch.reasons[position] = str(reason)
    return batch


class _Pictures(Dataset[Any]):
    """What a worker needs of the images."""

    def __init__(self, content: Sequence[Any], prepare: Any, views: int, seed: int, first: int) -> None:
        self._content, self._prepare, self._views, self._seed, self._first = content, prepare, views, seed, first

    def __getitem__(self, position: int) -> tuple[int, list[Any] | str]:
        """The views of an image, each of shape (3, size, size), or the reason why there are none."""
        prepare: Preprocessing = self._prepare
        try:
            content = self._content[position]
            seen = [prepare(content)]
            for view in range(2, 1 + self._views):
                # Of its own for each view of each image, so that neither batches nor a stop change it.
                random = np.random.default_rng((self._seed, self._first + position, view))
                seen.append(prepare.augmented(content, random))
        except Unusable as reason:
            return position, str(reason)
        except Exception as error:  # of the many libraries that decode: one bad image must not stop the others
            return position, f"{type(error).__name__}: {error}".splitlines()[0].rstrip(": ")
        return position, seen


def _together(found: list[tuple[int, list[Any] | str]]) -> Batch:
    """One tensor a batch: it goes from process to process without being copied."""
    usable = [(position, seen) for position, seen in found if not isinstance(seen, str)]
    return Batch(
        [position for position, _ in usable],
        _stacked([view for _, seen in usable for view in seen]),
        {position: seen for position, seen in found if isinstance(seen, str)},
    )


def _stacked(pixels: list[Any]) -> Any:
    if not pixels:
        return torch.empty(0)
    if isinstance(pixels[0], tuple):  # of several encoders
        return tuple(_stacked(list(each)) for each in zip(*pixels, strict=True))
    return torch.stack([torch.from_numpy(view) for view in pixels])
