"""The names that a person has given to classes in the explorer, for the report and the tables of classes."""

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
    """What was decided about the classes of a run.

    Attributes
    ----------
    run : Path
        The one whose decisions they are: that of a later fit is the run that it belongs to.
    names : dict of class number to name
    others : int
        How many other decisions there are that change which row is in which class.
    problem : str
        Why nothing is known of them, in one sentence; "" where all is well.
    """

    run: Path
    names: Mapping[int, str] = field(default_factory=dict)
    others: int = 0
    problem: str = ""

    def given_to(self, summaries: Sequence[ClassSummary]) -> list[ClassSummary]:
        """The same classes with these names beside their own."""
        return [
            dataclasses.replace(one, decided_name=decided)
            if (decided := self.names.get(number, str(one.name))) != str(one.name)
            else one
            for number, one in enumerate(summaries)
        ]

    def in_words(self, summaries: Sequence[ClassSummary]) -> list[str]:
        """What has to be said of them once, in a sentence or two; nothing where nothing was decided."""
        n_named = sum(bool(one.decided_name) for one in summaries)
        said = []
        if n_named:
            classes = "1 class was" if n_named == 1 else f"{n_named:,} classes were"
            said.append(f"{classes} named in rpim explore: the name that was decided comes first, the run's beside it.")
        if self.others:
            decisions = "1 other decision" if self.others == 1 else f"{self.others:,} other decisions"
            said.append(
                f"The rows are those that the run found: {decisions} made there (merge, split, move, junk) can be had "
                f"by rpim export {shlex.quote(str(self.run))} -o FILE --decisions."
            )
        return said


def decided_names(run: Path) -> DecidedNames:
    """The names as they stand after all decisions; the database is neither changed nor locked, nor is one made."""
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
            return DecidedNames(whole, problem=f"Names decided in rpim explore are not shown: {why}.")
    names = {one.number: one.name for one in made if isinstance(one, Rename)}
    return DecidedNames(whole, names, sum(not isinstance(one, Rename | Accept) for one in made))


def _copy(path: Path, folder: Path) -> None:
    """The database and what was written last, at one moment: SQLite itself would leave files beside it."""
    both = [path, path.with_name(_LOG)]
    for _ in range(_TRIES):
        before = [_stamp(file) for file in both]
        for file in both:
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(file, folder / file.name)
        if before == [_stamp(file) for file in both]:
            return
    raise InputError(f"{path} is being written to all the time: end rpim explore")


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns
