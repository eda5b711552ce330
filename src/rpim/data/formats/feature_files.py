"""Readers and writers of the formats of a FeatureSet.

A reader returns the arguments of ``FeatureSet.from_arrays``, which does the checks that all formats share.
"""

from __future__ import annotations

import contextlib
import json
import mimetypes
import shlex
import warnings
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from rpim._common.errors import InputError, some
from rpim._common.files import StrPath, check_writable, must_exist, reading, replacing
from rpim._common.hardware import bytes_of_fit, check_memory, default_memory_budget, format_bytes, row_blocks
from rpim.data.columns import (
    NAMES,
    PER_ROW,
    column_array,
    find_column,
    find_per_row,
    ids_from_text,
    labels_from_text,
    metadata_names,
    view_names,
)
from rpim.data.formats.arrays import ArrayStream, load_npy, open_npz
from rpim.data.formats.parquet import (
    arrow,
    arrow_array,
    column_values,
    declared_bytes,
    is_scalar,
    list_matrix,
    parquet_features,
    scalar_values,
)
from rpim.data.formats.tables import CSV_SUFFIXES, CsvFile, FeatureTable

Columns = dict[str, Any]
Wanted = dict[str, str | None]
"""Field -> its column, or None to find it by its usual names."""

METADATA_KEY = "rpim_metadata"
ROW_GROUP_VALUES = 1 << 22
METADATA_SHARE = 0.25
"""The share of the memory that metadata columns of rows on disk may take."""

_SPREADSHEETS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
_ARCHIVES = (".gz", ".bz2", ".xz", ".zip", ".zst", ".tar", ".tgz")
_TEXTS = (".json", ".jsonl", ".ndjson")

_PIM_FILES = ("all_feats", "mask_lab", "mask_cls", "targets")


def declared_size(path: Path) -> int:
    """The memory that all of an .npy or .parquet file takes."""
    if path.suffix.lower() == ".npy":
        return path.stat().st_size
    with reading(path), arrow(".parquet").ParquetFile(path) as file:
        return declared_bytes(file.metadata, file.schema_arrow.names)


def read_features(
    given: StrPath,
    label_column: str | None,
    feature_column: str | None,
    split_column: str | None = None,
    memory: int | None = None,
) -> Columns:
    """The arguments of ``FeatureSet.from_arrays`` found in a file or folder, which may be a `CsvFile`.

    Raises
    ------
    InputError
        If they cannot be read, or their declared size does not fit into `memory` (default: a share of what is free).
    """
    path = Path(given)
    suffix = checked_suffix(path, feature_column)
    wanted = {"labels": label_column, "split": split_column}
    if suffix == ".npy" or path.is_dir():
        _refuse_columns(path, wanted)
    if path.is_dir():
        return _read_pim_folder(path)
    if suffix == ".npz":
        return _read_npz(path, wanted, feature_column, memory)
    if suffix == ".npy":
        return {"X": load_npy(path, mmap_mode="r")}
    if suffix == ".parquet":
        return _read_parquet([path], wanted, feature_column, memory=memory)
    return _read_csv(CsvFile.of(given), wanted, memory)


def checked_suffix(path: Path, feature_column: str | None) -> str:
    """The suffix in lower case, checked to be that of a feature file; a folder may have any."""
    suffix = path.suffix.lower()
    if feature_column is not None and suffix not in (".npz", ".parquet"):
        raise InputError(
            f"--feature-column (feature_column) is for .npz and .parquet files, but {path} is neither: leave it out."
        )
    if not path.is_dir():
        must_exist(path)
        if suffix not in (".npz", ".npy", ".parquet", *CSV_SUFFIXES):
            raise InputError(
                f"{path} has the suffix {suffix!r}, which cannot be read as features: "
                + conversion(path, "give .npz, .npy, .parquet, .csv, .tsv or PIM's folder of feature maps.")
            )
    return suffix


def conversion(path: Path, otherwise: str) -> str:
    """What to do with a file of a format that is not read.

    >>> conversion(Path("table.xlsx"), "give .csv.")
    'save it as CSV UTF-8, with the suffix .csv.'
    >>> conversion(Path("cat.JPG"), "give .csv.")
    'give the folder with the images.'
    """
    suffix = path.suffix.lower()
    if suffix in _SPREADSHEETS:
        return "save it as CSV UTF-8, with the suffix .csv."
    if suffix in _ARCHIVES:
        return "unpack it first."
    if suffix == ".txt":
        return "make it a .csv file with the header text and a line per text."
    if suffix in _TEXTS:
        return f"embed its texts with rpim embed {shlex.quote(str(path))} -o FEATURES.parquet."
    if (mimetypes.guess_type(path.name)[0] or "").startswith("image/"):
        return "give the folder with the images."
    return otherwise


