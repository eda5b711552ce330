"""Files with one label, or one true class, per row or per id; and the JSON exports of Label Studio and FiftyOne.

Of annotation tools, only what a person has chosen is a label, predictions are not.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, plural, some
from rpim._common.files import StrPath, must_exist, reading
from rpim.data.columns import column_from_text, find_column, is_called, labels_from_text, metadata_names
from rpim.data.formats.arrays import load_npy, open_npz
from rpim.data.formats.parquet import arrow, column_values, is_scalar, read_columns, scalar_values
from rpim.data.formats.tables import CSV_SUFFIXES, CsvFile
from rpim.data.labels import label_array, unlabelled_rows

CHOICES = "class"
"""The name of the choices in Label Studio tasks of ours."""
ROW_ID, PREDICTION, GROUND_TRUTH = "rpim_id", "prediction", "ground_truth"
"""The fields of FiftyOne samples of ours."""
_OPTION = "--label-column (label_column)"
_FILES = ("path", "paths", "file", "filename", "file_name", "image")


@dataclass(frozen=True)
class _LabelTable:
    """The contents of a file, in its own order."""

    labels: Any
    ids: Sequence[Any] | None = None
    """None if the file has one label per row."""
    columns: dict[str, Any] = field(default_factory=dict)
    """The metadata columns."""


def read_labels(path: StrPath, ids: NDArray[Any], label_column: str | None) -> Any:
    """Read the labels in a file, in the order of `ids`; None for rows that a file with ids leaves out."""
    return read_labels_and_columns(path, ids, label_column, with_columns=False)[0]


def read_labels_and_columns(
    path: StrPath, ids: NDArray[Any], label_column: str | None, *, with_columns: bool = True
) -> tuple[Any, dict[str, list[Any]]]:
    """Read the labels and, from a .csv or .parquet file with ids, the metadata columns."""
    found = _read(path, ids, label_column, with_columns)
    if found.ids is None:
        return found.labels, {}
    rows = _rows_of(Path(path), ids, found.ids)
    columns = {name: _placed(values, rows, len(ids)) for name, values in found.columns.items()}
    return _placed(found.labels, rows, len(ids)), columns


def read_added_labels(path: StrPath, ids: NDArray[Any], labels: NDArray[Any] | None) -> NDArray[Any]:
    """Read labels that are added to those there are: empty ones change nothing, and others replace a label.

    Raises
    ------
    InputError
        If the file has no label, or text where the labels there are numbers.
    """
    try:
        found = label_array(read_labels(path, ids, None), "labels", len(ids))
    except InputError as error:  # --label-column is that of the data
        said = str(error).replace(f"name one with {_OPTION}", "call one of them label")
        raise InputError(said.replace(f" or choose with {_OPTION}", "")) from error
    is_new = ~unlabelled_rows(found)
    if not is_new.any():
        raise InputError(f"{path} has no label yet: fill in its column label for some rows.")
    if labels is None or unlabelled_rows(labels).all():
        return found
    if labels.dtype.kind == "U":
        return np.where(is_new, found.astype(str), np.where(unlabelled_rows(labels), "", labels))
    if found.dtype.kind == "U":
        raise InputError(
            f"{path} has the label {found[is_new][0].item()!r}, but the other labels are numbers: give numbers, which "
            "may be new ones."
        )
    return np.where(is_new, found, labels.astype(np.int64) if labels.dtype.kind in "bu" else labels)


def read_true_classes(path: Path, ids: NDArray[Any], column: str | None) -> Any:
    """Read the true classes as `read_labels` does; their column may be called truth or targets, or be in an .npz."""
    if path.suffix.lower() == ".npz":
        return _truth_in_npz(path, ids, column)
    given = CsvFile.sniff(path)
    names: Sequence[str] = []
    if isinstance(given, CsvFile):
        names = given.header
    elif path.is_file() and path.suffix.lower() == ".parquet":
        with reading(path):
            names = arrow(".parquet").read_schema(path).names
    kinds = [kind for kind in ("ids", "truth", "labels") if any(is_called(name, kind) for name in names)]
    if column is None and len(names) > 1 and kinds == ["ids"]:
        raise InputError(
            f"{path} has no column truth, targets or label among {', '.join(names)}: name one with --truth-column."
        )
    return read_labels(given, ids, column or next((name for name in names if is_called(name, "truth")), None))


def _read(given: StrPath, ids: NDArray[Any], label_column: str | None, with_columns: bool) -> _LabelTable:
    path = Path(given)
    suffix = path.suffix.lower()
    no_columns = f"--label-column (label_column) is for files with columns, but {path} has none: leave it out."
    if label_column is not None and suffix == ".npy":
        raise InputError(no_columns)
    must_exist(path)
    if suffix == ".npy":
        return _LabelTable(load_npy(path))
    if suffix == ".json":
        with reading(path):
            labels = json.loads(path.read_text(encoding="utf-8-sig"))
        annotated = read_annotations(path, labels, ids.tolist(), label_column)
        if annotated is not None:
            return _LabelTable(annotated.labels, annotated.ids)
        if label_column is not None:
            raise InputError(no_columns)
        if not isinstance(labels, list):
            raise InputError(
                f"{path} holds a JSON {type(labels).__name__}: give a list with one label per row, Label Studio's JSON "
                "export, or samples.json of FiftyOne."
            )
        return _LabelTable(labels)
    if suffix in (*CSV_SUFFIXES, ".txt"):
        return _read_csv(CsvFile.of(given), ids, label_column, with_columns)
    if suffix == ".parquet":
        return _read_parquet(path, ids, label_column, with_columns)
    raise InputError(
        f"{path} has the suffix {suffix!r}, which cannot be read as labels: give .npy, .csv, .tsv, .txt, .json or "
        ".parquet."
    )


def _no_label_column(path: Path, names: Sequence[str]) -> InputError:
    return InputError(f"{path} has no column label, labels or y among {', '.join(names)}: name one with {_OPTION}.")


def _read_parquet(path: Path, ids: NDArray[Any], label_column: str | None, with_columns: bool) -> _LabelTable:
    with reading(path), arrow(".parquet").ParquetFile(path) as file:
        schema = file.schema_arrow
        names = schema.names
        label_name = find_column(path, names, "labels", label_column) or (names[0] if len(names) == 1 else None)
        if label_name is None:
            raise _no_label_column(path, names)
        id_name = _id_column(path, names, ids)
        if id_name in (None, label_name):
            table = read_columns(path, file, [label_name])
            return _LabelTable(_class_names(schema, label_name, column_values(table.column(label_name))))
        others = metadata_names(names, [str(id_name), label_name]) if with_columns else []
        others = [name for name in others if is_scalar(schema.field(name).type)]
        table = read_columns(path, file, [label_name, str(id_name), *others])
        columns = {name: scalar_values(table.column(name)) for name in others}
        labels = _class_names(schema, label_name, column_values(table.column(label_name)))
        return _LabelTable(labels, table.column(id_name).to_pylist(), columns)


def _class_names(schema: Any, column: str, values: Any) -> Any:
    """The names of classes that Hugging Face datasets number (ClassLabel); other values as they are."""
    about = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    names = about.get("info", {}).get("features", {}).get(column, {}).get("names")
    return values if names is None else [None if code is None or code < 0 else names[code] for code in values]


def _read_csv(file: CsvFile, ids: NDArray[Any], label_column: str | None, with_columns: bool) -> _LabelTable:
    """One label per line, blank where there is none, or a table with a header such as id,label."""
    names = file.header
    is_named = any(is_called(name, "labels") for name in names)
    if label_column is None and not is_named and len(names) > 1 and _id_column(file.path, names, ids) is not None:
        raise _no_label_column(file.path, names)
    if label_column is None and not (is_named and len(names) > 1):
        cells = _lines_of_txt(file.path) if file.path.suffix.lower() == ".txt" else file.lines()
        return _LabelTable(labels_from_text(cells[1:] if is_named else cells))
    label_name = str(find_column(file.path, names, "labels", label_column))
    id_name = _id_column(file.path, names, ids)
    columns: dict[str, list[str]] = {}
    for name, cells in zip(names, file.texts(first_row=1), strict=True):
        columns.setdefault(name, cells)
    labels = labels_from_text(columns[label_name])
    if id_name is None:
        return _LabelTable(labels)
    others = metadata_names(names, [id_name, label_name]) if with_columns else []
    return _LabelTable(labels, columns[id_name], {name: column_from_text(columns[name]) for name in others})


def _lines_of_txt(path: Path) -> list[str]:
    """The lines of a .txt file, in which commas and quotes are part of the label."""
    with reading(path), open(path, encoding="utf-8-sig") as file:
        return [line.rstrip("\n") for line in file]


def _id_column(path: Path, names: Sequence[str], ids: NDArray[Any]) -> str | None:
    """The column with the ids; ids that are strings, such as paths of images, may be in a column of paths."""
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
        if id_name is None:
            return archive[name]
        return _placed(archive[name], _rows_of(path, ids, archive[id_name].tolist()), len(ids))


def _rows_of(path: Path, ids: NDArray[Any], label_ids: Sequence[Any]) -> list[int]:
    """The row of each id; ids are compared as text, since a .csv cannot say which are numbers."""
    row_of = {str(name): row for row, name in enumerate(ids.tolist())}
    unknown = [name for name in label_ids if str(name) not in row_of]
    if unknown:
        raise InputError(
            f"{path} has {len(unknown)} ids that the features have not ({some(unknown)}): use the ids of the features, "
            "or one label per row and no ids."
        )
    seen: set[str] = set()
    for name in label_ids:
        if str(name) in seen:
            raise InputError(f"{path} has the id {name!r} more than once: give each id one label.")
        seen.add(str(name))
    return [row_of[str(name)] for name in label_ids]


def _placed(values: Iterable[Any], rows: list[int], n_rows: int) -> list[Any]:
    """Each value in its row, and None in the others."""
    out: list[Any] = [None] * n_rows
    for row, value in zip(rows, values, strict=True):
        out[row] = value
    return out


class Annotated(NamedTuple):
    """The labels of a file: numbers if all are, None or "" where a row has none."""

    ids: list[str]
    labels: list[Any]


def read_annotations(path: Path, content: Any, ids: Iterable[Any], label_column: str | None) -> Annotated | None:
    """The labels in the JSON of an annotation tool; None if it is a plain list of labels.

    Parameters
    ----------
    path : Path
        The file, for messages.
    content : JSON value
        What it holds.
    ids : iterable
        The ids of the rows. An item without the id of a row is recognised by the end of the path of its image.
    label_column : str, optional
        The choices of Label Studio, or the field of FiftyOne, if there are several.
    """
    names = {str(name) for name in ids}
    if isinstance(content, dict) and isinstance(content.get("samples"), list):
        found = _of_fiftyone(path, content["samples"], names, label_column)
    elif isinstance(content, list) and content and all(isinstance(one, dict) for one in content):
        found = _of_label_studio(path, content, names, label_column)
    else:
        return None
    return Annotated(found.ids, labels_from_text(found.labels))


def _of_label_studio(path: Path, tasks: list[Any], names: Container[str], control: str | None) -> Annotated:
    for number, task in enumerate(tasks):
        if not isinstance(task.get("data"), dict) or not isinstance(task.get("annotations", []), list):
            raise InputError(
                f"{path} is not Label Studio's JSON, because object {number} has no data: export JSON there (JSON-MIN "
                "and CSV lose the ids), or give a list with one label per row."
            )
    regions = [[list(_choices(one)) for one in _by_people(task)] for task in tasks]  # of tasks, of annotations
    controls = sorted({name for task in regions for one in task for name, _ in one})
    if not controls:
        raise InputError(
            f"{path} has {plural(len(tasks), 'task')} without any annotation of choices, and predictions are no "
            "labels: label some tasks, and export JSON again."
        )
    wanted = _one_of(path, "choices", controls, control, CHOICES)
    found = Annotated([], [])
    for task, made in zip(tasks, regions, strict=True):
        data = task["data"]
        said = str(data["id"]) if "id" in data else _name_of_file(data.get("image"), names)
        chosen = {tuple(map(str, values)) for one in made for name, values in one if name == wanted}
        if len(chosen) > 1 or any(len(values) > 1 for values in chosen):
            several = ", ".join(sorted({value for values in chosen for value in values}))
            raise InputError(
                f"{path} has several labels for {said!r} ({several}): keep one, or mark its annotation as ground truth."
            )
        found.ids.append(said)
        found.labels.append(next((value for values in chosen for value in values), ""))
    return found


def _by_people(task: dict[str, Any]) -> list[dict[str, Any]]:
    """The annotations that were not skipped; those marked as ground truth, if there are any."""
    made = [one for one in task.get("annotations", []) if isinstance(one, dict) and not one.get("was_cancelled")]
    return [one for one in made if one.get("ground_truth")] or made


def _choices(annotation: dict[str, Any]) -> Iterable[tuple[str, list[Any]]]:
    regions = annotation.get("result")
    for one in regions if isinstance(regions, list) else []:
        values = one.get("value") if isinstance(one, dict) and one.get("type") == "choices" else None
        if isinstance(values, dict) and isinstance(values.get("choices"), list) and values["choices"]:
            yield str(one.get("from_name")), values["choices"]


def _of_fiftyone(path: Path, samples: list[Any], names: Container[str], field: str | None) -> Annotated:
    fields = set()
    for number, sample in enumerate(samples):
        if not isinstance(sample, dict) or not isinstance(sample.get("filepath"), str):
            raise InputError(
                f"{path} is not samples.json of FiftyOne, because sample {number} has no filepath: export it there "
                "with dataset_type=fiftyone.types.FiftyOneDataset."
            )
        fields |= {name for name, value in sample.items() if _label(value)}
    names_of_fields = sorted(fields if field == PREDICTION else fields - {PREDICTION})
    if field is None and not names_of_fields:
        raise InputError(
            f"{path} has {plural(len(samples), 'sample')} without any classification by a person, and predictions are "
            f"no labels: label some samples in a field {GROUND_TRUTH}, or name a field with --label-column."
        )
    wanted = _one_of(path, "classifications", names_of_fields, field, GROUND_TRUTH)
    ids = [
        str(one[ROW_ID]) if one.get(ROW_ID) is not None else _name_of_file(one["filepath"], names) for one in samples
    ]
    return Annotated(ids, [_label(one.get(wanted)) for one in samples])


def _label(value: Any) -> str:
    """The label of a classification; "" for anything else."""
    is_one = isinstance(value, dict) and value.get("_cls") == "Classification" and value.get("label") is not None
    return str(value["label"]) if is_one else ""


def _one_of(path: Path, kind: str, names: Sequence[str], wanted: str | None, usual: str) -> str:
    """The wanted name, the usual one, or the only one."""
    if wanted is None and usual in names:
        return usual
    if wanted is None and len(names) == 1:
        return names[0]
    if wanted is None:
        raise InputError(
            f"{path} has several {kind} ({', '.join(names)}): name those with the labels with --label-column "
            "(label_column)."
        )
    if wanted not in names:
        raise InputError(
            f"{path} has no {kind} called {wanted!r}, only {', '.join(names) or 'none'}: give another --label-column "
            "(label_column)."
        )
    return wanted


def _name_of_file(path: Any, names: Container[str]) -> str:
    """The id that a path or address of an image ends with, longest first; the path itself if there is none.

    >>> _name_of_file("/data/local-files/?d=home/ann/cats/a%20b.jpg", {"cats/a b.jpg"})
    'cats/a b.jpg'
    """
    said = str(path)
    _, is_local, local = said.partition("/data/local-files/?d=")
    parts = PurePosixPath(unquote(local) if is_local else said.replace("\\", "/")).parts
    tails = ("/".join(parts[k:]) for k in range(len(parts)))
    return next((tail for tail in (said, *tails) if tail in names), said)
