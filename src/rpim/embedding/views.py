"""The last block of an encoder, and augmented views of images at its input: drawn anew, or cached."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rpim._common.errors import InputError, first_line
from rpim._common.files import replacing, writing
from rpim._common.progress import Progress
from rpim.data.formats.arrays import load_npy
from rpim.embedding.images import TimmEncoder


class _Entered(Exception):
    """The last block is reached, and what enters it is known."""


class LastBlock:
    """The last block of a model of timm, and everything behind it; nothing else has a gradient from here on.

    The block is the last of those that timm lists for the model and that holds a weight matrix: a ViT's last
    transformer block, the last stage of a convolutional network. What follows it, such as the final norm, is run by the
    model itself, on what enters the block in the place of what the rest of the model has made of a blank picture. So
    nothing has to be known of how the model is built, and the rest costs a single picture a batch.

    Parameters
    ----------
    model : a model of timm, in evaluation mode
        It stays in it: batch norms keep their statistics, and the rows are those that an encoder will give.
    size : int
        The side of its pictures.

    Attributes
    ----------
    name : str
        Where the block is in the model.
    n_features : int
        The width of its rows.
    parameters : dict of str to Parameter
        What can be trained: the parameters that the rows depend on from the block onwards.

    Raises
    ------
    InputError
        If the model cannot be divided.
    """

    def __init__(self, model: Any, size: int) -> None:
        self._model = model.eval()
        like = next(model.parameters())
        self._blank = torch.zeros(1, 3, size, size, device=like.device, dtype=like.dtype)
        pictures = torch.linspace(-1, 1, 6 * size * size).reshape(2, 3, size, size).to(self._blank)
        try:
            self.name = _last_with_weights(model)
            self._block: nn.Module = model.get_submodule(self.name)
            self.parameters = self._find_parameters(self.entering(pictures))
            with torch.no_grad():
                rows = self.rows(self.entering(pictures))
                torch.testing.assert_close(rows, model(pictures), rtol=1e-3, atol=1e-4)
            self.n_features = rows.shape[1]
        except (AttributeError, KeyError, TypeError, LookupError, RuntimeError, AssertionError) as error:
            raise InputError(
                f"{type(model).__name__} cannot be divided before its last block ({first_line(error)}): choose another "
                "encoder, such as a ViT."
            ) from error

    def entering(self, pictures: Tensor) -> Tensor:
        """What enters the block, without a gradient. (n, 3, size, size) -> (n, ...)"""
        entered: list[Tensor] = []

        def keep(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> None:
            entered.append(given[0])
            raise _Entered

        with self._when_called(keep), torch.no_grad(), contextlib.suppress(_Entered):
            self._model(pictures)
        return entered[0]

    def rows(self, entering: Tensor) -> Tensor:
        """The embedding of what enters the block. (n, ...) -> (n, D)"""
        if entering.ndim == 4:
            entering = entering.contiguous(memory_format=torch.channels_last)  # as the encoder's pictures are

        def replace(_: nn.Module, given: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
            return (entering, *given[1:]), named

        with self._when_called(replace):
            rows: Tensor = self._model(self._blank)
        return rows

    @contextlib.contextmanager
    def _when_called(self, hook: Callable[..., Any]) -> Iterator[None]:
        handle = self._block.register_forward_pre_hook(hook, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def _find_parameters(self, entering: Tensor) -> dict[str, nn.Parameter]:
        """Those that a gradient reaches, and no others require one afterwards."""
        named = dict(self._model.named_parameters())
        with torch.enable_grad():
            for parameter in named.values():
                parameter.requires_grad_(True)
            reached = torch.autograd.grad(self.rows(entering).sum(), list(named.values()), allow_unused=True)
        for parameter, gradient in zip(named.values(), reached, strict=True):
            parameter.requires_grad_(gradient is not None)
        return {name: parameter for name, parameter in named.items() if parameter.requires_grad}


def _last_with_weights(model: Any) -> str:
    for stage in reversed(list(model.feature_info)):
        name = str(stage["module"])
        if any(value.ndim > 1 for value in model.get_submodule(name).parameters()):
            return name
    raise LookupError("timm lists no block with weights")


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
