"""The contents of the report about rows and classes, and classes by a metadata column, computed before rendering."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, end_of, plural, short
from rpim.data.columns import read_dates
from rpim.data.feature_set import FeatureSet
from rpim.data.labels import IntArray, unlabelled_rows
from rpim.metrics import contingency
from rpim.runs.assignments import UNSTABLE, class_codes
from rpim.runs.class_summaries import ClassSummary, LabelCounts, estimated_count, expected_accuracy
from rpim.runs.discovery import Discovery
from rpim.runs.facets import Facet, Trends, class_counts, day, facet_of, format_value, trends
from rpim.runs.hierarchy import Hierarchy, name_by_classes

STEPS = 6
"""Shades of the cells."""
MAX_LABEL_ISSUES = 20
MAX_LEAVES = 2000
"""A tree of more classes is not read, and its K x K distances would take most of the memory of a report."""
CAPTION = 180
"""Maximum characters of a caption; file names are cut at their beginning."""


@dataclass(frozen=True)
class Item:
    """A row shown in the report."""

    row: int
    caption: str
    confidence: float


@dataclass(frozen=True)
class ClassFacts:
    """A class shown in the report."""

    number: int
    """Index of the class: determines its colour and its anchor on the page."""
    summary: ClassSummary
    typical: list[Item]
    doubtful: list[Item]
    mostly: str | None = None
    """The majority true class, if the truth is known."""
    share: float = math.nan
    """Share of its rows with a true class that have the majority one."""

    @property
    def name(self) -> str:
        """The name that the fit gave."""
        return self.summary.found_name or str(self.summary.name)

    @property
    def title(self) -> str:
        """The decided name, else the suggested name, else the name that the fit gave."""
        return str(self.summary.name) if self.summary.found_name else self.summary.suggested_name or self.name


@dataclass(frozen=True)
class Overview:
    """The introduction of the report."""

    title: str
    asked: str
    found: str
    numbers: list[tuple[str, str]]
    """Key figures: a value and its description."""
    notes: list[str]
    trust: list[str]
    """Sentences on the reliability of the result."""


@dataclass(frozen=True)
class LabelIssueItem:
    """A label issue shown in the report."""

    item: Item
    label: str
    suggested: int
    """Index of the suggested class."""
    quality: float
    """Label quality: the out-of-bag probability of the given label."""


@dataclass(frozen=True)
class TreeNode:
    """A group of classes shown in the report, or a class: then `number` is its index."""

    name: str
    rows: int
    n_classes: int
    n_new: int
    children: list[TreeNode]
    number: int = -1


def class_tree(discovery: Discovery) -> list[TreeNode]:
    """The tree of the classes at the levels that people read; empty with fewer than two classes, and with many."""
    if len(discovery.classes) > MAX_LEAVES:
        return []
    try:
        tree = discovery.hierarchy()
    except InputError:
        return []
    number = {name: k for k, name in enumerate(discovery.classes.tolist())}

    def group(node: int, levels: list[int], name: str = "") -> TreeNode:
        leaves = tree.leaves(node)
        if len(leaves) == 1:
            k = leaves[0]
            return TreeNode(tree.names[k], tree.rows[k], 1, int(not tree.known[k]), [], number[tree.classes[k]])
        inside = set(leaves)
        below = [one for one in tree.nodes_at(levels[0]) if inside.issuperset(tree.leaves(one))]
        rows, n_new = sum(tree.rows[k] for k in leaves), sum(not tree.known[k] for k in leaves)
        said = Counter([name, *(tree.names[one] for one in below)])
        children = [group(one, levels[1:], _distinct(tree, one, said)) for one in below]
        return TreeNode(name, rows, len(leaves), n_new, children)

    return group(tree.root, [*tree.levels(), len(tree.classes)]).children


def _distinct(tree: Hierarchy, node: int, said: Counter[str]) -> str:
    """The name of a group, with its largest classes if the group around it, or one beside it, has the same name."""
    name, leaves = tree.names[node], tree.leaves(node)
    if said[name] < 2 or len(leaves) < 2:
        return name
    return f"{name}: {name_by_classes(leaves, tree.names, tree.known, tree.rows)}"


def captions(discovery: Discovery, rows: Sequence[int], width: int = CAPTION) -> list[str]:
    """The caption of each row: its text, the end of its path, or its id."""
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


def class_facts(discovery: Discovery, truth: NDArray[Any] | None = None) -> list[ClassFacts]:
    """The classes with their example rows, in the order of the discovery."""
    place = {name: row for row, name in enumerate(discovery.ids.tolist())}

    def items(ids: list[Any]) -> list[Item]:
        rows = [place[name] for name in ids]
        said = captions(discovery, rows)
        return [Item(row, line, float(discovery.confidence[row])) for row, line in zip(rows, said, strict=True)]

    summaries = discovery.classes_table()
    meant = mostly(class_codes(discovery.labels, discovery.classes), truth, len(summaries))
    return [
        ClassFacts(k, summary, items(summary.typical), items(summary.doubtful), *meant[k])
        for k, summary in enumerate(summaries)
    ]


def label_issue_items(discovery: Discovery, n: int = MAX_LABEL_ISSUES) -> list[LabelIssueItem]:
    """The first `n` label issues, most likely errors first."""
    issues = discovery.label_issues()[:n]
    rows = [issue.row for issue in issues]
    numbers = class_codes(np.asarray([issue.suggested for issue in issues], discovery.classes.dtype), discovery.classes)
    return [
        LabelIssueItem(Item(issue.row, line, issue.confidence), str(issue.label), number, issue.label_quality)
        for issue, line, number in zip(issues, captions(discovery, rows), numbers.tolist(), strict=True)
    ]


def mostly(codes: IntArray, truth: NDArray[Any] | None, n_classes: int) -> list[tuple[str | None, float]]:
    """The majority true class of each class and its share; None if no row has a true class.

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
    """The introduction: problem, result, key figures, warnings and reliability."""
    labelled, left_out = discovery.assignments.labelled, discovery.assignments.left_out
    n_known = sum(one.summary.known for one in classes)
    with_rows = [one for one in classes if not one.summary.known and one.summary.rows]
    n_unlabelled = int((~labelled).sum())
    to_known = int((discovery.known & ~labelled).sum())
    to_new = n_unlabelled - to_known - int((left_out & ~labelled).sum())
    asked = (
        f"Of {plural(len(discovery), 'row')}, {int(labelled.sum()):,} are labelled with "
        f"{_classes(n_known, 'known')}. The other {n_unlabelled:,} rows belong to known or new classes."
    )
    found = f"{to_known:,} were assigned to known classes and {to_new:,} to {_classes(len(with_rows), 'new')}"
    if not n_known:
        asked = f"None of {plural(len(discovery), 'row')} is labelled."
        found = f"They were clustered into {plural(len(with_rows), 'group')}"
    model, noun = discovery.model, "new class" if n_known else "group"
    unstable = [one for one in with_rows if one.summary.stability < UNSTABLE]
    numbers = [
        (f"{len(discovery):,}", "rows"),
        (f"{n_known:,}", "known classes"),
        (f"{len(with_rows):,}", "new classes" if n_known else "groups"),
        (percent(to_new / n_unlabelled if n_unlabelled else math.nan), "of the unlabelled rows are in new classes"),
        (percent(_mean(discovery.confidence[~labelled & ~left_out])), "mean confidence of the unlabelled rows"),
    ]
    if not n_known:
        numbers = [one for one in numbers if "classes" not in one[1]]
    accuracy = getattr(model, "expected_accuracy_", math.nan)
    if not math.isnan(accuracy):
        numbers.append((percent(accuracy), "expected accuracy on known classes"))
    notes = []
    if left_out.any():
        notes.append(f"Rows rejected as outliers: {int(left_out.sum()):,}.")
    empty = sum(not one.summary.known and not one.summary.rows for one in classes)
    if empty:
        notes.append(
            f"{plural(empty, noun)} ended without rows, so there may be fewer classes: refit with --n-classes "
            f"{len(classes) - empty}, or without it to estimate the number."
        )
    if unstable:
        notes.append(
            f"{len(unstable):,} of {plural(len(with_rows), noun)} {'is' if len(unstable) == 1 else 'are'} unstable: "
            "the members of the committee disagree about their rows. Such classes are marked; inspect some rows before "
            "you rely on them."
        )
    found = f"{found}. {estimated_count(model)}".strip()
    return Overview(_title(discovery), asked, found, numbers, notes, trust(discovery))


