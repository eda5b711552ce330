"""The one reader of .csv files (tables of features, of labels and of texts), and writers of tables, block by block.

A file is sniffed once: its first rows say what the delimiter and the header are, and which columns hold words. pyarrow
then reads all of it, whole or in blocks.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, printable, some
from rpim._common.files import StrPath, must_exist, reading, replacing
from rpim._common.progress import set_context
from rpim.data.columns import DECIMAL, PER_ROW, find_per_row, is_called, shown_columns
from rpim.data.formats.parquet import ParquetTable, arrow

CSV_HINT = "give lines of equal length, with numbers in every column but label, truth, id, text, path and split"
CSV_SUFFIXES = (".csv", ".tsv")
MIN_FEATURES = 8
"""Beside a text, fewer numbers per row than this are metadata rather than an embedding."""
_SNIFFED_ROWS, _SNIFFED_CELLS = 100, 1_000_000
_DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_MISSING = ("", "na", "n/a", "#n/a", "null", "none", "nan", "-", "?")
_MIN_BLOCK, _MAX_BLOCK = 1 << 20, 2**31 - 1  # a row has to fit into a block


_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_GUARDED = r"^'('*[=+\-@\t\r])"
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")


def guard_formula(cell: Any) -> Any:
    """A cell that a spreadsheet would run as a formula, with a quote in front; any other as it is.

    >>> [guard_formula(cell) for cell in ("=1+1", "@home", "-ish", "-1", "ant", -1)]
    ["'=1+1", "'@home", "'-ish", '-1', 'ant', -1]
    """
    is_formula = isinstance(cell, str) and _FORMULA.match(cell) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if is_formula else cell


def without_guard(cells: Any) -> Any:
    """A column of text, of Arrow, without the quotes of `guard_formula`."""
    return arrow(".compute").replace_substring_regex(cells, _GUARDED, r"\1")


class CsvFile(os.PathLike[str]):
    """A .csv file whose first rows have been read; give it in place of its path, and it is not sniffed again.

    Parameters
    ----------
    path : path of the file
        UTF-8, with or without a byte order mark; the delimiter is a comma, semicolon or tab, whichever the first line
        has most of.

    Attributes
    ----------
    path : Path
    delimiter : str
    header : list of str
        The cells of the first row; empty if the file is, or begins with a blank line.
    header_lines : int
        How many lines the first row takes: more than one if a name is broken over lines.
    rows : list of list of str
        The rows after the first, as far as they were read.
    """

    def __init__(self, path: StrPath) -> None:
        self.path = Path(path)
        must_exist(self.path)
        csv.field_size_limit(1 << 30)  # a megabyte of text is no error
        with reading(self.path), open(self.path, newline="", encoding="utf-8-sig") as file:
            self.delimiter = max(_DELIMITERS, key=file.readline().count)
            file.seek(0)
            reader = csv.reader(file, delimiter=self.delimiter)
            self.header = [re.sub(_GUARDED, r"\1", name) for name in next(reader, [])]
            self.header_lines = reader.line_num
            self.rows = list(itertools.islice(reader, min(_SNIFFED_ROWS, 1 + _SNIFFED_CELLS // (1 + len(self.header)))))

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    def __str__(self) -> str:
        return str(self.path)

    @classmethod
    def sniff(cls, path: Path) -> Path | CsvFile:
        """A .csv or .tsv file as a `CsvFile`, and every other path as it is."""
        return cls(path) if path.suffix.lower() in CSV_SUFFIXES and path.is_file() else path

    @classmethod
    def of(cls, path: StrPath) -> CsvFile:
        """The file at a path, sniffed unless it is a `CsvFile` already."""
        return path if isinstance(path, CsvFile) else cls(path)

    @property
    def has_names(self) -> bool:
        """Whether the first row of a table of features is a header, rather than numbers."""
        counted = [str(number) for number in range(len(self.header))]
        # pandas calls nameless columns 0, 1, 2, ...: a header if what follows are decimals.
        of_pandas = self.header == counted and any(map(DECIMAL.fullmatch, next(iter(self.rows), [])))
        return of_pandas or not all(map(_is_number, self.header))

    @property
    def feature_names(self) -> list[str]:
        """The names of the columns of a table of features: f0, f1, ... if it has no header."""
        if not self.header:
            raise InputError(f"{self.path} is empty or begins with a blank line: give a line per row.")
        if not self.has_names:
            return [f"f{j}" for j in range(len(self.header))]
        if len(set(self.header)) < len(self.header):
            raise InputError(
                f"{self.path} has two columns of the same name in its first line: rename one, or add a header."
            )
        return self.header

    @property
    def longest_row(self) -> int:
        """The characters of the longest row that was sniffed; a row has to fit into a block."""
        return max(sum(map(len, row)) + len(row) for row in (self.header, *self.rows))

    def sniffed(self) -> dict[str, list[str]]:
        """The columns below the header, in the rows that were sniffed."""
        rows = [row for row in self.rows if len(row) == len(self.header)]
        return {name: [row[j] for row in rows] for j, name in enumerate(self.header)}

    def columns_of_words(self) -> list[str]:
        """The columns below the header that hold words, and not one number, in the rows that were sniffed.

        A column of features with a word in it is a mistake, and is reported as one.
        """
        found = []
        for name, cells in self.sniffed().items():
            words = [cell for cell in cells if cell.strip().lower() not in _MISSING]
            if words and not any(map(_is_number, words)):
                found.append(name)
        return found

    def texts(self, *, first_row: int = 0) -> list[list[str]]:
        """Every cell below the header as text, column by column; blank lines are skipped.

        Raises
        ------
        InputError
            If a row is longer or shorter than the header; the message counts rows from `first_row`.
        """
        if not self.rows:
            return [[] for _ in self.header]
        columns, invalid = self._read_texts(len(self.header), self.header_lines, ignore_empty_lines=True)
        if invalid:
            number, n_columns = invalid[0]
            raise InputError(
                f"{self.path}: row {number - self.header_lines - 1 + first_row} has {n_columns} columns but the header "
                f"has {len(self.header)}: put texts with {_DELIMITERS[self.delimiter]} in quotes."
            )
        return columns

    def lines(self) -> list[str]:
        """The cells of a file of one column without header; a blank line is an empty cell."""
        if not self.header_lines:
            return []
        columns, invalid = self._read_texts(1, 0, ignore_empty_lines=False, delimiter=",")
        if invalid:
            raise InputError(
                f"{self.path} has several columns, and none is called label: give the header id,label, or one "
                "label per line."
            )
        return columns[0]

    def _read_texts(
        self, n_columns: int, skip_rows: int, *, ignore_empty_lines: bool, delimiter: str | None = None
    ) -> tuple[list[list[str]], list[tuple[int, int]]]:
        """The columns, and for each row of another length its number in the file, from 1, and its length."""
        pa, pc = arrow(), arrow(".csv")
        names = [str(j) for j in range(n_columns)]
        invalid: list[tuple[int, int]] = []

        def skip(row: Any) -> str:
            invalid.append((row.number, row.actual_columns))
            return "skip"

        with reading(self.path):
            block_size = min(max(self.path.stat().st_size, _MIN_BLOCK), _MAX_BLOCK)
            table = pc.read_csv(
                self.path,
                read_options=pc.ReadOptions(
                    column_names=names,
                    skip_rows=skip_rows,
                    block_size=block_size,
                    use_threads=False,  # otherwise rows have no numbers
                ),
                parse_options=pc.ParseOptions(
                    delimiter=delimiter or self.delimiter,
                    newlines_in_values=True,
                    ignore_empty_lines=ignore_empty_lines,
                    invalid_row_handler=skip,
                ),
                convert_options=pc.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
            )
            return [without_guard(column).to_pylist() for column in table.columns], invalid


@dataclass(frozen=True)
class FeatureTable:
    """A .csv file of features: which of its columns is what."""

    file: CsvFile
    names: list[str]
    per_row: dict[str, str]
    """Field -> column."""
    features: list[str]
    metadata_columns: list[str]
    """Columns of words that are none of the fields."""

    @classmethod
    def of(cls, file: CsvFile, wanted: Mapping[str, str | None]) -> FeatureTable:
        """Assign the columns by their names and first values."""
        names = file.feature_names
        per_row = find_per_row(file.path, names, wanted)
        # Also those that another choice has put aside: labels among the features would give the answer away.
        not_features = {name for name in names if any(is_called(name, field) for field in PER_ROW)}
        not_features |= set(per_row.values())
        words = file.columns_of_words() if file.has_names else []
        others = [name for name in words if name not in not_features]
        not_features |= set(others)
        features = [name for name in names if name not in not_features]
        if "texts" in per_row and others and len(features) < MIN_FEATURES:
            raise InputError(
                f"{file.path} has texts and few numbers a row ({some(features) or 'none'}), so it may be texts to "
                f"embed: say --text-column {per_row['texts']}, or leave {others[0]!r} out."
            )
        if not features:
            raise InputError(
                f"{file.path} has no column of numbers, only {shown_columns(file.sniffed())}: give features, or embed "
                f"its texts with rpim embed {shlex.quote(str(file.path))} -o FEATURES.parquet --text-column COLUMN."
            )
        return cls(file, names, per_row, features, others)

    def read(self) -> Any:
        """All rows, as a table of Arrow."""
        with reading(self.file.path, CSV_HINT):
            return _without_guards(arrow(".csv").read_csv(self.file.path, **self._options()))

    def stream(self, columns: Sequence[str] = (), *, block_size: int) -> Iterator[Any]:
        """The rows in tables of about so many bytes of the file; only these columns, if any are named."""
        with reading(self.file.path, CSV_HINT):
            options = self._options(columns, block_size=block_size, use_threads=False)
            with arrow(".csv").open_csv(self.file.path, **options) as batches:
                for batch in batches:
                    yield _without_guards(arrow().Table.from_batches([batch]))

    def matrix(self, table: Any) -> NDArray[np.float32]:
        """The features of a table that `read` or `stream` gave. (N, D)"""
        X = np.empty((table.num_rows, len(self.features)), dtype=np.float32)
        place = {name: k for k, name in enumerate(table.column_names)}
        for j, name in enumerate(self.features):
            X[:, j] = table.column(place[name]).to_numpy()
        return X

    def _options(
        self, columns: Sequence[str] = (), *, block_size: int = _MIN_BLOCK, use_threads: bool = True
    ) -> dict[str, Any]:
        pa, pc = arrow(), arrow(".csv")
        types = dict.fromkeys(self.names, pa.string()) | dict.fromkeys(self.features, pa.float32())
        skip_rows = self.file.header_lines if self.file.has_names else 0
        block_size = max(block_size, 4 * self.file.longest_row)
        return {
            "read_options": pc.ReadOptions(
                column_names=self.names, skip_rows=skip_rows, block_size=block_size, use_threads=use_threads
            ),
            "parse_options": pc.ParseOptions(delimiter=self.file.delimiter, newlines_in_values=True),
            "convert_options": pc.ConvertOptions(column_types=types, include_columns=list(columns)),
        }


def _without_guards(table: Any) -> Any:
    columns = [without_guard(column) if str(column.type) == "string" else column for column in table.columns]
    return arrow().table(columns, names=table.column_names)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


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
