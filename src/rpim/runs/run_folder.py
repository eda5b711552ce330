"""The run folder on disk: written whole or not at all, and read with one clear sentence where it is damaged."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rpim._common.errors import InputError, first_line
from rpim._common.files import RUN_FILE, StrPath, check_writable, put_in_place, sync_to_disk, writing

FORMAT = 1
MODEL_FILE = "model.safetensors"
ASSIGNMENTS_FILE = "assignments.parquet"
HISTORY_FILE = "history.json"
FEATURES_FILE = "features.parquet"
"""The features of the rows, where they were embedded for the run."""
MAP_FILE = "map.npy"
"""The places of all rows by UMAP, once somebody has waited for them."""
DECISIONS_FILE = "decisions.sqlite"
"""What a person has decided in the explorer: there once somebody has opened the run in it."""
REFITS_FOLDER = "refits"
"""Fits that took these decisions into account, each a run folder."""


def check_target(folder: StrPath, overwrite: bool = False) -> Path:
    """The full path of a run folder that may be written; known before hours of work rather than after.

    Raises
    ------
    InputError
        If something is there that may not be replaced, or nothing can be written beside it.
    """
    target = Path(folder).resolve()
    if target.exists() and not (target / RUN_FILE).is_file():
        raise InputError(f"{folder} exists and is not a run folder (it has no {RUN_FILE}): choose another name.")
    check_writable(folder, overwrite, is_folder=True)
    if target.exists() and has_decisions(target):
        raise InputError(
            f"{folder} holds what a person has decided in rpim explore, which is never overwritten: "
            "choose another name, or delete the folder yourself."
        )
    return target


def has_decisions(folder: Path) -> bool:
    """Whether a person has decided anything about the run, or it was fitted again; yes where that cannot be told."""
    if any((folder / REFITS_FOLDER).glob("[0-9]*")):
        return True
    if not (folder / DECISIONS_FILE).is_file():
        return False
    try:
        with contextlib.closing(sqlite3.connect(folder / DECISIONS_FILE, timeout=10)) as database:
            (found,) = database.execute("SELECT EXISTS (SELECT 1 FROM decisions)").fetchone()
            return bool(found)
    except sqlite3.Error:
        return True


@contextlib.contextmanager
def new_folder(folder: StrPath, overwrite: bool = False) -> Iterator[Path]:
    """A folder to write into that takes the place of `folder` once it is complete, and is gone otherwise."""
    target = check_target(folder, overwrite)
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}")
    with writing(folder):
        try:
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed and had our number
            partial.mkdir()
            yield partial
            for file in [*partial.iterdir(), partial]:
                sync_to_disk(file)
            check_target(folder, overwrite)  # somebody else may have written it meanwhile
            with uninterrupted():
                put_in_place(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """No Ctrl-C between the renames: in those few milliseconds it comes too late, the run is complete."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def copy_of(file: Path, place: Path) -> None:
    """The same file at another place, without a second copy on the disk where it can be had."""
    try:
        os.link(file, place)
    except OSError:  # another disk, or one that knows no links
        shutil.copyfile(file, place)


def write_json(path: Path, facts: Any, indent: int | None = 2) -> None:
    """Plain JSON; the caller has replaced what JSON does not know, such as NaN."""
    path.write_text(json.dumps(facts, indent=indent, allow_nan=False) + "\n", encoding="utf-8")


def read_run_file(folder: Path) -> dict[str, Any]:
    """``run.json``, of a format that this version reads."""
    if not (folder / RUN_FILE).is_file():
        raise InputError(f"{folder} is not a run folder (it has no {RUN_FILE}): give one that rpim discover wrote.")
    with reading(folder / RUN_FILE):
        facts = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
        if not isinstance(facts, dict) or not isinstance(facts.get("format"), int):
            raise ValueError("it does not say its format")
    if facts["format"] > FORMAT:
        raise InputError(
            f"{folder} was written by a newer version of rpim (format {facts['format']}, and this one reads up to "
            f"{FORMAT}): install a newer rpim."
        )
    return facts


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn whatever a parser says about a damaged file of a run folder into one sentence."""
    if not path.is_file():
        raise InputError(f"{path} is missing, so the run folder is incomplete: run rpim discover again.")
    try:
        yield
    except InputError:
        raise
    # safetensors and pyarrow have exceptions of their own, without a common ancestor.
    except Exception as error:
        raise InputError(f"{path} is truncated or damaged ({first_line(error)}): run rpim discover again.") from error
