"""Data sets with a folder of images for each class: ImageNet-100 and Herbarium19."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rpim._common.errors import InputError, some
from rpim.embedding.image_sets.layout import TEST, TRAIN, UNPACK_AGAIN, File, Layout, image_items
from rpim.embedding.items import Items

IMAGENET = Layout("ImageNet", ("train", "val"))
HERBARIUM = Layout("Herbarium19", ("small-train", "small-validation"))

_IMAGENET_SIZE = 1000
_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp"}


def imagenet100(folder: Path, classes: Sequence[int] | None = None) -> Items:
    """100 classes of ImageNet (ILSVRC 2012), from ``train/<WordNet id>/`` and ``val/<WordNet id>/``.

    `classes` are places among the 1,000 sorted WordNet ids, those that GCD draws unless given; a class id is the place
    in that list. All 1,000 folders of ``train`` must be there, though the others may be empty: without them nobody can
    say which is which.
    """
    root = IMAGENET.find(folder)
    names = [name for name in _folders(root / "train") if re.fullmatch(r"n\d{8}", name)]
    if len(names) != _IMAGENET_SIZE:
        raise InputError(
            f"{root / 'train'} has {len(names):,} folders of classes, but ImageNet-100 is chosen among the sorted "
            f"{_IMAGENET_SIZE:,} of ImageNet: give all of them, empty ones too."
        )
    places = gcds_hundred() if classes is None else list(classes)
    strange = [place for place in places if not 0 <= place < _IMAGENET_SIZE]
    if strange or len(set(places)) < len(places):
        raise InputError(
            f"The list of ImageNet's classes has {some(strange) or 'a class twice'}: give different numbers from 0 to "
            f"{_IMAGENET_SIZE - 1}."
        )
    chosen = [names[place] for place in places]
    return image_items(root, [*_images(root, "train", chosen, TRAIN), *_images(root, "val", chosen, TEST)])


def gcds_hundred() -> list[int]:
    """The classes of ImageNet that GCD draws.

    >>> gcds_hundred()[:5]
    [1, 14, 27, 31, 45]
    """
    drawn = np.random.RandomState(0).choice(_IMAGENET_SIZE, 100, replace=False)
    return [int(place) for place in np.sort(drawn)]


def herbarium19(folder: Path) -> Items:
    """The small images of the Herbarium Challenge 2019, with their validation images as test rows.

    A class id is the place of its folder among those of ``small-train`` sorted as text: "10" comes before "2".
    """
    root = HERBARIUM.find(folder)
    train, test = HERBARIUM.needed
    names = _folders(root / train)
    strange = sorted(set(_folders(root / test)) - set(names))
    if strange:
        raise InputError(f"{root / test} has classes that {train} has not ({some(strange)}): {UNPACK_AGAIN}.")
    return image_items(root, [*_images(root, train, names, TRAIN), *_images(root, test, names, TEST)])


def _folders(folder: Path) -> list[str]:
    """The names of the folders in a folder, sorted as text."""
    return sorted(inner.name for inner in folder.iterdir() if inner.is_dir() and not inner.name.startswith("."))


def _images(root: Path, where: str, names: Sequence[str], part: str) -> list[File]:
    """The images of each of the named classes with their paths in `root`, classes and part."""
    found: list[File] = []
    empty: list[str] = []
    for label, name in enumerate(names):
        folder = root / where / name
        files = sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
        images = [file for file in files if Path(file).suffix.lower() in _SUFFIXES and not file.startswith(".")]
        found += [(f"{where}/{name}/{file}", label, part) for file in images]
        if not images:
            empty.append(name)
    if empty:
        raise InputError(
            f"{root / where} has no images of {len(empty):,} of {len(names):,} classes ({some(empty)}): give a folder "
            "of images for each class."
        )
    return found
