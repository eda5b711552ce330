"""The current version of a run, with a person's decisions applied to its rows and its model.

The current version is the latest refit unless another one was chosen in the explorer. Renamed classes have their
decided names, the probability of merged classes is the sum of theirs, and a class that was made by hand, by a split or
a move, has rows but no prototype until a refit.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line, plural, some
from rpim._common.files import StrPath, full_path
from rpim.data.labels import UNLABELLED, name_rows, unlabelled_rows
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.infomax import InfoMaxEstimator
from rpim.runs.assignments import Assignments, class_codes
from rpim.runs.decision_store import Store
from rpim.runs.decisions import CANNOT_APPLY, Decision, Move, State
from rpim.runs.discovery import Discovery
from rpim.runs.predictor import Predictor
from rpim.runs.run_folder import (
    ASSIGNMENTS_FILE,
    DECISIONS_FILE,
    REFITS_FOLDER,
    decisions_file,
    read_assignments,
    read_run_file,
    reading,
)
from rpim.runs.versions import current_number, fitted_state, spread_over, version_folder, version_numbers

_LOG = f"{DECISIONS_FILE}-wal"
_TRIES = 5


@dataclass(frozen=True)
class ChosenVersion:
    """A version of a run and the decisions about it.

    Attributes
    ----------
    run : Path
        The run folder; for a refit, that of the original run.
    number : int
        0 is the run itself, 1 its first refit.
    decisions : list of Decision
        Those to apply; empty if the version is wanted as found.
    has_others : bool
        Whether the run has refits or decisions, so that there is something to choose.
    """

    run: Path
    number: int
    decisions: list[Decision]
    has_others: bool

    @property
    def folder(self) -> Path:
        """The run folder of the version."""
        return version_folder(self.run, self.number)

    @property
    def is_plain(self) -> bool:
        """Whether it is the run itself, without decisions."""
        return self.number == 0 and not self.decisions

    def load(self) -> Discovery:
        """The version with its decisions, for all rows of the run, in its order."""
        found = Discovery.load(self.folder)
        if self.is_plain:
            return found
        found = dataclasses.replace(found, folder=full_path(self.run))
        rows = read_assignments(self.run, read_run_file(self.run))
        place = {name: row for row, name in enumerate(rows.ids.tolist())}
        with reading(self.folder / ASSIGNMENTS_FILE):
            places = np.array([place[name] for name in found.ids.tolist()])
        state = fitted_state(found.labels, found.classes, len(found.model.known_classes_), places, len(rows))
        for decision in self.decisions:
            try:
                state = decision.apply(state)
            except CANNOT_APPLY as error:
                raise InputError(
                    f"{self.run / DECISIONS_FILE} does not belong to this run: move it away, or give --as-found."
                ) from error
        return _decided(found, rows, places, state)

    def predictor(self) -> Predictor:
        """The model of the version; its size depends on the rows of the run only while decisions are applied."""
        if not self.decisions:
            return Predictor.load(self.folder)
        decided = self.load()
        return Predictor(decided.model, decided.space)

    def decided_ids(self) -> NDArray[Any]:
        """The ids of the rows that a person has labelled: the labels of the fit, and rows moved by hand since."""
        fitted = read_assignments(self.folder, read_run_file(self.folder))
        moved = [decision.rows for decision in self.decisions if isinstance(decision, Move)]
        if not moved:
            return fitted.ids[fitted.labelled]
        rows = read_assignments(self.run, read_run_file(self.run))
        return np.concatenate([fitted.ids[fitted.labelled], rows.ids[np.concatenate(moved)]])

    def sentence(self, model: DiscoveryEstimator) -> str:
        """Which version it is; "" if there is no other and nothing was decided."""
        if not self.has_others:
            return ""
        decided = f"with {plural(len(self.decisions), 'decision')}" if self.decisions else "as found"
        others = "--version N or --as-found gives" if self.decisions else "--version N gives"
        without = sorted(set(range(len(model.classes_))) - set(_class_of_prototype(model).tolist()))
        unknown = f" The model does not know {some(model.classes_[without])} before a refit." if without else ""
        return (
            f"Using version {self.number} of {self.run} ({'a refit' if self.number else 'the first fit'}) {decided}; "
            f"{others} another.{unknown}"
        )


def choose_version(run: StrPath, version: int | None = None, *, as_found: bool = False) -> ChosenVersion:
    """Choose a version of a run; its decisions are only read, so the explorer may be open.

    Parameters
    ----------
    run : path of the run folder, or of one of its refits
    version : int, optional
        0 for the run itself, 1 for its first refit (default: the current version).
    as_found : bool
        Without decisions; and without `version`, the run itself.

    Raises
    ------
    InputError
        If it is not a run folder, there is no such version, or the decisions cannot be read.
    """
    folder = Path(run)
    read_run_file(folder)
    if folder.resolve().parent.name == REFITS_FOLDER and folder.resolve().name.isdigit():
        version = int(folder.resolve().name) if version is None else version
        folder = folder.resolve().parents[1]
    numbers = version_numbers(folder)
    if version is not None and version not in numbers:
        refits = f"0 to {max(numbers)}" if len(numbers) > 1 else "only 0, because it was not refitted"
        raise InputError(f"{run} has no version {version}: it has {refits}.")
    if as_found:
        return ChosenVersion(folder, version or 0, [], (folder / DECISIONS_FILE).is_file() or len(numbers) > 1)
    if not decisions_file(folder).is_file():
        return ChosenVersion(folder, max(numbers) if version is None else version, [], len(numbers) > 1)
    with _decisions_of(folder) as store:
        number = current_number(store, numbers) if version is None else version
        made = [store.read(one) for one in store.path_to(store.current(number))]
    return ChosenVersion(folder, number, made, bool(made) or len(numbers) > 1)


def load_version(run: StrPath, version: int | None = None, *, as_found: bool = False) -> Discovery:
    """Load the current version of a run, or another one, with the decisions about it.

    `Discovery.load` reads a run folder as found.

    Parameters
    ----------
    run : path
        The run folder.
    version : int, optional
        0 for the run itself, 1 for its first refit; by default the current version.
    as_found : bool
        Without decisions; and without `version`, the run itself.

    Returns
    -------
    Discovery
        That version.
    """
    return choose_version(run, version, as_found=as_found).load()


def _decided(found: Discovery, rows: Assignments, places: NDArray[np.int64], state: State) -> Discovery:
    """Apply a state to the rows and to the model; `places` are the rows of the fit among those of the run."""
    n, was = len(rows), found.assignments
    numbers = sorted(state.classes, key=lambda number: (not state.classes[number].known, number))
    index = np.full(state.next_class + 1, UNLABELLED)  # of each class number; the last is that of -1
    index[numbers] = np.arange(len(numbers))
    classes = np.asarray([state.classes[number].name for number in numbers])
    n_known = sum(state.classes[number].known for number in numbers)
    of_class = index[[state.merged.get(k, k) for k in range(len(found.classes))]]  # (K,), of the classes of the fit
    of_prototype = of_class[_class_of_prototype(found.model)]

    def renumbered(names: NDArray[Any]) -> NDArray[np.int64]:
        """The index of the class of each row of the run, given its name in the fit. (n,)"""
        codes = class_codes(names, found.classes)
        return spread_over(np.where(codes < 0, UNLABELLED, of_class[codes]), places, n, UNLABELLED)

    codes = np.where(state.junk, UNLABELLED, index[state.class_of])
    runner_up = renumbered(was.runner_up)
    runner_up_confidence = spread_over(was.runner_up_confidence, places, n, np.float32(0))
    is_merged = (runner_up == codes) & ~state.by_hand
    confidence = spread_over(was.confidence, places, n, np.float32(0)) + np.where(is_merged, runner_up_confidence, 0)
    confidence[state.by_hand] = 1.0
    confidence[codes < 0] = 0.0
    runner_up[is_merged], runner_up_confidence[is_merged] = UNLABELLED, 0.0
    given = None
    if rows.given is not None:
        given = np.where(unlabelled_rows(rows.given), "", rows.given.astype(str))
    assignments = Assignments(
        ids=rows.ids,
        labels=name_rows(codes, classes),
        known=(codes >= 0) & (codes < n_known),
        confidence=confidence.astype(np.float32),
        runner_up=name_rows(runner_up, classes),
        runner_up_confidence=runner_up_confidence,
        outlier=spread_over(was.outlier, places, n, np.float32(np.nan)),
        given=given,
        texts=rows.texts,
        paths=rows.paths,
    )
    if was.label_quality is not None and was.suggested is not None and was.suggested_confidence is not None:
        suggested = renumbered(was.suggested)
        is_open = (suggested >= 0) & (suggested != codes) & assignments.labelled & ~state.by_hand & ~state.junk
        confidence = spread_over(was.suggested_confidence, places, n, np.float32(np.nan))
        assignments = dataclasses.replace(
            assignments,
            label_quality=spread_over(was.label_quality, places, n, np.float32(np.nan)),
            suggested=name_rows(np.where(is_open, suggested, UNLABELLED), classes),
            suggested_confidence=np.where(is_open, confidence, np.float32(np.nan)),
        )
    model = _model(found.model, classes, n_known, of_prototype, assignments.labels)
    stability = None if found.stability is None else _of_classes(found.stability, of_class, len(classes))
    names = found.classes.astype(str)
    of_names = {name: names[of_class == k].tolist() for k, name in enumerate(classes.tolist())}
    found_names = {name: ", ".join(listed) for name, listed in of_names.items() if listed not in ([], [name])}
    named = {name: said for name, said in found.suggested_names.items() if name in of_names}
    decided = Discovery(
        assignments, model, found.provenance, found.space, stability, found_names, named, folder=found.folder
    )
    if isinstance(model, InfoMaxEstimator):
        model.label_issues_ = decided.label_issues()
    return decided


def _model(
    fitted: DiscoveryEstimator,
    classes: NDArray[Any],
    n_known: int,
    of_prototype: NDArray[np.int64],
    labels: NDArray[Any],
) -> DiscoveryEstimator:
    """The model with these classes; it shares the tensors of the fitted one."""
    model = copy.copy(fitted)
    model.classes_, model.known_classes_, model.new_classes_ = classes, classes[:n_known], classes[n_known:]
    model.n_classes_, model.labels_ = len(classes), labels
    if not np.array_equal(of_prototype, np.arange(len(classes))):
        model.class_of_prototype_ = of_prototype
    elif hasattr(model, "class_of_prototype_"):
        del model.class_of_prototype_
    return model


def _class_of_prototype(model: DiscoveryEstimator) -> NDArray[np.int64]:
    classes: NDArray[np.int64] = getattr(model, "class_of_prototype_", np.arange(len(model.head_.prototypes)))
    return classes


def _of_classes(values: NDArray[np.float64], of_class: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """The value of each class that is one class of the fit; NaN for the others. (n,)"""
    found = np.full(n, np.nan)
    alone = np.bincount(of_class, minlength=n)[of_class] == 1
    found[of_class[alone]] = values[alone]
    return found


@contextlib.contextmanager
def _decisions_of(run: Path) -> Iterator[Store]:
    """A copy of the decisions: the database is neither locked nor changed."""
    with tempfile.TemporaryDirectory(prefix="rpim-") as folder:
        try:
            _copy(run / DECISIONS_FILE, Path(folder))
            with contextlib.closing(Store(Path(folder))) as store:
                yield store
        except (InputError, OSError, ValueError, KeyError, TypeError, zlib.error) as error:
            why = first_line(error).replace(str(Path(folder)), str(run)).partition(": it was not changed")[0]
            raise InputError(f"{why}: give --as-found to leave the decisions out.") from error


def _copy(path: Path, folder: Path) -> None:
    """A consistent copy of the database and its log; opening it in place would leave files beside it."""
    both = [path, path.with_name(_LOG)]
    for _ in range(_TRIES):
        before = [_stamp(file) for file in both]
        for file in both:
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(file, folder / file.name)
        if before == [_stamp(file) for file in both]:
            return
    raise InputError(f"{path} changes while it is being read, so stop rpim explore")


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns
