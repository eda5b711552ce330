"""RowFiles: features that stay on disk, in .npy or .parquet files, and are read block by block."""

from __future__ import annotations

import copy
import os
import queue
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, some
from rpim._common.files import RUN_FILE, StrPath, must_exist, reading
from rpim._common.hardware import as_bytes, bytes_of_fit, default_memory_budget

READ_BYTES = 32 << 20
"""The size of a block; two blocks are read ahead."""
_AHEAD = 2
SHARD = re.compile(r"part-(\d{5,})\.(?:npy|parquet)")
"""The names of shards that were written together; a gap in their numbers is a missing file."""

Matrix = NDArray[Any]


class _Part(Protocol):
    """One file."""

    path: Path
    n_rows: int
    n_features: int
    dtype: np.dtype[Any]

    def read(self, start: int, stop: int, size: int) -> Iterator[Matrix]:
        """The rows from `start` to `stop`, at most `size` at a time."""


class RowFiles:
    """An N x D matrix on disk, of which only a few blocks are in memory at a time.

    It has the ``shape``, ``dtype`` and ``len`` of an array, and can be indexed by slices and by arrays of row numbers.
    It is not memory-mapped, because mapped pages count as memory in use.

    Parameters
    ----------
    path : path of an .npy or .parquet file, or of a folder of such files
        The files of a folder are one matrix, in the order of their names. All of them are checked at once.
    feature_column : str, optional
        The .parquet column with the features, if there are several candidates.
    memory : int or str, optional
        What a fit may use in all, such as "4GB" or "4GiB"; by default a share of the free memory.

    Raises
    ------
    InputError
        If a file is missing or damaged, or they are not of one width and type.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(12, dtype=np.float16).reshape(6, 2))
    ...     rows = RowFiles(f"{folder}/x.npy")
    ...     rows.shape, rows[4:].tolist(), rows[[5, 0]].tolist()
    ((6, 2), [[8.0, 9.0], [10.0, 11.0]], [[10.0, 11.0], [0.0, 1.0]])
    """

    ndim = 2

    def __init__(self, path: StrPath, feature_column: str | None = None, memory: int | str | None = None) -> None:
        self.path = Path(path)
        self.given_memory = None if memory is None else as_bytes(memory)
        self.memory = self.given_memory or default_memory_budget()
        self._parts: list[_Part] = [_open(file, feature_column) for file in _files(self.path)]
        first = self._parts[0]
        for part in self._parts[1:]:
            for one, other in (
                (f"{first.n_features} features a row", f"{part.n_features} features a row"),
                (f"values of type {first.dtype}", f"values of type {part.dtype}"),
            ):
                if one != other:
                    raise InputError(f"{part.path} has {other} but {first.path} has {one}: make them alike.")
        self.dtype = first.dtype
        self._first = 0  # the number of the first row, in all files together
        self._starts = np.cumsum([0, *(part.n_rows for part in self._parts)])
        self.shape = (int(self._starts[-1]), first.n_features)
        if 0 in self.shape:
            raise InputError(f"{self.path} has no {'rows' if self.shape[0] == 0 else 'columns'}: give at least one.")

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        return f"RowFiles({self.shape[0]:,} x {self.shape[1]} {self.dtype} in {self.path})"

    def span(self, start: int, stop: int) -> RowFiles:
        """Select the rows from `start` to `stop`, as `RowFiles`.

        Parameters
        ----------
        start, stop : int
            The first row, and the row after the last.

        Returns
        -------
        RowFiles
            These rows, still on disk.
        """
        span = copy.copy(self)
        span._first, span.shape = self._first + start, (stop - start, self.shape[1])
        return span

    @property
    def files(self) -> list[Path]:
        """The files, in order."""
        return [part.path for part in self._parts]

    def state(self) -> list[tuple[str, int, int]]:
        """List the path, size and date of each file, which change if the rows do.

        Returns
        -------
        list of (str, int, int)
            One entry per file.
        """
        return [(os.fspath(path.resolve()), (at := path.stat()).st_size, at.st_mtime_ns) for path in self.files]

    def pieces(self, start: int, stop: int) -> Iterator[tuple[Path, int, int]]:
        """List the files that hold the rows from `start` to `stop`, and the range of rows in each.

        Parameters
        ----------
        start, stop : int
            The first row, and the row after the last.

        Yields
        ------
        (path, int, int)
            A file, its first row, and the row after the last.
        """
        for part, begin, end in zip(self._parts, self._starts, self._starts[1:], strict=False):
            if begin < stop and end > start:
                yield part.path, int(max(start - begin, 0)), int(min(stop, end) - begin)

    @property
    def fits(self) -> bool:
        """Whether a fit may hold all rows in memory."""
        return bytes_of_fit(*self.shape, self.dtype.itemsize) <= self.memory

    def __getitem__(self, rows: Any) -> Matrix:
        if isinstance(rows, slice) and rows.step in (None, 1):
            start, stop, _ = rows.indices(len(self))
            blocks = [block for _, block in self.blocks(start, stop)]
            return np.concatenate(blocks) if blocks else np.empty((0, self.shape[1]), dtype=self.dtype)
        wanted = np.arange(len(self))[rows]
        return self.take(np.atleast_1d(wanted))

    def take(self, rows: NDArray[np.integer[Any]]) -> Matrix:
        """Read rows by number, in the order given, in one pass over the files.

        Parameters
        ----------
        rows : ndarray of int, of shape (n,)
            Numbers of rows.

        Returns
        -------
        ndarray of shape (n, n_features)
            The rows.
        """
        out = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        if len(rows) == 0:
            return out
        order = np.argsort(rows, kind="stable")
        ordered = rows[order]
        for start, block in self.blocks(int(ordered[0]), int(ordered[-1]) + 1):
            first, last = np.searchsorted(ordered, [start, start + len(block)])
            out[order[first:last]] = block[ordered[first:last] - start]
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Matrix:
        """Read all rows into memory."""
        return self[:].astype(dtype or self.dtype, copy=False)

    def blocks(self, start: int = 0, stop: int | None = None, size: int | None = None) -> Iterator[tuple[int, Matrix]]:
        """Read the rows from `start` to `stop`, block by block.

        Every block but the last has `size` rows, also across files. Another thread reads ahead.

        Parameters
        ----------
        start, stop : int, optional
            The first row, and the row after the last; by default all rows.
        size : int, optional
            Number of rows per block; by default those of 32 MB.

        Yields
        ------
        (int, ndarray)
            The number of the first row of the block, and the block.
        """
        stop = len(self) if stop is None else min(stop, len(self))
        size = size or max(1, READ_BYTES // (self.shape[1] * self.dtype.itemsize))
        ahead: queue.Queue[Any] = queue.Queue(_AHEAD)
        abandoned = threading.Event()

        def put(item: Any) -> bool:
            while not abandoned.is_set():
                try:
                    ahead.put(item, timeout=0.1)
                    return True
                except queue.Full:
                    continue
            return False

        def read() -> None:
            try:
                for number, block in self._in_order(start + self._first, stop + self._first, size):
                    if not put((number - self._first, block)):
                        return
                put(None)
            except BaseException as error:  # raised again by the consumer
                put(error)

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            while (item := ahead.get()) is not None:
                if isinstance(item, BaseException):
                    raise item
                yield item
        finally:
            abandoned.set()
            reader.join()

    def _in_order(self, start: int, stop: int, size: int) -> Iterator[tuple[int, Matrix]]:
        waiting: list[Matrix] = []
        n_waiting, first = 0, start
        for number, part in enumerate(self._parts):
            begin, end = self._starts[number], self._starts[number + 1]
            if end <= start or begin >= stop:
                continue
            for piece in part.read(max(0, start - begin), min(stop, end) - begin, size):
                while n_waiting + len(piece) >= size:
                    cut = size - n_waiting
                    yield first, _joined([*waiting, piece[:cut]])
                    first += size
                    piece, waiting, n_waiting = piece[cut:], [], 0
                if len(piece):
                    waiting.append(piece)
                    n_waiting += len(piece)
        if n_waiting:
            yield first, _joined(waiting)


def row_blocks_of(X: Matrix | RowFiles, size: int) -> Iterator[tuple[slice, Matrix]]:
    """Iterate over a matrix in memory or on disk, `size` rows at a time: yields the slice and the rows."""
    if isinstance(X, RowFiles):
        for start, block in X.blocks(size=max(1, READ_BYTES // (X.shape[1] * X.dtype.itemsize) // size) * size):
            for first in range(0, len(block), size):
                part = block[first : first + size]
                yield slice(start + first, start + first + len(part)), part
        return
    for start in range(0, len(X), size):
        rows = slice(start, min(start + size, len(X)))
        yield rows, X[rows]


def _joined(pieces: list[Matrix]) -> Matrix:
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def is_row_folder(path: Path) -> bool:
    """Whether a folder holds .npy or .parquet files of features; raises for a run folder."""
    if (path / RUN_FILE).is_file():
        raise InputError(f"{path} is a run folder, and rows are wanted: give features, images or texts.")
    return path.is_dir() and any(file.suffix.lower() in (".npy", ".parquet") for file in path.iterdir())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        must_exist(path)
        return [path]
    files = sorted(file for file in path.iterdir() if file.suffix.lower() in (".npy", ".parquet"))
    files = [file for file in files if not file.name.startswith((".", "_"))]
    if not files:
        raise InputError(f"{path} holds no .npy or .parquet files: give a folder of features.")
    kinds = {file.suffix.lower() for file in files}
    if len(kinds) > 1:
        raise InputError(f"{path} holds .npy and .parquet files ({some(file.name for file in files)}): keep one kind.")
    numbers = {int(found[1]) for file in files if (found := SHARD.fullmatch(file.name))}
    lacking = sorted(set(range(max(numbers, default=0))) - numbers)
    if lacking and len(numbers) == len(files):
        missing = f"part-{lacking[0]:05d}{files[0].suffix}"
        raise InputError(f"{path} lacks {missing}: write it again, or number the files from part-00000 on.")
    return files


def _open(path: Path, feature_column: str | None) -> _Part:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return _NpyPart(path)
    if suffix == ".parquet":
        return _ParquetPart(path, feature_column)
    raise InputError(f"{path} has the suffix {suffix!r}, which cannot be read block by block: give .npy or .parquet.")


def _check_type(path: Path, dtype: np.dtype[Any]) -> None:
    if dtype.kind != "f":
        raise InputError(f"{path} holds values of type {dtype}: give float16, float32 or float64.")


class _NpyPart:
    """An .npy file in C order."""

    def __init__(self, path: Path) -> None:
        from rpim.data.formats.arrays import ArrayStream, must_be_npy

        must_be_npy(path)
        self.path, self._file = path, path.absolute()  # another process may be in another folder
        with reading(path), open(path, "rb") as file:
            header = ArrayStream(file)
            self._offset = file.tell()
            if len(header.shape) != 2 or header.by_column:
                raise InputError(f"{path} has shape {header.shape}, or lies column by column: save rows of features.")
            self.n_rows, self.n_features = header.shape
            self.dtype = header.dtype
        _check_type(path, self.dtype)
        self._row_bytes = self.n_features * self.dtype.itemsize
        there = path.stat().st_size - self._offset
        if there < self.n_rows * self._row_bytes:
            raise InputError(
                f"{path} is truncated, after {there // self._row_bytes:,} of its {self.n_rows:,} rows: write it again."
            )

    def read(self, start: int, stop: int, size: int) -> Iterator[Matrix]:
        with reading(self.path), open(self._file, "rb", buffering=0) as file:
            file.seek(self._offset + start * self._row_bytes)
            for first in range(start, stop, size):
                n = min(size, stop - first)
                values = np.fromfile(file, dtype=self.dtype, count=n * self.n_features)
                if len(values) < n * self.n_features:
                    raise ValueError("it has become shorter while it was read")
                yield values.reshape(n, self.n_features)


class _ParquetPart:
    """A .parquet file with a column of lists."""

    def __init__(self, path: Path, feature_column: str | None) -> None:
        from rpim.data.formats.parquet import ParquetRows, parquet_features

        self.path, self._rows = path, ParquetRows(path)
        self.n_rows = self._rows.n_rows
        with reading(path):
            self._column = parquet_features(path, self._rows.schema, feature_column)
        matrix = next(self.read(0, 1, 1), np.empty((0, 0), np.float32))
        self.n_features, self.dtype = matrix.shape[1], matrix.dtype
        _check_type(path, self.dtype)

    def read(self, start: int, stop: int, size: int) -> Iterator[Matrix]:
        from rpim.data.formats.parquet import list_matrix

        for first_row, table in self._rows.tables([self._column], size, start, stop):
            yield list_matrix(self.path, self._column, table.column(0), first_row)
