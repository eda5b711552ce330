"""The run folder on disk: written atomically, read with one clear error where it is damaged; and the run's features.

What its files must hold is checked at the end of this file: a file that does not is damaged, and nothing of it is used.
The checks raise ValueError; the model is checked where it is restored, in `saved_model`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line
from rpim._common.files import (
    RUN_FILE,
    StrPath,
    check_writable,
    full_path,
    one_writer,
    put_back,
    put_in_place,
    sync_to_disk,
    writing,
)
from rpim.data.feature_set import FeatureSet
from rpim.data.labels import unlabelled_rows
from rpim.runs.assignments import Assignments

if TYPE_CHECKING:
    from rpim.runs.assignments import Assignments

FORMAT = 1
MODEL_FILE = "model.safetensors"
ASSIGNMENTS_FILE = "assignments.parquet"
HISTORY_FILE = "history.json"
FEATURES_FILE = "features.parquet"
"""The features, if they were embedded for the run."""
MAP_FILE = "map.npy"
"""The 2-D UMAP positions of all rows, once computed."""
DECISIONS_FILE = "decisions.sqlite"
"""Decisions made in the explorer."""
REFITS_FOLDER = "refits"
"""Refits with these decisions, each a run folder."""


def check_target(folder: StrPath, overwrite: bool = False) -> Path:
    """Check that a run folder may be written, before any work; return its full path.

    Raises
    ------
    InputError
        If it exists and may not be replaced, or its parent is not writable.
    """
    target = full_path(folder)
    put_back(target)
    _check_target(folder, target, overwrite)
    return target


def _check_target(folder: StrPath, target: Path, overwrite: bool) -> None:
    if target.exists() and not (target / RUN_FILE).is_file():
        raise InputError(f"{folder} exists and is not a run folder (it has no {RUN_FILE}): choose another name.")
    check_writable(folder, overwrite, is_folder=True)
    if target.exists() and has_decisions(target):
        raise InputError(
            f"{folder} holds decisions from rpim explore, which are never overwritten: "
            "choose another name, or delete the folder."
        )


def decisions_file(folder: Path) -> Path:
    """The database of a run's decisions, which need not be there.

    Raises
    ------
    InputError
        If it, or a file that SQLite keeps beside it, is a link or no regular file: it could lead anywhere.
    """
    path = folder / DECISIONS_FILE
    for file in (path, *(folder / f"{DECISIONS_FILE}-{part}" for part in ("wal", "shm", "journal"))):
        if file.is_symlink():
            raise InputError(f"{file} is a link, so decisions would be outside of the run: remove it.")
        if file.exists() and not file.is_file():
            raise InputError(f"{file} is no regular file: remove it.")
    return path


def has_decisions(folder: Path) -> bool:
    """Whether the run has decisions or refits; True if the database cannot be read."""
    if any((folder / REFITS_FOLDER).glob("[0-9]*")):
        return True
    try:
        path = decisions_file(folder)
        if not path.is_file():
            return False
        with contextlib.closing(sqlite3.connect(path, timeout=10)) as database:
            (found,) = database.execute("SELECT EXISTS (SELECT 1 FROM decisions)").fetchone()
            return bool(found)
    except (InputError, sqlite3.Error):
        return True


@contextlib.contextmanager
def new_folder(folder: StrPath, overwrite: bool = False) -> Iterator[Path]:
    """A temporary folder that replaces `folder` once it is complete, and is removed otherwise."""
    target = check_target(folder, overwrite)
    partial = target.with_name(f".{target.name}.partial")
    with writing(folder), one_writer(target):
        try:
            shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
            partial.mkdir()
            yield partial
            for file in [*partial.iterdir(), partial]:
                sync_to_disk(file)
            _check_target(folder, target, overwrite)  # it may have been created in the meantime
            with uninterrupted():
                put_in_place(partial, target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Ignore Ctrl-C during the final renames, which take milliseconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def copy_of(file: Path, place: Path) -> None:
    """Hard-link a file, or copy it where links are not supported."""
    try:
        os.link(file, place)
    except OSError:  # another disk, or one that knows no links
        shutil.copyfile(file, place)


def write_json(path: Path, facts: Any, indent: int | None = 2) -> None:
    """Write strict JSON, without NaN."""
    path.write_text(json.dumps(facts, indent=indent, allow_nan=False) + "\n", encoding="utf-8")


def read_run_file(folder: Path) -> dict[str, Any]:
    """Read ``run.json``; what it must hold is in `_RUN`."""
    if not (folder / RUN_FILE).is_file():
        raise InputError(f"{folder} is not a run folder (it has no {RUN_FILE}): give one written by rpim discover.")
    with reading(folder / RUN_FILE):
        facts = _strict_json(folder / RUN_FILE)
        if not isinstance(facts, dict) or not isinstance(facts.get("format"), int):
            raise ValueError("it does not say its format")
        if facts["format"] > FORMAT:
            raise InputError(
                f"{folder} was written by a newer version of rpim (format {facts['format']}, and this one reads up to "
                f"{FORMAT}): install a newer rpim."
            )
        check_facts(facts)
        return facts


def read_assignments(folder: Path, facts: dict[str, Any]) -> Assignments:
    """Read the assignments of a run, given the contents of ``run.json``."""
    with reading(folder / ASSIGNMENTS_FILE):
        found = Assignments.read_parquet(folder / ASSIGNMENTS_FILE, facts["label_type"])
        check_assignments(found, facts)
        return found


def read_history(folder: Path) -> list[dict[str, float | None]]:
    """Read the terms of the objective at every step."""
    with reading(folder / HISTORY_FILE):
        steps: list[dict[str, float | None]] = _strict_json(folder / HISTORY_FILE)
        check_history(steps)
        return steps


def _strict_json(path: Path) -> Any:
    def refuse(word: str) -> None:
        raise ValueError(f"{word} is no JSON")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn parser errors about a damaged file of a run folder into one sentence."""
    is_refit = path.parent.resolve().parent.name == REFITS_FOLDER
    what_to_do = "give --version 0 for the first fit, or refit" if is_refit else "run rpim discover again"
    if not path.is_file():
        raise InputError(f"{path} is missing, so the run folder is incomplete: {what_to_do}.")
    try:
        yield
    except InputError:
        raise
    # safetensors and pyarrow raise their own exceptions, without a common base class.
    except Exception as error:
        raise InputError(f"{path} is truncated or damaged ({first_line(error)}): {what_to_do}.") from error


