"""Assignments: for each row its class, how sure the model is of it, and the runner-up."""

from __future__ import annotations

import contextlib
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
from rpim.data.formats.parquet import arrow
from rpim.data.formats.tables import ParquetTable, new_table
from rpim.data.labels import UNLABELLED, name_rows, unlabelled_rows

if TYPE_CHECKING:
    from rpim.estimators.base import DiscoveryEstimator

_BLOCK = 8192

UNSTABLE = 0.6
"""A class with a lower stability is not to be relied on: the rule of thumb for Jaccard indices."""


@dataclasses.dataclass(frozen=True, eq=False)
class Assignments:
    """One entry per row in every field.

    Parameters
    ----------
    ids : array of strings or ints
    labels : array
        The class of each row, in the user's own type; -1, NaN or "" where it fits none and was left out.
    known : array of bool
        Whether that class had labels.
    confidence : array of float
        The model's probability of that class; 0 where there is none.
    second, runner_up_confidence : array
        The likeliest of the other classes and its probability.
    outlier : array of float
        How little the row fits any class; the larger, the less. NaN in runs of older versions.
    given : array, optional
        The labels that were given; -1, NaN or "" where there was none.
    texts, paths : list of str, optional
        What a person can look at.
    label_quality : array of float, optional
        The probability of a row's given label by the members of a committee that did not see it; NaN where there is no
        label, or every member saw it. None where there was no committee.
    suggested, suggested_confidence : array, optional
        The class that these members suggest instead of a label that looks wrong, and its probability; -1, NaN or "",
        and NaN, elsewhere.
    """

    ids: NDArray[Any]
    labels: NDArray[Any]
    known: NDArray[np.bool_]
    confidence: NDArray[np.float32]
    second: NDArray[Any]
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
        """True where a label was given."""
        return np.zeros(len(self), dtype=bool) if self.given is None else ~unlabelled_rows(self.given)

    @property
    def left_out(self) -> NDArray[np.bool_]:
        """True where a row has no class."""
        return unlabelled_rows(self.labels)

    def followed_by(self, later: Assignments, classes: NDArray[Any], n_known: int) -> Assignments:
        """These rows, then the later ones, which take the place of rows of the same id; the first classes are known."""
        kept = ~np.isin(self.ids, later.ids)

        def joined(first: Any, second: Any) -> NDArray[Any]:
            return np.concatenate([first[kept], second])

        def filled(name: str, missing: Any, wrap: Callable[[Any], Any]) -> Any:
            """Of a field that one of the two may not have."""
            first, second = getattr(self, name), getattr(later, name)
            if first is None and second is None:
                return None
            sides = ((first, self), (second, later))
            return wrap(joined(*(np.asarray([missing] * len(rows) if own is None else own) for own, rows in sides)))

        labels = joined(self.labels, later.labels)
        no_class = name_rows(np.array([UNLABELLED]), classes)[0]
        return Assignments(
            ids=joined(self.ids, later.ids),
            labels=labels,
            known=np.isin(labels, classes[:n_known]),
            confidence=joined(self.confidence, later.confidence),
            second=joined(self.second, later.second),
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
        """Column name -> values, in the order of the files; masked where no label was given, or no class."""
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
            "second": self.second,
            "runner_up_confidence": self.runner_up_confidence,
            "outlier": self.outlier,
        }
        return columns | {
            name: values for name, values in (("text", self.texts), ("path", self.paths)) if values is not None
        }

    def write(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write a .csv or .parquet file, whole or not at all.

        Raises
        ------
        InputError
            If the suffix is another one, the file exists and `overwrite` is not said, or the disk is full.
        """
        with new_table(check_export(path, overwrite)) as table:
            table.append(self.columns())

    def write_parquet(self, file: BinaryIO) -> None:
        """The columns as a parquet file."""
        with contextlib.closing(ParquetTable(file)) as table:
            table.append(self.columns())

    @classmethod
    def read_parquet(cls, path: Path, label_type: str) -> Assignments:
        """What ``write_parquet`` wrote, with labels of the type that the run recorded."""
        with open(path, "rb") as file:
            table = arrow(".parquet").read_table(file)
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
            """NaN where there is none."""
            return table.column(name).to_numpy().astype(np.float32) if name in names else None

        def strings(name: str) -> list[str] | None:
            return list(map(str, table.column(name).to_pylist())) if name in names else None

        ids = table.column("id")
        return cls(
            ids=np.asarray(ids.to_pylist(), dtype=str) if str(ids.type) == "string" else ids.to_numpy(),
            labels=labels("label"),
            known=table.column("known").to_numpy().astype(bool),
            confidence=table.column("confidence").to_numpy(),
            second=labels("second"),
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
    """The class of each row of `features`: the likeliest, or the one in `labels`; a block of rows at a time."""
    check_width(model, features)
    n_rows = len(features)
    classes: NDArray[Any] = model.classes_
    chosen = None if labels is None else class_codes(labels, classes)
    best, second = np.empty(n_rows, dtype=np.int64), np.empty(n_rows, dtype=np.int64)
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
            second[block] = probabilities.argmax(axis=1)
            runner_up_confidence[block] = probabilities[each, second[block]]
            progress.advance(len(each))
    return Assignments(
        ids=features.ids,
        labels=name_rows(best, classes),
        known=(best >= 0) & (best < len(model.known_classes_)),
        confidence=confidence,
        second=classes[second],
        runner_up_confidence=runner_up_confidence,
        outlier=outlier,
        given=None if labels is None else features.labels,
        texts=features.texts,
        paths=features.paths,
    )


def check_width(model: DiscoveryEstimator, features: FeatureSet) -> None:
    """Raise where the rows have another number of features than those of the fit."""
    if features.n_features != model.n_features_in_:
        raise InputError(
            f"The rows have {features.n_features} features but the classes were found in rows of "
            f"{model.n_features_in_}: embed them with the same encoder."
        )


def class_codes(labels: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.int64]:
    """The place of each label in `classes`, which need not be sorted; -1 where a row has none.

    >>> class_codes(np.array(["b", "new-1"]), np.array(["b", "c", "new-1"])).tolist()
    [0, 2]
    """
    order = np.argsort(classes)
    place = np.searchsorted(classes, labels, sorter=order).clip(max=len(classes) - 1)
    codes: NDArray[np.int64] = np.where(unlabelled_rows(labels), UNLABELLED, order[place])
    return codes
