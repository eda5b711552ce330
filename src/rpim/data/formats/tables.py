"""Writers of .csv and .parquet tables, block by block."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TextIO

import numpy as np

from rpim._common.errors import printable
from rpim._common.files import replacing
from rpim._common.progress import set_context
from rpim.data.formats.csv_file import guard_formula
from rpim.data.formats.parquet import arrow, arrow_array

Block = Mapping[str, Any]
"""Column name -> an array or list, masked or None for missing values; the same columns in every block."""


class Table(Protocol):
    """A table that blocks of rows are appended to."""

    def append(self, block: Block) -> None:
        """Write the rows of a block."""


_raw_csv: ContextVar[bool] = ContextVar("raw_csv", default=False)


def raw_csv(wanted: bool = True) -> contextlib.AbstractContextManager[None]:
    """Context in which .csv files are written without guards against formulas."""
    return set_context(_raw_csv, wanted)


class CsvTable:
    """A .csv table with a header; float32 has six digits.

    A text that a spreadsheet would run as a formula begins with a quote, unless in the context of `raw_csv`; our reader
    takes it off. On a terminal, control characters are not printed.
    """

    def __init__(self, file: TextIO) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._has_header = False
        self._is_raw, self._is_terminal = _raw_csv.get(), file.isatty()

    def write_row(self, cells: Iterable[Any]) -> None:
        """Write one row, or the header."""
        self._writer.writerow([self._text(cell) for cell in cells])

    def append(self, block: Block) -> None:
        """Write the rows of a block, and before the first the header."""
        if not self._has_header:
            self.write_row(block)
            self._has_header = True
        self._writer.writerows(zip(*map(self._cells, block.values()), strict=True))

    def _cells(self, values: Any) -> Iterator[Any]:
        if not isinstance(values, np.ndarray):
            return map(self._text, values)
        if values.dtype == np.float32:
            return ("" if value is None else f"{value:.6g}" for value in values.tolist())
        if values.dtype == bool:
            return ({True: "true", False: "false", None: ""}[value] for value in values.tolist())
        return ("" if value is None else self._text(value) for value in values.tolist())

    def _text(self, cell: Any) -> Any:
        if not isinstance(cell, str):
            return cell
        text = cell if self._is_raw else guard_formula(cell)
        return printable(text) if self._is_terminal else text


class ParquetTable:
    """A .parquet table with a row group for each block; a matrix is a column of lists."""

    def __init__(self, file: BinaryIO, metadata: Mapping[str, Any] | None = None) -> None:
        self._file = file
        self._metadata = {name: json.dumps(value) for name, value in (metadata or {}).items()}
        self._writer: Any = None

    def append(self, block: Block) -> None:
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


@contextlib.contextmanager
def new_table(path: Path, metadata: Mapping[str, Any] | None = None, *, overwrite: bool = False) -> Iterator[Table]:
    """Open a .csv or .parquet table for writing; the file appears once it is complete.

    A .parquet file keeps `metadata`, each value as JSON.
    """
    with replacing(path, overwrite) as file:
        if path.suffix.lower() == ".parquet":
            with contextlib.closing(ParquetTable(file, metadata)) as table:
                yield table
            return
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            yield CsvTable(text)
        finally:
            text.detach()  # flushes, and leaves the file open
