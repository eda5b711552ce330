"""The cells of a benchmark, and the file that keeps those that are done: a line of JSON each, on the disk at once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rpim._common.errors import InputError
from rpim._common.files import writing
from rpim.benchmark import nid
from rpim.benchmark.batches import WAYS, BatchesDraw
from rpim.benchmark.entries import Method, Set
from rpim.benchmark.plan import BATCHES, NID, Plan
from rpim.benchmark.protocol import Case, GcdDraw, SplitFeatures, has_labels_of_its_own, split_features
from rpim.benchmark.results import Record
from rpim.benchmark.splits import read_splits

FORMAT = 1
CELLS_FILE = "cells.jsonl"

Draw = GcdDraw | nid.NidDraw | BatchesDraw


@dataclass(frozen=True)
class Cell:
    """One method on one feature set under one seed."""

    method: Method
    data: Set
    seed: int
    draw: Draw
    n_classes: int | None
    """What the method is told; None has it estimate the number."""
    fingerprint: str
    """Of the rows, their labels and their truth."""
    keeps_sample: bool = False
    """Whether it leaves a sample of its rows for the figures; the first seed does. Decides no result."""

    def case(self, parts: SplitFeatures | None = None) -> Case:
        """The problem, of rows that are at hand or else read from the disk."""
        return self.draw.case(split_features(self.data.read()) if parts is None else parts, self.seed)

    @property
    def key(self) -> Record:
        """All that decides the result: a cell of the same key need not be run again, whatever it was called."""
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
        """What is known of it before it is run: the beginning of its record."""
        return {**self.key, "method": self.method.name, **self.draw.facts}


_KEY = ("format", "estimator", "parameters", "set", "seed", "n_classes", "data")


def planned_cells(plan: Plan) -> list[Cell]:
    """The cells of a plan, seed by seed, so that an unfinished benchmark has whole columns; reads every set once.

    What several studies ask for is one cell, under the name that the first of them gives it.
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
    """For each seed the draws, the number of classes that a method is told, and the fingerprint of the problem."""
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
        lists = None if data.splits is None else nid.read_lists(nid.find_lists(data.splits, data.name))
        return {seed: [*nid.draws(lists, seed)] for seed in plan.seeds}
    split = data.split
    if data.splits is not None:
        splits = read_splits(data.splits)
        # A set with labels of its own needs no list; one for any set, or of its name, must agree with them.
        if not has_labels_of_its_own(parts.train) or splits.one or data.name in splits.by_name:
            split = splits.of(data.name)
    return {seed: [GcdDraw(split, plan.known_share)] for seed in plan.seeds}


def check_output(folder: Path) -> None:
    """Raise where a benchmark cannot be written or gone on with; known before any work.

    Raises
    ------
    InputError
        If something else is there, or nothing can be written.
    """
    with writing(folder):  # a folder that may not even be looked into
        _check_output(folder)


def _check_output(folder: Path) -> None:
    if not folder.exists():
        parent = folder.resolve().parent
        if not parent.is_dir():
            raise InputError(f"{folder} cannot be written, because {parent} is not a folder: create it first.")
        if not os.access(parent, os.W_OK | os.X_OK):
            raise InputError(f"{folder} cannot be written, because you may not write in {parent}: choose another.")
        return
    if not folder.is_dir():
        raise InputError(f"{folder} is a file: give a folder for the results.")
    if not (folder / CELLS_FILE).exists() and any(folder.iterdir()):
        raise InputError(
            f"{folder} exists and is no benchmark (it has no {CELLS_FILE}): choose another name, or an empty folder."
        )
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{folder} cannot be written, because you may not write in it: choose another.")


class CellFile:
    """``cells.jsonl`` in the folder of a benchmark.

    Only ever added to. A line that a kill has torn is passed over, and so is what is no cell; of several lines about
    the same cell the last one that is no error counts.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / CELLS_FILE
        self._records: dict[str, Record] = {}
        with writing(folder):
            folder.mkdir(exist_ok=True)
            text = self.path.read_bytes().decode("utf-8", "replace") if self.path.exists() else ""
            with open(self.path, "ab") as file:  # there from the beginning, so that the folder is known as ours
                if text and not text.endswith("\n"):
                    file.write(b"\n")
        for line in text.split("\n"):
            self._keep(_parsed(line))

    def add(self, record: Record) -> None:
        """Write a record, and return once it is on the disk."""
        line = json.dumps(record, allow_nan=False) + "\n"
        with writing(self.path), open(self.path, "ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self._keep(record)

    def find(self, cell: Cell) -> Record | None:
        """The record of a cell: done, or with an error."""
        return self._records.get(_canonical(cell.key))

    def done(self, cell: Cell) -> bool:
        """Whether a cell need not be run again."""
        record = self.find(cell)
        return record is not None and "error" not in record

    def n_done(self, cells: Iterable[Cell]) -> int:
        """How many of these are done."""
        return sum(map(self.done, cells))

    def _keep(self, record: Record | None) -> None:
        if record is None:
            return
        key = _canonical({name: record[name] for name in _KEY})
        if "error" not in record or "error" in self._records.get(key, record):
            self._records[key] = record


def _parsed(line: str) -> Record | None:
    try:
        record = json.loads(line)
    except ValueError:
        return None
    whole = isinstance(record, dict) and record.get("format") == FORMAT and all(name in record for name in _KEY)
    return record if whole else None


def digest(record: Record) -> str:
    """A short name for a cell, by its key or its record."""
    return hashlib.sha256(_canonical({name: record[name] for name in _KEY}).encode()).hexdigest()[:16]


def _canonical(key: Record) -> str:
    return json.dumps(key, sort_keys=True)
