"""The versions of a run: the run itself is 0, and each refit with a person's decisions is one more.

Versions are read from the run folders without their models, so torch is not imported. All versions have the rows of the
run, in its order: a row that a refit left out has no class and is junk.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.files import RUN_FILE
from rpim.data.labels import unlabelled_rows
from rpim.runs.assignments import Assignments, class_codes
from rpim.runs.decision_store import Store, Timeline
from rpim.runs.decisions import NO_CLASS, BoolArray, IntArray, State
from rpim.runs.run_folder import ASSIGNMENTS_FILE, REFITS_FOLDER, read_run_file, reading


@dataclass(frozen=True, eq=False)
class Suspects:
    """The suspect labels of one fit, the most suspect first.

    Attributes
    ----------
    rows : (n,) int32
    suggested : (n,) int32
        The number of the class that is suggested instead of each label.
    quality : (n,) float32
        The probability that the members give to the label.
    """

    rows: IntArray
    suggested: IntArray
    quality: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, found: Assignments, classes: NDArray[Any], places: NDArray[np.int64]) -> Suspects:
        """Those of a fit, where `places` are the numbers that its rows have in the run; none for a single fit."""
        if found.suggested is None or found.label_quality is None:
            return cls(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
        has = np.flatnonzero(~unlabelled_rows(found.suggested))
        # The order of rpim.runs.label_issues.ranked_issues, which is not asked because it takes torch.
        confidence = 0.0 if found.suggested_confidence is None else np.nan_to_num(found.suggested_confidence[has])
        has = has[np.argsort(found.label_quality[has] - confidence, kind="stable")]
        codes = class_codes(found.suggested[has], classes)
        return cls(places[has].astype(np.int32), codes.astype(np.int32), found.label_quality[has])

    def open(self, fitted: State, now: State, decided: BoolArray) -> Suspects:
        """Those that nobody has decided about: not moved, not junk, and not of the suggested class by a merge.

        Parameters
        ----------
        fitted, now : State
            Before any decision, and after all of them.
        decided : (N,) bool
            Rows that a person has put where they are, in this version or in one that led to it.
        """
        gone = {number: _merged_into(number, fitted, now) for number in set(self.suggested.tolist()) - set(now.classes)}
        suggested = np.array([gone.get(number, number) for number in self.suggested.tolist()], dtype=np.int32)
        rows = self.rows
        is_open = ~decided[rows] & ~now.junk[rows] & (suggested >= 0) & (suggested != now.class_of[rows])
        return Suspects(rows[is_open], suggested[is_open], self.quality[is_open])


def _merged_into(number: int, fitted: State, now: State) -> int:
    """The class that most rows of a class which is gone are in now; -1 where there are none."""
    classes = now.class_of[(fitted.class_of == number) & (now.class_of >= 0)]
    return int(np.bincount(classes).argmax()) if len(classes) else -1


@dataclass(frozen=True, eq=False)
class Version:
    """What one fit says of every row of the run, before any decision."""

    number: int
    folder: Path
    created: str
    state: State
    confidence: NDArray[np.float32]
    outlier: NDArray[np.float32]
    second: list[str]
    stability: Mapping[int, float | None]
    n_members: int
    """Of the committee; 1 for a single fit."""
    expected_accuracy: float | None
    """On unlabelled rows of known classes; None where no label was hidden."""
    suspects: Suspects
    parent: int | None
    """The version whose decisions it was fitted with; None for the run itself."""


class Versions:
    """The run, its later fits, and what was decided about each.

    Parameters
    ----------
    run : path of the run folder

    Raises
    ------
    InputError
        If it is no run folder, a newer one, or damaged, or its decisions cannot be read.
    """

    def __init__(self, run: Path) -> None:
        self.run = run
        self.rows, facts = _read(run)
        self._place = {name: row for row, name in enumerate(self.rows.ids.tolist())}
        self._versions = {0: self._version(0, run, self.rows, facts)}
        self.store = Store(run)
        self.timeline = Timeline(self.store, lambda number: self[number].state)

    def __len__(self) -> int:
        return len(self.rows)

    def numbers(self) -> list[int]:
        """The versions that there are, the run first."""
        folders = (self.run / REFITS_FOLDER).glob("[0-9]*")
        return [0, *sorted(int(one.name) for one in folders if one.name.isdigit() and (one / RUN_FILE).is_file())]

    def __getitem__(self, number: int) -> Version:
        if number not in self._versions:
            folder = self.folder(number)
            self._versions[number] = self._version(number, folder, *_read(folder))
        return self._versions[number]

    def folder(self, number: int) -> Path:
        """Where a version is, or would be."""
        return self.run if number == 0 else self.run / REFITS_FOLDER / f"{number:04}"

    @property
    def active(self) -> int:
        """The version that is looked at; the run itself where that one is gone."""
        chosen = self.store.active
        return chosen if chosen in self.numbers() else 0

    def state(self, number: int | None = None) -> State:
        """Where a version, or the one that is looked at, stands now."""
        return self.timeline.state(self.active if number is None else number)

    def suspects(self, number: int) -> Suspects:
        """The labels of a version that look wrong and that nobody has decided about, the most suspect first."""
        version, now = self[number], self.state(number)
        return version.suspects.open(version.state, now, self._decided(number))

    def _decided(self, number: int) -> BoolArray:
        """The rows that a person has put where they are, in this version or in one that led to it."""
        by_hand = self.state(number).by_hand
        parent = self[number].parent
        while parent is not None and parent in self.numbers():
            by_hand = by_hand | self.state(parent).by_hand
            parent = self[parent].parent
        return by_hand

    def _version(self, number: int, folder: Path, found: Assignments, facts: dict[str, Any]) -> Version:
        classes = np.asarray(facts["classes"], dtype=facts["label_type"])
        state = State.of_classes(found.labels, classes, facts["n_known"])
        rows = np.array([self._place[name] for name in found.ids.tolist()])
        n = len(self.rows)
        everything = State(
            _spread(state.class_of, rows, n, NO_CLASS),
            _spread(state.junk, rows, n, True),
            np.zeros(n, dtype=bool),
            state.classes,
            state.next_class,
        )
        second = np.full(n, "", dtype=object)
        second[rows] = found.second.astype(str)
        stable = facts.get("stability") or [None] * len(classes)
        fitted = facts["fitted"]
        return Version(
            number,
            folder,
            facts["provenance"]["created"],
            everything,
            _spread(found.confidence, rows, n, np.float32(0)),
            _spread(found.outlier, rows, n, np.float32(np.nan)),
            second.tolist(),
            dict(enumerate(stable)),
            fitted.get("n_members_", 1),
            fitted.get("expected_accuracy_"),
            Suspects.of(found, classes, rows),
            facts["provenance"].get("refit", {}).get("version"),
        )


def _read(folder: Path) -> tuple[Assignments, dict[str, Any]]:
    facts = read_run_file(folder)
    with reading(folder / ASSIGNMENTS_FILE):
        return Assignments.read_parquet(folder / ASSIGNMENTS_FILE, facts["label_type"]), facts


def _spread(values: NDArray[Any], rows: NDArray[Any], n: int, missing: Any) -> NDArray[Any]:
    spread = np.full(n, missing, dtype=values.dtype)
    spread[rows] = values
    return spread
