"""Files: checked output paths, atomic writes by one process at a time, and reads with one-sentence errors.

Nothing is ever unpickled: a damaged or hostile file cannot run code.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import errno
import hashlib
import os
import re
import shlex
import shutil
import socket
import struct
import time
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rpim._common.errors import InputError, first_line

if TYPE_CHECKING:
    from filelock import FileLock

StrPath = str | os.PathLike[str]

RUN_FILE = "run.json"
"""The file that makes a folder a run folder."""

_PICKLED = re.compile("object arrays|python objects", re.IGNORECASE)  # numpy's words for it
_NOT_UTF8 = re.compile("invalid utf-?8", re.IGNORECASE)  # pyarrow's words for it
_UNREADABLE = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    NotImplementedError,
    RuntimeError,
    MemoryError,
    OverflowError,
    SyntaxError,
    TypeError,
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


def full_path(path: StrPath) -> Path:
    """The path without links, of something that is there or not; a link to itself has none."""
    full = Path(os.path.realpath(path))
    if full.is_symlink():
        raise InputError(f"{path} is a link to itself: remove it, or choose another name.")
    return full


@contextlib.contextmanager
def reading(path: Path, hint: str = "it may be truncated or corrupt, so write it again") -> Iterator[None]:
    """Turn the errors of parsers into one sentence about the file."""
    try:
        yield
    except InputError:
        raise
    except _UNREADABLE as error:
        if isinstance(error, UnicodeDecodeError) or _NOT_UTF8.search(str(error)):
            raise InputError(_not_utf8(path)) from error
        if isinstance(error, ValueError) and _PICKLED.search(str(error)):
            raise InputError(f"{path} holds pickled objects, which are never loaded: save plain arrays.") from error
        raise InputError(f"{path} cannot be read ({first_line(error)}): {hint}.") from error


def _not_utf8(path: Path) -> str:
    with open(path, "rb") as file:
        encoding = "UTF-16" if file.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "WINDOWS-1252"
    converted = path.with_name(f"{path.stem}-utf8{path.suffix}")
    return (
        f"{path} is not encoded in UTF-8 but probably in {encoding}: save it as CSV UTF-8 in the spreadsheet, or run "
        f"iconv -f {encoding} -t UTF-8 {shlex.quote(str(path))} > {shlex.quote(str(converted))}."
    )


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


def take_lock(file: Path, held: StrPath) -> FileLock | None:
    """Take a lock, which the system releases however this process ends; `file` names the process that has it.

    None where the file system knows no locks.

    Raises
    ------
    InputError
        If another process has it: `held` is in use.
    """
    from filelock import FileLock, Timeout

    who = ""
    with contextlib.suppress(OSError, ValueError):
        who = file.read_text(encoding="utf-8")
    lock = FileLock(file, timeout=0)
    try:
        lock.acquire()
    except Timeout as error:
        raise InputError(
            f"{held} is in use by {who or 'another process'}: wait for it, or choose another name."
        ) from error
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP):
            return None
        raise
    with contextlib.suppress(OSError):
        file.write_text(f"process {os.getpid()} on {socket.gethostname()} since {time.strftime('%H:%M')}", "utf-8")
    return lock


def drop_lock(lock: FileLock | None) -> None:
    """Remove the file of a lock, and release it."""
    if lock is not None:
        with contextlib.suppress(OSError):  # Windows removes no open file
            os.unlink(lock.lock_file)
        lock.release()


def _hidden(path: Path, suffix: str) -> Path:
    """A hidden file beside `path`, the same in every process; its name is not too long however long that of `path`."""
    return path.with_name(f".{hashlib.sha256(path.name.encode('utf-8', 'surrogateescape')).hexdigest()[:16]}{suffix}")


@contextlib.contextmanager
def one_writer(path: Path) -> Iterator[None]:
    """Let no other process write `path`."""
    lock = take_lock(_hidden(path, ".lock"), path)
    try:
        yield
    finally:
        drop_lock(lock)


@contextlib.contextmanager
def replacing(path: Path, overwrite: bool = True) -> Iterator[BinaryIO]:
    """Open a temporary file that becomes `path` once it is complete and on disk, and is removed after an error.

    One process writes it at a time. What a killed one has left is written over.

    Raises
    ------
    InputError
        If another process writes it, it exists and `overwrite` is False, or the disk is full.
    """
    temporary = _hidden(path, ".tmp")
    with writing(path), one_writer(path):
        if not overwrite:
            check_absent(path)
        try:
            with open(temporary, "wb") as file:
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
        old = _hidden(target, ".old")
        shutil.rmtree(old, ignore_errors=True)
        os.rename(target, old)
        try:
            os.rename(partial, target)
        except OSError:
            os.rename(old, target)
            raise
        shutil.rmtree(old, ignore_errors=True)
    sync_to_disk(target.parent)


def put_back(target: Path) -> None:
    """Restore a folder, if a process was killed while it replaced it."""
    old = _hidden(target, ".old")
    if old.exists():
        with writing(target), one_writer(target):
            if not target.exists():
                os.rename(old, target)
            shutil.rmtree(old, ignore_errors=True)


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
    if not overwrite or (target.is_dir() and not is_folder):
        check_absent(target, "" if overwrite is None else _OVERWRITE)
    parent = full_path(path).parent
    shown = target.parent if target.parent.name else parent
    if parents:
        return target
    if not parent.is_dir():
        raise InputError(f"{path} cannot be written, because {shown} is not a folder: create it first.")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"{path} cannot be written, because you may not write in {shown}: choose another.")
    return target


_OVERWRITE = ", or say --overwrite (overwrite=True)"


def check_absent(path: Path, option: str = _OVERWRITE) -> None:
    """Check that nothing is at a path."""
    if path.exists():
        raise InputError(f"{path} exists already: choose another name{option}.")


def check_export(path: StrPath, overwrite: bool = False, suffixes: Sequence[str] = (".csv", ".parquet")) -> Path:
    """Check that a table may be written."""
    return check_writable(path, overwrite, suffixes=suffixes)
