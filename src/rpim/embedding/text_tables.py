"""Texts in .csv, .json, .jsonl and .parquet tables, and Hugging Face datasets on disk, read without that library."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from rpim._common.errors import InputError
from rpim._common.files import StrPath, must_exist, reading
from rpim.data.columns import (
    column_from_text,
    find_per_row,
    ids_from_text,
    is_called,
    is_metadata_name,
    labels_from_text,
    metadata_names,
    missing_texts,
    prose_columns,
    scalar_columns,
)
from rpim.data.formats.feature_files import conversion
from rpim.data.formats.parquet import arrow, column_values, is_list, read_columns, scalar_values
from rpim.data.formats.tables import CSV_SUFFIXES, MIN_FEATURES, CsvFile
from rpim.embedding.items import Items

JSON_LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
JSON = (".json", ".json.gz")
_TABLES = (*CSV_SUFFIXES, *JSON_LINES, *JSON, ".parquet")

Records = dict[str, list[Any]]
"""Column -> its values."""


def is_table_of_texts(given: StrPath) -> bool:
    """Whether a file has texts, whatever their column is called, and no features.

    Few columns of numbers in a .csv are metadata, such as price and year, unless their names are numbered, such as f0
    and f1.
    """
    path = Path(given)
    suffix = _suffix(path)
    if suffix in (*JSON_LINES, *JSON):
        return True
    if suffix in CSV_SUFFIXES:
        table = CsvFile.of(given)
        words = table.columns_of_words()
        others = [name for name in words if is_metadata_name(name)]
        numbers = [name for name in table.header if name not in words and is_metadata_name(name)]
        if len(numbers) >= MIN_FEATURES or any(name[-1:].isdigit() for name in numbers):
            return False
        has_texts = any(is_called(name, "texts") for name in table.header)
        return has_texts or bool(set(others) & set(prose_columns(table.sniffed()))) or bool(others and not numbers)
    if suffix == ".parquet":
        with reading(path):
            schema = arrow(".parquet").read_schema(path)
        return any(_may_be_texts(field) for field in schema) and not any(is_list(field.type) for field in schema)
    return False


def _may_be_texts(field: Any) -> bool:
    is_string = arrow().types.is_string(field.type) or arrow().types.is_large_string(field.type)
    return is_called(field.name, "texts") or (is_string and is_metadata_name(field.name))


def _suffix(path: Path) -> str:
    """The suffix in lower case, with the one before .gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:] if suffixes[-1:] == [".gz"] else suffixes[-1:])


def read_texts(given: StrPath, label_column: str | None = None, text_column: str | None = None) -> Items:
    """Read the texts of a table, with its labels, truth, ids, split and metadata columns.

    Raises
    ------
    InputError
        If the table cannot be read, or has no such column.
    """
    path = Path(given)
    must_exist(path)
    suffix = _suffix(path)
    if suffix in (".npz", ".npy"):
        raise _holds_features(path)
    if suffix not in _TABLES:
        what_to_do = conversion(path, "give .csv, .tsv, .json, .jsonl or .parquet, with a column called text.")
        raise InputError(f"{path} has the suffix {suffix!r}, which is no table of texts: {what_to_do}")
    with reading(path):
        if suffix in CSV_SUFFIXES:
            columns = _read_csv(CsvFile.of(given))
        elif suffix == ".parquet":
            columns = _read_parquet(path, text_column)
        else:
            columns = _read_json_lines(path) if suffix in JSON_LINES else _read_json(path)
    return items_of(path, columns, label_column, text_column, from_text=suffix in CSV_SUFFIXES)


def items_of(
    path: Path, columns: Records, label_column: str | None, text_column: str | None, *, from_text: bool = False
) -> Items:
    """The texts of a table whose columns have been read; with `from_text`, cells are converted to numbers."""
    names = list(columns)
    if label_column is not None and label_column not in names:
        raise InputError(f"{path} has no column {label_column!r}: it has {', '.join(map(repr, names))}.")
    found = find_per_row(path, names, {"labels": label_column, "texts": text_column})
    if "texts" not in found:
        raise missing_texts(path, columns)
    values = {field: columns[name] for field, name in found.items()}
    if from_text:
        values |= {field: labels_from_text(values[field]) for field in ("labels", "truth") if field in values}
        values |= {"ids": ids_from_text(values["ids"])} if "ids" in values else {}
    texts = ["" if text is None else text for text in values["texts"]]
    odd = next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)
    if odd is not None:
        raise InputError(
            f"{path}: column {found['texts']!r} has {texts[odd]!r} in row {odd}, which is not text: "
            "name the one with the texts with --text-column."
        )
    others = {name: columns[name] for name in metadata_names(names, found.values())}
    if from_text:
        others = {name: column_from_text(cells) for name, cells in others.items()}
    return Items.of(
        "texts",
        texts,
        path,
        values.get("ids"),
        labels=values.get("labels"),
        truth=values.get("truth"),
        split=values.get("split"),
        columns=scalar_columns(others),
    )


def _read_csv(file: CsvFile) -> Records:
    """Every cell as text."""
    if not file.header:
        raise InputError(f"{file} is empty or begins with a blank line: give a header and a line per text.")
    if len(set(file.header)) < len(file.header):
        raise InputError(f"{file} has two columns of the same name in its first line: rename one.")
    return dict(zip(file.header, file.texts(), strict=True))


def _read_json_lines(path: Path) -> Records:
    records = []
    with _opened(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except json.JSONDecodeError as error:
                raise InputError(f"{path}: line {number} is no JSON ({error.msg}): give an object per line.") from error
            if not isinstance(record, dict):
                raise InputError(f"{path}: line {number} is a JSON {type(record).__name__}: give an object per line.")
            records.append(record)
    return _as_columns(records)


def _read_json(path: Path) -> Records:
    with _opened(path) as file:
        records = json.load(file)
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputError(f"{path} is not a list of JSON objects: give one object per text, or an object per line.")
    return _as_columns(records)


def _opened(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig")
    return open(path, encoding="utf-8-sig")


def _as_columns(records: list[dict[str, Any]]) -> Records:
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}


def _read_parquet(path: Path, text_column: str | None) -> Records:
    with arrow(".parquet").ParquetFile(path) as file:
        names = [field.name for field in file.schema_arrow if not is_list(field.type)]
        has_features = len(names) < len(file.schema_arrow.names)
        table = read_columns(path, file, names)
    is_time = arrow().types.is_temporal
    columns = {
        name: scalar_values(column) if is_time(column.type) else column_values(column)
        for name, column in zip(names, table.columns, strict=True)
    }
    has_texts = any(is_called(name, "texts") for name in names) or bool(prose_columns(columns))
    if has_features and not has_texts and text_column is None:
        raise _holds_features(path)
    return columns


def _holds_features(path: Path) -> InputError:
    return InputError(f"{path} holds features, which need no encoder: give it to rpim discover as it is.")


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
        return items_of(path, columns, label_column, text_column)
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
