"""Labels that look wrong: from the model to the columns of a run, back to a ranked list, and to a file."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rpim._common.files import StrPath, check_export
from rpim.data.labels import UNLABELLED, name_rows, unlabelled_rows
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.label_checks import LabelIssue
from rpim.runs.assignments import Assignments, class_codes
from rpim.runs.class_summaries import SUFFIXES, write_records
from rpim.runs.saved_model import plain


@dataclass(frozen=True)
class LabelCounts:
    """How many labels a run has, how many of them were checked, and how many of those look wrong."""

    labels: int
    checked: int
    suspect: int

    @classmethod
    def of(cls, rows: Assignments) -> LabelCounts | None:
        """None where there was no committee to check them."""
        if rows.label_quality is None:
            return None
        suspect = 0 if rows.suggested is None else int((~unlabelled_rows(rows.suggested)).sum())
        return cls(int(rows.labelled.sum()), int((~np.isnan(rows.label_quality)).sum()), suspect)

    def in_words(self, run: StrPath | None = None) -> str:
        """One sentence; with the folder of the run, it says how to list the labels.

        >>> LabelCounts(2436, 2436, 30).in_words("run")
        '30 of 2,436 labels look wrong: rpim classes run --label-issues lists them.'
        >>> LabelCounts(12, 8, 0).in_words()
        'None of 12 labels looks wrong (8 were checked).'
        """
        if not self.checked:
            return "No label could be checked: that takes at least two labelled rows of a class."
        checked = "" if self.checked == self.labels else f" ({self.checked:,} were checked)"
        if not self.suspect:
            return f"None of {self.labels:,} labels looks wrong{checked}."
        verb, them = ("looks", "it") if self.suspect == 1 else ("look", "them")
        where = "" if run is None else f": rpim classes {shlex.quote(str(run))} --label-issues lists {them}"
        return f"{self.suspect:,} of {self.labels:,} labels {verb} wrong{checked}{where}."


def with_label_checks(rows: Assignments, model: DiscoveryEstimator) -> Assignments:
    """The rows of a fit with what its committee says of their labels; as they are where there was none."""
    if getattr(model, "n_members_", 1) == 1:
        return rows
    issues: list[LabelIssue] = model.label_issues_
    numbers = [issue.row for issue in issues]
    suggested = np.asarray([issue.suggested for issue in issues], dtype=model.classes_.dtype)
    codes = np.full(len(rows), UNLABELLED)
    codes[numbers] = class_codes(suggested, model.classes_)
    confidence = np.full(len(rows), np.nan, dtype=np.float32)
    confidence[numbers] = [issue.confidence for issue in issues]
    return dataclasses.replace(
        rows,
        label_quality=model.label_quality_,
        suggested=name_rows(codes, model.classes_),
        suggested_confidence=confidence,
    )


def ranked_issues(rows: Assignments) -> list[LabelIssue]:
    """The labels that look wrong, the most suspect first: by how much likelier the suggested class is."""
    given, quality, suggested = rows.given, rows.label_quality, rows.suggested
    if given is None or quality is None or suggested is None:
        return []
    confidence = rows.suggested_confidence
    confidence = np.full_like(quality, np.nan) if confidence is None else confidence
    suspect = np.flatnonzero(~unlabelled_rows(suggested))
    ranked = suspect[np.argsort((quality - np.nan_to_num(confidence))[suspect], kind="stable")]
    return [
        LabelIssue(row, given[row], suggested[row], float(quality[row]), float(confidence[row]))
        for row in ranked.tolist()
    ]


def write_label_issues(
    rows: Assignments, issues: Sequence[LabelIssue], path: StrPath, *, overwrite: bool = False
) -> None:
    """Write a .csv or .json file, whole or not at all."""
    target = check_export(path, overwrite, SUFFIXES)
    names = ["id", "label", "suggested", "label_quality", "confidence"]
    shown = {name: values for name, values in (("text", rows.texts), ("path", rows.paths)) if values is not None}
    records: list[dict[str, Any]] = []
    for row, *facts in issues:
        cells = [plain(value) for value in (rows.ids[row], *facts)]
        records.append(dict(zip(names, cells, strict=True)) | {name: values[row] for name, values in shown.items()})
    write_records([*names, *shown], records, target)
