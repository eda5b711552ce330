"""A .csv file of features: where its header ends, and which of its columns is what."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, some
from rpim.data.formats.columns import DECIMAL, PER_ROW, find_per_row, is_called
from rpim.data.formats.parquet import arrow

CSV_HINT = "give lines of equal length, with numbers in every column but label, truth, id, text, path and split"
_LOOKED_AT = 100
FEW = 8
"""Fewer numbers a row than these are no embedding where there is a text beside them."""
_NOTHING = ("", "na", "n/a", "#n/a", "null", "none", "nan", "-", "?")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def csv_names(path: Path) -> tuple[list[str], int]:
    """The names of the columns and how many lines they take: none where the first line is numbers already."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        first, second = next(reader, []), next(reader, [])
    if not first:
        raise InputError(f"{path} is empty or begins with a blank line: give a line of numbers per row.")
    counted = [str(number) for number in range(len(first))]
    # pandas calls nameless columns 0, 1, 2, ...: a header if what follows are decimals.
    if all(map(_is_number, first)) and not (first == counted and any(DECIMAL.fullmatch(cell) for cell in second)):
        return [f"f{j}" for j in range(len(first))], 0
    if len(set(first)) < len(first):
        raise InputError(f"{path} has two columns of the same name in its first line: rename one, or add a header.")
    return first, 1


def columns_of_text(path: Path, names: Sequence[str], header_lines: int, delimiter: str = ",") -> list[str]:
    """The columns in which some words and not one number are among the first lines.

    A column of features with a word in it is a mistake, and a mistake it stays.
    """
    csv.field_size_limit(1 << 30)  # a megabyte of text is no error
    with open(path, newline="", encoding="utf-8-sig") as file:
        lines = list(itertools.islice(csv.reader(file, delimiter=delimiter), header_lines, header_lines + _LOOKED_AT))
    columns = dict(zip(names, zip(*(line for line in lines if len(line) == len(names)), strict=True), strict=False))
    words = {name: [cell for cell in cells if cell.strip().lower() not in _NOTHING] for name, cells in columns.items()}
    return [name for name, cells in words.items() if cells and not any(map(_is_number, cells))]


@dataclass(frozen=True)
class CsvLayout:
    """Which column of a .csv file is what, and how pyarrow is to read them."""

    header_lines: int
    names: list[str]
    per_row: dict[str, str]
    """Field -> column."""
    features: list[str]
    further: list[str]
    """Columns of text that are none of the fields."""

    @classmethod
    def of(cls, path: Path, wanted: Mapping[str, str | None]) -> CsvLayout:
        """The layout of a file, by its first lines."""
        names, header_lines = csv_names(path)
        per_row = find_per_row(path, names, wanted)
        # Also those that another choice has put aside: labels among the features would give the answer away.
        not_features = {name for name in names if any(is_called(name, field) for field in PER_ROW)}
        not_features |= set(per_row.values())
        further = [name for name in columns_of_text(path, names, header_lines) if name not in not_features]
        not_features |= set(further)
        features = [name for name in names if name not in not_features]
        if "texts" in per_row and further and len(features) < FEW:
            raise InputError(
                f"{path} has texts and few numbers a row ({some(features) or 'none'}), so it may be texts to embed: "
                f"say --text-column {per_row['texts']}, or leave {further[0]!r} out."
            )
        return cls(header_lines, names, per_row, features, further)

    def options(self, columns: Sequence[str] = (), **reading: Any) -> dict[str, Any]:
        """The arguments of pyarrow's readers; only these columns, if any are named."""
        pa, pc = arrow(), arrow(".csv")
        types = {name: pa.float32() if name in self.features else pa.string() for name in self.names}
        return {
            "read_options": pc.ReadOptions(column_names=self.names, skip_rows=self.header_lines, **reading),
            "parse_options": pc.ParseOptions(newlines_in_values=True),
            "convert_options": pc.ConvertOptions(column_types=types, include_columns=list(columns)),
        }

    def matrix(self, table: Any) -> NDArray[np.float32]:
        """The features of a table. (N, D)"""
        X = np.empty((table.num_rows, len(self.features)), dtype=np.float32)
        for j, name in enumerate(self.features):
            X[:, j] = table.column(name).to_numpy()
        return X
