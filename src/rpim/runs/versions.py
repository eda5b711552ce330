"""The versions of a run: the run itself is 0, and each refit with a person's decisions is one more.

Versions are read from the run folders without their models, so torch is not imported. All versions have the rows of the
run, in its order: a row that a refit left out has no class and is junk.
"""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim._common.files import RUN_FILE
from rpim.data.labels import label_array, unlabelled_rows
from rpim.runs.assignments import Assignments, class_codes
from rpim.runs.decision_store import Store, Timeline
from rpim.runs.decisions import NO_CLASS, BoolArray, IntArray, Move, State
from rpim.runs.run_folder import ASSIGNMENTS_FILE, REFITS_FOLDER, read_assignments, read_run_file, reading


@dataclass(frozen=True, eq=False)
class LabelIssues:
    """The label issues of one fit, most likely errors first.

    Attributes
    ----------
    rows : (n,) int32
    suggested : (n,) int32
        The number of the suggested class.
    quality : (n,) float32
        Label quality: the out-of-bag probability of the label.
    """

    rows: IntArray
    suggested: IntArray
    quality: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, found: Assignments, classes: NDArray[Any], places: NDArray[np.int64]) -> LabelIssues:
        """The label issues of a fit; `places` are the row numbers in the run. Empty for a single fit."""
        if found.suggested is None or found.label_quality is None:
            return cls(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
        has = np.flatnonzero(~unlabelled_rows(found.suggested))
        # The order of rpim.runs.class_summaries.ranked_issues, which is not used here because it imports torch.
        confidence = 0.0 if found.suggested_confidence is None else np.nan_to_num(found.suggested_confidence[has])
        has = has[np.argsort(found.label_quality[has] - confidence, kind="stable")]
        codes = class_codes(found.suggested[has], classes)
        return cls(places[has].astype(np.int32), codes.astype(np.int32), found.label_quality[has])

    def open(self, fitted: State, now: State, decided: BoolArray) -> LabelIssues:
        """The undecided label issues: not moved, not junk, and not in the suggested class after a merge.

        Parameters
        ----------
        fitted, now : State
            Before any decision, and after all of them.
        decided : (N,) bool
            Rows assigned by a person, in this version or one of its parents.
        """
        gone = {number: _merged_into(number, fitted, now) for number in set(self.suggested.tolist()) - set(now.classes)}
        suggested = np.array([gone.get(number, number) for number in self.suggested.tolist()], dtype=np.int32)
        rows = self.rows
        is_open = ~decided[rows] & ~now.junk[rows] & (suggested >= 0) & (suggested != now.class_of[rows])
        return LabelIssues(rows[is_open], suggested[is_open], self.quality[is_open])


def class_number(name: str, state: State) -> int | None:
    """The number of the class of this name; None if there is none."""
    return next((number for number, info in state.classes.items() if info.name == name), None)


def _merged_into(number: int, fitted: State, now: State) -> int:
    """The class that most rows of a removed class are in now; -1 if it had none."""
    classes = now.class_of[(fitted.class_of == number) & (now.class_of >= 0)]
    return int(np.bincount(classes).argmax()) if len(classes) else -1


@dataclass(frozen=True, eq=False)
class Version:
    """One fit, for every row of the run, before any decision."""

    number: int
    folder: Path
    created: str
    state: State
    confidence: NDArray[np.float32]
    outlier: NDArray[np.float32]
    runner_up: list[str]
    runner_up_confidence: NDArray[np.float32]
    stability: Mapping[int, float | None]
    n_members: int
    """Size of the committee; 1 for a single fit."""
    expected_accuracy: float | None
    """On unlabelled rows of known classes; None without held-out labels."""
    label_issues: LabelIssues
    labelled: BoolArray
    """The rows with a label in this fit: of a refit, also those that a person's decisions labelled."""
    parent: int | None
    """The version whose decisions it was refitted with; None for the run itself."""


class Versions:
    """The run, its refits, and the decisions about each.

    Parameters
    ----------
    run : path of the run folder
    create : bool
        Create the database of decisions if there is none; False to read only.

    Attributes
    ----------
    problems : dict of number to str
        What is wrong with the refits that cannot be read.

    Raises
    ------
    InputError
        If it is not a run folder, of a newer version, or damaged, or its decisions cannot be read.
    """

    def __init__(self, run: Path, *, create: bool = True) -> None:
        self.run = run
        self.problems: dict[int, str] = {}
        self.rows, facts = _read(run)
        self._place = {name: row for row, name in enumerate(self.rows.ids.tolist())}
        self._versions = {0: self._version(0, run, self.rows, facts)}
        self.store = Store(run, create=create)
        self.timeline = Timeline(self.store, lambda number: self[number].state)

    def __len__(self) -> int:
        return len(self.rows)

    def numbers(self) -> list[int]:
        """The existing versions, starting with the run; a damaged refit is left out, and in `problems`."""
        for number in set(version_numbers(self.run)) - {*self._versions, *self.problems}:
            try:
                self[number]
            except InputError as error:
                self.problems[number] = str(error)
        there = version_numbers(self.run)
        return [number for number in there if number in self._versions]

    def __getitem__(self, number: int) -> Version:
        if number not in self._versions:
            folder = self.folder(number)
            found, facts = _read(folder)
            with reading(folder / ASSIGNMENTS_FILE):
                self._versions[number] = self._version(number, folder, found, facts)
        return self._versions[number]

    def folder(self, number: int) -> Path:
        """The folder of a version, existing or not."""
        return version_folder(self.run, number)

    @property
    def active(self) -> int:
        """The active version: see `current_number`."""
        return current_number(self.store, self.numbers())

    def activate(self, number: int) -> None:
        """Make another version active."""
        self.store.activate(number, max(version_numbers(self.run)))

    def state(self, number: int | None = None) -> State:
        """The current state of a version (default: the active one)."""
        return self.timeline.state(self.active if number is None else number)

    def label_issues(self, number: int) -> LabelIssues:
        """The undecided label issues of a version, most likely errors first."""
        version, now = self[number], self.state(number)
        return version.label_issues.open(version.state, now, self.decided(number))

    def accept_suggestions(self, ids: Sequence[str] | None = None) -> int:
        """Move rows with label issues to their suggested classes, in the active version; return their number.

        Parameters
        ----------
        ids : sequence of str, optional
            Ids of the rows (default: all undecided label issues).
        """
        active = self.active
        issues = self.label_issues(active)
        place = {str(self.rows.ids[row]): k for k, row in enumerate(issues.rows.tolist())}
        for name in ids or ():
            if name not in place:
                raise InputError(
                    f"{name!r} is not the id of a row with an undecided label issue: rpim classes "
                    f"{shlex.quote(str(self.run))} --label-issues lists them."
                )
        chosen = np.arange(len(issues)) if ids is None else np.array(sorted({place[name] for name in ids}))
        for number in dict.fromkeys(issues.suggested[chosen].tolist()):
            self._move(active, np.sort(issues.rows[chosen][issues.suggested[chosen] == number]), number)
        return len(chosen)

    def take_labels(self, labels: Sequence[Any]) -> int:
        """Move rows to the classes of their labels, in the active version; return their number.

        A class that does not exist is made. Rows of which a person said so before are not counted.

        Parameters
        ----------
        labels : sequence of N values
            In the order of the rows; None, NaN, -1 or "" for rows without a label.
        """
        active = self.active
        given = label_array(labels, "labels", len(self))
        wanted = np.where(unlabelled_rows(given), "", given.astype(str)).astype(object)
        state, said = self.state(active), self[active].labelled | self.decided(active)
        is_new = (wanted != "") & ~(said & ~state.junk & (wanted == np.array(state.names(), dtype=object)))
        for name in dict.fromkeys(wanted[is_new].tolist()):
            state.available_name(name, but=class_number(name, state))  # before the first decision
        for name in dict.fromkeys(wanted[is_new].tolist()):
            rows, to = (
                np.flatnonzero(is_new & (wanted == name)).astype(np.int32),
                class_number(name, self.state(active)),
            )
            self._move(active, rows, to, name)
        return int(is_new.sum())

    def _move(self, number: int, rows: IntArray, to: int | None, name: str = "") -> None:
        """Move rows of a version to a class, or to a new one of this name."""

        def make(state: State) -> Move:
            return Move(rows, state.next_class, state.available_name(name)) if to is None else Move(rows, to)

        self.timeline.decide(number, make, uuid.uuid4().hex)

    def decided(self, number: int) -> BoolArray:
        """Rows assigned by a person, in this version or one of its parents."""
        by_hand = self.state(number).by_hand
        parent = self[number].parent
        while parent is not None and parent in self.numbers():
            by_hand = by_hand | self.state(parent).by_hand
            parent = self[parent].parent
        return by_hand

    def _version(self, number: int, folder: Path, found: Assignments, facts: dict[str, Any]) -> Version:
        classes = np.asarray(facts["classes"], dtype=facts["label_type"])
        rows = np.array([self._place[name] for name in found.ids.tolist()])
        parent = facts["provenance"].get("refit", {}).get("version")
        if parent is not None and parent >= number:
            raise ValueError(f"it is a refit of version {parent}, which is not an earlier one")
        n = len(self.rows)
        everything = fitted_state(found.labels, classes, facts["n_known"], rows, n)
        runner_up = np.full(n, "", dtype=object)
        runner_up[rows] = found.runner_up.astype(str)
        stable = facts.get("stability") or [None] * len(classes)
        fitted = facts["fitted"]
        return Version(
            number,
            folder,
            facts["provenance"]["created"],
            everything,
            spread_over(found.confidence, rows, n, np.float32(0)),
            spread_over(found.outlier, rows, n, np.float32(np.nan)),
            runner_up.tolist(),
            spread_over(found.runner_up_confidence, rows, n, np.float32(0)),
            dict(enumerate(stable)),
            fitted.get("n_members_", 1),
            fitted.get("expected_accuracy_"),
            LabelIssues.of(found, classes, rows),
            spread_over(found.labelled, rows, n, False),
            parent,
        )


def _read(folder: Path) -> tuple[Assignments, dict[str, Any]]:
    facts = read_run_file(folder)
    return read_assignments(folder, facts), facts


def version_numbers(run: Path) -> list[int]:
    """The versions of a run: 0 is the run itself, the others are its refits."""
    named = (one for one in (run / REFITS_FOLDER).glob("[0-9]*") if re.fullmatch("[0-9]{4,9}", one.name))
    return [0, *sorted(int(one.name) for one in named if (one / RUN_FILE).is_file())]


def version_folder(run: Path, number: int) -> Path:
    """The folder of a version, existing or not."""
    return run if number == 0 else run / REFITS_FOLDER / f"{number:04}"


def current_number(store: Store, numbers: Sequence[int]) -> int:
    """The version that was chosen, or the latest refit if it came after that; the run itself if that was deleted."""
    if max(numbers) > store.latest:
        return max(numbers)
    return store.active if store.active in numbers else 0


def fitted_state(
    labels: NDArray[Any], classes: NDArray[Any], n_known: int, rows: NDArray[np.int64], n_rows: int
) -> State:
    """The state of a fit before any decision; `rows` are its rows among all rows of the run, and the others junk."""
    state = State.of_classes(labels, classes, n_known)
    return State(
        spread_over(state.class_of, rows, n_rows, NO_CLASS),
        spread_over(state.junk, rows, n_rows, True),
        np.zeros(n_rows, dtype=bool),
        state.classes,
        state.next_class,
    )


def spread_over(values: NDArray[Any], rows: NDArray[Any], n: int, missing: Any) -> NDArray[Any]:
    """The values at these of n rows, and `missing` at the others."""
    spread = np.full(n, missing, dtype=values.dtype)
    spread[rows] = values
    return spread