def column_names(path: Path) -> list[str]:
    """The names of the columns, or .npz keys, of a file; empty if the format has no names."""
    suffix = path.suffix.lower()
    if suffix == ".npz":
        with open_npz(path) as archive:
            return list(archive.files)
    if suffix == ".parquet":
        with reading(path), arrow(".parquet").ParquetFile(path) as file:
            return list(file.schema_arrow.names)
    if suffix in CSV_SUFFIXES:
        return CsvFile(path).feature_names
    return []


def write_features(path: Path, columns: Columns, overwrite: bool) -> None:
    """Write the fields of a FeatureSet in the format that the suffix names."""
    writers = {".npz": _write_npz, ".parquet": _write_parquet}
    check_writable(path, overwrite, suffixes=list(writers))
    with replacing(path, overwrite) as file:
        writers[path.suffix.lower()](file, columns)


def read_shards(
    files: Sequence[Path],
    label_column: str | None,
    feature_column: str | None,
    split_column: str | None,
    *,
    in_memory: bool,
    memory: int | None = None,
) -> Columns:
    """Read .parquet files that are one set of rows, without features unless `in_memory`.

    Of .npy files nothing is read, as they have features alone.
    """
    wanted = {"labels": label_column, "split": split_column}
    if files[0].suffix.lower() == ".parquet":
        return _read_parquet(files, wanted, feature_column, in_memory=in_memory, memory=memory)
    _refuse_columns(files[0], wanted)
    return {}


def _refuse_columns(path: Path, wanted: Wanted) -> None:
    for field, column in wanted.items():
        if column is not None:
            option = {"labels": "--label-column (label_column)", "split": "split_column"}[field]
            raise InputError(f"{option} is for files with columns, but {path} has none: leave it out.")


def _metadata_names(schema: Any, taken: Iterable[str]) -> list[str]:
    """The metadata columns of a .parquet file that hold scalars."""
    return [name for name in metadata_names(schema.names, taken) if is_scalar(schema.field(name).type)]


def npz_features(path: Path, names: Sequence[str], feature_column: str | None) -> str:
    """The .npz key of the features."""
    features = find_column(path, names, "X", feature_column)
    if features is None:
        raise InputError(
            f"{path} has no array called features, X, embeddings or feats among {', '.join(names) or 'none'}: "
            "name one with --feature-column (feature_column)."
        )
    return features


def _read_npz(path: Path, wanted: Wanted, feature_column: str | None, memory: int | None) -> Columns:
    with open_npz(path) as archive:
        names = archive.files
        features = npz_features(path, names, feature_column)
        per_row = find_per_row(path, names, wanted)
        _check_npz(path, archive, features, [*per_row.values(), *view_names(names)], memory)
        columns: Columns = {"X": archive[features]}
        columns |= {field: archive[name] for field, name in per_row.items()}
        views = [archive[name] for name in view_names(names)]
        metadata_columns = _npz_metadata(archive, len(columns["X"]), [features, *per_row.values()])
        if "views" in names and "views" not in metadata_columns:
            stacked = archive["views"]  # (V, N, D), or (N, D) for one
            views = [*(stacked if stacked.ndim == 3 else [stacked]), *views]
        columns |= {"views": views, "columns": metadata_columns}
        if "metadata_json" in names:
            columns["metadata"] = json.loads(str(archive["metadata_json"]))
        return columns


def _check_npz(path: Path, archive: Any, features: str, others: Iterable[str], memory: int | None) -> None:
    """Check the sizes that the headers declare, before anything is decompressed."""
    n_bytes = 0
    for name in (features, *others):
        if f"{name}.npy" not in archive.zip.namelist():
            continue  # not an array, which is reported when it is read
        with archive.zip.open(f"{name}.npy") as member:
            header = ArrayStream(member)
        if header.n_bytes > archive.zip.getinfo(f"{name}.npy").file_size:
            raise ValueError(f"{name} is too short for an array of shape {header.shape}")
        n_bytes += header.n_bytes
        if name == features and len(header.shape) == 2:
            n_bytes += bytes_of_fit(header.shape[0], header.shape[1], itemsize=0)
    check_memory(path, n_bytes, memory)


def _npz_metadata(archive: Any, n_rows: int, taken: Iterable[str]) -> Columns:
    """The other arrays with one scalar per row; arrays of another shape are not read, as they may be large."""
    found = {}
    for name in metadata_names(archive.files, taken):
        with contextlib.suppress(ValueError), archive.zip.open(f"{name}.npy") as member:
            header = ArrayStream(member)
            if header.shape == (n_rows,) and header.dtype.kind in "biufUSM":
                found[name] = archive[name]
    return found


def _read_parquet(
    files: Sequence[Path],
    wanted: Wanted,
    feature_column: str | None,
    *,
    in_memory: bool = True,
    memory: int | None = None,
) -> Columns:
    n_bytes = 0
    parts: list[Columns] = []
    metadata: dict[str, Any] = {}
    footers = [_footer(file) for file in files]
    with_columns = in_memory or _metadata_fits(files, footers, wanted, memory)
    for file, (footer, schema) in zip(files, footers, strict=True):
        with reading(file):
            with arrow(".parquet").ParquetFile(file, metadata=footer) as opened:
                per_row = find_per_row(file, schema.names, wanted)
                matrices = {"X": parquet_features(file, schema, feature_column)} if in_memory else {}
                matrices |= {name: name for name in view_names(schema.names) if in_memory}
                others = _metadata_names(schema, [*matrices.values(), *per_row.values()]) if with_columns else []
                columns_read = [*matrices.values(), *per_row.values(), *others]
                n_bytes += declared_bytes(footer, columns_read)
                check_memory(file, n_bytes, memory if in_memory else None)
                table = opened.read(columns=columns_read)
            part: Columns = {field: list_matrix(file, name, table.column(name)) for field, name in matrices.items()}
            part |= {field: column_values(table.column(name)) for field, name in per_row.items()}
            if parts and {*part, "columns"} != set(parts[0]):
                raise InputError(f"{file} has other columns than {files[0]}: give every file the same.")
            part["columns"] = {
                name: column_array(scalar_values(table.column(name)), name, len(table)) for name in others
            }
        parts.append(part)
        metadata = metadata or parquet_metadata(schema)
    columns = parts[0] if len(parts) == 1 else _joined(files, parts)
    views = [columns.pop(name) for name in view_names(list(columns))]
    return {**columns, "views": views, "metadata": metadata}


def _footer(file: Path) -> tuple[Any, Any]:
    """The metadata and the Arrow schema of a .parquet file."""
    with reading(file), arrow(".parquet").ParquetFile(file) as opened:
        return opened.metadata, opened.schema_arrow


def _metadata_fits(
    files: Sequence[Path], footers: Sequence[tuple[Any, Any]], wanted: Wanted, memory: int | None
) -> bool:
    """Whether the metadata columns of rows on disk are small beside the memory; warns if not."""
    n_bytes = 0
    for file, (footer, schema) in zip(files, footers, strict=True):
        names = _metadata_names(schema, find_per_row(file, schema.names, wanted).values())
        n_bytes += declared_bytes(footer, names)
    budget = int(METADATA_SHARE * (memory or default_memory_budget()))
    if n_bytes > budget:
        warnings.warn(
            f"The metadata columns of {files[0] if len(files) == 1 else files[0].parent} take about "
            f"{format_bytes(n_bytes)}, and {format_bytes(budget)} may be used: they are not read.",
            stacklevel=2,
        )
    return n_bytes <= budget


def _joined(files: Sequence[Path], parts: list[Columns]) -> Columns:
    """The columns of several files, one after the other; of the metadata columns those that all files have."""
    columns: Columns = {}
    for field, values in parts[0].items():
        if isinstance(values, np.ndarray) and values.ndim == 2:
            for file, part in zip(files, parts, strict=True):
                if part[field].shape[1] != values.shape[1]:
                    raise InputError(
                        f"{file} has {part[field].shape[1]} numbers a row in {field} but {files[0]} has "
                        f"{values.shape[1]}: make them alike."
                    )
            columns[field] = np.concatenate([part[field] for part in parts])
        elif field != "columns":
            columns[field] = [value for part in parts for value in _listed(part[field])]
    shared = [name for name in parts[0]["columns"] if all(name in part["columns"] for part in parts)]
    columns["columns"] = {name: [v for part in parts for v in _listed(part["columns"][name])] for name in shared}
    return columns


def _listed(values: Any) -> list[Any]:
    return list(values.tolist() if isinstance(values, np.ndarray) else values)


def parquet_metadata(schema: Any) -> dict[str, Any]:
    """The ``metadata`` of the FeatureSet that was written to this file."""
    facts: dict[str, Any] = json.loads((schema.metadata or {}).get(METADATA_KEY.encode(), b"{}"))
    return facts


def with_metadata(path: Path, facts: dict[str, Any]) -> None:
    """Replace the ``metadata`` in a .parquet file of features; its rows stay as they are."""
    with reading(path), arrow(".parquet").ParquetFile(path) as source, replacing(path) as file:
        schema = source.schema_arrow.with_metadata({METADATA_KEY: json.dumps(facts)})
        with arrow(".parquet").ParquetWriter(file, schema) as writer:
            for number in range(source.num_row_groups):
                writer.write_table(source.read_row_group(number).replace_schema_metadata(schema.metadata))


def _read_csv(file: CsvFile, wanted: Wanted, memory: int | None) -> Columns:
    check_memory(file.path, file.path.stat().st_size, memory)  # a number takes about as much in a file
    layout = FeatureTable.of(file, wanted)
    table = layout.read()
    columns: Columns = {field: table.column(name).to_pylist() for field, name in layout.per_row.items()}
    columns["columns"] = {name: table.column(name).to_pylist() for name in layout.metadata_columns}
    for field in ("labels", "truth"):
        if field in columns:
            columns[field] = labels_from_text(columns[field])
    if "ids" in columns:
        columns["ids"] = ids_from_text(columns["ids"])
    return {"X": layout.matrix(table), **columns}


def is_pim_folder(folder: Path) -> bool:
    """Whether a folder holds at least one of the files of PIM's feature maps."""
    return any(any((place / f"{name}.npy").is_file() for name in _PIM_FILES) for place in (folder, folder / "train"))


def pim_files(folder: Path) -> dict[str, Path]:
    """The files of PIM's feature maps by name, in the folder or in its ``train``."""
    inner = folder / "train" if (folder / "train" / "all_feats.npy").is_file() else folder
    files = {name: inner / f"{name}.npy" for name in _PIM_FILES}
    lacking = [file.name for file in files.values() if not file.is_file()]
    if lacking:
        raise InputError(
            f"{inner} lacks {', '.join(lacking)}: give PIM's folder of feature maps, or a file; a folder of images "
            "needs rpim embed first."
        )
    return files


def _read_pim_folder(folder: Path) -> Columns:
    """PIM's feature maps: targets are labels where mask_lab is true, and mask_cls is true for known classes."""
    files = pim_files(folder)
    inner = files["all_feats"].parent
    X = load_npy(files["all_feats"], mmap_mode="r")
    targets, mask_lab, mask_cls = (load_npy(files[name]) for name in ("targets", "mask_lab", "mask_cls"))
    for name, array in (("targets", targets), ("mask_lab", mask_lab), ("mask_cls", mask_cls)):
        if array.ndim != 1 or len(array) != len(X):
            raise InputError(f"{files[name]} has shape {array.shape} but all_feats.npy has {len(X)} rows: mend it.")
        if name != "targets" and not (array.dtype.kind in "biuf" and np.isin(array, (0, 1)).all()):
            raise InputError(f"{files[name]} is not a mask: give True or False per row.")
    if targets.dtype.kind == "f" and np.isfinite(targets).all() and (targets == np.rint(targets)).all():
        targets = targets.astype(np.int64)  # GCD's code collects them with np.append, which makes float64 of them
    if targets.dtype.kind not in "iu":
        what = f"{targets.dtype} values"
        if targets.dtype.kind == "f":
            what = "fractions" if np.isfinite(targets).all() else "NaN or infinity"
        raise InputError(f"{files['targets']} holds {what}: give the number of each row's class.")
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
    arrays |= {
        name: values.astype(str) if values.dtype.kind == "O" else values for name, values in columns["columns"].items()
    }
    arrays["metadata_json"] = np.asarray(json.dumps(columns["metadata"]))
    # Not numpy.savez: it stamps the time, so that the same features would never give the same file.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _write_parquet(file: BinaryIO, columns: Columns) -> None:
    """In row groups, so that a memory-mapped matrix is never loaded whole."""
    pa = arrow()
    matrices = {"features": columns["X"]} | {f"view_{k}": view for k, view in enumerate(columns["views"], start=2)}
    values = {NAMES[field][1]: columns[field] for field in PER_ROW if columns[field] is not None} | columns["columns"]
    n_rows, n_features = columns["X"].shape

    def batch(rows: slice) -> Any:
        return pa.table({name: arrow_array(column[rows]) for name, column in (matrices | values).items()})

    schema = batch(slice(0, 1)).schema.with_metadata({METADATA_KEY: json.dumps(columns["metadata"])})
    with arrow(".parquet").ParquetWriter(file, schema) as writer:
        for rows in row_blocks(n_rows, n_features * len(matrices), ROW_GROUP_VALUES):
            writer.write_table(batch(rows).replace_schema_metadata(schema.metadata))
