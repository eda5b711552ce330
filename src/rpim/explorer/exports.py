"""Export the rows of a run with the decisions about them: tables, folders of images, and formats of other tools."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line
from rpim._common.files import check_writable, one_writer, put_in_place, replacing, writing
from rpim.data.formats.parquet import ParquetTable
from rpim.data.formats.tables import CsvTable
from rpim.embedding.pictures import Unusable
from rpim.explorer.other_tools import (
    json_records,
    label_studio_config,
    label_studio_tasks,
    write_fiftyone,
    write_hugging_face,
)
from rpim.explorer.pictures import Pictures, recorded_folders
from rpim.runs.decisions import State
from rpim.runs.discovery_tables import with_metadata
from rpim.runs.run_folder import copy_of, features_of
from rpim.runs.versions import Version, Versions

SUFFIXES = {"csv": ".csv", "parquet": ".parquet", "jsonl": ".jsonl", "label-studio": ".json"}
"""The formats that are one file."""
IMAGE_FOLDERS = "images"
"""The folder of images, in requests of the page."""
FORMATS = ("label-studio", "fiftyone", "huggingface", "imagefolder")
"""The formats of other tools; all but the first are folders."""

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
    form: str | None = None,
    version: int | None = None,
    as_found: bool = False,
    link: bool = False,
    overwrite: bool = False,
) -> str:
    """Export a version of a run with the decisions about it; return a summary.

    Parameters
    ----------
    run : path of the run folder
    target : path
        The file or folder to write.
    images : path, optional
        Where the images are now, if they have moved.
    form : one of FORMATS, optional
        By default a table, Label Studio tasks (.json), or without suffix a folder of images.
    version : int, optional
        By default the active one.
    as_found : bool
        Without the decisions.
    link : bool
        Hard links instead of copies in a folder of images.
    overwrite : bool
        Replace an existing file.
    """
    form = form or ("" if target.suffix else "imagefolder")
    is_folder = form in FORMATS[1:]
    if link and form != "imagefolder":
        raise InputError(f"--link is for folders of images, and {target} is none: leave it out.")
    if images is not None and not images.is_dir():
        raise InputError(f"--images {images} is not a folder: give the folder of the images.")
    suffixes = [] if is_folder else [SUFFIXES[form]] if form else list(SUFFIXES.values())
    check_writable(target, None if is_folder else overwrite, suffixes=suffixes, is_folder=is_folder, parents=is_folder)
    versions = Versions(run, create=False)
    with contextlib.closing(versions.store):
        if version is not None and version not in versions.numbers():
            raise InputError(f"{run} has no version {version}: it has 0 to {max(versions.numbers())}.")
        decided = Decided.of(versions, version)
    if as_found:
        decided = replace(decided, state=decided.version.state)
    pictures = Pictures(versions.rows.paths, versions.rows.ids.tolist(), images, recorded_folders(run))
    if form in ("fiftyone", "imagefolder") and not pictures:
        formats = [*SUFFIXES.values(), "a folder with --format huggingface"]
        raise InputError(f"The rows of {run} have no images: give a file, {', '.join(formats)}.")
    note = ""
    if form not in ("fiftyone", "imagefolder"):
        try:
            decided = replace(decided, metadata=features_of(run).columns)
        except InputError as error:
            note = f" Metadata columns are left out: {first_line(error)}"
    if not is_folder:
        return _export_file(decided, target, overwrite) + note
    with new_folder(target) as place:
        if form == "imagefolder":
            written, left_out = image_folders(decided, pictures, place, link=link)
        else:
            written, left_out = _FOLDERS[form](decided, pictures, place)
    what = "images" if form == "imagefolder" else f"rows of version {decided.version.number}"
    why = "; ".join(f"{n:,} {reason}" for reason, n in left_out.items())
    return f"{written:,} {what} written to {target}." + (f" Left out: {why}." if left_out else "") + note


def _export_file(decided: Decided, target: Path, overwrite: bool) -> str:
    """Write a file, and beside Label Studio tasks their labelling configuration."""
    n_rows = len(decided.state)
    note = ""
    if target.suffix.lower() == SUFFIXES["label-studio"]:
        n_rows -= int(decided.state.junk.sum())
        config = target.with_suffix(".xml")
        check_writable(config, overwrite)
        with replacing(config, overwrite) as file:
            file.write(label_studio_config(decided).encode())
        note = f" The labelling configuration is in {config}."
    export(decided, target, overwrite=overwrite)
    return f"{n_rows:,} rows of version {decided.version.number} written to {target}.{note}"


_FOLDERS: dict[str, Callable[[Decided, Pictures, Path], tuple[int, Counter[str]]]] = {
    "fiftyone": write_fiftyone,
    "huggingface": write_hugging_face,
}


@contextlib.contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A hidden folder that becomes `target` once it is complete, and is removed after an error."""
    check_writable(target, None, is_folder=True, parents=True)
    partial = target.with_name(f".{target.name}.partial")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with one_writer(target):
            try:
                shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
                partial.mkdir()
                yield partial
                put_in_place(partial, target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)


def _csv(decided: Decided, file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    CsvTable(text).append(decided.columns())
    text.detach()


def _parquet(decided: Decided, file: BinaryIO) -> None:
    with contextlib.closing(ParquetTable(file)) as table:
        table.append(decided.columns())


def _jsonl(decided: Decided, file: BinaryIO) -> None:
    for line in json_records(decided.columns()):
        file.write((json.dumps(line, ensure_ascii=False) + "\n").encode())


def _label_studio(decided: Decided, file: BinaryIO) -> None:
    file.write(json.dumps(list(label_studio_tasks(decided)), ensure_ascii=False, indent=1).encode())


_WRITERS: dict[str, Callable[[Decided, BinaryIO], None]] = {
    "csv": _csv,
    "parquet": _parquet,
    "jsonl": _jsonl,
    "label-studio": _label_studio,
}


def image_folders(
    decided: Decided, pictures: Pictures, target: Path, *, link: bool = False
) -> tuple[int, Counter[str]]:
    """Write ``target/CLASS/IMAGE`` for every row with a class and an image that may be copied.

    Parameters
    ----------
    pictures : Pictures
    target : path
        An empty folder.
    link : bool
        Make hard links where the disk allows it: they take no space, but a change of one changes the original.

    Returns
    -------
    The number of images written, and of those left out by reason.
    """
    written, left_out = 0, Counter[str]()
    taken: set[str] = set()
    folder_of = {info.name: _new(safe_name(info.name), taken) for info in decided.state.classes.values()}
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