def features_of(run: Path, given: Path | None = None) -> FeatureSet:
    """The features of a run, in its order and with its given labels.

    Parameters
    ----------
    run : path of the run folder
    given : path, optional
        Path of the features (default: the run folder, then the path recorded in the run).

    Raises
    ------
    InputError
        If they are not found, or are not those of the run.
    """
    facts = read_run_file(run)
    provenance, assignments = facts["provenance"], read_assignments(run, facts)
    path = given or recorded_features_path(run, provenance)
    features = _rows_of(FeatureSet.read(path), assignments.ids, path)
    # Labels may have come from another file; the run stores them.
    features = dataclasses.replace(features, labels=assignments.given)
    if "extends" not in provenance and features.fingerprint() != provenance["data"]["fingerprint"]:
        raise InputError(f"{path} has changed since {run} was fitted: give --features FILE.")
    return features


def recorded_features_path(run: Path, provenance: dict[str, Any]) -> Path:
    """The path of the features: in the run folder, or as recorded in the run."""
    if (run / FEATURES_FILE).is_file():
        return run / FEATURES_FILE
    if "extends" in provenance:
        raise InputError(
            f"{run} was extended, so its rows are in several files: give --features FILE with all of them."
        )
    path = provenance.get("data", {}).get("path")
    if path is None:
        raise InputError(f"{run} does not record the path of its features: give --features FILE.")
    if not Path(path).exists():
        raise InputError(f"The features of {run} are no longer at {path}: give --features FILE.")
    return Path(path)


def _rows_of(features: FeatureSet, ids: NDArray[Any], path: Path) -> FeatureSet:
    """The rows with these ids, in this order."""
    if np.array_equal(features.ids, ids):
        return features
    place = {name: row for row, name in enumerate(features.ids.tolist())}
    rows = [place.get(name, -1) for name in ids.tolist()]
    missing = rows.count(-1)
    if missing:
        raise InputError(f"{path} lacks {missing:,} of the {len(ids):,} rows of the run: give --features FILE.")
    return features.subset(rows)


Check = Callable[[Any], bool]


def _is_whole(least: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def _is_number(least: float = -math.inf, most: float = math.inf) -> Check:
    return lambda value: (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 2.0**1000  # so finite, as a float too
        and least <= value <= most
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_dict_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _is_none_or(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _is_label(value: Any) -> bool:
    return isinstance(value, bool | str) or _is_number()(value)


def _has(schema: dict[str, Check]) -> Check:
    """Whether a dict has values that pass; a name that ends in "?" may be missing."""

    def check(value: Any) -> bool:
        return isinstance(value, dict) and not any(_wrong(value, schema))

    return check


def _wrong(facts: dict[str, Any], schema: dict[str, Check]) -> list[str]:
    return [
        name.rstrip("?")
        for name, check in schema.items()
        if (name.rstrip("?") in facts or not name.endswith("?")) and not check(facts.get(name.rstrip("?")))
    ]


_SCALAR = _is_none_or(_is_label)
_FITTED: dict[str, Check] = {
    "n_iter_?": _is_whole(0),
    "n_members_?": _is_whole(1),
    "sample_rows_?": _is_whole(1),
    "expected_accuracy_?": _is_none_or(_is_number(0, 1)),
    "calibration_?": _is_number(0),
}
_PROVENANCE: dict[str, Check] = {
    "created": _is_text,
    "duration_seconds?": _is_none_or(_is_number(0)),
    "command?": _is_none_or(_is_list_of(_is_text)),
    "seed?": _SCALAR,
    "versions?": _is_dict_of(_is_text),
    "data": _has(
        {
            "path?": _is_none_or(_is_text),
            "fingerprint": _is_text,
            "metadata?": lambda value: isinstance(value, dict),
        }
    ),
    "refit?": _has({"of": _is_text, "version": _is_whole(0)}),
    "extends?": lambda value: isinstance(value, dict),
}
_RUN: dict[str, Check] = {
    "rows": _is_whole(1),
    "method": _is_text,
    "classes": _is_list_of(_is_label),
    "n_known": _is_whole(0),
    "label_type": lambda value: _is_text(value) and (value == "str" or np.dtype(value).kind in "biuf"),
    "n_features": _is_whole(1),
    "parameters": _is_dict_of(lambda value: _SCALAR(value) or _is_dict_of(_SCALAR)(value)),
    "resolved": _is_dict_of(_SCALAR),
    "transform": _is_text,
    "temperature": _is_number(0),
    "outlier_threshold?": _is_none_or(_is_number()),
    "fitted": lambda value: _is_dict_of(_SCALAR)(value) and not _wrong(value, _FITTED),
    "tables": lambda value: isinstance(value, dict),
    "class_of_prototype?": _is_list_of(_is_whole(0)),
    "stability?": _is_none_or(_is_list_of(_is_none_or(_is_number(0, 1)))),
    "suggested_names?": _is_none_or(_is_list_of(_is_text)),
    "provenance": _has(_PROVENANCE),
}


def check_facts(facts: dict[str, Any]) -> None:
    """Check the contents of ``run.json``."""
    wrong = _wrong(facts, _RUN)
    if wrong == ["provenance"] and isinstance(facts.get("provenance"), dict):
        wrong = [f"provenance.{name}" for name in _wrong(facts["provenance"], _PROVENANCE)]
    if wrong:
        raise ValueError(f"{wrong[0]} is missing or not what it should be")
    n = len(facts["classes"])
    if facts["n_known"] > n or len(set(facts["classes"])) < n:
        raise ValueError(f"it has {facts['n_known']} known classes among {n}, or a class twice")
    if (facts["label_type"] == "str") != all(isinstance(name, str) for name in facts["classes"]):
        raise ValueError(f"its classes are not of type {facts['label_type']}")
    for name in ("stability", "suggested_names"):
        if facts.get(name) is not None and len(facts[name]) != n:
            raise ValueError(f"{name} is of {len(facts[name])} classes, not of {n}")
    before = facts["provenance"].get("extends")
    while before is not None:
        if not _has(_PROVENANCE)(before):
            raise ValueError("provenance.extends is not what it should be")
        before = before.get("extends")


def check_history(steps: Any) -> None:
    """Check the terms of the objective at every step."""
    if not _is_list_of(_is_dict_of(_is_none_or(_is_number())))(steps):
        raise ValueError("it is not a list of terms")


def check_assignments(found: Assignments, facts: dict[str, Any]) -> None:
    """Check that the rows belong to the run: as many, in its classes, and with values in their ranges."""
    if len(found) != facts["rows"]:
        raise ValueError(f"it has {len(found)} rows, not {facts['rows']}")
    classes = np.asarray(facts["classes"], dtype=facts["label_type"])
    if found.ids.ndim != 1 or found.ids.dtype.kind not in "iuU" or len(np.unique(found.ids)) < len(found):
        raise ValueError("its ids are not unique texts or whole numbers")
    for name in ("labels", "runner_up", "suggested"):
        values: NDArray[Any] | None = getattr(found, name)
        if values is not None and not (_is_flat(values) and (np.isin(values, classes) | unlabelled_rows(values)).all()):
            raise ValueError(f"{name} has classes that the run has not")
    if found.given is not None and not _is_flat(found.given):
        raise ValueError("its given labels are not flat")
    for name in ("confidence", "runner_up_confidence"):
        values = getattr(found, name)
        if not (_is_flat(values) and values.dtype.kind == "f" and (np.abs(values) <= 1.001).all()):
            raise ValueError(f"{name} is not a probability")
    for name in ("outlier", "label_quality", "suggested_confidence"):
        values = getattr(found, name)
        if values is not None and not (_is_flat(values) and values.dtype.kind == "f"):
            raise ValueError(f"{name} is not of numbers")


def _is_flat(values: NDArray[Any]) -> bool:
    return values.ndim == 1 and values.dtype.kind != "O"
