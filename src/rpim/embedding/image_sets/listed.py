"""Data sets that list their images in files: CUB-200-2011, Stanford Cars and FGVC-Aircraft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from rpim._common.errors import InputError, first_line, some
from rpim._common.files import must_exist, reading
from rpim.embedding.image_sets.layout import TEST, TRAIN, UNPACK_AGAIN, File, Layout, image_items, must_be_there
from rpim.embedding.items import Items

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