def trust(discovery: Discovery) -> list[str]:
    """Reliability of the result: expected accuracy and label issues, or that there is no committee."""
    counts, said = LabelCounts.of(discovery.assignments), [expected_accuracy(discovery.model)]
    if not math.isnan(getattr(discovery.model, "expected_accuracy_", math.nan)):
        said.append("Expect about that accuracy on unlabelled rows of known classes, and usually less on new classes.")
    return said if counts is None or not counts.checked else [*said, counts.sentence()]


def _title(discovery: Discovery) -> str:
    path = discovery.provenance.get("data", {}).get("path")
    noun = "Classes" if len(discovery.model.known_classes_) else "Groups"
    return f"{noun} in {Path(path).name}" if path else f"{noun} found"


def _classes(n: int, kind: str) -> str:
    return plural(n, f"{kind} class")


def _mean(values: NDArray[np.float32]) -> float:
    return float(values.mean()) if len(values) else math.nan


def percent(share: float) -> str:
    """A share as a percentage; a dash for NaN."""
    return "—" if math.isnan(share) else f"{share:.0%}"


@dataclass(frozen=True, eq=False)
class ByColumn:
    """The classes by the values of a column.

    Attributes
    ----------
    column : str
    labels : tuple of str
        The values, or ranges of numbers.
    totals : list of int
        The rows of each.
    numbers : list of int
        The classes with rows, the largest first.
    shares : (K, B) array
        The share of each class in the rows of each value; NaN for a value without rows.
    n_missing : int
        Rows without a value.
    trends : Trends or None
        For dates: the classes over time.
    """

    column: str
    labels: tuple[str, ...]
    totals: list[int]
    numbers: list[int]
    shares: NDArray[np.float64]
    n_missing: int
    trends: Trends | None

    def shade(self, share: float) -> int:
        """The shade of a cell, 0 to `STEPS` - 1, from the largest share of the table."""
        most = float(np.nanmax(self.shares, initial=0.0)) or 1.0
        return 0 if np.isnan(share) else round((STEPS - 1) * share / most)

    @property
    def found(self) -> str:
        """How many classes appeared, grow, shrink and are gone."""
        assert self.trends is not None
        status = [one.status for one in self.trends.classes]
        said = {"new": "appeared", "grows": "grow", "shrinks": "shrink", "gone": "are gone"}
        parts = [f"{status.count(one):,} {word}" for one, word in said.items() if one in status]
        return ", ".join(parts) or "nothing changed clearly"

    def bars(self, number: int, width: float = 120, height: float = 24) -> list[tuple[str, str, str, str]]:
        """A small bar chart of a class over time: x, y, width and height of each bar."""
        assert self.trends is not None
        shares = next(np.nan_to_num(one.shares) for one in self.trends.classes if one.number == number)
        most = max(np.nan_to_num(one.shares).max() for one in self.trends.classes) or 1.0
        wide = width / len(shares)
        tall = height * shares / most
        return [
            (f"{k * wide:.2f}", f"{height - tall[k]:.2f}", f"{0.85 * wide:.2f}", f"{tall[k]:.2f}")
            for k in range(len(shares))
        ]


