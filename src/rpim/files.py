"""Files and folders: written whole or not at all, read with one clear sentence where they are bad.

Nothing here ever unpickles: a file from a stranger can be wrong, but it cannot run code.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import os
import re
import secrets
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rpim.errors import InputError
from rpim.messages import first_line

StrPath = str | os.PathLike[str]

_PICKLED = re.compile("object arrays|python objects", re.IGNORECASE)  # numpy's words for it
_UNREADABLE = (
    OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, MemoryError, SyntaxError,
    csv.Error, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def must_exist(path: Path) -> None:
    """Raise where there is no file."""
    if not path.is_file():
        raise InputError(f"{path} is not there or not a file: check the name.")


@contextlib.contextmanager
def reading(path: Path, hint: str = "it may be truncated or corrupt, so write it again") -> Iterator[None]:
    """Turn what the parsers raise about a bad file into one sentence about that file."""
    try:
        yield
    except InputError:
        raise
    except _UNREADABLE as error:
        if isinstance(error, ValueError) and _PICKLED.search(str(error)):
            raise InputError(f"{path} holds pickled objects, which are never loaded: save plain arrays.") from error
        raise InputError(f"{path} cannot be read ({first_line(error)}): {hint}.") from error


def must_be_npy(path: Path) -> None:
    """Raise where there is no .npy file."""
    must_exist(path)
    with reading(path), open(path, "rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise InputError(f"{path} is not an .npy file: write it with numpy.save.")


def load_npy(path: Path, mmap_mode: Any = None) -> NDArray[Any]:
    """The array in an .npy file."""
    must_be_npy(path)
    with reading(path):
        array: NDArray[Any] = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        return array


@contextlib.contextmanager
def open_npz(path: Path) -> Iterator[Any]:
    """numpy's archive of the arrays in an .npz file; `reading` speaks of what goes wrong while it is open."""
    must_exist(path)
    with reading(path):
        if not zipfile.is_zipfile(path):
            raise InputError(f"{path} is not an .npz file, or is truncated: write it again with numpy.savez.")
        with np.load(path, allow_pickle=False) as archive:
            yield archive


def disk_is_full(error: BaseException) -> bool:
    """Whether an error says that the disk, or the user's part of it, has no room left."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def writing(path: StrPath) -> Iterator[None]:
    """Turn what goes wrong while writing into one sentence about that file or folder."""
    try:
        yield
    except UnicodeEncodeError as error:
        raise InputError(f"{path} was not written, because a text is not valid Unicode ({error.reason}).") from error
    except OSError as error:
        if disk_is_full(error):
            raise InputError(f"{path} was not written, no space left on its disk: free some of it.") from error
        raise InputError(f"{path} was not written ({error.strerror or error}): check the folder.") from error


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` once it is whole and on the disk, and leaves nothing behind otherwise."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    with writing(path):
        try:
            with open(temporary, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
