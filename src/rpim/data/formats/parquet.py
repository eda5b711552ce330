"""Rows and columns of .parquet files, from numpy and back.

pyarrow is imported on first use, because importing it takes longer than most commands.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, some
from rpim._common.files import must_exist, reading
from rpim._common.hardware import check_memory
from rpim.data.columns import find_column, view_names

_BUFFER = 1 << 20


def arrow(module: str = "") -> Any:
    """Import pyarrow, or one of its modules, such as ".parquet"."""
    return importlib.import_module(f"pyarrow{module}")


class ParquetRows:
    """The rows of a .parquet file, from any row to any other.

    It goes by row groups, because a scanner of ``pyarrow.dataset`` cannot begin at a row, and reads ahead too much. It
    can be sent to another process, which finds the file where it is.
    """

    def __init__(self, path: Path) -> None:
        must_exist(path)
        self.path, self._file = path, path.absolute()  # another process may be in another folder
        with reading(path), self._opened() as file:
            self.schema = file.schema_arrow
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        self._group_starts = np.cumsum([0, *sizes])
        self.n_rows = int(self._group_starts[-1])

    def _opened(self) -> Any:
        # Through a buffer, so that a row group is not held whole: some files are one row group.
        return arrow(".parquet").ParquetFile(self._file, buffer_size=_BUFFER, pre_buffer=False)

    def tables(
        self, columns: Sequence[str], size: int, start: int = 0, stop: int | None = None
    ) -> Iterator[tuple[int, Any]]:
        """These columns of the rows from `start` to `stop`, at most `size` at a time, and the number of the first."""
        stop = self.n_rows if stop is None else min(stop, self.n_rows)
        if start >= stop:
            return
        first = int(np.searchsorted(self._group_starts, start, side="right")) - 1
        last = int(np.searchsorted(self._group_starts, stop, side="left"))
        row = int(self._group_starts[first])
        with reading(self.path), self._opened() as file:
            groups = list(range(first, last))
            for batch in file.iter_batches(size, row_groups=groups, columns=list(columns), use_threads=False):
                begin, end = max(0, start - row), min(stop - row, len(batch))
                if begin < end:
                    yield row + begin, arrow().Table.from_batches([batch]).slice(begin, end - begin)
                row += len(batch)
                if row >= stop:
                    return


_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 8}
"""Bytes of a value of each physical type; of text, those of its place alone."""


def declared_bytes(metadata: Any, columns: Sequence[str]) -> int:
    """The memory that columns of a .parquet file take, as its footer declares it.

    Equal values take next to nothing in the file: a thousandth of the memory is no rarity.
    """
    wanted, total = set(columns), 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            chunk = row_group.column(number)
            if chunk.path_in_schema.split(".")[0] in wanted:
                width = _WIDTHS.get(chunk.physical_type, 0)
                total += max(chunk.total_uncompressed_size, width * chunk.num_values)
    return total


def read_columns(path: Path, file: Any, columns: Sequence[str]) -> Any:
    """Some columns of an opened .parquet file, after a look at the memory that they take."""
    check_memory(path, declared_bytes(file.metadata, columns), hint="give fewer rows")
    return file.read(columns=list(columns))


def is_list(arrow_type: Any) -> bool:
    """Whether a column of this type has a list of numbers in every row."""
    types = arrow().types
    if not (types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type)):
        return False
    inner = arrow_type.value_type
    return bool(types.is_floating(inner) or types.is_integer(inner))


def list_matrix(path: Path, name: str, column: Any, first_row: int = 0) -> NDArray[Any]:
    """Convert a column of lists of equal length to a matrix, without a copy if it has one chunk. (N, D)

    Errors count rows from `first_row`.
    """
    if not is_list(column.type):
        raise InputError(f"{path}: column {name!r} is of type {column.type}: give one with a list of numbers per row.")
    if column.null_count:
        rows = np.flatnonzero(column.is_null().to_numpy()) + first_row
        raise InputError(f"{path}: column {name!r} is null in {len(rows)} rows ({some(rows)}): remove those rows.")
    if arrow().types.is_fixed_size_list(column.type):
        width = column.type.list_size
    else:
        lengths = arrow(".compute").list_value_length(column).to_numpy()
        width = int(lengths[0]) if len(lengths) else 1
        odd = np.flatnonzero(lengths != width)
        if odd.size:
            raise InputError(
                f"{path}: column {name!r} has lists of different lengths ({width} in row {first_row}, "
                f"{lengths[odd[0]]} in row {odd[0] + first_row}): give every row as many numbers."
            )
    if len(column) == 0 or width == 0:
        return np.empty((len(column), width), dtype=np.float32)
    pieces = [chunk.flatten().to_numpy(zero_copy_only=False).reshape(-1, width) for chunk in column.chunks]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def column_values(column: Any) -> Any:
    """The values of a column: an array of numbers, or a list with None for missing values.

    Arrow would turn integers with missing values into floats.
    """
    types = arrow().types
    if column.null_count == 0 and (types.is_integer(column.type) or types.is_floating(column.type)):
        return column.to_numpy()
    return column.to_pylist()


def is_scalar(arrow_type: Any) -> bool:
    """Whether a column of this type has a number, string, boolean, date or time in every row."""
    types = arrow().types
    kind = arrow_type.value_type if types.is_dictionary(arrow_type) else arrow_type
    known = (
        types.is_integer,
        types.is_floating,
        types.is_decimal,
        types.is_string,
        types.is_large_string,
        types.is_boolean,
        types.is_date,
        types.is_timestamp,
        types.is_time,
    )
    return any(is_one(kind) for is_one in known)


def scalar_values(column: Any) -> Any:
    """The values of a column of scalars, dates and times as strings; NaN, None or "" for a missing one."""
    types = arrow().types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_decimal(column.type):
        column = column.cast(arrow().float64())
    if types.is_temporal(column.type):
        column = _times_as_text(column)
    if types.is_integer(column.type) or types.is_floating(column.type):
        return column.to_numpy()
    if types.is_string(column.type) or types.is_large_string(column.type):
        return np.concatenate([np.empty(0, dtype=object), *map(_shared_strings, column.chunks)])
    return column.to_pylist()


def _shared_strings(chunk: Any) -> NDArray[np.object_]:
    """Strings, of which equal ones are one object; "" for a missing one."""
    encoded = chunk.dictionary_encode()
    strings = np.array([*encoded.dictionary.to_pylist(), ""], dtype=object)
    found: NDArray[np.object_] = strings[encoded.indices.fill_null(len(strings) - 1).to_numpy(zero_copy_only=False)]
    return found


def _times_as_text(column: Any) -> Any:
    if arrow().types.is_timestamp(column.type) and column.type.tz is not None:
        # In UTC, because the time zone database is not on every machine.
        column = column.cast(arrow().timestamp(column.type.unit))
    return column.cast(arrow().string())


def arrow_array(values: Any) -> Any:
    """Convert an array or list, masked or None for missing values, to a column; a matrix becomes one of lists.

    A column of strings stays one even if all are missing.
    """
    if isinstance(values, np.ndarray) and values.ndim == 2:
        flat = np.ravel(values).astype(values.dtype.newbyteorder("="), copy=False)
        return arrow().FixedSizeListArray.from_arrays(arrow().array(flat), values.shape[1])
    if isinstance(values, np.ndarray) and values.dtype.kind not in "OU":
        missing = np.ma.getmaskarray(values) if isinstance(values, np.ma.MaskedArray) else None
        return arrow().array(np.asarray(values), mask=missing)
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    present = next((value for value in listed if value is not None), "")
    return arrow().array(listed, arrow().string()) if isinstance(present, str) else arrow().array(listed)


def parquet_features(path: Path, schema: Any, feature_column: str | None) -> str:
    """The column of the features: the wanted one, or the only one with lists of numbers that is not a view."""
    views = view_names(schema.names)
    lists = [field.name for field in schema if is_list(field.type) and field.name not in views]
    if feature_column is None and len(lists) != 1:
        what = f"several list columns ({', '.join(lists)})" if lists else "no column of lists of numbers"
        raise InputError(
            f"{path} has {what} among {', '.join(schema.names) or 'none'}: "
            "name the one with the features with --feature-column (feature_column)."
        )
    return str(find_column(path, schema.names, "X", feature_column or lists[0]))


class ParquetTable:
    """A .parquet table with a row group for each block; a matrix is a column of lists."""

    def __init__(self, file: BinaryIO, metadata: Mapping[str, Any] | None = None) -> None:
        self._file = file
        self._metadata = {name: json.dumps(value) for name, value in (metadata or {}).items()}
        self._writer: Any = None

    def append(self, block: Mapping[str, Any]) -> None:
        """Write the rows of a block; the first block sets the types."""
        arrays = {name: arrow_array(values) for name, values in block.items()}
        table = arrow().table(arrays).replace_schema_metadata(self._metadata)
        if self._writer is None:
            self._writer = arrow(".parquet").ParquetWriter(self._file, table.schema)
        # A block with a missing value may be of signed integers, and the others of unsigned ones.
        self._writer.write_table(table.cast(self._writer.schema))

    def close(self) -> None:
        """Write the footer."""
        if self._writer is not None:
            self._writer.close()