def by_column(discovery: Discovery, features: FeatureSet, column: str, since: str | None = None) -> ByColumn:
    """Count the classes by a metadata column.

    Parameters
    ----------
    discovery : Discovery
    features : FeatureSet
        Its rows, in order.
    column : str
        The name of a metadata column.
    since : str, optional
        For dates: the day from which on classes are compared with those before; by default that on which the latest
        quarter of the rows begins.

    Raises
    ------
    InputError
        If there is no such column, it holds dates and other values, or `since` is not a day.
    """
    if column not in features.columns:
        names = ", ".join(format_value(name) for name in features.columns)
        what = f"there are {names}" if names else "there are none"
        raise InputError(f"The features have no metadata column {short(column, 60)!r}: {what}.")
    values = features.columns[column]
    facet = facet_of(values)
    if facet.kind != "dates":
        _check_no_dates(column, values, since)
    if not facet.labels:
        raise InputError(f"The metadata column {short(column, 60)!r} has no values: choose another.")
    codes, n_classes = class_codes(discovery.labels, discovery.classes), len(discovery.classes)
    over_time = None
    if facet.kind == "dates":
        over_time = trends(facet, codes, n_classes, None if since is None else day(since))
    return _counted(column, facet, codes, n_classes, over_time)


def _counted(column: str, facet: Facet, codes: NDArray[np.int64], n_classes: int, over_time: Trends | None) -> ByColumn:
    counts = class_counts(facet, codes, n_classes)  # (K, B)
    with np.errstate(invalid="ignore"):
        shares = counts / counts.sum(axis=0)
    sizes = counts.sum(axis=1)
    numbers = [number for number in np.argsort(-sizes, kind="stable").tolist() if sizes[number]]
    n_missing = int(facet.is_missing.sum())
    return ByColumn(column, facet.labels, counts.sum(axis=0).tolist(), numbers, shares, n_missing, over_time)


def _check_no_dates(column: str, values: NDArray[np.generic], since: str | None) -> None:
    """Refuse a column that is meant to hold dates and does not."""
    name = short(column, 60)
    if values.dtype.kind == "O":
        seconds, others = read_dates(values)
        n_dates = int(np.isfinite(seconds).sum())
        if others and n_dates > len(values) / 2:
            raise InputError(
                f"The column {name!r} has dates and {plural(len(others), 'other value')}, such as "
                f"{short(others[0], 40)!r}: write them like 2024-01-31, or leave them empty."
            )
    if since is not None:
        first = next((format_value(value) for value in values.tolist() if value not in ("", None)), "")
        raise InputError(
            f"--since needs dates, but the column {name!r} holds values such as {first!r}: give --by a column of dates "
            "(2024-01-31), or leave --since out."
        )
