"""Read the items to embed: a folder of images, a table of texts, or a Hugging Face dataset on disk."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
from collections import deque
from pathlib import Path, PurePosixPath

from rpim._common.errors import InputError, first_line
from rpim._common.files import StrPath
from rpim.data.columns import metadata_columns
from rpim.data.formats.feature_files import is_pim_folder
from rpim.data.formats.label_files import read_labels_and_columns
from rpim.data.labels import label_array
from rpim.data.row_files import is_row_folder
from rpim.embedding import text_tables
from rpim.embedding.items import Items, text_of_path
from rpim.embedding.pictures import FORMATS

SPLITS = {
    "train": "train",
    "training": "train",
    "test": "test",
    "testing": "test",
    "val": "val",
    "valid": "val",
    "validation": "val",
}
UNLABELLED_FOLDERS = ("unlabelled", "unlabeled")


def is_source(given: StrPath, text_column: str | None = None) -> bool:
    """Whether a path holds images or texts to embed, rather than features; a .csv may be given as a `CsvFile`."""
    path = Path(given)
    if path.is_dir():
        return text_tables.is_dataset(path) or not (is_pim_folder(path) or is_row_folder(path))
    return path.is_file() and (text_column is not None or text_tables.is_table_of_texts(given))


def read_source(
    source: StrPath,
    *,
    labels: Path | None = None,
    label_column: str | None = None,
    text_column: str | None = None,
) -> Items:
    """Read the images or texts in a folder or file.

    Parameters
    ----------
    source : path
        A folder of images, a .csv, .tsv, .json, .jsonl or .parquet table with a column of texts, or the folder of a
        Hugging Face dataset that was saved to disk, of images or of texts.

        Images in sub-folders are labelled by the first one, but for those called unlabelled; images beside them have
        no label. Where the sub-folders are called train, val and test, labels come from those within them.
    labels : path, optional
        A file with labels by id, in place of those in `source`; the id of an image is its path within the folder.
        Its metadata columns are kept beside those of `source`.
    label_column, text_column : str, optional
        The columns of a table, where they are not called label and text.

    Returns
    -------
    Items
        What to embed, with labels and metadata columns.

    Raises
    ------
    InputError
        If there is nothing to embed, or a column or file is not there.
    """
    path = Path(source)
    in_source = None if labels is not None else label_column
    if not path.exists():
        raise InputError(f"{path} is not there: check the name.")
    if text_tables.is_dataset(path):
        items = text_tables.read_dataset(path, in_source, text_column)
    elif path.is_dir():
        if text_column is not None or in_source is not None:
            raise InputError(f"{path} is a folder of images and has no columns: leave --text-column and so on out.")
        items = read_image_folder(path)
    else:
        items = text_tables.read_texts(source, in_source, text_column)
    if labels is None:
        return items
    found, beside = read_labels_and_columns(labels, items.ids, label_column)
    columns = items.columns | metadata_columns(beside, len(items))
    try:
        return dataclasses.replace(items, labels=label_array(found, "labels", len(items)), columns=columns)
    except InputError as error:
        raise InputError(f"{labels}: {error}") from error


def read_image_folder(folder: Path) -> Items:
    """Read the images in a folder and its sub-folders; `skipped` lists files that are none, with reasons."""
    files, skipped = _images_below(folder)
    if not files:
        name, reason = skipped[0] if skipped else ("", "")
        why = f"; {len(skipped):,} were skipped, {name}: {reason}" if skipped else ""
        raise InputError(
            f"{folder} holds no images ({', '.join(sorted(FORMATS))}{why}): give a folder of images, a Hugging Face "
            "dataset on disk, or PIM's folder of feature maps."
        )
    tops = {file.parts[0] for file in files if len(file.parts) > 1}
    divided = bool(tops) and all(name.lower() in SPLITS for name in tops)
    depth = 1 if divided else 0
    labels = [file.parts[depth] if len(file.parts) > depth + 1 else "" for file in files]
    labels = ["" if label.lower() in UNLABELLED_FOLDERS else label for label in labels]
    return Items.of(
        "images",
        [folder / file for file in files],
        folder,
        [text_of_path(file) for file in files],
        labels=[text_of_path(label) for label in labels] if any(labels) else None,
        split=[SPLITS.get(file.parts[0].lower(), "train") for file in files] if divided else None,
        skipped=skipped,
    )


def _images_below(folder: Path) -> tuple[list[PurePosixPath], list[tuple[str, str]]]:
    """The paths of images within a folder, sorted, without hidden files and folders; and what was skipped, and why.

    Links to folders are followed after the folders themselves have been read, and none is read twice: a link to the
    folder that it is in would otherwise never end.
    """
    files: list[PurePosixPath] = []
    skipped: list[tuple[str, str]] = []
    read: set[tuple[int, int]] = set()
    folders, links = [PurePosixPath()], deque[PurePosixPath]()
    while folders or links:
        inner = folders.pop() if folders else links.popleft()
        try:
            found = os.stat(folder / inner)
            if (found.st_dev, found.st_ino) in read:
                skipped.append((text_of_path(inner), "it is a link to a folder that is read already"))
                continue
            read.add((found.st_dev, found.st_ino))
            with os.scandir(folder / inner) as entries:
                within = sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda e: e.name)
        except OSError as error:
            skipped.append((text_of_path(inner), _reason(error)))
            continue
        for entry in within:
            place = inner / entry.name
            try:
                mode = os.stat(folder / place).st_mode if entry.is_symlink() else entry.stat().st_mode
            except OSError as error:
                if place.suffix.lower() in FORMATS:
                    skipped.append((text_of_path(place), _reason(error)))
                continue
            if stat.S_ISDIR(mode):
                (links if entry.is_symlink() else folders).append(place)
            elif place.suffix.lower() in FORMATS:
                if stat.S_ISREG(mode):
                    files.append(place)
                else:
                    skipped.append((text_of_path(place), "it is no regular file"))
    return sorted(files), sorted(skipped)


def _reason(error: OSError) -> str:
    reasons = {errno.ELOOP: "it is a link to itself", errno.ENOENT: "it is a link to nothing"}
    return reasons.get(error.errno or 0) or error.strerror or first_line(error)
