"""Augmented views of images at the input of the last block: drawn anew, or cached."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rpim._common.errors import InputError
from rpim._common.files import load_npy, replacing, writing
from rpim._common.progress import Progress
from rpim.embedding.images import TimmEncoder
from rpim.embedding.last_block import LastBlock

_SECONDS_BETWEEN_NOTES = 20.0
_AT_ONCE = 64

IntArray = NDArray[np.int64]


class FreshViews:
    """Two new views of each image per call.

    Parameters
    ----------
    content : sequence of N pictures
    encoder : TimmEncoder
    last_block : LastBlock
        Of the encoder's model.
    """

    def __init__(self, content: Sequence[Any], encoder: TimmEncoder, last_block: LastBlock) -> None:
        self._content, self._encoder, self._last_block = content, encoder, last_block

    def pairs(self, rows: IntArray, rng: np.random.Generator) -> Tensor:
        """Of each row two views, as they enter the last block. (2, b, ...)"""
        seeds = rng.integers(2**63, size=2 * len(rows))
        views = self.entering(np.concatenate([rows, rows]), [np.random.default_rng(seed) for seed in seeds])
        return views.reshape(2, len(rows), *views.shape[1:])

    def entering(self, rows: IntArray, generators: Sequence[np.random.Generator]) -> Tensor:
        """A view of each row, by a generator of its own, so that it does not matter which is made first. (b, ...)"""
        precision = self._encoder.precision
        device = self._encoder.device.type
        blocks = []
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            pixels = list(pool.map(self._view, rows, generators))
        with torch.autocast(device, precision, enabled=precision != torch.float32):
            for start in range(0, len(pixels), _AT_ONCE):
                block = self._encoder.normalized(pixels[start : start + _AT_ONCE])
                blocks.append(self._last_block.entering(block).float())
        return torch.cat(blocks)

    def _view(self, row: int, generator: np.random.Generator) -> NDArray[np.uint8]:
        return self._encoder.prepare.augmented(self._content[row], generator)


class ViewBank:
    """Views of each image at the input of the last block, computed once and cached in a float16 file.

    The frozen blocks are then computed once per view. The file is memory-mapped and may be larger than memory. Filling
    it can be interrupted and resumed.

    Parameters
    ----------
    fresh : FreshViews
    n_images, n_views : int
    seed : int
        Decides every view, whatever was drawn before.
    folder : Path
        Where ``views.npy`` is kept.
    """

    def __init__(self, fresh: FreshViews, n_images: int, n_views: int, seed: int, folder: Path) -> None:
        self._fresh, self._seed = fresh, seed
        self._n_images, self._n_views = n_images, n_views
        self._file, self._note = folder / "views.npy", folder / "views.filled"

    def fill(self, progress: Progress) -> None:
        """Compute the missing views."""
        starts = range(0, self._n_images * self._n_views, _AT_ONCE)
        filled = int(self._note.read_text()) if self._note.is_file() and self._file.is_file() else 0
        progress.expect(len(starts))
        progress.advance(filled)
        if not filled:
            self._make_file()
        self._views = load_npy(self._file, mmap_mode="r+")  # (n_images * n_views, ...)
        noted = time.monotonic()
        for block, start in enumerate(starts):
            if block < filled:
                continue
            self._views[start : start + _AT_ONCE] = self._block(start)
            progress.advance(1)
            if block + 1 == len(starts) or time.monotonic() - noted > _SECONDS_BETWEEN_NOTES:
                self._views.flush()  # type: ignore[attr-defined]
                with replacing(self._note) as file:
                    file.write(b"%d" % (block + 1))
                noted = time.monotonic()

    def pairs(self, rows: IntArray, rng: np.random.Generator) -> Tensor:
        """Of each row two different views of those that are kept, as they enter the last block. (2, b, ...)"""
        one = rng.integers(self._n_views, size=len(rows))
        other = (one + rng.integers(1, self._n_views, size=len(rows))) % self._n_views
        places = rows * self._n_views + np.stack([one, other])  # (2, b)
        return torch.from_numpy(self._views[places]).float()

    def _block(self, start: int) -> NDArray[np.float16]:
        """The views from place `start` on; those of an image are side by side. (at most _AT_ONCE, ...)"""
        places = np.arange(start, min(start + _AT_ONCE, self._n_images * self._n_views))
        rows, numbers = places // self._n_views, places % self._n_views
        generators = [
            np.random.default_rng([self._seed, row, number])
            for row, number in zip(rows.tolist(), numbers.tolist(), strict=True)
        ]
        views: NDArray[np.float16] = self._fresh.entering(rows, generators).half().cpu().numpy()
        if not np.isfinite(views).all():
            raise InputError(
                "What enters the last block of this encoder is too large for float16: give --views 0 (views=0)."
            )
        return views

    def _make_file(self) -> None:
        shape = (self._n_images * self._n_views, *self._block(0).shape[1:])
        room, free = 2 * int(np.prod(shape, dtype=np.int64)), shutil.disk_usage(self._file.parent).free
        if room > 0.9 * free:
            raise InputError(
                f"{self._n_views} views of {self._n_images:,} images take {room / 1e9:.1f} GB beside the output, where "
                f"{free / 1e9:.1f} GB are free: give fewer --views, or 0 to draw them afresh every time (slower)."
            )
        with writing(self._file):
            np.lib.format.open_memmap(self._file, "w+", dtype=np.float16, shape=shape).flush()
