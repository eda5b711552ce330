"""The cells of a benchmark, and the JSON-lines file of finished cells."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from rpim._common.errors import InputError
from rpim._common.files import check_writable, writing
from rpim.benchmark.batches import WAYS, BatchesDraw
from rpim.benchmark.entries import Method, Set, read_splits
from rpim.benchmark.plan import BATCHES, NID, Plan
from rpim.benchmark.protocol import (
    Case,
    GcdDraw,
    NidDraw,
    SplitFeatures,
    find_lists,
    has_labels_of_its_own,
    nid_draws,
    read_lists,
    split_features,
)
from rpim.benchmark.results import Record

FORMAT = 1
CELLS_FILE = "cells.jsonl"

Draw = GcdDraw | NidDraw | BatchesDraw


@dataclass(frozen=True)
class Cell:
    """One method on one feature set under one seed."""

    method: Method
    data: Set
    seed: int
    draw: Draw
    n_classes: int | None
    """The number given to the method; None to estimate it."""
    fingerprint: str
    """Fingerprint of the rows, labels and true classes."""
    keeps_sample: bool = False
    """Whether it stores a sample of rows for the figures (first seed); does not affect the result."""
    trade_off: float | None = None
    """What the paper's search for lambda found for another cell of the same rows, labels and seed: it is the same for
    all methods, and takes most of their time."""

    def case(self, parts: SplitFeatures | None = None) -> Case:
        """The problem; without `parts`, the rows are read from disk."""
        return self.draw.case(split_features(self.data.read()) if parts is None else parts, self.seed)

    @property
    def key(self) -> Record:
        """Everything that determines the result: cells with the same key are run once."""
        return {
            "format": FORMAT,
            "estimator": self.method.method,
            "parameters": self.method.parameters,
            "set": self.data.name,
            "seed": self.seed,
            "n_classes": self.n_classes,
            "data": self.fingerprint,
        }

    @property
    def facts(self) -> Record:
        """The fields of the record that are known before the run."""
        return {**self.key, "method": self.method.name, **self.draw.facts}


_KEY = ("format", "estimator", "parameters", "set", "seed", "n_classes", "data")


def planned_cells(plan: Plan) -> list[Cell]:
    """The cells of a plan, ordered by seed, so that an interrupted benchmark has complete columns.

    A cell of several studies is run once, under the name of the first study.
    """
    problems: dict[tuple[str, int], list[tuple[Draw, int | None, str]]] = {}
    for data in plan.sets:
        try:
            problems |= {(data.name, seed): problem for seed, problem in _problems(plan, data).items()}
        except InputError as error:
            raise InputError(f"The set {data.name!r}: {error}") from error
    cells = (
        Cell(method, data, seed, draw, n_classes, fingerprint, keeps_sample=seed == plan.seeds[0])
        for seed in plan.seeds
        for data in plan.sets
        for draw, n_classes, fingerprint in problems[data.name, seed]
        for study in plan.studies
        if study.seeds is None or seed in study.seeds
        for method in study.methods
    )
    found: dict[str, Cell] = {}
    for cell in cells:
        found.setdefault(_canonical(cell.key), cell)
    return list(found.values())


def _problems(plan: Plan, data: Set) -> dict[int, list[tuple[Draw, int | None, str]]]:
    """For each seed the draws, the given number of classes, and the fingerprint of the problem."""
    parts = split_features(data.read())
    of_features = parts.fingerprint()
    found: dict[int, list[tuple[Draw, int | None, str]]] = {}
    for seed, draws in _draws(plan, data, parts).items():
        found[seed] = []
        for draw in draws:
            case = draw.case(parts, seed)
            n_classes = None if plan.estimate else data.n_classes or case.n_classes
            found[seed].append((draw, n_classes, case.fingerprint(of_features)))
    return found


def _draws(plan: Plan, data: Set, parts: SplitFeatures) -> dict[int, list[Draw]]:
    if plan.protocol == BATCHES:
        return {seed: [BatchesDraw(way) for way in WAYS] for seed in plan.seeds}
    if plan.protocol == NID:
        lists = None if data.splits is None else read_lists(find_lists(data.splits, data.name))
        return {seed: [*nid_draws(lists, seed)] for seed in plan.seeds}
    split = data.split
    if data.splits is not None:
        splits = read_splits(data.splits)
        # A partly labelled set needs no list; a list for any set, or for its name, must agree with the labels.
        if not has_labels_of_its_own(parts.train) or splits.one or data.name in splits.by_name:
            split = splits.of(data.name)
    return {seed: [GcdDraw(split, plan.known_share, plan.labelled_half)] for seed in plan.seeds}


def check_output(folder: Path) -> None:
    """Check, before any work, that a benchmark can be written or resumed.

    Raises
    ------
    InputError
        If the folder holds something else, or is not writable.
    """
    with writing(folder):  # the folder may be unreadable
        _check_output(folder)


def _check_output(folder: Path) -> None:
    if not folder.exists():
        check_writable(folder, None, is_folder=True)
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file: give a folder for the results.")
    if not (folder / CELLS_FILE).exists() and any(folder.iterdir()):
        raise InputError(
            f"{folder} exists and is not a benchmark (it has no {CELLS_FILE}): choose another name, or an empty folder."
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{folder} cannot be written, because you may not write in it: choose another.")


class CellFile:
    """``cells.jsonl`` in the folder of a benchmark.

    Append-only. Truncated and foreign lines are ignored; of several lines about a cell, the last one without an error
    counts.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / CELLS_FILE
        self._records: dict[str, Record] = {}
        with writing(folder):
            folder.mkdir(exist_ok=True)
            text = self.path.read_bytes().decode("utf-8", "replace") if self.path.exists() else ""
            with open(self.path, "ab") as file:  # created first, which marks the folder as a benchmark
                if text and not text.endswith("\n"):
                    file.write(b"\n")
        for line in text.split("\n"):
            self._keep(_parsed(line))

    def add(self, record: Record) -> None:
        """Append a record; it is on disk when this returns."""
        line = json.dumps(record, allow_nan=False) + "\n"
        with writing(self.path), open(self.path, "ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self._keep(record)

    def find(self, cell: Cell) -> Record | None:
        """The record of a cell, finished or failed; None if there is none."""
        return self._records.get(_canonical(cell.key))

    def done(self, cell: Cell) -> bool:
        """Whether a cell is finished without error."""
        record = self.find(cell)
        return record is not None and "error" not in record

    def with_trade_off(self, cell: Cell) -> Cell:
        """The cell with the lambda of a finished one that searched it on the same rows, labels and seed."""
        if not _searches(cell.key):
            return cell
        shared = ("seed", "n_classes", "data")
        found = (
            record["trade_off"]
            for record in self._records.values()
            if "error" not in record
            and _searches(record)
            and all(record[name] == cell.key[name] for name in shared)
            and record["parameters"].get("max_iter") == cell.method.parameters.get("max_iter")
        )
        return replace(cell, trade_off=next(found, None))

    def n_done(self, cells: Iterable[Cell]) -> int:
        """The number of finished cells."""
        return sum(map(self.done, cells))

    def _keep(self, record: Record | None) -> None:
        if record is None:
            return
        key = _canonical({name: record[name] for name in _KEY})
        if "error" not in record or "error" in self._records.get(key, record):
            self._records[key] = record


def _searches(key: Record) -> bool:
    """Whether a cell searches lambda as the paper does."""
    parameters = key["parameters"]
    whole = parameters.get("preset") == "paper" and not {"trade_off", "temperature", "normalize"} & parameters.keys()
    return whole and key["estimator"] in ("pim", "rpim")


def _parsed(line: str) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(record, dict) and record.get("format") == FORMAT and all(name in record for name in _KEY)
    return record if whole else None


def digest(record: Record) -> str:
    """A short hash of a cell's key or record."""
    return hashlib.sha256(_canonical({name: record[name] for name in _KEY}).encode()).hexdigest()[:16]


def _canonical(key: Record) -> str:
    return json.dumps(key, sort_keys=True)
