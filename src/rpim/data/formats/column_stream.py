"""Feature files read block by block, in memory that does not grow with the number of rows.

Only the columns that prediction needs are read: features, ids, texts and paths.
"""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rpim._common.errors import InputError
from rpim._common.files import StrPath, reading
from rpim.data.columns import are_whole, find_per_row
from rpim.data.formats.arrays import ArrayStream, must_be_npy, open_npz
from rpim.data.formats.feature_files import (
    Columns,
    checked_suffix,
    npz_features,
    parquet_metadata,
    pim_files,
)
from rpim.data.formats.parquet import ParquetRows, column_values, list_matrix, parquet_features
from rpim.data.formats.tables import CsvFile, FeatureTable

BLOCK_ROWS, BLOCK_VALUES = 8192, 1 << 22
"""The largest number of rows, and of values, in a block."""

FIELDS = ("ids", "texts", "paths")
"""The fields that are read with the features."""
_CSV_BYTES = 1 << 20  # a line has to fit into it, and pyarrow reads about 30 of them ahead


@dataclass(frozen=True)
class ColumnStream:
    """An opened file; `blocks` yields the arguments of ``FeatureSet.from_arrays``."""

    blocks: Callable[[], Iterator[Columns]]
    n_rows: int | None
    """None if unknown before the last block."""
    metadata: dict[str, Any] = field(default_factory=dict)


def open_columns(given: StrPath, feature_column: str | None = None) -> ColumnStream:
    """Open a file, or PIM's folder, and read its header."""
    path = Path(given)
    suffix = checked_suffix(path, feature_column)
    if path.is_dir():
        return _npy(pim_files(path)["all_feats"])
    if suffix == ".npz":
        return _npz(path, feature_column)
    if suffix == ".npy":
        return _npy(path)
    return _parquet(path, feature_column) if suffix == ".parquet" else _csv(given)


def rows_per_block(n_features: int) -> int:
    """The number of rows in a block."""
    return max(1, min(BLOCK_ROWS, BLOCK_VALUES // max(1, n_features)))


def _block_sizes(shape: Sequence[int]) -> Iterator[int]:
    """The number of rows in each block; one empty block if there are no rows."""
    step = rows_per_block(shape[1])
    for start in range(0, max(1, shape[0]), step):
        yield min(step, shape[0] - start)


def _check_matrix(path: Path, shape: Sequence[int]) -> None:
    if len(shape) != 2:
        raise InputError(f"{path}: X has shape {tuple(shape)}, not two dimensions: give rows of features.")


def _npy(path: Path) -> ColumnStream:
    must_be_npy(path)
    with reading(path), open(path, "rb") as file:
        shape = ArrayStream(file).shape
    _check_matrix(path, shape)

    def blocks() -> Iterator[Columns]:
        with reading(path), open(path, "rb") as file:
            stream = ArrayStream(file)
            for n in _block_sizes(shape):
                yield {"X": stream.take(n)}

    return ColumnStream(blocks, shape[0])


def _npz(path: Path, feature_column: str | None) -> ColumnStream:
    with open_npz(path) as archive:
        metadata = json.loads(str(archive["metadata_json"])) if "metadata_json" in archive.files else {}
        features = npz_features(path, archive.files, feature_column)
        per_row = find_per_row(path, archive.files, {})
    members = {"X": features} | {name: per_row[name] for name in FIELDS if name in per_row}

    def open_streams(stack: contextlib.ExitStack) -> dict[str, ArrayStream]:
        # A file handle for each member: compressed members can only be read in sequence.
        archives = {name: stack.enter_context(zipfile.ZipFile(path)) for name in members}
        return {
            name: ArrayStream(stack.enter_context(archives[name].open(f"{key}.npy"))) for name, key in members.items()
        }

    with reading(path), contextlib.ExitStack() as stack:
        shapes = {name: stream.shape for name, stream in open_streams(stack).items()}
    _check_matrix(path, shapes["X"])
    n_rows = shapes["X"][0]
    for name in members:
        if name != "X" and shapes[name] != (n_rows,):
            raise InputError(
                f"{path}: {name} has shape {shapes[name]} but X has {n_rows} rows: give a flat list of one per row."
            )

    def blocks() -> Iterator[Columns]:
        with reading(path), contextlib.ExitStack() as stack:
            streams = open_streams(stack)
            for n in _block_sizes(shapes["X"]):
                yield {name: stream.take(n) for name, stream in streams.items()}
            for stream in streams.values():
                stream.finish()

    return ColumnStream(blocks, n_rows, metadata)


def _parquet(path: Path, feature_column: str | None) -> ColumnStream:
    rows = ParquetRows(path)
    features = parquet_features(path, rows.schema, feature_column)
    found = find_per_row(path, rows.schema.names, {})
    per_row = {name: found[name] for name in FIELDS if name in found}
    # The schema may not say how long the lists are.
    first = next(rows.tables([features], 1), None)
    step = 1 if first is None else rows_per_block(list_matrix(path, features, first[1].column(0)).shape[1])

    def blocks() -> Iterator[Columns]:
        for first_row, table in rows.tables([features, *per_row.values()], step):
            values = {name: column_values(table.column(column)) for name, column in per_row.items()}
            yield {"X": list_matrix(path, features, table.column(features), first_row), **values}

    with reading(path):
        return ColumnStream(blocks, rows.n_rows, parquet_metadata(rows.schema))


def _csv(path: StrPath) -> ColumnStream:
    layout = FeatureTable.of(CsvFile.of(path), {})
    per_row = {name: layout.per_row[name] for name in FIELDS if name in layout.per_row}

    def blocks() -> Iterator[Columns]:
        # Ids are integers if all of them are, so all ids are read before the first block.
        ids = per_row.get("ids")
        ids_are_numbers = ids is not None and all(
            are_whole(table[0].to_pylist()) for table in layout.stream([ids], block_size=_CSV_BYTES)
        )
        step = rows_per_block(len(layout.features))
        for table in layout.stream(block_size=_CSV_BYTES):
            for start in range(0, len(table), step):
                rows = table.slice(start, step)
                columns: Columns = {name: rows.column(column).to_pylist() for name, column in per_row.items()}
                if ids_are_numbers:
                    columns["ids"] = list(map(int, columns["ids"]))
                yield {"X": layout.matrix(rows), **columns}

    return ColumnStream(blocks, None)
