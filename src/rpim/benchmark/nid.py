"""The protocol of new-intent discovery: 25, 50 or 75 % of the classes known, a tenth of their training rows labelled.

Where lists are given, they say which classes and rows these are. Where not, the seed does: the known classes are the
first ``round(share * n)`` of ``RandomState(seed).permutation`` of the n sorted classes; of each known class in
ascending order ``RandomState(seed)`` (one generator for all classes) permutes the training rows in file order, and the
first ``max(1, round(n / 10))`` keep their label. Methods are trained on the training rows, labelled or not, and
measured on the test rows; development rows are not used.

A file of lists is JSON: ``{"0.25": {"seed0": {"known": [classes], "labelled": [rows]}, ...}, ...}``, rows by their
number in the whole feature set from zero on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rpim._common.errors import InputError, some, some_rows
from rpim._common.files import must_exist, reading
from rpim.benchmark.nid_tables import SETS
from rpim.benchmark.protocol import TEST, Case, Parts, class_numbers, drawn_classes, labelled_share
from rpim.benchmark.published_results import published_name
from rpim.data.labels import UNLABELLED

KNOWN_SHARES = (0.25, 0.5, 0.75)
SEEDS = tuple(range(10))
LABELLED_SHARE = 0.1
SPLIT_COLUMN = "nid_split"


@dataclass(frozen=True)
class NidList:
    """The known classes and the labelled rows of one share and one seed."""

    known: tuple[int | str, ...]
    labelled: tuple[int, ...]


Lists = dict[tuple[float, int], NidList]
"""By share of known classes and seed."""


@dataclass(frozen=True)
class NidDraw:
    """How a problem of new-intent discovery is made of a feature set."""

    known_share: float
    listed: NidList | None = None

    def case(self, parts: Parts, seed: int) -> Case:
        """The problem under this seed."""
        if parts.test is None:
            raise InputError(f"it has no row whose part is called {TEST}, on which this protocol measures: give some.")
        if self.listed is not None:
            return _listed_case(parts, self.listed)
        present = parts.present
        known = drawn_classes(present, min(round(self.known_share * len(present)), len(present) - 1), seed)
        return parts.case(labelled_share(parts.truth, known, LABELLED_SHARE, seed, at_least=1), known)

    @property
    def facts(self) -> dict[str, Any]:
        """What a record says of it."""
        return {"known_share": self.known_share}


def _listed_case(parts: Parts, listed: NidList) -> Case:
    known = np.unique(np.asarray(class_numbers(listed.known, parts.classes), dtype=np.int64))
    place = {row: k for k, row in enumerate(parts.rows.tolist())}
    strange = [row for row in listed.labelled if row not in place]
    if strange:
        raise InputError(
            f"the split list labels {some_rows(strange)} outside the training rows: give the list of this set."
        )
    rows = np.asarray([place[row] for row in listed.labelled], dtype=np.int64)
    y = np.full(len(parts.truth), UNLABELLED, dtype=np.int64)
    y[rows] = parts.truth[rows]
    wrong = [row for row in listed.labelled if y[place[row]] not in known]
    if wrong:
        raise InputError(
            f"the split list labels {some_rows(wrong)} of classes that it does not call known: make the two agree."
        )
    without = np.setdiff1d(known, y[rows])
    if without.size:
        raise InputError(
            f"the split list calls class {some(parts.classes[without].tolist())} known but labels no row of it: "
            "label some, or call it unknown."
        )
    return parts.case(y, known)


def find_lists(path: Path, name: str) -> Path:
    """The file of lists for the set of this name: `path` itself, or the one in that folder which is called after it."""
    if not path.is_dir():
        return path
    known_as = (published_name(name, SETS) or name).lower()
    files = sorted(path.glob("*.json"))
    found = [file for file in files if file.stem.lower() in (known_as, name.lower())] or [
        file for file in files if file.stem.lower().endswith(f"_{known_as}")
    ]
    if len(found) != 1:
        several = f"several lists ({some(file.name for file in found)})"
        what = several if found else f"no list called nid_splits_{known_as}.json"
        raise InputError(f"{path} has {what} for the set {name!r}: give the file itself.")
    return found[0]


def read_lists(path: Path) -> Lists:
    """The lists of a file by share of known classes and seed."""
    must_exist(path)
    with reading(path):
        held = json.loads(path.read_text(encoding="utf-8-sig"))
    try:
        return {
            (float(share), int(seed.removeprefix("seed"))): NidList(tuple(one["known"]), _rows(one["labelled"]))
            for share, by_seed in held.items()
            for seed, one in by_seed.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} holds no lists of this protocol: give "
            '{"0.25": {"seed0": {"known": [classes], "labelled": [row numbers]}}}.'
        ) from error


def _rows(listed: Any) -> tuple[int, ...]:
    if not all(isinstance(row, int) and not isinstance(row, bool) for row in listed):
        raise TypeError("a row that is no number")
    return tuple(dict.fromkeys(listed))


def draws(lists: Lists | None, seed: int) -> list[NidDraw]:
    """One for each share of known classes."""
    if lists is None:
        return [NidDraw(share) for share in KNOWN_SHARES]
    for share in KNOWN_SHARES:
        if (share, seed) not in lists:
            raise InputError(f"the split list has nothing for a share of {share} and seed {seed}: give other seeds.")
    return [NidDraw(share, lists[share, seed]) for share in KNOWN_SHARES]
