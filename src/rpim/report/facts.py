"""What the page says of the rows and classes of a discovery: plain values, worked out before anything is drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.text import end_of, plural, short
from rpim.data.labels import IntArray, unlabelled_rows
from rpim.metrics import contingency
from rpim.runs.assignments import UNSTABLE, class_codes
from rpim.runs.class_summaries import ClassSummary
from rpim.runs.decided_names import DecidedNames
from rpim.runs.discovery import Discovery
from rpim.runs.label_issues import LabelCounts

MAX_SUSPECTS = 20
CAPTION = 180
"""Characters of a text that are shown; the file names of images are cut at their beginning."""


@dataclass(frozen=True)
class Item:
    """A row to look at."""

    row: int
    caption: str
    confidence: float


@dataclass(frozen=True)
class ClassFacts:
    """A class as the page shows it."""

    number: int
    """Its place among the classes: its colour and its address on the page."""
    summary: ClassSummary
    typical: list[Item]
    doubtful: list[Item]
    mostly: str | None = None
    """The true class that most of its rows have, where the truth is known."""
    share: float = math.nan
    """Of its rows with a truth, those of that true class."""

    @property
    def name(self) -> str:
        """As the run has it."""
        return str(self.summary.name)

    @property
    def title(self) -> str:
        """The name that was decided, or else the suggested one, where there is one."""
        return self.summary.decided_name or self.summary.suggested_name or self.name


@dataclass(frozen=True)
class Overview:
    """What was asked and what was found."""

    title: str
    asked: str
    found: str
    numbers: list[tuple[str, str]]
    """What stands in large figures: a value and what it counts."""
    notes: list[str]
    trust: list[str]
    """How far the result can be trusted."""


@dataclass(frozen=True)
class SuspectLabel:
    """A label that looks wrong."""

    item: Item
    label: str
    suggested: int
    """The number of the class."""
    quality: float
    """The probability of the label by the members of the committee that did not see it."""


def captions(discovery: Discovery, rows: Sequence[int], width: int = CAPTION) -> list[str]:
    """A line for each of these rows: its text, the end of its path, or its id."""
    texts, paths = discovery.assignments.texts, discovery.assignments.paths
    lines = []
    for row in rows:
        if texts is not None and texts[row].strip():
            lines.append(short(texts[row], width))
        elif paths is not None and paths[row]:
            lines.append(end_of(paths[row], width))
        else:
            lines.append(f"row {short(discovery.ids[row], width)}")
    return lines


def class_facts(
    discovery: Discovery, truth: NDArray[Any] | None = None, decided: DecidedNames | None = None
) -> list[ClassFacts]:
    """Every class with its rows to look at, in the order of the discovery's classes, by the names that were decided."""
    place = {name: row for row, name in enumerate(discovery.ids.tolist())}

    def items(ids: list[Any]) -> list[Item]:
        rows = [place[name] for name in ids]
        said = captions(discovery, rows)
        return [Item(row, line, float(discovery.confidence[row])) for row, line in zip(rows, said, strict=True)]

    summaries = discovery.classes_table()
    summaries = summaries if decided is None else decided.given_to(summaries)
    meant = mostly(class_codes(discovery.labels, discovery.classes), truth, len(summaries))
    return [
        ClassFacts(k, summary, items(summary.typical), items(_others(summary)), *meant[k])
        for k, summary in enumerate(summaries)
    ]


def _others(summary: ClassSummary) -> list[Any]:
    """The doubtful rows; in a small class a typical one may be among them, and is not shown twice."""
    return [name for name in summary.doubtful if name not in summary.typical]


def suspect_labels(discovery: Discovery, n: int = MAX_SUSPECTS) -> list[SuspectLabel]:
    """The labels that look wrong, the most suspect first."""
    issues = discovery.label_issues()[:n]
    rows = [issue.row for issue in issues]
    numbers = class_codes(np.asarray([issue.suggested for issue in issues], discovery.classes.dtype), discovery.classes)
    return [
        SuspectLabel(Item(issue.row, line, issue.confidence), str(issue.label), number, issue.label_quality)
        for issue, line, number in zip(issues, captions(discovery, rows), numbers.tolist(), strict=True)
    ]


def mostly(codes: IntArray, truth: NDArray[Any] | None, n_classes: int) -> list[tuple[str | None, float]]:
    """For each class the true class that most of its rows have, and their share; None where no row has a truth.

    >>> mostly(np.array([0, 0, 0, 1]), np.array(["a", "a", "b", ""]), 2)
    [('a', 0.6666666666666666), (None, nan)]
    """
    if truth is None:
        return [(None, math.nan)] * n_classes
    seen = ~unlabelled_rows(truth) & (codes >= 0)
    names, true = np.unique(truth[seen], return_inverse=True)
    counts = contingency(codes[seen], true, n_classes, len(names))  # (K, true classes)
    return [
        (str(names[row.argmax()]), float(row.max() / row.sum())) if row.any() else (None, math.nan) for row in counts
    ]


