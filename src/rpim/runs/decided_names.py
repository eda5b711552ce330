"""Class names decided in the explorer, for the report and the tables of classes."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
import shutil
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rpim._common.errors import InputError, first_line
from rpim.runs.class_summaries import ClassSummary
from rpim.runs.decision_store import Store
from rpim.runs.decisions import Accept, Rename
from rpim.runs.run_folder import DECISIONS_FILE, REFITS_FOLDER

_LOG = f"{DECISIONS_FILE}-wal"
_TRIES = 5


@dataclass(frozen=True)
class DecidedNames:
    """Class names decided in the explorer.

    Attributes
    ----------
    run : Path
        The run that the decisions belong to; for a refit, the original run.
    names : dict of class number to name
    others : int
        Number of other decisions that change the classes of rows.
    problem : str
        Why the decisions could not be read; "" if they could.
    """

    run: Path
    names: Mapping[int, str] = field(default_factory=dict)
    others: int = 0
    problem: str = ""

    def given_to(self, summaries: Sequence[ClassSummary]) -> list[ClassSummary]:
        """The summaries with their decided names."""
        return [
            dataclasses.replace(one, decided_name=decided)
            if (decided := self.names.get(number, str(one.name))) != str(one.name)
            else one
            for number, one in enumerate(summaries)
        ]

    def notes(self, summaries: Sequence[ClassSummary]) -> list[str]:
        """Notes for the reader; empty if nothing was decided."""
        n_named = sum(bool(one.decided_name) for one in summaries)
        said = []
        if n_named:
            classes = "1 class was" if n_named == 1 else f"{n_named:,} classes were"
            said.append(f"{classes} renamed in rpim explore: the decided name comes first, followed by the run's name.")
        if self.others:
            decisions = "1 other decision" if self.others == 1 else f"{self.others:,} other decisions"
            said.append(
                f"Rows are shown as assigned by the fit; {decisions} (merge, split, move, junk) can be exported "
                f"with rpim export {shlex.quote(str(self.run))} -o FILE --decisions."
            )
        return said


def decided_names(run: Path) -> DecidedNames:
    """The current names; the database is copied, so it is neither locked nor changed nor created."""
    whole, version = run, 0
    if run.resolve().parent.name == REFITS_FOLDER and run.resolve().name.isdigit():
        whole, version = run.resolve().parents[1], int(run.resolve().name)
    path = whole / DECISIONS_FILE
    if not path.is_file():
        return DecidedNames(whole)
    with tempfile.TemporaryDirectory(prefix="rpim-") as folder:
        try:
            _copy(path, Path(folder))
            with contextlib.closing(Store(Path(folder))) as store:
                made = [store.read(number) for number in store.path_to(store.current(version))]
        except (InputError, OSError, ValueError, KeyError, TypeError, zlib.error) as error:
            why = first_line(error).replace(str(Path(folder) / DECISIONS_FILE), str(path))
            return DecidedNames(whole, problem=f"Names from rpim explore are not shown: {why}.")
    names = {one.number: one.name for one in made if isinstance(one, Rename)}
    return DecidedNames(whole, names, sum(not isinstance(one, Rename | Accept) for one in made))


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
    raise InputError(f"{path} changes while it is being read: stop rpim explore")


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns
