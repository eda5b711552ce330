"""The data sets of the paper as they are published: images, their class ids and their official division.

Class ids are those of the published lists of known classes: whole numbers from 0 on, in the order that GCD's code
(Vaze et al., "Generalized Category Discovery", CVPR 2022) gives the classes. Each reader says which order that is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rpim._common.errors import choose
from rpim.embedding.image_sets.cifar import cifar10, cifar100
from rpim.embedding.image_sets.class_folders import herbarium19, imagenet100
from rpim.embedding.image_sets.listed import aircraft, cars, cub
from rpim.embedding.items import Items

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
        For "imagenet100", other classes than those of GCD, as places among the 1,000 sorted WordNet ids.

    Raises
    ------
    InputError
        If files are missing or cannot be read.
    """
    if choose("The data set", name, READERS) == "imagenet100" and imagenet_classes is not None:
        return imagenet100(folder, imagenet_classes)
    return READERS[name](folder)
