"""Prepare batches of items for an encoder; images are decoded in worker processes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from rpim.embedding.encoders import Encoder
from rpim.embedding.items import Items
from rpim.embedding.pictures import Preprocessing, Unusable

TEXTS_AT_ONCE = 16
"""Batches of texts that the encoder gets together: it sorts them by length, so that little is padded."""


class Batch(NamedTuple):
    """Prepared items."""

    positions: list[int]
    prepared: Any  # of each item, or of n images with V views a tensor of uint8 of shape (n * V, 3, size, size)
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
        return position, seen


def _together(found: list[tuple[int, list[Any] | str]]) -> Batch:
    """One tensor a batch: it goes from process to process without being copied."""
    usable = [(position, seen) for position, seen in found if not isinstance(seen, str)]
    pixels = [torch.from_numpy(view) for _, seen in usable for view in seen]
    return Batch(
        [position for position, _ in usable],
        torch.stack(pixels) if pixels else torch.empty(0),
        {position: seen for position, seen in found if isinstance(seen, str)},
    )
