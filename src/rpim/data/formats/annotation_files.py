"""Labels from the JSON exports of annotation tools: Label Studio's JSON, and ``samples.json`` of FiftyOne.

Only what a person has chosen is a label, predictions are not.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote

from rpim._common.errors import InputError, plural
from rpim.data.columns import labels_from_text

CHOICES = "class"
"""The name of the choices in Label Studio tasks of ours."""
ROW_ID, PREDICTION, GROUND_TRUTH = "rpim_id", "prediction", "ground_truth"
"""The fields of FiftyOne samples of ours."""


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
