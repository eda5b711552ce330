"""Arrays in .npy and .npz files: what their headers declare is checked before anything is read."""

from __future__ import annotations

import contextlib
import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim._common.files import must_exist, reading


def must_be_npy(path: Path) -> None:
    """Check that a file exists and is an .npy file."""
    must_exist(path)
    with reading(path), open(path, "rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise InputError(f"{path} is not an .npy file: write it with numpy.save.")


def load_npy(path: Path, mmap_mode: Any = None) -> NDArray[Any]:
    """Load the array in an .npy file."""
    must_be_npy(path)
    with reading(path):
        with open(path, "rb") as file:
            declared = ArrayStream(file)
            if declared.n_bytes > path.stat().st_size - file.tell():
                raise ValueError(f"it is too short for an array of shape {declared.shape}")
        array: NDArray[Any] = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        return array


@contextlib.contextmanager
def open_npz(path: Path, hint: str = "write it again with numpy.savez") -> Iterator[Any]:
    """Open an .npz file with numpy; errors while it is open are about this file, and end with the hint."""
    must_exist(path)
    with reading(path, hint):
        if not zipfile.is_zipfile(path):
            raise InputError(f"{path} is not an .npz file, or is truncated: {hint}.")
        with np.load(path, allow_pickle=False) as archive:
            yield archive


class ArrayStream:
    """The rows of an array, in the order of the file.

    It is not memory-mapped: mapped pages count as memory in use, and a member of an archive may be compressed. An
    array in Fortran order is read whole, because its rows are spread over the file.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        version = np.lib.format.read_magic(file)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        if version not in read_header:
            raise ValueError(f"version {version} of numpy's format is not for plain numbers and text")
        self.shape, self.by_column, self.dtype = read_header[version](file)
        if not all(type(n) is int and 0 <= n < 2**63 for n in self.shape):
            raise ValueError(f"its header says that it has the shape {self.shape}")
        if self.dtype.hasobject:
            raise ValueError("Object arrays are pickled")
        self._next_row = 0
        self._whole: NDArray[Any] | None = None

    @property
    def n_bytes(self) -> int:
        """The size of the array, as its header declares it."""
        return math.prod(self.shape) * self.dtype.itemsize

    def take(self, n_rows: int) -> NDArray[Any]:
        """Read the next rows."""
        rows = slice(self._next_row, self._next_row + n_rows)
        self._next_row += n_rows
        if self.by_column:
            if self._whole is None:
                self._whole = self._read(self.shape[::-1]).T
            return self._whole[rows]
        return self._read((n_rows, *self.shape[1:]))

    def finish(self) -> None:
        """Read to the end, where an archive checks the checksum."""
        while self._file.read(1 << 20):
            pass

    def _read(self, shape: tuple[int, ...]) -> NDArray[Any]:
        wanted = math.prod(shape) * self.dtype.itemsize
        content = self._file.read(wanted)
        if len(content) < wanted:
            raise ValueError(f"it ends before its {self.shape[0]} rows do")
        return np.frombuffer(content, dtype=self.dtype).reshape(shape)
