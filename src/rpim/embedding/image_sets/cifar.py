"""CIFAR-10 and CIFAR-100 in their Python version: pickles, of which nothing is ever run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim.data.formats.pickles import PickledBytes, load_pickle
from rpim.embedding.image_sets.layout import TEST, TRAIN, UNPACK_AGAIN, Layout
from rpim.embedding.items import Items

SIDE = 32

_BATCHES = tuple(f"data_batch_{k}" for k in range(1, 6))


def cifar10(folder: Path) -> Items:
    """Ids "train/000123" by the place in the five batches; classes as the files number them."""
    return _read("CIFAR-10", folder, {TRAIN: _BATCHES, TEST: ("test_batch",)}, "labels")


def cifar100(folder: Path) -> Items:
    """Ids "train/000123" by the place in the file; the fine classes as the files number them."""
    return _read("CIFAR-100", folder, {TRAIN: ("train",), TEST: ("test",)}, "fine_labels")


def _read(title: str, folder: Path, files: Mapping[str, Sequence[str]], key: str) -> Items:
    root = Layout(title, tuple(name for names in files.values() for name in names)).find(folder)
    images: list[NDArray[np.uint8]] = []
    ids: list[str] = []
    labels: list[int] = []
    split: list[str] = []
    for part, names in files.items():
        before = len(images)
        for name in names:
            of_file, classes = _batch(root / name, title, key)
            images += list(of_file)
            labels += classes
        n = len(images) - before
        ids += [f"{part}/{k:06d}" for k in range(n)]
        split += [part] * n
    return Items.of("images", images, root, ids, labels=labels, split=split)


def _batch(path: Path, title: str, key: str) -> tuple[NDArray[np.uint8], list[int]]:
    """The images of a file, (n, 32, 32, 3), and their classes."""
    held = load_pickle(path, f"a file of {title}", UNPACK_AGAIN)
    data: Any = held.get("data") if isinstance(held, dict) else None
    labels: Any = held.get(key) if isinstance(held, dict) else None
    if not isinstance(data, PickledBytes) or data.values.shape[1:] != (3 * SIDE * SIDE,):
        raise InputError(f"{path} holds no rows of {3 * SIDE * SIDE:,} bytes under 'data': {UNPACK_AGAIN}.")
    if not isinstance(labels, list) or not all(isinstance(label, int) and label >= 0 for label in labels):
        raise InputError(f"{path} holds no list of class numbers under {key!r}: {UNPACK_AGAIN}.")
    if len(labels) != len(data.values):
        raise InputError(f"{path} holds {len(data.values):,} images but {len(labels):,} classes: {UNPACK_AGAIN}.")
    # A row is the red, then the green, then the blue of all pixels.
    return data.values.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1), labels
