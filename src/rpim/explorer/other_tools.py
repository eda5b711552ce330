"""The rows of a run in the formats of other tools: Label Studio, FiftyOne and Hugging Face datasets.

What a person has decided or given is ground truth there, so that it comes back with the labels of that tool
(`rpim.data.formats.label_files`). Junk is left out.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np

from rpim._common.errors import printable
from rpim.data.formats.label_files import CHOICES, GROUND_TRUTH, PREDICTION, ROW_ID
from rpim.data.formats.parquet import arrow, arrow_array
from rpim.embedding.pictures import Unusable
from rpim.explorer.pictures import NOT_FOUND
from rpim.runs.discovery_tables import with_metadata

if TYPE_CHECKING:
    from rpim.explorer.exports import Decided
    from rpim.explorer.pictures import Pictures

_BLOCK = 256
"""Rows whose images are in memory at a time."""
_FIFTYONE_VERSION = "1.0.0"
"""The version of FiftyOne whose datasets we write; later ones migrate them."""


def json_records(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a table as JSON objects; JSON has no infinite numbers."""
    listed = [values.tolist() if isinstance(values, np.ndarray) else values for values in columns.values()]
    for record in zip(*listed, strict=True):
        line: dict[str, Any] = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in zip(columns, record, strict=True)
        }
        line["confidence"] = round(line["confidence"], 6)
        yield line


def label_studio_tasks(decided: Decided) -> Iterator[dict[str, Any]]:
    """Label Studio tasks with the class as prediction, and for labelled and decided rows as annotation.

    Images are named as its storage of local files names them, by the path under its document root, taken to be the
    root of the disk. `label_studio_config` is the labelling configuration.
    """
    rows, state, version = decided.versions.rows, decided.state, decided.version
    is_true = rows.labelled | state.by_hand
    ours = {"confidence": version.confidence, "runner_up": version.runner_up, "labelled": rows.labelled}
    facts = json_records(with_metadata(ours, decided.metadata))
    for row, (name, meta) in enumerate(zip(state.names(), facts, strict=True)):
        if state.junk[row]:
            continue
        data: dict[str, Any] = {"id": str(rows.ids[row])}
        if rows.paths is not None:
            data["image"] = f"/data/local-files/?d={quote(rows.paths[row].lstrip('/'))}"
        if rows.texts is not None or rows.paths is None:
            data["text"] = data["id"] if rows.texts is None else rows.texts[row]
        task: dict[str, Any] = {"data": data, "meta": meta}
        if name:
            choice = {"from_name": CHOICES, "to_name": "item", "type": "choices", "value": {"choices": [name]}}
            score = 1.0 if state.by_hand[row] else meta["confidence"]
            task["predictions"] = [{"model_version": f"rpim-{version.number}", "score": score, "result": [choice]}]
            if is_true[row]:
                task["annotations"] = [{"result": [choice]}]
        yield task


def label_studio_config(decided: Decided) -> str:
    """The labelling configuration of these tasks: one choice among all classes, which new ones can be added to."""
    rows = decided.versions.rows
    shown = ['<Image name="item" value="$image"/>'] if rows.paths is not None else []
    if rows.texts is not None or rows.paths is None:
        shown.append(f'<Text name="{"text" if shown else "item"}" value="$text"/>')
    names = [info.name for info in decided.state.classes.values()]
    choices = [f"  <Choice value={quoteattr(printable(name))}/>" for name in names]
    lines = [*shown, f'<Choices name="{CHOICES}" toName="item" choice="single">', *choices, "</Choices>"]
    return "\n".join(["<View>", *(f"  {line}" for line in lines), "</View>", ""])


def write_fiftyone(decided: Decided, pictures: Pictures, folder: Path) -> tuple[int, Counter[str]]:
    """Write ``metadata.json`` and ``samples.json`` of a FiftyOneDataset; the images stay where they are.

    Returns
    -------
    The number of samples, and of rows left out by reason.
    """
    rows, state, version = decided.versions.rows, decided.state, decided.version
    is_true, left_out = rows.labelled | state.by_hand, Counter[str]()
    order = np.random.RandomState(0).random_sample(len(rows))  # FiftyOne's order of shuffled views
    samples = []
    for row, name in enumerate(state.names()):
        path = pictures.path(row)
        if state.junk[row] or path is None:
            left_out["junk" if state.junk[row] else NOT_FOUND] += 1
            continue
        row_id = str(rows.ids[row])
        known = bool(name) and state.classes[int(state.class_of[row])].known
        sample = {
            "_id": _object_id("sample", row_id),
            "filepath": str(path.resolve()),
            "tags": ["known" if known else "new"] if name else [],
            "metadata": None,
            "_media_type": "image",
            "_rand": float(order[row]),
            ROW_ID: row_id,
            "runner_up": version.runner_up[row] or None,
        }
        if name:
            confidence = round(float(version.confidence[row]), 6)
            sample[PREDICTION] = _classification(PREDICTION, row_id, name, confidence)
            if is_true[row]:
                sample[GROUND_TRUTH] = _classification(GROUND_TRUTH, row_id, name, None)
        samples.append(sample)
    names = [info.name for info in state.classes.values()]
    _write_json(folder / "metadata.json", _fiftyone_metadata(decided.versions.run.resolve().name, names))
    _write_json(folder / "samples.json", {"samples": samples})
    return len(samples), left_out


