"""Summaries of the classes of a run, its label issues (as columns, ranked, written to a file), and its reliability."""

from __future__ import annotations

import dataclasses
import io
import json
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import starmap
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from rpim._common.errors import InputError, in_halves, interval, plural
from rpim._common.files import StrPath, check_export, replacing
from rpim.data.formats.tables import CsvTable
from rpim.data.labels import UNLABELLED, name_rows, unlabelled_rows
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.committee import LabelIssue
from rpim.runs.assignments import Assignments, class_codes
from rpim.runs.keywords import Namer, keywords, numbered, suggest_names
from rpim.runs.saved_model import json_value

SUFFIXES = (".csv", ".json")
CONFIDENT = 0.9
N_ROWS = 3
_N_EXAMPLES = 20
"""Maximum number of rows that a namer gets of a class."""


@dataclass(frozen=True)
class ClassSummary:
    """Summary of one class.

    Attributes
    ----------
    name : str, int or float
        The class, in the user's label type.
    suggested_name : str
        A name for a new class, from `Discovery.named_by` or its keywords; "" for known classes, and without
        texts or rows.
    found_name : str
        The name that the fit gave, if a person has decided another one; of merged classes all names. "" otherwise.
    known : bool
        Whether it is a known class.
    rows : int
        Number of rows.
    labelled : int
        Number of labelled rows.
    mean_confidence : float
        Mean confidence of its rows; NaN without rows.
    confident_share : float
        Share of its rows with a confidence above 0.9; NaN without rows.
    stability : float
        How well the members of the committee reproduce the class: the mean Jaccard index between it and its match in
        each member, from 0 to 1. NaN for a single fit.
    nearest_known : str, int or float
        The other known class with the most similar prototype.
    typical : list
        Ids of the most confident rows; ties (to a percent) are broken by outlier score.
    doubtful : list
        Ids of the least confident rows that are not typical, the least confident first.
    keywords : list of str
        Keywords of its texts, best first; empty without texts.
    """

    name: Any
    suggested_name: str
    found_name: str
    known: bool
    rows: int
    labelled: int
    mean_confidence: float
    confident_share: float
    stability: float
    nearest_known: Any
    typical: list[Any]
    doubtful: list[Any]
    keywords: list[str]


def summarise_classes(
    assignments: Assignments,
    model: DiscoveryEstimator,
    stability: NDArray[np.float64] | None,
    suggested_names: Mapping[Any, str] | None = None,
    found_names: Mapping[Any, str] | None = None,
) -> list[ClassSummary]:
    """Summarise each class, in the order of ``model.classes_``; names that are not given come from the keywords."""
    names = model.classes_.tolist()
    n_known = len(model.known_classes_)
    prototypes = class_prototypes(model)
    nearest = nearest_known(prototypes, n_known)
    has_prototype = prototypes.any(dim=1).tolist()
    codes = class_codes(assignments.labels, model.classes_)
    texts = assignments.texts
    words: list[list[str]] = [[] for _ in names] if texts is None else keywords(texts, codes, len(names))
    taken = [*names[:n_known], *(suggested_names or {}).values()]
    by_keywords = dict(zip(names[n_known:], suggest_names(words[n_known:], taken), strict=True))
    by_class = np.argsort(codes, kind="stable")
    ends = np.searchsorted(codes[by_class], np.arange(len(names) + 1))
    summaries = []
    for k, name in enumerate(names):
        rows = by_class[ends[k] : ends[k + 1]]
        confidence = assignments.confidence[rows]
        typical = typical_first(assignments, rows)[:N_ROWS]
        worst_first = rows[np.argsort(confidence, kind="stable")[: 2 * N_ROWS]]
        summaries.append(
            ClassSummary(
                name=name,
                suggested_name=(suggested_names or {}).get(name) or by_keywords.get(name, ""),
                found_name=(found_names or {}).get(name, ""),
                known=k < n_known,
                rows=len(rows),
                labelled=int(assignments.labelled[rows].sum()),
                mean_confidence=float(confidence.mean()) if len(rows) else math.nan,
                confident_share=float((confidence > CONFIDENT).mean()) if len(rows) else math.nan,
                stability=math.nan if stability is None else float(stability[k]),
                nearest_known=names[nearest[k]] if n_known and has_prototype[k] else "",
                typical=assignments.ids[typical].tolist(),
                doubtful=assignments.ids[worst_first[~np.isin(worst_first, typical)][:N_ROWS]].tolist(),
                keywords=words[k],
            )
        )
    return summaries


def class_prototypes(model: DiscoveryEstimator) -> Tensor:
    """The prototype of each class; after a merge the mean of several, and zeros for a class made by hand. (K, D)"""
    prototypes = model.head_.prototypes.detach().cpu()
    classes = getattr(model, "class_of_prototype_", None)
    if classes is None:
        return prototypes
    places = torch.from_numpy(classes)
    summed = prototypes.new_zeros(len(model.classes_), prototypes.shape[1]).index_add_(0, places, prototypes)
    return summed / torch.bincount(places, minlength=len(summed)).clamp(min=1)[:, None]


