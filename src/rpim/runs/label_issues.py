"""Label issues: from the model to the columns of a run, to a ranked list, and to a file."""

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
from rpim.runs.saved_model import json_value


@dataclass(frozen=True)
class LabelCounts:
    """The number of labels of a run, of checked labels, and of label issues."""

    labels: int
    checked: int
    issues: int

    @classmethod
    def of(cls, rows: Assignments) -> LabelCounts | None:
        """Count them; None without a committee."""
        if rows.label_quality is None:
            return None
        issues = 0 if rows.suggested is None else int((~unlabelled_rows(rows.suggested)).sum())
        return cls(int(rows.labelled.sum()), int((~np.isnan(rows.label_quality)).sum()), issues)

    def sentence(self, run: StrPath | None = None) -> str:
        """One sentence; with the run folder, it names the command that lists the issues.

        >>> LabelCounts(2436, 2436, 30).sentence("run")
        '30 of 2,436 labels are probably wrong: rpim classes run --label-issues lists them.'
        >>> LabelCounts(12, 8, 0).sentence()
        'None of 12 labels is probably wrong (8 were checked).'
        """
        if not self.checked:
            return "No label could be checked: a class needs at least two labelled rows."
        checked = "" if self.checked == self.labels else f" ({self.checked:,} were checked)"
        if not self.issues:
            return f"None of {self.labels:,} labels is probably wrong{checked}."
        verb, them = ("is", "it") if self.issues == 1 else ("are", "them")
        where = "" if run is None else f": rpim classes {shlex.quote(str(run))} --label-issues lists {them}"
        return f"{self.issues:,} of {self.labels:,} labels {verb} probably wrong{checked}{where}."


def with_label_checks(rows: Assignments, model: DiscoveryEstimator) -> Assignments:
    """Add the label checks of the committee; unchanged without a committee."""
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
    """The label issues, most likely errors first: ranked by the margin of the suggested class."""
    given, quality, suggested = rows.given, rows.label_quality, rows.suggested
    if given is None or quality is None or suggested is None:
        return []
    confidence = rows.suggested_confidence
    confidence = np.full_like(quality, np.nan) if confidence is None else confidence
    found = np.flatnonzero(~unlabelled_rows(suggested))
    ranked = found[np.argsort((quality - np.nan_to_num(confidence))[found], kind="stable")]
    return [
        LabelIssue(row, given[row], suggested[row], float(quality[row]), float(confidence[row]))
        for row in ranked.tolist()
    ]


def write_label_issues(
    rows: Assignments, issues: Sequence[LabelIssue], path: StrPath, *, overwrite: bool = False
) -> None:
    """Write a .csv or .json file atomically."""
    target = check_export(path, overwrite, SUFFIXES)
    names = ["id", "label", "suggested", "label_quality", "confidence"]
    shown = {name: values for name, values in (("text", rows.texts), ("path", rows.paths)) if values is not None}
    records: list[dict[str, Any]] = []
    for row, *facts in issues:
        cells = [json_value(value) for value in (rows.ids[row], *facts)]
        records.append(dict(zip(names, cells, strict=True)) | {name: values[row] for name, values in shown.items()})
    write_records([*names, *shown], records, target)
