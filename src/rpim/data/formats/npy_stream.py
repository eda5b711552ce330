"""Sequential reads of arrays in numpy's format: an .npy file, or a member of an .npz."""

from __future__ import annotations

import math
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray


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
        if self.dtype.hasobject:
            raise ValueError("Object arrays are pickled")
        self._next_row = 0
        self._whole: NDArray[Any] | None = None

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
