"""FeatureSpans: any span of the rows of files on disk, as one small FeatureSet after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rpim._common.errors import InputError
from rpim._common.files import StrPath, reading
from rpim.data.feature_set import FeatureSet
from rpim.data.formats.column_stream import FIELDS, rows_per_block
from rpim.data.formats.columns import find_per_row
from rpim.data.formats.feature_files import column_names, parquet_metadata
from rpim.data.formats.parquet import arrow, plain_values
from rpim.data.row_files import RowFiles


class FeatureSpans:
    """The rows of an .npy or .parquet file, or of a folder of either, from any row to any other.

    Each block has the features, ids, texts, paths and metadata that ``FeatureSet.read`` would give those rows. It can
    be sent to another process, which finds the files where they are.

    Parameters
    ----------
    path : path of the file or folder
    feature_column : str, optional
        The .parquet column with the features, where several could be meant.

    Attributes
    ----------
    block_rows : int
        How many rows a block has, but for the last.

    Raises
    ------
    InputError
        At once if a file is missing or damaged, or they do not fit together.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in range(2):
    ...         part = FeatureSet.from_arrays(np.eye(2), ids=[f"{number}a", f"{number}b"])
    ...         part.write(f"{folder}/part-{number}.parquet")
    ...     [block.ids.tolist() for block in FeatureSpans(folder).blocks(1, 3)]
    [['0b', '1a']]
    """

    def __init__(self, path: StrPath, feature_column: str | None = None) -> None:
        self.path = Path(path)
        self.rows = RowFiles(self.path.resolve(), feature_column)
        self.block_rows = rows_per_block(self.rows.shape[1])
        self.metadata: dict[str, Any] = {}
        self._columns: dict[str, str] = {}
        for number, file in enumerate(self.rows.files):
            columns = {
                name: column for name, column in find_per_row(file, column_names(file), {}).items() if name in FIELDS
            }
            if number and columns != self._columns:
                raise InputError(f"{file} has other columns than {self.rows.files[0]}: give every file the same.")
            self._columns = columns
        if self.rows.files[0].suffix.lower() == ".parquet":
            self.metadata = parquet_metadata(arrow(".parquet").read_schema(self.rows.files[0]))

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[FeatureSet]:
        """The rows from `start` to `stop`, in order."""
        beside = self._beside(start, len(self) if stop is None else stop)
        waiting: dict[str, list[Any]] = {name: [] for name in self._columns}
        for first, X in self.rows.blocks(start, stop, self.block_rows):
            while waiting and len(next(iter(waiting.values()))) < len(X):
                for name, values in next(beside).items():
                    waiting[name].extend(values)
            columns: dict[str, Any] = {name: values[: len(X)] for name, values in waiting.items()}
            waiting = {name: values[len(X) :] for name, values in waiting.items()}
            try:
                yield FeatureSet.from_arrays(X, **columns, metadata=self.metadata, first_row=first)
            except InputError as error:
                raise InputError(f"{self.path}: {error}") from error

    def _beside(self, start: int, stop: int) -> Iterator[dict[str, Any]]:
        """What stands beside the features in the .parquet files, some rows at a time."""
        names = list(self._columns.values())
        for path, begin, end in self.rows.pieces(start, stop):
            with reading(path), arrow(".parquet").ParquetFile(path) as file:
                sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
                ends = np.cumsum(sizes)
                groups = range(int(np.searchsorted(ends, begin, side="right")), int(np.searchsorted(ends, end)) + 1)
                row = int(ends[groups[0]]) - sizes[groups[0]]
                for batch in file.iter_batches(self.block_rows, row_groups=list(groups), columns=names):
                    table = arrow().Table.from_batches([batch])
                    rows = table.slice(max(begin - row, 0), max(end - max(begin, row), 0))
                    row += len(table)
                    yield {name: plain_values(rows.column(column)) for name, column in self._columns.items()}
