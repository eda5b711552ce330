"""Atomic writes of files and folders, reads with one-sentence errors, and the check of output paths.

Nothing is ever unpickled: a damaged or hostile file cannot run code.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import os
import re
import secrets
import shutil
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line

StrPath = str | os.PathLike[str]

RUN_FILE = "run.json"
"""The file that makes a folder a run folder."""

_PICKLED = re.compile("object arrays|python objects", re.IGNORECASE)  # numpy's words for it
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    MemoryError,
    SyntaxError,
    csv.Error,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def must_exist(path: Path) -> None:
    """Check that a file exists."""
    if not path.is_file():
        raise InputError(f"{path} is not there or not a file: check the name.")


@contextlib.contextmanager
def reading(path: Path, hint: str = "it may be truncated or corrupt, so write it again") -> Iterator[None]:
    """Turn the errors of parsers into one sentence about the file."""
    try:
        yield
    except InputError:
        raise
    except _UNREADABLE as error:
        if isinstance(error, ValueError) and _PICKLED.search(str(error)):
            raise InputError(f"{path} holds pickled objects, which are never loaded: save plain arrays.") from error
        raise InputError(f"{path} cannot be read ({first_line(error)}): {hint}.") from error


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
        array: NDArray[Any] = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        return array


@contextlib.contextmanager
def open_npz(path: Path) -> Iterator[Any]:
    """Open an .npz file with numpy; errors while it is open are about this file."""
    must_exist(path)
    with reading(path):
        if not zipfile.is_zipfile(path):
            raise InputError(f"{path} is not an .npz file, or is truncated: write it again with numpy.savez.")
        with np.load(path, allow_pickle=False) as archive:
            yield archive


def disk_is_full(error: BaseException) -> bool:
    """Whether an error says that the disk, or the user's quota, is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextlib.contextmanager
def writing(path: StrPath) -> Iterator[None]:
    """Turn errors while writing into one sentence about the file or folder."""
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
    """Open a temporary file that replaces `path` once it is complete and on disk, and is removed after an error."""
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


def put_in_place(partial: Path, target: Path) -> None:
    """Rename a folder to `target`; a folder that is there is replaced."""
    if not target.exists():
        os.rename(partial, target)
    else:
        old = target.with_name(f".{target.name}.replaced-{os.getpid()}")
        os.rename(target, old)
        try:
            os.rename(partial, target)
        except OSError:
            os.rename(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    sync_to_disk(target.parent)


def sync_to_disk(path: Path) -> None:
    """Flush a file or folder to disk, so that it is complete after a power cut."""
    if path.is_dir() and os.name != "posix":
        return  # folders cannot be opened
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_writable(
    path: StrPath,
    overwrite: bool | None = False,
    *,
    suffixes: Sequence[str] = (),
    is_folder: bool = False,
    parents: bool = False,
) -> Path:
    """Check that a file or folder may be written, so that it is known before hours of work rather than after.

    Parameters
    ----------
    path : path of the output
    overwrite : bool or None
        Whether it may replace what is there; None if the caller has no such option.
    suffixes : sequence of str
        Those it may have; any if empty.
    is_folder : bool
        Whether the output is a folder; one that is there is never replaced by a file.
    parents : bool
        Whether the caller creates the folders above, so that they need not be there.

    Raises
    ------
    InputError
        If the suffix is another one, something is there, or nothing can be written beside it.
    """
    target = Path(path)
    if suffixes and target.suffix.lower() not in suffixes:
        choices = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        raise InputError(f"{path} has the suffix {target.suffix!r}, which cannot be written: give {choices}.")
    if (target.exists() and not overwrite) or (target.is_dir() and not is_folder):
        option = "" if overwrite is None else ", or say --overwrite (overwrite=True)"
        raise InputError(f"{path} exists already: choose another name{option}.")
    parent = target.resolve().parent
    shown = target.parent if target.parent.name else parent
    if parents:
        return target
    if not parent.is_dir():
        raise InputError(f"{path} cannot be written, because {shown} is not a folder: create it first.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written, because you may not write in {shown}: choose another.")
    return target


def check_export(path: StrPath, overwrite: bool = False, suffixes: Sequence[str] = (".csv", ".parquet")) -> Path:
    """Check that a table may be written."""
    return check_writable(path, overwrite, suffixes=suffixes)