def _classification(field: str, row_id: str, label: str, confidence: float | None) -> dict[str, Any]:
    found = {"_id": _object_id(field, row_id), "_cls": "Classification", "tags": [], "label": label}
    return found if confidence is None else {**found, "confidence": confidence}


def _object_id(*words: str) -> dict[str, str]:
    """An id of MongoDB, the same in every export."""
    return {"$oid": hashlib.sha256("/".join(words).encode()).hexdigest()[:24]}


def _fiftyone_metadata(name: str, classes: Sequence[str]) -> dict[str, Any]:
    """The document of a dataset of images with two classifications."""
    label = [("id", "ObjectId", "_id"), ("tags", "List", "tags"), ("label", "String", "label")]
    label += [("confidence", "Float", "confidence"), ("logits", "Vector", "logits")]
    image = [
        ("size_bytes", "Int"),
        ("mime_type", "String"),
        ("width", "Int"),
        ("height", "Int"),
        ("num_channels", "Int"),
    ]
    plain = [("id", "ObjectId", "_id"), ("filepath", "String", "filepath"), ("tags", "List", "tags")]
    plain += [("_media_type", "String", "_media_type"), ("_rand", "Float", "_rand")]
    plain += [("_dataset_id", "ObjectId", "_dataset_id")]
    plain += [(one, "DateTime", one) for one in ("created_at", "last_modified_at")]
    plain += [(one, "String", one) for one in (ROW_ID, "runner_up")]
    metadata = _field("metadata", "EmbeddedDocument", "metadata", "metadata.ImageMetadata", [(*a, a[0]) for a in image])
    labels = [
        _field(one, "EmbeddedDocument", one, "labels.Classification", label) for one in (PREDICTION, GROUND_TRUTH)
    ]
    return {
        "name": name,
        "version": _FIFTYONE_VERSION,
        "media_type": "image",
        "persistent": False,
        "tags": [],
        "info": {"source": "rpim"},
        "classes": {PREDICTION: list(classes), GROUND_TRUTH: list(classes)},
        "default_classes": list(classes),
        "sample_fields": [*(_field(*one) for one in plain), metadata, *labels],
        "frame_fields": [],
    }


def _field(
    name: str, kind: str, db_field: str, document: str | None = None, fields: Sequence[tuple[str, str, str]] = ()
) -> dict[str, Any]:
    """The description of a field; a list is one of strings."""
    package = "fiftyone.core"
    return {
        "name": name,
        "ftype": f"{package}.fields.{kind}Field",
        "embedded_doc_type": None if document is None else f"{package}.{document}",
        "subfield": f"{package}.fields.StringField" if kind == "List" else None,
        "fields": [_field(*one) for one in fields],
        "db_field": db_field,
        "description": None,
        "info": None,
        "read_only": kind == "DateTime",
    }


def _write_json(path: Path, facts: Any) -> None:
    path.write_text(json.dumps(facts, ensure_ascii=False, allow_nan=False), encoding="utf-8")


def write_hugging_face(decided: Decided, pictures: Pictures, folder: Path) -> tuple[int, Counter[str]]:
    """Write ``data/train-00000-of-00001.parquet``, which ``datasets.load_dataset`` reads from the folder.

    ``label`` is a ClassLabel, and ``image`` an Image that holds the bytes of the file; a row without an image that may
    be copied has none.

    Returns
    -------
    The number of rows, and of rows and images left out by reason.
    """
    names = [info.name for info in decided.state.classes.values()]
    code_of = {name: code for code, name in enumerate(names)}
    kept, reasons = np.flatnonzero(~decided.state.junk), Counter[str]()
    if len(kept) < len(decided.state):
        reasons["junk"] = len(decided.state) - len(kept)
    columns = decided.columns()
    columns["label"] = [code_of.get(name) for name in columns["label"]]
    for name in ("junk", *(("path",) if pictures else ())):
        columns.pop(name)
    pyarrow = arrow()
    arrays = {name: arrow_array(values).take(pyarrow.array(kept)) for name, values in columns.items()}
    arrays["label"] = arrays["label"].cast(pyarrow.int64())
    features: dict[str, dict[str, Any]] = {
        name: {"dtype": _dtype(values.type), "_type": "Value"} for name, values in arrays.items()
    }
    features["label"] = {"names": names, "_type": "ClassLabel"}
    table = pyarrow.table(arrays)
    schema = table.schema
    if pictures:
        features["image"] = {"_type": "Image"}
        image = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
        schema = schema.append(pyarrow.field("image", image))
    schema = schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    (folder / "data").mkdir()
    with arrow(".parquet").ParquetWriter(folder / "data" / "train-00000-of-00001.parquet", schema) as writer:
        for start in range(0, len(kept), _BLOCK):
            block = table.slice(start, _BLOCK)
            if pictures:
                files = [_image(pictures, row, reasons) for row in kept[start : start + _BLOCK].tolist()]
                block = block.append_column(schema.field("image"), pyarrow.array(files, image))
            writer.write_table(block.replace_schema_metadata(schema.metadata))
    return len(kept), reasons


def _image(pictures: Pictures, row: int, reasons: Counter[str]) -> dict[str, Any] | None:
    try:
        path = pictures.file_to_copy(row)
    except Unusable as reason:
        reasons[f"images ({reason})"] += 1
        return None
    return {"bytes": path.read_bytes(), "path": path.name}


def _dtype(kind: Any) -> str:
    """The name of a type among those of Hugging Face."""
    return {"float": "float32", "double": "float64"}.get(str(kind), str(kind))
