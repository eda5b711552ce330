"""Assignments: the class of each row, its confidence, and the runner-up; and their extension by new rows."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim._common.files import StrPath, check_export
from rpim._common.progress import Progress
from rpim.data.feature_set import FeatureSet
from rpim.data.formats.parquet import ParquetTable, arrow, read_columns
from rpim.data.formats.tables import new_table
from rpim.data.labels import UNLABELLED, name_rows, unlabelled_rows
from rpim.estimators.infomax import InfoMaxEstimator

if TYPE_CHECKING:
    from rpim.estimators.base import DiscoveryEstimator

_BLOCK = 8192

UNSTABLE = 0.6
"""Classes with a lower stability are unstable (a rule of thumb for Jaccard indices)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Assignments:
    """One entry per row in every field.

    Parameters
    ----------
    ids : array of strings or ints
    labels : array
        The class of each row, in the user's label type; -1, NaN or "" for rejected rows.
    known : array of bool
        Whether that class is a known one.
    confidence : array of float
        The model's probability of that class; 0 for rejected rows.
    runner_up, runner_up_confidence : array
        The second most probable class and its probability.
    outlier : array of float
        Outlier score; larger means that the row fits the classes less. NaN in runs of older versions.
    given : array, optional
        The given labels; -1, NaN or "" for unlabelled rows.
    texts, paths : list of str, optional
        The text or image file of each row.
    label_quality : array of float, optional
        The out-of-bag probability of a row's given label (members that did not see it); NaN for unlabelled rows and
        where every member saw the label. None without a committee.
    suggested, suggested_confidence : array, optional
        For label issues, the class that these members suggest instead, and its probability; -1, NaN or "", and NaN,
        elsewhere.
    """

    ids: NDArray[Any]
    labels: NDArray[Any]
    known: NDArray[np.bool_]
    confidence: NDArray[np.float32]
    runner_up: NDArray[Any]
    runner_up_confidence: NDArray[np.float32]
    outlier: NDArray[np.float32]
    given: NDArray[Any] | None = None
    texts: list[str] | None = None
    paths: list[str] | None = None
    label_quality: NDArray[np.float32] | None = None
    suggested: NDArray[Any] | None = None
    suggested_confidence: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def labelled(self) -> NDArray[np.bool_]:
        """True for labelled rows."""
        return np.zeros(len(self), dtype=bool) if self.given is None else ~unlabelled_rows(self.given)

    @property
    def left_out(self) -> NDArray[np.bool_]:
        """True for rejected rows."""
        return unlabelled_rows(self.labels)

    def followed_by(self, later: Assignments, classes: NDArray[Any], n_known: int) -> Assignments:
        """Append later rows; they replace rows of the same id. The first `n_known` classes are the known ones."""
        kept = ~np.isin(self.ids, later.ids)

        def joined(before: Any, after: Any) -> NDArray[Any]:
            return np.concatenate([before[kept], after])

        def filled(name: str, missing: Any, wrap: Callable[[Any], Any]) -> Any:
            """Join a field that one of the two may lack."""
            before, after = getattr(self, name), getattr(later, name)
            if before is None and after is None:
                return None
            sides = ((before, self), (after, later))
            return wrap(joined(*(np.asarray([missing] * len(rows) if own is None else own) for own, rows in sides)))

        labels = joined(self.labels, later.labels)
        no_class = name_rows(np.array([UNLABELLED]), classes)[0]
        return Assignments(
            ids=joined(self.ids, later.ids),
            labels=labels,
            known=np.isin(labels, classes[:n_known]),
            confidence=joined(self.confidence, later.confidence),
            runner_up=joined(self.runner_up, later.runner_up),
            runner_up_confidence=joined(self.runner_up_confidence, later.runner_up_confidence),
            outlier=joined(self.outlier, later.outlier),
            given=filled("given", no_class, np.asarray),
            texts=filled("texts", "", np.ndarray.tolist),
            paths=filled("paths", "", np.ndarray.tolist),
            label_quality=filled("label_quality", np.float32("nan"), np.asarray),
            suggested=filled("suggested", no_class, np.asarray),
            suggested_confidence=filled("suggested_confidence", np.float32("nan"), np.asarray),
        )

    def columns(self) -> dict[str, Any]:
        """Column name -> values, in file order; masked where there is no label or no class."""
        columns: dict[str, Any] = {"id": self.ids, "label": np.ma.masked_array(self.labels, self.left_out)}
        if self.given is not None:
            columns["given"] = np.ma.masked_array(self.given, ~self.labelled)
        if self.label_quality is not None:
            columns["label_quality"] = np.ma.masked_invalid(self.label_quality)
        if self.suggested is not None:
            columns["suggested"] = np.ma.masked_array(self.suggested, unlabelled_rows(self.suggested))
        if self.suggested_confidence is not None:
            columns["suggested_confidence"] = np.ma.masked_invalid(self.suggested_confidence)
        columns |= {
            "known": self.known,
            "confidence": self.confidence,
            "runner_up": self.runner_up,
            "runner_up_confidence": self.runner_up_confidence,
            "outlier": self.outlier,
        }
        return columns | {
            name: values for name, values in (("text", self.texts), ("path", self.paths)) if values is not None
        }

    def write(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write a .csv or .parquet file atomically.

        Raises
        ------
        InputError
            If the suffix is not supported, the file exists and `overwrite` is False, or the disk is full.
        """
        with new_table(check_export(path, overwrite), overwrite=overwrite) as table:
            table.append(self.columns())

    def write_parquet(self, file: BinaryIO) -> None:
        """Write the columns as a Parquet file."""
        with contextlib.closing(ParquetTable(file)) as table:
            table.append(self.columns())

    @classmethod
    def read_parquet(cls, path: Path, label_type: str) -> Assignments:
        """Read what ``write_parquet`` wrote; `label_type` is recorded in the run."""
        # By its path: threads of Arrow that hold a file of Python's abort the process if it ends before they do.
        with arrow(".parquet").ParquetFile(path) as file:
            table = read_columns(path, file, file.schema_arrow.names)
        names = set(table.column_names)

        def labels(name: str) -> NDArray[Any]:
            values = table.column(name).to_pylist()
            if label_type == "str":
                return np.asarray(["" if value is None else value for value in values], dtype=str)
            missing = np.nan if label_type.startswith("float") else UNLABELLED
            # Where rows were left out, unsigned numbers had to become signed ones.
            kind = "int64" if None in values and label_type.startswith(("uint", "bool")) else label_type
            return np.asarray([missing if value is None else value for value in values], dtype=kind)

        def shares(name: str) -> NDArray[np.float32] | None:
            """Float column; NaN where missing."""
            return table.column(name).to_numpy().astype(np.float32) if name in names else None

        def strings(name: str) -> list[str] | None:
            return list(map(str, table.column(name).to_pylist())) if name in names else None

        ids = table.column("id")
        return cls(
            ids=np.asarray(ids.to_pylist(), dtype=str) if str(ids.type) == "string" else ids.to_numpy(),
            labels=labels("label"),
            known=table.column("known").to_numpy().astype(bool),
            confidence=table.column("confidence").to_numpy(),
            runner_up=labels("runner_up"),
            runner_up_confidence=table.column("runner_up_confidence").to_numpy(),
            outlier=table.column("outlier").to_numpy()
            if "outlier" in names
            else np.full(len(ids), np.nan, dtype=np.float32),
            given=labels("given") if "given" in names else None,
            texts=strings("text"),
            paths=strings("path"),
            label_quality=shares("label_quality"),
            suggested=labels("suggested") if "suggested" in names else None,
            suggested_confidence=shares("suggested_confidence"),
        )


def assign(
    model: DiscoveryEstimator, features: FeatureSet, labels: NDArray[Any] | None = None, *, verbose: bool = False
) -> Assignments:
    """Assign each row to its most probable class, or to the one in `labels`; computed block by block."""
    check_width(model, features)
    n_rows = len(features)
    classes: NDArray[Any] = model.classes_
    chosen = None if labels is None else class_codes(labels, classes)
    best, runner_up = np.empty(n_rows, dtype=np.int64), np.empty(n_rows, dtype=np.int64)
    confidence, runner_up_confidence, outlier = (np.zeros(n_rows, dtype=np.float32) for _ in range(3))
    with Progress(verbose, "assigning") as progress:
        progress.expect(n_rows)
        for block, rows in features.blocks(model.normalize, _BLOCK):
            probabilities, outlier[block] = model._proba_and_score(rows)  # (n, K), (n,)
            each = np.arange(len(probabilities))
            best[block] = model._reject(probabilities, outlier[block]) if chosen is None else chosen[block]
            has_class = best[block] >= 0
            own = each[has_class], best[block][has_class]
            confidence[block][has_class] = probabilities[own]
            probabilities[own] = -1.0
            runner_up[block] = probabilities.argmax(axis=1)
            runner_up_confidence[block] = probabilities[each, runner_up[block]]
            progress.advance(len(each))
    return Assignments(
        ids=features.ids,
        labels=name_rows(best, classes),
        known=(best >= 0) & (best < len(model.known_classes_)),
        confidence=confidence,
        runner_up=classes[runner_up],
        runner_up_confidence=runner_up_confidence,
        outlier=outlier,
        given=None if labels is None else features.labels,
        texts=features.texts,
        paths=features.paths,
    )


def check_width(model: DiscoveryEstimator, features: FeatureSet) -> None:
    """Raise if the number of features differs from that of the fit."""
    if features.n_features != model.n_features_in_:
        raise InputError(
            f"The rows have {features.n_features} features but the model was fitted on rows of "
            f"{model.n_features_in_}: embed them with the same encoder."
        )
    if features.widths and features.widths != model.widths_:
        raise InputError(
            f"The rows have embeddings of {', '.join(map(str, features.widths))} columns but the model was fitted on "
            f"{', '.join(map(str, model.widths_))}: embed them with the same encoders, in the same order."
        )


def class_codes(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """The index of each label in `classes`, which need not be sorted; -1 for unlabelled rows.

    >>> class_codes(np.array(["b", "new-1"]), np.array(["b", "c", "new-1"])).tolist()
    [0, 2]
    """
    order = np.argsort(classes)
    place = np.searchsorted(classes, labels, sorter=order).clip(max=len(classes) - 1)
    codes: NDArray[np.int64] = np.where(unlabelled_rows(labels), UNLABELLED, order[place])
    return codes


def check_new_rows(new: FeatureSet, rows: Assignments, provenance: dict[str, Any]) -> None:
    """Raise if the new rows and their labels are already in the run.

    Parameters
    ----------
    new : FeatureSet
    rows : Assignments
        The rows of the run.
    provenance : dict
        Of the run, with that of the run that it extends, and so on.
    """
    before: dict[str, Any] | None = provenance
    fingerprint = new.fingerprint()
    while before is not None:
        if before["data"]["fingerprint"] == fingerprint:
            raise InputError("The new rows are those of the run, with the same labels: give new rows or labels.")
        before = before.get("extends")
    if new.n_labelled == 0 and np.isin(_renumbered(new.ids, rows.ids), rows.ids).all():
        raise InputError(
            "All ids of the new rows are already in the run, and none is labelled: give new rows or labels."
        )


def extend_model(
    model: InfoMaxEstimator, rows: Assignments, new: FeatureSet, *, verbose: bool = False
) -> tuple[InfoMaxEstimator, Assignments]:
    """A copy of the model that has learned from the new rows, and the rows of both.

    A new row replaces the row with the same id.
    """
    numbered = dataclasses.replace(new, ids=_renumbered(new.ids, rows.ids))
    model = copy.deepcopy(model)
    model.verbose = verbose
    model.extend(new.rows(normalize=model.normalize), new.labels)

    def renamed(names: NDArray[Any]) -> NDArray[Any]:
        return np.array([model.renamed_.get(name, name) for name in names.tolist()])

    before = dataclasses.replace(
        rows,
        labels=renamed(rows.labels),
        runner_up=renamed(rows.runner_up),
        suggested=None if rows.suggested is None else renamed(rows.suggested),
    )
    later = assign(model, numbered, model.labels_, verbose=verbose)
    both = before.followed_by(later, model.classes_, len(model.known_classes_))
    model.labels_ = both.labels
    return model, both


def _renumbered(ids: NDArray[Any], taken: NDArray[Any]) -> NDArray[Any]:
    """The ids; default ids 0, 1, ... that are taken are replaced by the next free numbers."""
    if taken.dtype.kind in "iu" and np.array_equal(ids, np.arange(len(ids))) and len(taken):
        return ids + int(taken.max()) + 1
    return ids
