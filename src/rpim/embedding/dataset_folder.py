"""Hugging Face datasets on disk: the Arrow files that ``save_to_disk`` writes, read without the library."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rpim._common.errors import InputError
from rpim._common.files import reading
from rpim.data.formats.columns import is_called, metadata_names
from rpim.data.formats.parquet import arrow
from rpim.data.metadata import scalar_columns
from rpim.embedding import text_tables
from rpim.embedding.items import Items

_SPLITS, _STATE, _INFO = "dataset_dict.json", "state.json", "dataset_info.json"


def is_dataset(path: Path) -> bool:
    """Whether a folder is a dataset, with or without splits."""
    return path.is_dir() and ((path / _SPLITS).is_file() or (path / _STATE).is_file())


def read_dataset(path: Path, label_column: str | None = None, text_column: str | None = None) -> Items:
    """Read the images or texts of a dataset, of all splits if it has some.

    The images are in the column of that type. Class labels become the names of the classes.
    """
    parts = [path]
    if (path / _SPLITS).is_file():
        with reading(path / _SPLITS):
            parts = [path / name for name in json.loads((path / _SPLITS).read_text(encoding="utf-8"))["splits"]]
    tables, features = [], dict[str, Any]()
    for part in parts:
        with reading(part / _STATE):
            tables.append(_table(part))
            features = json.loads((part / _INFO).read_text(encoding="utf-8")).get("features") or {}
    columns = {
        name: _named(tables, name, features.get(name))
        for name in tables[0].column_names
        if not _is_image(features.get(name))
    }
    if len(parts) > 1:
        columns["split"] = [part.name for part, table in zip(parts, tables, strict=True) for _ in range(len(table))]
    images = [name for name in tables[0].column_names if _is_image(features.get(name))]
    if not images or text_column is not None:
        return text_tables.items_of(path, columns, label_column, text_column)
    if len(images) > 1:
        raise InputError(f"{path} has several columns of images ({', '.join(images)}): keep one.")
    if label_column is not None and label_column not in columns:
        raise InputError(f"{path} has no column {label_column!r}: it has {', '.join(map(repr, columns))}.")

    def field(name: str, wanted: str | None = None) -> list[Any] | None:
        return next((columns[c] for c in columns if c == wanted or (wanted is None and is_called(c, name))), None)

    return Items.of(
        "images",
        _Pictures(path, parts, images[0]),
        path,
        field("ids"),
        labels=field("labels", label_column),
        truth=field("truth"),
        split=field("split"),
        columns=scalar_columns({name: columns[name] for name in metadata_names(list(columns), [str(label_column)])}),
    )


class _Pictures(Sequence[Any]):
    """The images of a column, read from memory-mapped files on access."""

    def __init__(self, path: Path, parts: list[Path], name: str) -> None:
        self._path, self._parts, self._name = path, parts, name
        columns = [_table(part).column(name) for part in parts]
        self._column = arrow().chunked_array([chunk for column in columns for chunk in column.chunks])

    def __reduce__(self) -> Any:
        """Send the paths alone: another process maps the files itself."""
        return _Pictures, (self._path.resolve(), [part.resolve() for part in self._parts], self._name)

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, row: Any) -> Any:
        stored = self._column[row].as_py() or {}
        if stored.get("bytes"):
            return stored["bytes"]
        return self._path / (stored.get("path") or "missing")


def _table(part: Path) -> Any:
    files = [part / file["filename"] for file in json.loads((part / _STATE).read_text(encoding="utf-8"))["_data_files"]]
    lacking = [file.name for file in files if not file.is_file()]
    if lacking:
        raise InputError(f"{part} lacks {', '.join(lacking[:3])}: save the dataset again.")
    pa = arrow()
    return pa.concat_tables([arrow(".ipc").open_stream(pa.memory_map(str(file))).read_all() for file in files])


def _is_image(feature: Any) -> bool:
    return isinstance(feature, dict) and feature.get("_type") == "Image"


def _named(tables: list[Any], name: str, feature: Any) -> list[Any]:
    """The values of a column, class labels as names; None for an unknown class."""
    values = [value for table in tables for value in table.column(name).to_pylist()]
    if not isinstance(feature, dict) or feature.get("_type") != "ClassLabel" or not feature.get("names"):
        return values
    names = feature["names"]
    return [None if value is None or value < 0 else names[value] for value in values]
