"""Tables written a block of rows at a time, as .csv or .parquet."""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TextIO

import numpy as np

from rpim._common.files import replacing
from rpim.data.formats.parquet import arrow, arrow_array

Block = Mapping[str, Any]
"""Column name -> an array or list of values, masked or None where one is missing; the same columns in every block."""


class Table(Protocol):
    """What blocks of rows can be appended to."""

    def append(self, block: Block) -> None:
        """Write these rows after those before."""


class CsvTable:
    """Lines of text with a header; numbers of float32 to six digits."""

    def __init__(self, file: TextIO) -> None:
        self._writer = csv.writer(file, lineterminator="\n")
        self._has_header = False

    def append(self, block: Block) -> None:
        """Write these rows, after the header if they are the first."""
        if not self._has_header:
            self._writer.writerow(block)
            self._has_header = True
        self._writer.writerows(zip(*map(_cells, block.values()), strict=True))


class ParquetTable:
    """A row group for each block; a matrix is a column of lists."""

    def __init__(self, file: BinaryIO, metadata: Mapping[str, Any] | None = None) -> None:
        self._file = file
        self._metadata = {name: json.dumps(value) for name, value in (metadata or {}).items()}
        self._writer: Any = None

    def append(self, block: Block) -> None:
        """Write these rows; the types of the first are those of the file."""
        arrays = {name: arrow_array(values) for name, values in block.items()}
        table = arrow().table(arrays).replace_schema_metadata(self._metadata)
        if self._writer is None:
            self._writer = arrow(".parquet").ParquetWriter(self._file, table.schema)
        # A block in which a value is missing may hold signed numbers where the others do not.
        self._writer.write_table(table.cast(self._writer.schema))

    def close(self) -> None:
        """Write what makes the rows a file."""
        if self._writer is not None:
            self._writer.close()


@contextlib.contextmanager
def new_table(path: Path, metadata: Mapping[str, Any] | None = None) -> Iterator[Table]:
    """A table in a .csv or .parquet file that is there once it is whole, and not at all otherwise.

    A .parquet keeps `metadata`, each value as JSON.
    """
    with replacing(path) as file:
        if path.suffix.lower() == ".parquet":
            with contextlib.closing(ParquetTable(file, metadata)) as table:
                yield table
            return
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            yield CsvTable(text)
        finally:
            text.detach()  # writes out what is left, and leaves the file open


def _cells(values: Any) -> Iterator[Any]:
    if not isinstance(values, np.ndarray):
        return iter(values)
    if values.dtype == np.float32:
        return ("" if value is None else f"{value:.6g}" for value in values.tolist())
    if values.dtype == bool:
        return ({True: "true", False: "false", None: ""}[value] for value in values.tolist())
    return ("" if value is None else value for value in values.tolist())
