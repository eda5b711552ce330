"""The paper's data sets as they are published: images, class ids and the official train/test split.

Class ids are those of the published lists of known classes: integers from 0, in the order in which GCD's code (Vaze et
al., "Generalized Category Discovery", CVPR 2022) numbers the classes. Each reader documents that order.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, choose, first_line, some
from rpim._common.files import must_exist, reading
from rpim.data.formats.arrays import PickledBytes, load_pickle
from rpim.embedding.items import Items

TRAIN, TEST = "train", "test"
UNPACK_AGAIN = "unpack the data set again"


@dataclass(frozen=True)
class Layout:
    """What the folder of a data set must hold, as paths within it."""

    title: str
    needed: tuple[str, ...]

    def find(self, folder: Path) -> Path:
        """The folder that is given, or the one in it that holds all that is needed."""
        if not folder.is_dir():
            raise InputError(f"{folder} is not there or not a folder: give the folder of {self.title}.")
        if not self._missing(folder):
            return folder
        with reading(folder, "check that you may"):
            within = [inner for inner in sorted(folder.iterdir()) if inner.is_dir() and not self._missing(inner)]
        if len(within) > 1:
            raise InputError(f"{folder} holds {self.title} more than once ({some(within)}): give one of them.")
        if not within:
            raise InputError(
                f"{folder} is not the folder of {self.title}, because {some(self._missing(folder))} is not in it: give "
                f"the one with {', '.join(self.needed)}."
            )
        return within[0]

    def _missing(self, folder: Path) -> list[str]:
        # Path.exists would raise in a folder that may not be looked into, such as lost+found.
        return [name for name in self.needed if not os.path.exists(folder / name)]


File = tuple[str, int, str]
"""The path of an image within the data set, its class and its part."""


def must_be_there(root: Path, files: Sequence[File]) -> Sequence[File]:
    """The files, if all that are listed are on the disk."""
    absent = [name for name, _, _ in files if not (root / name).is_file()]
    if absent:
        raise InputError(f"{root} lacks {len(absent):,} of its {len(files):,} images ({some(absent)}): {UNPACK_AGAIN}.")
    return files


def image_items(root: Path, files: Sequence[File]) -> Items:
    """The files as items."""
    return Items.of(
        "images",
        [root / name for name, _, _ in files],
        root,
        [name for name, _, _ in files],
        labels=[label for _, label, _ in files],
        split=[part for _, _, part in files],
    )


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


IMAGENET = Layout("ImageNet", ("train", "val"))
HERBARIUM = Layout("Herbarium19", ("small-train", "small-validation"))

_IMAGENET_SIZE = 1000
_SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".tif", ".tiff", ".webp"}


def imagenet100(folder: Path, classes: Sequence[int] | None = None) -> Items:
    """100 classes of ImageNet (ILSVRC 2012), from ``train/<WordNet id>/`` and ``val/<WordNet id>/``.

    `classes` are indices into the 1,000 sorted WordNet ids (default: those that GCD draws); a class id is the index in
    that list. All 1,000 folders of ``train`` must exist, though the others may be empty: the order of the folders gives
    the indices.
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


CUB = Layout("CUB-200-2011", ("images.txt", "image_class_labels.txt", "train_test_split.txt", "images"))
CARS = Layout("Stanford Cars", ("devkit/cars_train_annos.mat", "cars_train", "cars_test"))
AIRCRAFT = Layout("FGVC-Aircraft", ("data/images_variant_trainval.txt", "data/images_variant_test.txt", "data/images"))

_CARS_TEST = "cars_test_annos_withlabels.mat"


def cub(folder: Path) -> Items:
    """CUB-200-2011 in the order of ``images.txt``; a class id is the number of the class less one."""
    root = CUB.find(folder)
    names = _pairs(root / "images.txt")
    numbers = _pairs(root / "image_class_labels.txt")
    in_train = _pairs(root / "train_test_split.txt")
    odd = sorted(names.keys() ^ numbers.keys() | names.keys() ^ in_train.keys())
    if odd:
        raise InputError(f"{root}: its lists are not all of the same images ({some(odd)}): {UNPACK_AGAIN}.")
    with reading(root / "image_class_labels.txt", UNPACK_AGAIN):
        labels = {image: _class_id(number) for image, number in numbers.items()}
    with reading(root / "train_test_split.txt", UNPACK_AGAIN):
        parts = {image: {"1": TRAIN, "0": TEST}[said] for image, said in in_train.items()}
    files = [(f"images/{name}", labels[image], parts[image]) for image, name in names.items()]
    return image_items(root, must_be_there(root, files))


