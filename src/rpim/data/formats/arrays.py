"""Arrays in .npy and .npz files and in pickles, read without trusting the file.

What the header of an array declares is checked before anything is read. Of a pickle, lists, dicts and arrays are read;
nothing that it names is ever imported or called.
"""

from __future__ import annotations

import collections
import contextlib
import math
import pickle
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line
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


def load_pickle(path: Path, what: str, hint: str) -> Any:
    """Load a pickle of lists, dicts, sets, strings, integers, and arrays of bytes (as `PickledBytes`).

    Strings of Python 2 are read as latin1.

    Parameters
    ----------
    path : path of the pickle
    what : str
        What it should be, for errors.
    hint : str
        What to do if it is something else.

    Raises
    ------
    InputError
        If it cannot be read, or names anything else; none of its code has run.
    """
    must_exist(path)
    try:
        with open(path, "rb") as file:
            return _PlainUnpickler(file, encoding="latin1").load()
    except _Refused as refused:
        raise InputError(
            f"{path} holds {refused}, and of a pickle nothing but lists, dicts, text, whole numbers and arrays of "
            f"bytes is ever loaded: {hint}."
        ) from refused
    # A damaged or hostile pickle may raise anything; none of it has run more than the stand-ins below.
    except Exception as error:
        raise InputError(f"{path} cannot be read as {what} ({first_line(error)}): {hint}.") from error


class PickledBytes:
    """Stands for ``numpy.ndarray``, as far as an array of uint8 needs it."""

    values: NDArray[np.uint8] = np.empty(0, dtype=np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, by_columns, data = state
        if not isinstance(kind, _IntegerType) or kind.code != "u1" or by_columns:
            raise TypeError("an array that is not of bytes, row by row")
        raw = _bytes(data, "latin1") if isinstance(data, str) else data
        if not isinstance(raw, bytes) or not all(isinstance(n, int) and n >= 0 for n in shape):
            raise TypeError("a damaged array")
        if len(raw) != math.prod(shape):
            raise TypeError(f"an array of {len(raw):,} bytes for a shape of {shape}")
        self.values = np.frombuffer(raw, dtype=np.uint8).reshape(shape)


class _Refused(Exception):
    """A name that is not allowed."""


class _PlainUnpickler(pickle.Unpickler):
    """Every name in the pickle that has no stand-in is refused before it is looked up."""

    def find_class(self, module: str, name: str) -> Any:
        """What stands for a name in the pickle: never what the name says."""
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise _Refused(f"{module}.{name}") from None


class _IntegerType:
    """Stands for ``numpy.dtype``, as far as integers in a pickle need it: their size, byte order and sign."""

    def __init__(self, code: str, *rest: Any) -> None:
        if not isinstance(code, str) or code.strip("<>=|")[:1] not in ("i", "u"):
            raise TypeError("numbers that are not whole")
        self.code = code.strip("<>=|")
        self.signed = self.code.startswith("i")
        self.big = False

    def __setstate__(self, state: Any) -> None:
        self.big = state[1] == ">"


def _array(kind: Any, shape: Any, code: Any) -> PickledBytes:
    """Stands for the function that makes an empty numpy array, which its state then fills."""
    if kind is not PickledBytes:
        raise TypeError("a damaged array")
    return PickledBytes()


def _integer(kind: Any, data: Any) -> int:
    """Stands for the function that makes a numpy scalar of its type and its bytes."""
    raw = _bytes(data, "latin1") if isinstance(data, str) else data
    if not isinstance(kind, _IntegerType) or not isinstance(raw, bytes):
        raise TypeError("a damaged number")
    return int.from_bytes(raw, "big" if kind.big else "little", signed=kind.signed)


def _bytes(text: Any, encoding: Any) -> bytes:
    """Stands for ``codecs.encode``, by which the oldest pickles write bytes."""
    if not isinstance(text, str) or encoding != "latin1":
        raise TypeError("text that is not latin1")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("builtins", "set"): set,
    ("__builtin__", "set"): set,  # as protocols before 3 spell it
    ("builtins", "frozenset"): frozenset,
    ("__builtin__", "frozenset"): frozenset,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("numpy", "dtype"): _IntegerType,
    ("numpy", "ndarray"): PickledBytes,
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy._core.multiarray", "_reconstruct"): _array,
    ("numpy.core.multiarray", "scalar"): _integer,
    ("numpy._core.multiarray", "scalar"): _integer,
    ("_codecs", "encode"): _bytes,
}
