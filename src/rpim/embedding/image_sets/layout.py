"""What the readers of data sets share: finding the folder, and images that must be there."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rpim._common.errors import InputError, some
from rpim._common.files import reading
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