def cars(folder: Path) -> Items:
    """Stanford Cars, training images first; a class id is the number of the class less one.

    The labels of the test images, ``cars_test_annos_withlabels.mat``, may lie in ``devkit`` or beside it.
    """
    root = CARS.find(folder)
    test = next((path for path in (root / "devkit" / _CARS_TEST, root / _CARS_TEST) if path.exists()), None)
    if test is None:
        raise InputError(f"{root} has no devkit/{_CARS_TEST}, the classes of the test images: put it there.")
    train = root / "devkit/cars_train_annos.mat"
    files = [*_annotated(train, "cars_train", TRAIN), *_annotated(test, "cars_test", TEST)]
    return image_items(root, must_be_there(root, files))


def _annotated(path: Path, where: str, part: str) -> list[File]:
    """The images of one of the annotation files, which are MATLAB's."""
    from scipy.io import loadmat

    try:
        rows = np.atleast_1d(loadmat(path, squeeze_me=True)["annotations"])
        return [(f"{where}/{row['fname']}", _class_id(row["class"]), part) for row in rows]
    except Exception as error:  # scipy raises whatever it stumbles upon
        raise InputError(f"{path} is no list of annotated images ({first_line(error)}): {UNPACK_AGAIN}.") from error


def aircraft(folder: Path) -> Items:
    """FGVC-Aircraft, the images called trainval first, by variant.

    A class id is the place of the variant among those of trainval sorted as text, capitals before small letters,
    whatever the order of ``variants.txt``.
    """
    root = AIRCRAFT.find(folder)
    train, test = (_pairs(root / f"data/images_variant_{part}.txt") for part in ("trainval", "test"))
    variants = {variant: k for k, variant in enumerate(sorted(set(train.values())))}
    strange = sorted(set(test.values()) - variants.keys())
    if strange:
        raise InputError(f"{root}: its test images have variants of their own ({some(strange)}): {UNPACK_AGAIN}.")
    files = [
        (f"data/images/{image}.jpg", variants[variant], part)
        for listed, part in ((train, TRAIN), (test, TEST))
        for image, variant in listed.items()
    ]
    return image_items(root, must_be_there(root, files))


def _class_id(number: Any) -> int:
    """From 0 on, of a class number from 1 on."""
    if int(number) < 1:
        raise ValueError(f"the class {number}, but they are numbered from 1 on")
    return int(number) - 1


def _pairs(path: Path) -> dict[str, str]:
    """The first word of each line with the rest of the line, in the order of the file."""
    must_exist(path)
    pairs: dict[str, str] = {}
    with reading(path, UNPACK_AGAIN):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if not line.strip():
                continue
            first, _, rest = line.strip().partition(" ")
            if not rest or first in pairs:
                why = "names an image again" if rest else "is not an image and something about it"
                raise InputError(f"{path}: line {number}, {line[:60]!r}, {why}: {UNPACK_AGAIN}.")
            pairs[first] = rest.strip()
    return pairs


__all__ = ["READERS", "read_image_set"]

READERS: dict[str, Callable[[Path], Items]] = {
    "cifar10": cifar10,
    "cifar100": cifar100,
    "imagenet100": imagenet100,
    "cub": cub,
    "cars": cars,
    "herbarium19": herbarium19,
    "aircraft": aircraft,
}
"""By the names that commands have for them."""


def read_image_set(name: str, folder: Path, imagenet_classes: Sequence[int] | None = None) -> Items:
    """The images of a data set, in an order that is always the same.

    Parameters
    ----------
    name : str
        One of `READERS`.
    folder : Path
        The folder of the data set, or the one that folder is in.
    imagenet_classes : sequence of int, optional
        For "imagenet100", other classes than those of GCD, as indices into the 1,000 sorted WordNet ids.

    Raises
    ------
    InputError
        If files are missing or cannot be read.
    """
    if choose("The data set", name, READERS) == "imagenet100" and imagenet_classes is not None:
        return imagenet100(folder, imagenet_classes)
    return READERS[name](folder)
