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
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rpim._common.errors import InputError, some, some_rows
from rpim._common.files import must_exist, reading
from rpim.benchmark.protocol import TEST, Case, SplitFeatures, class_numbers, drawn_classes, labelled_share
from rpim.benchmark.results import (
    NOTHING,
    TEST_ACCURACY,
    Record,
    Results,
    Table,
    accuracy_column,
    published_name,
    published_results,
)
from rpim.benchmark.studies import Study
from rpim.data.labels import UNLABELLED

SETS = {"banking": "BANKING77", "banking77": "BANKING77", "clinc": "CLINC150", "clinc150": "CLINC150"}
"""What people call the sets of the published figures, in small letters and figures alone."""

_ALL, _KNOWN, _NOVEL = TEST_ACCURACY
_METRICS = {_ALL: "ACC all", _KNOWN: "Known", _NOVEL: "Novel"}

NOTE = (
    "Rows with a source are published figures, found with BERT-base encoders tuned on the task; ours stand on frozen "
    "sentence embeddings of another pre-training, with the number of classes given unless said, so the two do not "
    "compare methods alone."
)


def column_name(record: Record) -> str:
    """What a record is about: its set, with the share of known classes where the protocol varies it."""
    share = record.get("known_share")
    return str(record["set"]) if share is None else f"{record['set']}, {share:.0%} known"


def by_known_share(study: Study, results: Results) -> list[Table]:
    """All, then Known/Novel: a column for each set and share of known classes."""
    share_of = {record["set"]: record["known_share"] for record in results.done + results.failed}
    over = f", mean over {len(results.seeds)} seeds ± standard deviation" if len(results.seeds) > 1 else ""
    found = []
    for title, parts in (("All", (_ALL,)), ("Known/Novel", (_KNOWN, _NOVEL))):
        columns = {
            name: accuracy_column(results, name, parts) | _published(name, share_of[name], parts)
            for name in results.sets
        }
        names = dict.fromkeys([*results.methods, *(row for column in columns.values() for row in column)])
        rows = [[row, *(column.get(row, NOTHING) for column in columns.values())] for row in names]
        of_known = " of Known" if over and len(parts) > 1 else ""
        what = f"{title} (GCD accuracy v2 in % on the test rows, one matching over them){over}{of_known}"
        note = " ".join(part for part in (study.note, f"{what}; the best of ours in bold.", NOTE) if part)
        found.append(Table(f"{study.title}: {title}", note, ["method", *columns], rows))
    return found


def _published(data_set: str, share: float, parts: Iterable[str]) -> dict[str, str]:
    """The published figures of a set at a share of known classes, by method and source."""
    known_as = published_name(data_set, SETS)
    lines = [
        line
        for line in published_results("nid_published.csv")
        if line["dataset"] == known_as and float(line["known_ratio"]) == share
    ]
    at = {(f"{line['method']} ({line['source']})", line["metric"]): f"{float(line['value']):.1f}" for line in lines}
    rows = dict.fromkeys(row for row, _ in at)
    texts = {row: [at.get((row, _METRICS[part])) for part in parts] for row in rows}
    return {row: "/".join(value or NOTHING for value in found) for row, found in texts.items() if any(found)}


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

    def case(self, parts: SplitFeatures, seed: int) -> Case:
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
        """Fields of the record."""
        return {"known_share": self.known_share}


def _listed_case(parts: SplitFeatures, listed: NidList) -> Case:
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