def typical_first(assignments: Assignments, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows, the most confident first; ties (to a percent) are broken by outlier score."""
    return rows[np.lexsort((assignments.outlier[rows], -np.round(assignments.confidence[rows], 2)))]


def names_from(
    namer: Namer, rows: Assignments, summaries: Sequence[ClassSummary], known: Sequence[Any]
) -> dict[Any, str]:
    """The names that a function gives the new classes, numbered where one occurs twice or is that of a known class."""
    names = {}
    shown = rows.texts or rows.paths or [str(name) for name in rows.ids.tolist()]
    for one in summaries:
        if one.known or not one.rows:
            continue
        best = typical_first(rows, np.flatnonzero(rows.labels == one.name))[:_N_EXAMPLES]
        name = namer([shown[row] for row in best.tolist()], list(one.keywords))
        if not isinstance(name, str):
            raise InputError(f"The namer returned {name!r} for the class {one.name!r}: return a str.")
        if name.strip():
            names[one.name] = " ".join(name.split())
    return dict(zip(names, numbered(list(names.values()), known), strict=True))


def nearest_known(prototypes: Tensor, n_known: int) -> NDArray[np.int64]:
    """The index of the other known class with the largest cosine similarity of prototypes; 0 without any. (K,)"""
    if n_known == 0:
        return np.zeros(len(prototypes), dtype=np.int64)
    unit = normalize(prototypes, dim=1)
    cosines = unit @ unit[:n_known].T  # (K, n_known)
    cosines.fill_diagonal_(-math.inf)
    nearest: NDArray[np.int64] = cosines.argmax(dim=1).numpy()
    return nearest


def write_classes(summaries: list[ClassSummary], path: StrPath, *, overwrite: bool = False) -> None:
    """Write a .csv or .json file atomically; in a .csv, ids are separated by spaces, keywords by commas."""
    target = check_export(path, overwrite, SUFFIXES)
    write_records([field.name for field in fields(ClassSummary)], [_record(row) for row in summaries], target)


def write_records(names: Sequence[str], records: Sequence[Mapping[str, Any]], target: Path) -> None:
    """Write records with these columns."""
    if target.suffix.lower() == ".json":
        text = json.dumps(records, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    else:
        out = io.StringIO()
        table = CsvTable(out)
        table.write_row(names)
        for record in records:
            table.write_row(starmap(_cell, record.items()))
        text = out.getvalue()
    with replacing(target) as file:
        file.write(text.encode())


def _record(row: ClassSummary) -> dict[str, Any]:
    """JSON-serializable: NaN becomes None."""
    return {name: value if isinstance(value, list) else json_value(value) for name, value in asdict(row).items()}


def _cell(name: str, value: Any) -> Any:
    if isinstance(value, list):
        return (", " if name == "keywords" else " ").join(map(str, value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else value


@dataclass(frozen=True)
class LabelCounts:
    """The number of labels of a run (in a refit, decisions are labels too), of checked labels, and of label issues."""

    labels: int
    checked: int
    issues: int

    @classmethod
    def of(cls, rows: Assignments) -> LabelCounts | None:
        """Count them; None without a committee, or without a label."""
        if rows.label_quality is None or not rows.labelled.any():
            return None
        issues = 0 if rows.suggested is None else int((~unlabelled_rows(rows.suggested)).sum())
        checked = ~np.isnan(rows.label_quality)
        return cls(int((rows.labelled | checked).sum()), int(checked.sum()), issues)

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


def expected_accuracy(model: DiscoveryEstimator) -> str:
    """The expected accuracy of the committee on known classes, or why there is none, as a sentence."""
    n_members, accuracy = getattr(model, "n_members_", 1), getattr(model, "expected_accuracy_", math.nan)
    if n_members == 1:
        return "This is a single fit: its confidence is not calibrated, and usually too high."
    if not len(model.known_classes_):
        return (
            f"A committee of {n_members} fits. Without labels its accuracy is unknown: name some groups in the "
            "explorer and refit."
        )
    if math.isnan(accuracy):
        return f"A committee of {n_members} fits; its expected accuracy could not be estimated."
    return (
        f"A committee of {n_members} fits: expected accuracy on known classes {accuracy:.0%} (estimated on held-out "
        "labels)."
    )


def estimated_count(model: DiscoveryEstimator) -> str:
    """The number of classes with its interval, as a sentence; "" if it was given."""
    if not hasattr(model, "n_classes_low_"):
        return ""
    low, high = model.n_classes_low_, model.n_classes_high_
    if not len(model.known_classes_):
        return (
            f"The number of groups was estimated without labels ({in_halves(low, high)}). Finer classes may exist: "
            "give --n-classes to look for more."
        )
    return f"The number of classes was estimated: {plural(len(model.classes_), 'class')} ({interval(low, high)})."
