"""The files a FeatureSet is read from and written to, one reader per format.

A reader gives the arguments of ``FeatureSet.from_arrays``, which does the checks every format shares. Nothing here
ever unpickles: a file from a stranger can be wrong, but it cannot run code. pyarrow is imported where it is first
needed, because it takes longer to import than most commands take to run.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import importlib
import io
import json
import os
import re
import secrets
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rpim.errors import InputError

Columns = dict[str, Any]

# What a column, or an .npz key, may be called. The nameless column is the index that pandas writes first.
NAMES = {
    "X": ("features", "x", "embeddings", "feats"),
    "labels": ("labels", "label", "y"),
    "truth": ("truth", "targets"),
    "ids": ("ids", "id", ""),
    "texts": ("texts", "text"),
    "paths": ("paths", "path"),
}
PER_ROW = ("labels", "truth", "ids", "texts", "paths")
METADATA_KEY = "rpim_metadata"
BLOCK_VALUES = 1 << 18  # 2 MB as float64: about what a cache holds
ROW_GROUP_VALUES = 1 << 22

_VIEW = re.compile(r"view_(\d+)")
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")  # not 007, which a number would turn into 7
_DECIMAL = re.compile(r"-?(0|[1-9]\d{0,17})\.\d+")
_PICKLED = re.compile("object arrays|python objects", re.IGNORECASE)  # numpy's words for it
_NO_NUMBER = ("", "nan", "NaN")
_UNREADABLE = (
    OSError, ValueError, EOFError, KeyError, NotImplementedError, RuntimeError, MemoryError, SyntaxError,
    csv.Error, struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def row_blocks(n_rows: int, n_features: int, block_values: int | None = None) -> Iterator[slice]:
    """Slices of the rows small enough that a copy of one block never matters.

    >>> [(block.start, block.stop) for block in row_blocks(5, BLOCK_VALUES // 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(1, (block_values or BLOCK_VALUES) // max(1, n_features))
    for start in range(0, n_rows, step):
        yield slice(start, min(start + step, n_rows))


def some(values: Iterable[Any]) -> str:
    """The first five values, for a message.

    >>> some(range(9))
    '0, 1, 2, 3, 4, ...'
    """
    listed = list(values)
    return ", ".join(str(value) for value in listed[:5]) + (", ..." if len(listed) > 5 else "")


def read_features(path: Path, label_column: str | None, feature_column: str | None) -> Columns:
    """The arguments of ``FeatureSet.from_arrays`` found in `path`."""
    suffix = path.suffix.lower()
    if feature_column is not None and suffix not in (".npz", ".parquet"):
        raise InputError(f"feature_column is for .npz and .parquet files, but {path} is neither: leave it out.")
    if label_column is not None and (suffix == ".npy" or path.is_dir()):
        raise InputError(f"label_column is for files with columns, but {path} has none: leave it out.")
    if path.is_dir():
        return _read_pim_folder(path)
    _must_exist(path)
    if suffix == ".npz":
        return _read_npz(path, label_column, feature_column)
    if suffix == ".npy":
        return {"X": _load_npy(path, mmap_mode="r")}
    if suffix == ".parquet":
        return _read_parquet(path, label_column, feature_column)
    if suffix == ".csv":
        return _read_csv(path, label_column)
    raise InputError(
        f"{path} has the suffix {suffix!r}, which cannot be read as features: "
        "give .npz, .npy, .parquet, .csv or PIM's folder of feature maps."
    )


def read_labels(path: Path, ids: NDArray[Any], label_column: str | None) -> Any:
    """The labels in `path` in the order of `ids`; None for the rows that a file with ids leaves out."""
    suffix = path.suffix.lower()
    if label_column is not None and suffix in (".npy", ".json"):
        raise InputError(f"label_column is for files with columns, but {path} has none: leave it out.")
    _must_exist(path)
    label_ids: Sequence[Any] | None = None
    if suffix == ".npy":
        labels: Any = _load_npy(path)
    elif suffix == ".json":
        with _reading(path):
            labels = json.loads(path.read_text(encoding="utf-8-sig"))
        if not isinstance(labels, list):
            raise InputError(f"{path} holds a JSON {type(labels).__name__}: give a list with one label per row.")
    elif suffix in (".csv", ".txt"):
        label_ids, labels = _labels_in_text(path, label_column)
    elif suffix == ".parquet":
        label_ids, labels = _labels_in_parquet(path, label_column)
    else:
        raise InputError(
            f"{path} has the suffix {suffix!r}, which cannot be read as labels: "
            "give .npy, .csv, .txt, .json or .parquet."
        )
    return labels if label_ids is None else _by_id(path, ids, label_ids, labels)


def write_features(path: Path, columns: Columns, overwrite: bool) -> None:
    """Write the fields of a FeatureSet in the format of the suffix."""
    writer = {".npz": _write_npz, ".parquet": _write_parquet}.get(path.suffix.lower())
    if writer is None:
        raise InputError(f"{path} has the suffix {path.suffix!r}, which cannot be written: give .npz or .parquet.")
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already: choose another name or say overwrite=True.")
    with _replacing(path) as file:
        writer(file, columns)


def _must_exist(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path} is not there or not a file: check the name.")


def _arrow(module: str = "") -> Any:
    return importlib.import_module(f"pyarrow{module}")


@contextlib.contextmanager
def _reading(path: Path, hint: str = "it may be truncated or corrupt, so write it again") -> Iterator[None]:
    """Turn what the parsers raise about a bad file into one sentence about that file."""
    try:
        yield
    except InputError:
        raise
    except _UNREADABLE as error:
        if isinstance(error, ValueError) and _PICKLED.search(str(error)):
            raise InputError(f"{path} holds pickled objects, which are never loaded: save plain arrays.") from error
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(f"{path} cannot be read ({reason}): {hint}.") from error


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the place of `path` once it is whole and on the disk, and leaves nothing behind otherwise."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except UnicodeEncodeError as error:
        raise InputError(f"{path} was not written, because a text is not valid Unicode ({error.reason}).") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(f"{path} was not written, no space left on its disk: free some of it.") from error
        raise InputError(f"{path} was not written ({error.strerror or error}): check the folder.") from error
    finally:
        temporary.unlink(missing_ok=True)


def _find(path: Path, names: Sequence[str], field: str, wanted: str | None = None) -> str | None:
    """The column of a field, by its usual names or the one that is wanted."""
    if wanted is not None:
        if wanted not in names:
            raise InputError(f"{path} has no column {wanted!r}: it has {', '.join(map(repr, names))}.")
        return wanted
    found = [name for name in names if name.strip().lower() in NAMES[field]]
    if len(found) > 1:
        option = {"labels": " or choose with label_column", "X": " or choose with feature_column"}.get(field, "")
        raise InputError(f"{path} has several columns for {field} ({', '.join(found)}): keep one{option}.")
    return found[0] if found else None


def _find_per_row(path: Path, names: Sequence[str], label_column: str | None) -> dict[str, str]:
    """Field -> column, for the fields with one value per row that are there."""
    found = {field: _find(path, names, field, label_column if field == "labels" else None) for field in PER_ROW}
    return {field: name for field, name in found.items() if name is not None}


def _view_names(names: Sequence[str]) -> list[str]:
    numbered = [(int(match[1]), name) for name in names if (match := _VIEW.fullmatch(name))]
    return [name for _, name in sorted(numbered)]


def _load_npy(path: Path, mmap_mode: Any = None) -> NDArray[Any]:
    _must_exist(path)
    with _reading(path):
        with open(path, "rb") as file:
            if file.read(6) != b"\x93NUMPY":
                raise InputError(f"{path} is not an .npy file: write it with numpy.save.")
        array: NDArray[Any] = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        return array


def _read_npz(path: Path, label_column: str | None, feature_column: str | None) -> Columns:
    with _reading(path):
        if not zipfile.is_zipfile(path):
            raise InputError(f"{path} is not an .npz file, or is truncated: write it again with numpy.savez.")
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files
            features = _find(path, names, "X", feature_column)
            if features is None:
                raise InputError(
                    f"{path} has no array called features, X, embeddings or feats among {', '.join(names) or 'none'}: "
                    "name one with feature_column."
                )
            columns: Columns = {"X": archive[features]}
            columns |= {field: archive[name] for field, name in _find_per_row(path, names, label_column).items()}
            views = [archive[name] for name in _view_names(names)]
            if "views" in names:
                stacked = archive["views"]  # (V, N, D), or (N, D) for one
                views = [*(stacked if stacked.ndim == 3 else [stacked]), *views]
            columns["views"] = views
            if "metadata_json" in names:
                columns["metadata"] = json.loads(str(archive["metadata_json"]))
            return columns


def _read_parquet(path: Path, label_column: str | None, feature_column: str | None) -> Columns:
    with _reading(path):
        with _arrow(".parquet").ParquetFile(path) as file:
            schema = file.schema_arrow
            views = _view_names(schema.names)
            per_row = _find_per_row(path, schema.names, label_column)
            lists = [field.name for field in schema if _is_list(field.type) and field.name not in views]
            if feature_column is None and len(lists) != 1:
                what = f"several list columns ({', '.join(lists)})" if lists else "no column of lists of numbers"
                raise InputError(
                    f"{path} has {what} among {', '.join(schema.names) or 'none'}: "
                    "name the one with the features with feature_column."
                )
            features = str(_find(path, schema.names, "X", feature_column or lists[0]))
            table = file.read(columns=[features, *views, *per_row.values()])
        columns: Columns = {"X": _list_matrix(path, features, table.column(features))}
        columns["views"] = [_list_matrix(path, name, table.column(name)) for name in views]
        columns |= {field: _plain_values(table.column(name)) for field, name in per_row.items()}
        facts = (schema.metadata or {}).get(METADATA_KEY.encode())
        if facts is not None:
            columns["metadata"] = json.loads(facts)
        return columns


def _is_list(arrow_type: Any) -> bool:
    types = _arrow().types
    if not (types.is_list(arrow_type) or types.is_large_list(arrow_type) or types.is_fixed_size_list(arrow_type)):
        return False
    inner = arrow_type.value_type
    return bool(types.is_floating(inner) or types.is_integer(inner))


def _list_matrix(path: Path, name: str, column: Any) -> NDArray[Any]:
    """A column of equally long lists as a matrix, a view of Arrow's memory where it is in one piece. (N, D)"""
    if not _is_list(column.type):
        raise InputError(f"{path}: column {name!r} is of type {column.type}: give one with a list of numbers per row.")
    if column.null_count:
        rows = np.flatnonzero(column.is_null().to_numpy())
        raise InputError(f"{path}: column {name!r} is null in {len(rows)} rows ({some(rows)}): remove those rows.")
    if _arrow().types.is_fixed_size_list(column.type):
        width = column.type.list_size
    else:
        lengths = _arrow(".compute").list_value_length(column).to_numpy()
        width = int(lengths[0]) if len(lengths) else 1
        odd = np.flatnonzero(lengths != width)
        if odd.size:
            raise InputError(
                f"{path}: column {name!r} has lists of different lengths ({width} in row 0, {lengths[odd[0]]} in row "
                f"{odd[0]}): give every row as many numbers."
            )
    if len(column) == 0 or width == 0:
        return np.empty((len(column), width), dtype=np.float32)
    pieces = [chunk.flatten().to_numpy(zero_copy_only=False).reshape(-1, width) for chunk in column.chunks]
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _plain_values(column: Any) -> Any:
    """A list with Nones where values are missing, because Arrow would turn ints with nulls into floats."""
    types = _arrow().types
    if column.null_count == 0 and (types.is_integer(column.type) or types.is_floating(column.type)):
        return column.to_numpy()
    return column.to_pylist()


def _labels_in_parquet(path: Path, label_column: str | None) -> tuple[Any, Any]:
    with _reading(path), _arrow(".parquet").ParquetFile(path) as file:
        names = file.schema_arrow.names
        label_name = _find(path, names, "labels", label_column) or (names[0] if len(names) == 1 else None)
        if label_name is None:
            raise InputError(f"{path} has no column label, labels or y among {', '.join(names)}: say label_column.")
        id_name = _find(path, names, "ids")
        table = file.read(columns=[name for name in {label_name, id_name} if name is not None])
        label_ids = None if id_name in (None, label_name) else table.column(id_name).to_pylist()
        return label_ids, _plain_values(table.column(label_name))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _csv_names(path: Path) -> tuple[list[str], int]:
    """The names of the columns and how many lines they take: none where the first line is numbers already."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        first, second = next(reader, []), next(reader, [])
    if not first:
        raise InputError(f"{path} is empty or begins with a blank line: give a line of numbers per row.")
    counted = [str(number) for number in range(len(first))]
    # pandas calls nameless columns 0, 1, 2, ...: a header if what follows are decimals.
    if all(map(_is_number, first)) and not (first == counted and any(_DECIMAL.fullmatch(cell) for cell in second)):
        return [f"f{j}" for j in range(len(first))], 0
    if len(set(first)) < len(first):
        raise InputError(f"{path} has two columns of the same name in its first line: rename one, or add a header.")
    return first, 1


def _read_csv(path: Path, label_column: str | None) -> Columns:
    hint = "give lines of equal length, with numbers in every column but label, truth, id, text and path"
    pa, pc = _arrow(), _arrow(".csv")
    with _reading(path, hint):
        names, header_lines = _csv_names(path)
        per_row = _find_per_row(path, names, label_column)
        # Also those that label_column has put aside: labels among the features would give the answer away.
        not_features = {name for name in names if any(name.strip().lower() in NAMES[field] for field in PER_ROW)}
        not_features |= set(per_row.values())
        types = {name: pa.string() if name in not_features else pa.float32() for name in names}
        table = pc.read_csv(
            path,
            read_options=pc.ReadOptions(column_names=names, skip_rows=header_lines),
            parse_options=pc.ParseOptions(newlines_in_values=True),
            convert_options=pc.ConvertOptions(column_types=types),
        )
        feature_names = [name for name in names if name not in not_features]
        X = np.empty((table.num_rows, len(feature_names)), dtype=np.float32)
        for j, name in enumerate(feature_names):
            X[:, j] = table.column(name).to_numpy()
        columns: Columns = {field: table.column(name).to_pylist() for field, name in per_row.items()}
    for field in ("labels", "truth"):
        if field in columns:
            columns[field] = _labels_from_text(columns[field])
    if "ids" in columns:
        columns["ids"] = _ids_from_text(columns["ids"])
    return {"X": X, **columns}


def _labels_from_text(cells: list[str]) -> list[Any]:
    """Numbers if every cell is one or empty, otherwise text; -1 is unlabelled in both."""
    numbers = [cell for cell in cells if cell not in _NO_NUMBER]
    if all(_WHOLE.fullmatch(cell) for cell in numbers):
        return [None if cell in _NO_NUMBER else int(cell) for cell in cells]
    if all(_WHOLE.fullmatch(cell) or _DECIMAL.fullmatch(cell) for cell in numbers):
        return [None if cell in _NO_NUMBER else float(cell) for cell in cells]
    return ["" if cell == "-1" else cell for cell in cells]


def _ids_from_text(cells: list[str]) -> list[Any]:
    return [int(cell) for cell in cells] if all(_WHOLE.fullmatch(cell) for cell in cells) else cells


def _labels_in_text(path: Path, label_column: str | None) -> tuple[Any, Any]:
    """One label per line, blank where there is none, or a table with a header such as id,label."""
    with _reading(path):
        text = path.read_text(encoding="utf-8-sig")
        table = list(csv.reader(io.StringIO(text, newline="")))
    header = table[0] if table else []
    named = any(name.strip().lower() in NAMES["labels"] for name in header)
    if label_column is not None or (named and len(header) > 1):
        label_name, id_name = _find(path, header, "labels", label_column), _find(path, header, "ids")
        rows = [row for row in table[1:] if row]
        for number, row in enumerate(rows, start=1):
            if len(row) != len(header):
                raise InputError(f"{path}: row {number} has {len(row)} columns but the header has {len(header)}.")
        labels = _labels_from_text([row[header.index(str(label_name))] for row in rows])
        return None if id_name is None else [row[header.index(id_name)] for row in rows], labels
    if path.suffix.lower() == ".txt":  # a comma or a quote is part of the label
        cells = [line.rstrip("\n") for line in io.StringIO(text)]
    elif any(len(row) > 1 for row in table):
        raise InputError(f"{path} has several columns and no header: give one label per line, or the header id,label.")
    else:
        cells = [row[0] if row else "" for row in table]
    return None, _labels_from_text(cells[1:] if named else cells)


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


def _read_pim_folder(folder: Path) -> Columns:
    """PIM's feature maps: targets are labels where mask_lab is true, and mask_cls is true for known classes."""
    inner = folder / "train" if (folder / "train" / "all_feats.npy").is_file() else folder
    files = {name: inner / f"{name}.npy" for name in ("all_feats", "mask_lab", "mask_cls", "targets")}
    lacking = [file.name for file in files.values() if not file.is_file()]
    if lacking:
        raise InputError(f"{inner} lacks {', '.join(lacking)}: give PIM's folder of feature maps, or a file.")
    X = _load_npy(files["all_feats"], mmap_mode="r")
    targets, mask_lab, mask_cls = (_load_npy(files[name]) for name in ("targets", "mask_lab", "mask_cls"))
    for name, array in (("targets", targets), ("mask_lab", mask_lab), ("mask_cls", mask_cls)):
        if array.ndim != 1 or len(array) != len(X):
            raise InputError(f"{files[name]} has shape {array.shape} but all_feats.npy has {len(X)} rows: mend it.")
        if name != "targets" and not np.isin(array, (0, 1)).all():
            raise InputError(f"{files[name]} is not a mask: give True or False per row.")
    if targets.dtype.kind not in "iu":
        raise InputError(f"{files['targets']} holds {targets.dtype} values: give the number of each row's class.")
    labelled, known = mask_lab.astype(bool), mask_cls.astype(bool)
    wrong = np.flatnonzero(np.isin(targets, targets[labelled]) & ~known)
    if wrong.size:
        raise InputError(
            f"{inner}: mask_cls.npy calls {len(wrong)} rows ({some(wrong)}) new although mask_lab.npy labels rows of "
            "their class: make the two masks agree."
        )
    return {"X": X, "labels": np.where(labelled, targets.astype(np.int64), -1), "truth": targets}


def _write_npz(file: BinaryIO, columns: Columns) -> None:
    arrays = {"features": columns["X"]}
    arrays |= {f"view_{k}": view for k, view in enumerate(columns["views"], start=2)}
    arrays |= {field: np.asarray(columns[field]) for field in PER_ROW if columns[field] is not None}
    arrays["metadata_json"] = np.asarray(json.dumps(columns["metadata"]))
    # Not numpy.savez: it stamps the time, so that the same features would never give the same file.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _write_parquet(file: BinaryIO, columns: Columns) -> None:
    """In row groups, so that a memory-mapped matrix is never loaded whole."""
    pa = _arrow()
    matrices = {"features": columns["X"]} | {f"view_{k}": view for k, view in enumerate(columns["views"], start=2)}
    values = {NAMES[field][1]: columns[field] for field in PER_ROW if columns[field] is not None}
    n_rows, n_features = columns["X"].shape

    def batch(rows: slice) -> Any:
        arrays = {}
        for name, matrix in matrices.items():
            flat = np.ravel(matrix[rows]).astype(matrix.dtype.newbyteorder("="), copy=False)
            arrays[name] = pa.FixedSizeListArray.from_arrays(pa.array(flat), n_features)
        for name, column in values.items():
            part = column[rows]
            is_text = isinstance(part, list) or part.dtype.kind == "U"
            arrays[name] = pa.array(list(map(str, part)), pa.string()) if is_text else pa.array(part)
        return pa.table(arrays)

    schema = batch(slice(0, 1)).schema.with_metadata({METADATA_KEY: json.dumps(columns["metadata"])})
    with _arrow(".parquet").ParquetWriter(file, schema) as writer:
        for rows in row_blocks(n_rows, n_features * len(matrices), ROW_GROUP_VALUES):
            writer.write_table(batch(rows).replace_schema_metadata(schema.metadata))