def overview(discovery: Discovery, classes: Sequence[ClassFacts]) -> Overview:
    """What was asked and found in two sentences, the numbers that matter, and what one has to know beside."""
    labelled, left_out = discovery.assignments.labelled, discovery.assignments.left_out
    n_known = sum(one.summary.known for one in classes)
    with_rows = [one for one in classes if not one.summary.known and one.summary.rows]
    n_unlabelled = int((~labelled).sum())
    to_known = int((discovery.known & ~labelled).sum())
    to_new = n_unlabelled - to_known - int((left_out & ~labelled).sum())
    asked = (
        f"Of {plural(len(discovery), 'row')}, {int(labelled.sum()):,} came with a label of "
        f"{_classes(n_known, 'known')}; which class does each of the other {n_unlabelled:,} belong to, a known one or "
        "one that nobody has named yet?"
    )
    found = f"{to_known:,} of them went to known classes and {to_new:,} to {_classes(len(with_rows), 'new')}"
    model = discovery.model
    if model.n_classes is None and hasattr(model, "n_classes_low_"):
        found += (
            f"; that there are {len(classes):,} classes in all is an estimate (95 % interval {model.n_classes_low_:,} "
            f"to {model.n_classes_high_:,})"
        )
    unsure = [one for one in with_rows if one.summary.stability < UNSTABLE]
    numbers = [
        (f"{len(discovery):,}", "rows"),
        (f"{n_known:,}", "known classes"),
        (f"{len(with_rows):,}", "new classes"),
        (_percent(to_new / n_unlabelled if n_unlabelled else math.nan), "of the unlabelled rows are in new classes"),
        (_percent(_mean(discovery.confidence[~labelled & ~left_out])), "mean confidence of the unlabelled rows"),
    ]
    accuracy = getattr(model, "expected_accuracy_", math.nan)
    if not math.isnan(accuracy):
        numbers.append((_percent(accuracy), "expected accuracy on known classes"))
    notes = []
    if left_out.any():
        notes.append(f"Rows that fit no class, and were left out: {int(left_out.sum()):,}.")
    empty = sum(not one.summary.known and not one.summary.rows for one in classes)
    if empty:
        notes.append(
            f"{_classes(empty, 'new')} ended without a row: there may be fewer classes. Refit with --n-classes "
            f"{len(classes) - empty}, or without it to have the number estimated."
        )
    if unsure:
        notes.append(
            f"{len(unsure):,} of {_classes(len(with_rows), 'new')} {'is' if len(unsure) == 1 else 'are'} unstable: the "
            "members of the committee do not agree on the rows. Such classes are marked; read some of their rows "
            "before you rely on them."
        )
    return Overview(_title(discovery), asked, f"{found}.", numbers, notes, trust(discovery))


def trust(discovery: Discovery) -> list[str]:
    """How far the result can be trusted: what a committee says of itself, or that there is none."""
    n_members, accuracy = (
        getattr(discovery.model, name, usual) for name, usual in (("n_members_", 1), ("expected_accuracy_", math.nan))
    )
    counts = LabelCounts.of(discovery.assignments)
    if n_members == 1:
        said = ["This is a single fit: its confidence is not calibrated, and usually too high."]
    elif math.isnan(accuracy):
        said = [
            f"This is the consensus of a committee of {n_members} fits. No label could be hidden from a part of them, "
            "so what accuracy to expect is unknown."
        ]
    else:
        said = [
            f"This is the consensus of a committee of {n_members} fits, none of which saw all labels. Members "
            f"predicted the labels that they did not see, and {_percent(accuracy)} of these predictions are right: "
            "expect about that accuracy on unlabelled rows of known classes, and usually less on new ones."
        ]
    return said if counts is None or not counts.checked else [*said, counts.in_words()]


def _title(discovery: Discovery) -> str:
    told = discovery.provenance.get("data", {}).get("path")
    return f"Classes in {Path(told).name}" if told else "Classes found"


def _classes(n: int, kind: str) -> str:
    return plural(n, f"{kind} class")


def _mean(values: NDArray[np.float32]) -> float:
    return float(values.mean()) if len(values) else math.nan


def _percent(share: float) -> str:
    return "—" if math.isnan(share) else f"{share:.0%}"
