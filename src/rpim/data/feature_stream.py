"""Feature files of any size, read as a sequence of small FeatureSets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rpim._common.errors import InputError
from rpim._common.files import StrPath
from rpim.data.columns import find_per_row
from rpim.data.feature_set import FeatureSet
from rpim.data.formats.column_stream import FIELDS, open_columns, rows_per_block
from rpim.data.formats.feature_files import is_pim_folder, parquet_metadata
from rpim.data.formats.parquet import ParquetRows, column_values
from rpim.data.row_files import RowFiles, is_row_folder


class FeatureStream:
    """Iterate over the rows of a feature file in blocks, in memory that does not grow with their number.

    Each block is a FeatureSet with the features, ids, texts, paths and metadata that ``FeatureSet.read`` gives those
    rows. Labels and views are not read. Ids are only checked to be unique within a block.

    Parameters
    ----------
    path : path of an .npz, .npy, .parquet or .csv file, of a folder of .npy or .parquet files, or of PIM's feature maps
        An array in Fortran order is read whole, because its rows are spread over the file.
    feature_column : str, optional
        The .parquet column (or .npz key) with the features, if there are several candidates.

    Attributes
    ----------
    n_rows : int or None
        The number of rows; None for a .csv, which does not say.

    Raises
    ------
    InputError
        If the file cannot be read; while iterating, if a row cannot be used.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     FeatureSet.from_arrays([[3.0, 4.0], [0.0, 2.0]], ids=["a", "b"]).write(f"{folder}/two.parquet")
    ...     [block.ids.tolist() for block in FeatureStream(f"{folder}/two.parquet")]
    [['a', 'b']]
    """

    def __init__(self, path: StrPath, *, feature_column: str | None = None) -> None:
        self.path = Path(path)
        self._spans: FeatureSpans | None = None
        if is_row_folder(self.path) and not is_pim_folder(self.path):
            self._spans = FeatureSpans(self.path, feature_column)
            self.n_rows: int | None = len(self._spans)
        else:
            self._columns = open_columns(path, feature_column)
            self.n_rows = self._columns.n_rows

    def __iter__(self) -> Iterator[FeatureSet]:
        if self._spans is not None:
            yield from self._spans.blocks()
            return
        first_row, n_features = 0, None
        for columns in self._columns.blocks():
            try:
                block = FeatureSet.from_arrays(**columns, metadata=self._columns.metadata, first_row=first_row)
            except InputError as error:
                raise InputError(f"{self.path}: {error}") from error
            if n_features not in (None, block.n_features):
                raise InputError(
                    f"{self.path} has {n_features} features in its first rows but {block.n_features} from row "
                    f"{first_row} on: give every row as many numbers."
                )
            yield block
            first_row, n_features = first_row + len(block), block.n_features
        if first_row == 0:
            raise InputError(f"{self.path} has no rows: give at least one.")


class FeatureSpans:
    """Read any span of the rows of an .npy or .parquet file, or of a folder of either, in blocks.

    Blocks are as those of `FeatureStream`. The object can be sent to another process, which opens the files itself.

    Parameters
    ----------
    path : path of the file or folder
    feature_column : str, optional
        The .parquet column with the features, if there are several candidates.

    Attributes
    ----------
    block_rows : int
        The number of rows in every block but the last.

    Raises
    ------
    InputError
        If a file is missing or damaged, or the files do not fit together.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in range(2):
    ...         part = FeatureSet.from_arrays([[1, 0], [0, 1]], ids=[f"{number}a", f"{number}b"])
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
        self._tables: dict[Path, ParquetRows] = {}
        if self.rows.files[0].suffix.lower() == ".parquet":
            self._tables = {file: ParquetRows(file) for file in self.rows.files}
            self.metadata = parquet_metadata(self._tables[self.rows.files[0]].schema)
        for number, (file, table) in enumerate(self._tables.items()):
            found = find_per_row(file, table.schema.names, {})
            columns = {name: column for name, column in found.items() if name in FIELDS}
            if number and columns != self._columns:
                raise InputError(f"{file} has other columns than {self.rows.files[0]}: give every file the same.")
            self._columns = columns

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[FeatureSet]:
        """Read the rows from `start` to `stop`."""
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
        """The ids, texts and paths in the .parquet files, a table at a time."""
        for path, begin, end in self.rows.pieces(start, stop):
            for _, table in self._tables[path].tables(list(self._columns.values()), self.block_rows, begin, end):
                yield {name: column_values(table.column(column)) for name, column in self._columns.items()}
