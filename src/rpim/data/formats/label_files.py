"""Files with one label, or one true class, per row or per id."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from rpim._common.errors import InputError, some
from rpim._common.files import load_npy, must_exist, open_npz, reading
from rpim.data.formats.columns import column_from_text, find_column, free_names, is_called, labels_from_text
from rpim.data.formats.parquet import arrow, is_scalar, plain_values, scalar_values

_FILES = ("path", "paths", "file", "filename", "file_name", "image")


def read_labels(path: Path, ids: NDArray[Any], label_column: str | None) -> Any:
    """The labels in `path` in the order of `ids`; None for the rows that a file with ids leaves out."""
    suffix = path.suffix.lower()
    if label_column is not None and suffix in (".npy", ".json"):
        raise InputError(f"label_column is for files with columns, but {path} has none: leave it out.")
    must_exist(path)
    label_ids: Sequence[Any] | None = None
    if suffix == ".npy":
        labels: Any = load_npy(path)
    elif suffix == ".json":
        with reading(path):
            labels = json.loads(path.read_text(encoding="utf-8-sig"))
        if not isinstance(labels, list):
            raise InputError(f"{path} holds a JSON {type(labels).__name__}: give a list with one label per row.")
    elif suffix in (".csv", ".txt"):
        label_ids, labels = _labels_in_text(path, label_column, ids)
    elif suffix == ".parquet":
        label_ids, labels = _labels_in_parquet(path, label_column, ids)
    else:
        raise InputError(
            f"{path} has the suffix {suffix!r}, which cannot be read as labels: "
            "give .npy, .csv, .txt, .json or .parquet."
        )
    return labels if label_ids is None else _by_id(path, ids, label_ids, labels)


def read_further(path: Path, ids: NDArray[Any], label_column: str | None) -> dict[str, list[Any]]:
    """The further columns of a .csv or .parquet file that has labels by id, in the order of `ids`; of others none."""
    suffix = path.suffix.lower()
    if suffix not in (".csv", ".parquet"):
        return {}
    with reading(path):
        if suffix == ".csv":
            with open(path, newline="", encoding="utf-8-sig") as file:
                names, *rows = [row for row in csv.reader(file) if row] or [[]]
            columns: Any = dict(zip(names, zip(*rows, strict=True), strict=False))
        else:
            table = arrow(".parquet").read_table(path)
            names, columns = table.column_names, {}
            for name, column in zip(names, table.columns, strict=True):
                if is_scalar(column.type):
                    columns[name] = scalar_values(column)
    id_name, label_name = _id_column(path, names, ids), find_column(path, names, "labels", label_column)
    if id_name is None or id_name not in columns:
        return {}
    label_ids = list(columns[id_name])
    found = {}
    for name in free_names(names, [id_name, str(label_name)]):
        if name in columns:
            values = column_from_text(list(columns[name])) if suffix == ".csv" else columns[name]
            found[name] = _by_id(path, ids, label_ids, values)
    return found


def read_true_classes(path: Path, ids: NDArray[Any], column: str | None) -> Any:
    """The truth in `path` as `read_labels` gives labels; it may be called truth or targets, or be in an .npz file."""
    if path.suffix.lower() == ".npz":
        return _truth_in_npz(path, ids, column)
    return read_labels(path, ids, column or _truth_column(path))


def _labels_in_parquet(path: Path, label_column: str | None, ids: NDArray[Any]) -> tuple[Any, Any]:
    with reading(path), arrow(".parquet").ParquetFile(path) as file:
        names = file.schema_arrow.names
        label_name = find_column(path, names, "labels", label_column) or (names[0] if len(names) == 1 else None)
        if label_name is None:
            raise InputError(f"{path} has no column label, labels or y among {', '.join(names)}: say label_column.")
        id_name = _id_column(path, names, ids)
        table = file.read(columns=[name for name in {label_name, id_name} if name is not None])
        label_ids = None if id_name in (None, label_name) else table.column(id_name).to_pylist()
        return label_ids, plain_values(table.column(label_name))


def _labels_in_text(path: Path, label_column: str | None, ids: NDArray[Any]) -> tuple[Any, Any]:
    """One label per line, blank where there is none, or a table with a header such as id,label."""
    with reading(path):
        text = path.read_text(encoding="utf-8-sig")
        table = list(csv.reader(io.StringIO(text, newline="")))
    header = table[0] if table else []
    named = any(is_called(name, "labels") for name in header)
    if label_column is not None or (named and len(header) > 1):
        label_name, id_name = find_column(path, header, "labels", label_column), _id_column(path, header, ids)
        rows = [row for row in table[1:] if row]
        for number, row in enumerate(rows, start=1):
            if len(row) != len(header):
                raise InputError(f"{path}: row {number} has {len(row)} columns but the header has {len(header)}.")
        labels = labels_from_text([row[header.index(str(label_name))] for row in rows])
        return None if id_name is None else [row[header.index(id_name)] for row in rows], labels
    if path.suffix.lower() == ".txt":  # a comma or a quote is part of the label
        cells = [line.rstrip("\n") for line in io.StringIO(text)]
    elif any(len(row) > 1 for row in table):
        raise InputError(f"{path} has several columns and no header: give one label per line, or the header id,label.")
    else:
        cells = [row[0] if row else "" for row in table]
    return None, labels_from_text(cells[1:] if named else cells)


def _id_column(path: Path, names: Sequence[str], ids: NDArray[Any]) -> str | None:
    """The column with the ids; where they are text, as the paths of images are, it may be called so."""
    found = find_column(path, names, "ids")
    if found is None and ids.dtype.kind == "U":
        return next((name for name in names if name.strip().lower() in _FILES), None)
    return found


def _truth_in_npz(path: Path, ids: NDArray[Any], column: str | None) -> Any:
    with open_npz(path) as archive:
        name = find_column(path, archive.files, "truth", column)
        if name is None:
            raise InputError(f"{path} has no array called truth among {', '.join(archive.files)}: name one.")
        id_name = find_column(path, archive.files, "ids")
        return archive[name] if id_name is None else _by_id(path, ids, archive[id_name].tolist(), archive[name])


def _truth_column(path: Path) -> str | None:
    """The column called truth or targets in a file that has columns."""
    names: Sequence[str] = []
    if path.is_file() and path.suffix.lower() in (".csv", ".parquet"):
        with reading(path):
            if path.suffix.lower() == ".csv":
                with open(path, newline="", encoding="utf-8-sig") as file:
                    names = next(csv.reader(file), [])
            else:
                names = arrow(".parquet").read_schema(path).names
    return next((name for name in names if is_called(name, "truth")), None)


def _by_id(path: Path, ids: NDArray[Any], label_ids: Sequence[Any], labels: Iterable[Any]) -> list[Any]:
    """Each label in the row of its id; ids are compared as text, since a .csv cannot say which are numbers."""
    place = {str(name): row for row, name in enumerate(ids.tolist())}
    unknown = [name for name in label_ids if str(name) not in place]
    if unknown:
        raise InputError(
            f"{path} has {len(unknown)} ids that the features have not ({some(unknown)}): use the ids of the features, "
            "or one label per row and no ids."
        )
    out: list[Any] = [None] * len(ids)
    seen: set[str] = set()
    for name, label in zip(label_ids, labels, strict=True):
        if str(name) in seen:
            raise InputError(f"{path} has the id {name!r} more than once: give each id one label.")
        seen.add(str(name))
        out[place[str(name)]] = label
    return out
