"""The images of rows: thumbnails, and which files may be copied.

Requests name rows, not paths: only files listed in the run are opened. A run may come from somebody else, so a path in
it is no reason to copy a file.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from rpim.embedding.items import path_of_text
from rpim.runs.run_folder import read_run_file

SIZES = (160, 640)
"""Longer side in pixels: in the grid, and enlarged."""
_CACHED_BYTES = 64 << 20
NOT_FOUND = "not found"
OUTSIDE = "outside of the image folder, which --images FOLDER names"
NO_IMAGE = "no readable images"
"""Why an image is not copied."""


class Pictures:
    """The images of the rows.

    Parameters
    ----------
    paths : sequence of str, or None
        The recorded path of each image.
    ids : sequence
        Ids of the rows; for images from a folder, the path within it.
    folder : Path, optional
        Folder of the images, if they have moved.
    recorded : sequence of Path
        The image folders that the run records; see `recorded_folders`.
    """

    def __init__(
        self,
        paths: Sequence[str] | None,
        ids: Sequence[Any],
        folder: Path | None = None,
        recorded: Sequence[Path] = (),
    ) -> None:
        self._paths, self._ids, self._folder = paths, ids, folder
        self._recorded = [one.resolve() for one in recorded]
        self._cache: OrderedDict[tuple[int, int], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return self._paths is not None or self._folder is not None

    def path(self, row: int) -> Path | None:
        """The path of a row's image; None if it is missing."""
        recorded = path_of_text(self._paths[row]) if self._paths is not None and self._paths[row] else None
        if self._folder is not None:
            for name in (str(self._ids[row]), "" if self._paths is None else self._paths[row]):
                for tail in tails(name):
                    moved = path_of_text(str(self._folder / tail))
                    if moved.is_file():
                        return moved
        return recorded if recorded is not None and recorded.is_file() else None

    def file_to_copy(self, row: int) -> Path:
        """The image of a row, if it is one, and in the folder of the images.

        Raises
        ------
        Unusable
            With the reason otherwise.
        """
        from rpim.embedding.pictures import Unusable, open_picture

        path = self.path(row)
        if path is None:
            raise Unusable(NOT_FOUND)
        named = self._folder is not None and path.is_relative_to(self._folder)
        if not named and not any(path.resolve().is_relative_to(folder) for folder in self._recorded):
            raise Unusable(OUTSIDE)
        try:
            open_picture(path, 1)
        except Unusable as error:
            raise Unusable(NO_IMAGE) from error
        return path

    def missing(self, sample: int = 50) -> bool:
        """Whether most of the first images are missing."""
        n = min(sample, len(self._ids))
        return bool(self) and 2 * sum(self.path(row) is None for row in range(n)) > n

    def small(self, row: int, size: int) -> bytes | None:
        """A JPEG thumbnail of at most `size` pixels; None if the image is missing or unreadable."""
        key = row, size
        with self._lock:
            if key in self._cache:
                self._cache.move_to_end(key)
                return self._cache[key]
        path = self.path(row)
        made = None if path is None else _shrunk(path, size)
        if made is not None:
            with self._lock:
                self._bytes += len(made) - len(self._cache.get(key, b""))
                self._cache[key] = made
                while self._bytes > _CACHED_BYTES:
                    self._bytes -= len(self._cache.popitem(last=False)[1])
        return made


def recorded_folders(run: Path) -> list[Path]:
    """The folders whose images were embedded for a run, and for the runs that it extends."""
    folders = []
    provenance = read_run_file(run).get("provenance")
    while isinstance(provenance, dict):
        data = provenance.get("data")
        metadata = data.get("metadata") if isinstance(data, dict) else None
        source = metadata.get("source") if isinstance(metadata, dict) else None
        if isinstance(source, str) and os.path.isdir(source):
            folders.append(Path(source))
        provenance = provenance.get("extends")
    return folders


def tails(name: str) -> list[PurePosixPath]:
    """The suffixes of a path, longest first; empty if it contains "..".

    >>> [str(tail) for tail in tails("/data/birds/a.jpg")]
    ['data/birds/a.jpg', 'birds/a.jpg', 'a.jpg']
    >>> tails("../secret")
    []
    """
    parts = [part for part in PureWindowsPath(name).parts if part.strip("\\/") and not part.endswith((":", ":\\"))]
    if ".." in parts:
        return []
    return [PurePosixPath(*parts[k:]) for k in range(len(parts))]


def _shrunk(path: Path, size: int) -> bytes | None:
    from rpim.embedding.pictures import Unusable, small_jpeg

    try:
        return small_jpeg(path, size)
    except Unusable:
        return None
