"""Export decisions: tables, folders of images, and Label Studio tasks."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line
from rpim._common.files import check_writable, replacing, writing
from rpim.data.formats.tables import CsvTable, ParquetTable
from rpim.embedding.pictures import Unusable
from rpim.explorer.pictures import Pictures, recorded_folders
from rpim.runs.decisions import State
from rpim.runs.discovery_tables import with_metadata
from rpim.runs.run_folder import copy_of, features_of
from rpim.runs.versions import Version, Versions

SUFFIXES = {"csv": ".csv", "parquet": ".parquet", "jsonl": ".jsonl", "label-studio": ".json"}
"""The formats that are one file."""
IMAGE_FOLDERS = "images"
"""The format that is a folder."""

_RESERVED = {"con", "prn", "aux", "nul", *(f"{name}{k}" for name in ("com", "lpt") for k in range(1, 10))}


@dataclass(frozen=True, eq=False)
class Decided:
    """The rows of a run with the decisions about them.

    Parameters
    ----------
    versions : Versions
    state : State
        The current state of the exported version.
    version : Version
    metadata : dict of str to array
        The metadata columns of the features.
    """

    versions: Versions
    state: State
    version: Version
    metadata: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, versions: Versions, number: int | None = None, metadata: Mapping[str, NDArray[Any]] | None = None
    ) -> Decided:
        """The decisions about a version (default: the active one)."""
        number = versions.active if number is None else number
        return cls(versions, versions.state(number), versions[number], metadata or {})

    def columns(self) -> dict[str, Any]:
        """Id, final label (none for junk and rejected rows), fitted class, confidence and flags of each row.

        They are followed by its text, path and metadata columns, where it has them. A metadata column with the name of
        one of ours gets the prefix "data_".
        """
        rows, names = self.versions.rows, self.state.names()
        found = self.version.state.names()
        columns: dict[str, Any] = {
            "id": rows.ids,
            "label": [name or None for name in names],
            "found": [name or None for name in found],
            "confidence": self.version.confidence,
            "given": rows.labelled,
            "by_hand": self.state.by_hand,
            "junk": self.state.junk,
        }
        columns |= {name: values for name, values in (("text", rows.texts), ("path", rows.paths)) if values is not None}
        return with_metadata(columns, self.metadata)

    def write(self, file: BinaryIO, form: str) -> None:
        """Write one of `SUFFIXES` to an open file."""
        _WRITERS[form](self, file)

    def bytes(self, form: str) -> bytes:
        """The export as bytes."""
        file = io.BytesIO()
        self.write(file, form)
        return file.getvalue()


def export(decided: Decided, target: Path, *, overwrite: bool = False) -> None:
    """Write a .csv, .parquet, .jsonl or (Label Studio) .json file atomically."""
    check_writable(target, overwrite, suffixes=list(SUFFIXES.values()))
    form = next(form for form, suffix in SUFFIXES.items() if suffix == target.suffix.lower())
    with replacing(target, overwrite) as file:
        decided.write(file, form)


def export_run(
    run: Path,
    target: Path,
    images: Path | None = None,
    *,
    version: int | None = None,
    link: bool = False,
    overwrite: bool = False,
) -> str:
    """Export the decisions about a version to a file or, without suffix, to a folder of images; return a summary."""
    if link and target.suffix:
        raise InputError(f"--link is for folders of images, and {target} is a file: leave it out.")
    if images is not None and not images.is_dir():
        raise InputError(f"--images {images} is not a folder: give the folder of the images.")
    versions = Versions(run)
    with contextlib.closing(versions.store):
        if version is not None and version not in versions.numbers():
            raise InputError(f"{run} has no version {version}: it has 0 to {max(versions.numbers())}.")
        decided = Decided.of(versions, version)
    if target.suffix:
        check_writable(target, overwrite, suffixes=list(SUFFIXES.values()))
        note = ""
        try:
            decided = replace(decided, metadata=features_of(run).columns)
        except InputError as error:
            note = f" Metadata columns are left out: {first_line(error)}"
        export(decided, target, overwrite=overwrite)
        return f"{len(versions):,} rows of version {decided.version.number} written to {target}.{note}"
    pictures = Pictures(versions.rows.paths, versions.rows.ids.tolist(), images, recorded_folders(run))
    if not pictures:
        raise InputError(f"The rows of {run} have no images: give a file, {', '.join(SUFFIXES.values())}.")
    written, left_out = image_folders(decided, pictures, target, link=link)
    why = "; ".join(f"{n:,} {reason}" for reason, n in left_out.items())
    return f"{written:,} images written to {target}." + (f" Left out: {why}." if left_out else "")


def _csv(decided: Decided, file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    CsvTable(text).append(decided.columns())
    text.detach()


def _parquet(decided: Decided, file: BinaryIO) -> None:
    with contextlib.closing(ParquetTable(file)) as table:
        table.append(decided.columns())


def _jsonl(decided: Decided, file: BinaryIO) -> None:
    columns = {
        name: _json_values(values.tolist() if isinstance(values, np.ndarray) else values)
        for name, values in decided.columns().items()
    }
    for record in zip(*columns.values(), strict=True):
        line = dict(zip(columns, record, strict=True))
        line["confidence"] = round(line["confidence"], 6)
        file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())


def _json_values(values: list[Any]) -> list[Any]:
    """JSON has no infinite numbers."""
    return [None if isinstance(value, float) and not math.isfinite(value) else value for value in values]


def _label_studio(decided: Decided, file: BinaryIO) -> None:
    file.write(json.dumps(list(label_studio_tasks(decided)), ensure_ascii=False, indent=1).encode())


_WRITERS: dict[str, Callable[[Decided, BinaryIO], None]] = {
    "csv": _csv,
    "parquet": _parquet,
    "jsonl": _jsonl,
    "label-studio": _label_studio,
}


def label_studio_tasks(decided: Decided) -> Iterator[dict[str, Any]]:
    """Label Studio tasks with the class as prediction; junk is excluded.

    The labelling configuration has ``<Choices name="class" toName="item">`` beside a ``<Text name="item"
    value="$text"/>`` or an ``<Image name="item" value="$image"/>``. Images are named as its storage of local files
    names them, by the path under its document root, taken to be the root of the disk.
    """
    rows, state = decided.versions.rows, decided.state
    for row, name in enumerate(state.names()):
        if state.junk[row]:
            continue
        data: dict[str, Any] = {"id": str(rows.ids[row])}
        if rows.paths is not None:
            data["image"] = f"/data/local-files/?d={quote(rows.paths[row].lstrip('/'))}"
        if rows.texts is not None or rows.paths is None:
            data["text"] = data["id"] if rows.texts is None else rows.texts[row]
        task: dict[str, Any] = {"data": data}
        if name:
            choice = {"from_name": "class", "to_name": "item", "type": "choices", "value": {"choices": [name]}}
            score = 1.0 if state.by_hand[row] else round(float(decided.version.confidence[row]), 6)
            model = f"rpim-{decided.version.number}"
            task["predictions"] = [{"model_version": model, "score": score, "result": [choice]}]
        yield task


def image_folders(
    decided: Decided, pictures: Pictures, target: Path, *, link: bool = False
) -> tuple[int, Counter[str]]:
    """Write ``target/CLASS/IMAGE`` for every row with a class and an image that may be copied.

    Parameters
    ----------
    pictures : Pictures
    target : path
        A new folder.
    link : bool
        Make hard links where the disk allows it: they take no space, but a change of one changes the original.

    Returns
    -------
    The number of images written, and of those left out by reason.
    """
    check_writable(target, None, is_folder=True, parents=True)
    written, left_out = 0, Counter[str]()
    taken: set[str] = set()
    folder_of = {info.name: _new(safe_name(info.name), taken) for info in decided.state.classes.values()}
    with writing(target):
        target.mkdir(parents=True)
        for row, name in enumerate(decided.state.names()):
            if not name:
                continue
            try:
                path = pictures.file_to_copy(row)
            except Unusable as reason:
                left_out[str(reason)] += 1
                continue
            (target / folder_of[name]).mkdir(exist_ok=True)
            stem, suffix = safe_name(path.stem), re.sub(r"[^\w.]", "", path.suffix)
            place = target / folder_of[name] / _new(f"{stem}{suffix}", taken, f"{folder_of[name]}/")
            if link:
                copy_of(path.resolve(), place)
            else:
                shutil.copyfile(path, place)
            written += 1
    return written, left_out


def safe_name(name: str) -> str:
    """A file name that is valid on every file system and cannot leave its folder.

    >>> safe_name("../a/b: <c>"), safe_name("CON"), safe_name("...")
    ('_a_b_ _c_', 'CON_', '_')
    """
    text = "".join("_" if unicodedata.category(one)[0] == "C" or one in '<>:"/\\|?*' else one for one in name)
    text = re.sub(r"_+", "_", text.strip(". "))[:120].strip(". ") or "_"
    return f"{text}_" if text.lower() in _RESERVED else text


def _new(name: str, taken: set[str], folder: str = "") -> str:
    """The name, numbered if it is taken (ignoring case)."""
    stem, dot, suffix = name.rpartition(".") if folder else (name, "", "")
    stem, suffix = (stem, f"{dot}{suffix}") if stem else (name, "")
    number, chosen = 1, name
    while (key := f"{folder}{chosen}".casefold()) in taken:
        number += 1
        chosen = f"{stem} ({number}){suffix}"
    taken.add(key)
    return chosen
