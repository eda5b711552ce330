"""The protocol of later batches: three batches of rows after the first fit, as in continual category discovery.

40 % of the classes are known from the start and 20 % are present but unlabelled; each batch brings a third of the
others. A class brings 70 % of its rows when it first appears, and the others in equal parts with later batches; a
class of the last batch brings all its rows. Half of the first rows of a known class are labelled, and no other rows.
Every row needs a true class.

Three ways to process a batch:

    predict   the first model predicts all later rows (lower bound)
    extend    each batch extends the previous model, which no longer sees earlier rows
    refit     all rows so far are fitted from scratch, with an estimated number of classes (upper bound)

A batch is evaluated on its own rows: those of labelled classes ("known"), of earlier unlabelled classes ("earlier"),
and of the classes that it brings ("newest"). Found classes are matched one to one with true classes over all
unlabelled rows so far, so a class that changes its name between batches is wrong.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from rpim._common.errors import InputError, some_rows
from rpim.benchmark.entries import Method
from rpim.benchmark.protocol import Case, SplitFeatures
from rpim.benchmark.results import Record, Results, Table, accuracy_column, average_column, formatted
from rpim.benchmark.studies import Study
from rpim.benchmark.study_tables import AVERAGE
from rpim.data.labels import UNLABELLED, IntArray
from rpim.estimators.infomax import InfoMaxEstimator
from rpim.metrics import contingency
from rpim.runs.saved_model import METHODS

N_BATCHES = 3
WAYS = ("predict", "extend", "refit")
GROUPS = ("known", "earlier", "newest")
MIN_CLASSES = 6
"""Two known classes, one unlabelled class, and one for each batch."""


@dataclass(frozen=True, eq=False)
class Stages:
    """The stage of each row; stage 0 is the first fit."""

    of_row: IntArray  # (N,)
    of_class: IntArray  # (K,)
    known: IntArray
    y: IntArray  # (N,), -1 for rows without a label

    def group(self, truth: IntArray, batch: int) -> NDArray[np.str_]:
        """The group of each row's class in this batch: known, earlier or newest."""
        newest = self.of_class[truth] == batch
        return np.where(np.isin(truth, self.known), "known", np.where(newest, "newest", "earlier"))


def draw(truth: IntArray, seed: int) -> Stages:
    """Draw the stages of rows with these class codes (0, 1, ... without gaps)."""
    n_classes = int(truth.max()) + 1
    if n_classes < MIN_CLASSES:
        raise InputError(
            f"it has {n_classes} classes, too few for a first fit and {N_BATCHES} batches: give a set with "
            f"{MIN_CLASSES} or more."
        )
    random = np.random.RandomState(seed)
    drawn = random.permutation(n_classes)
    known = np.sort(drawn[: 4 * n_classes // 10])
    of_class = np.zeros(n_classes, dtype=np.int64)
    for batch, classes in enumerate(np.array_split(drawn[6 * n_classes // 10 :], N_BATCHES), start=1):
        of_class[classes] = batch
    of_row, y = np.empty(len(truth), dtype=np.int64), np.full(len(truth), UNLABELLED, dtype=np.int64)
    for c in range(n_classes):
        rows, first = random.permutation(np.flatnonzero(truth == c)), of_class[c]
        n_at_once = len(rows) if first == N_BATCHES else max(1, 7 * len(rows) // 10)
        of_row[rows[:n_at_once]] = first
        for later, part in enumerate(np.array_split(rows[n_at_once:], max(N_BATCHES - first, 1)), start=first + 1):
            of_row[part] = later
        if c in known:
            y[rows[: max(1, n_at_once // 2)]] = c
    return Stages(of_row, of_class, known, y)


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchesCase(Case):
    """A feature set whose rows come in stages; `n_classes` is the number of classes in the first stage."""

    stages: Stages
    way: str

    def fingerprint(self, of_features: str) -> str:
        digest = hashlib.sha256(f"{self.way} {super().fingerprint(of_features)}\n".encode())
        digest.update(np.ascontiguousarray(self.stages.of_row, dtype="<i8").data)
        return digest.hexdigest()


@dataclass(frozen=True)
class BatchesDraw:
    """One way to process the batches of a feature set."""

    way: str

    def case(self, parts: SplitFeatures, seed: int) -> BatchesCase:
        """The problem under this seed; test rows are not used."""
        without = np.flatnonzero(parts.truth < 0)
        if without.size:
            raise InputError(
                f"it has no class for {some_rows(parts.rows[without].tolist())}, but this protocol needs one for every "
                "row: give it, or leave them out."
            )
        truth = np.unique(parts.truth, return_inverse=True)[1].astype(np.int64)  # without classes of test rows alone
        stages = draw(truth, seed)
        unused = parts.unused + (0 if parts.test is None else len(parts.test.truth))
        return BatchesCase(
            parts.train,
            stages.y,
            truth,
            stages.known,
            int((stages.of_class == 0).sum()),
            unused=unused,
            stages=stages,
            way=self.way,
        )

    @property
    def facts(self) -> dict[str, Any]:
        """Fields of the record."""
        return {"way": self.way}


def must_be_extendable(methods: tuple[Method, ...]) -> tuple[Method, ...]:
    """Check that each method can be extended."""
    able = [name for name, kind in METHODS.items() if issubclass(kind, InfoMaxEstimator)]
    for method in methods:
        if method.method not in able:
            raise InputError(
                f"The method {method.name!r} cannot be extended, as the protocol batches requires: "
                f"choose among {', '.join(able)}."
            )
    return methods


def follow(model: InfoMaxEstimator, case: BatchesCase) -> Record:
    """Fit the first stage and process the batches; return the measurements, with one record per batch."""
    X, first = case.features.rows(normalize=model.normalize), case.stages.of_row == 0
    start = time.perf_counter()
    model.fit(X[first], case.y[first], widths=case.features.widths)
    seconds = time.perf_counter() - start
    return {
        "rows": len(case.y),
        "labelled": int((case.y >= 0).sum()),
        "test_rows": 0,
        "unused_rows": case.unused,
        "seconds": round(seconds, 3),  # of the first fit
        "batches": list(_follow_batches(model, X, case)),
    }


def _follow_batches(model: InfoMaxEstimator, X: NDArray[Any], case: BatchesCase) -> Iterator[Record]:
    stages = case.stages
    found = np.full(len(X), UNLABELLED, dtype=np.int64)
    found[stages.of_row == 0] = model.labels_
    for batch in range(1, N_BATCHES + 1):
        rows, start = stages.of_row == batch, time.perf_counter()
        if case.way == "predict":
            found[rows] = model.predict(X[rows])
        elif case.way == "extend":
            found[rows] = model.extend(X[rows]).labels_
        else:
            so_far = stages.of_row <= batch
            model.set_params(n_classes=None).fit(X[so_far], stages.y[so_far], widths=case.features.widths)
            found[so_far] = model.labels_
        seconds = time.perf_counter() - start
        yield {
            "batch": batch,
            **judge(case.truth, found, stages, batch),
            "evaluated": int(rows.sum()),
            "n_classes_used": int(model.n_classes_),
            "n_classes_true": int((stages.of_class <= batch).sum()),
            "seconds": round(seconds, 3),
        }


def judge(truth: IntArray, found: IntArray, stages: Stages, batch: int) -> dict[str, float | None]:
    """The accuracy on a batch, in all and by group; None for a group without rows. Rejected rows (-1) are wrong."""
    matched = (stages.of_row <= batch) & (stages.y < 0) & (found >= 0)
    n_found = int(found.max()) + 1
    counts = contingency(truth[matched], found[matched], int(truth.max()) + 1, n_found)
    match = np.full(n_found + 1, UNLABELLED)  # the last place, found by -1, is that of no class
    true, predicted = linear_sum_assignment(counts, maximize=True)
    match[predicted] = true
    here = stages.of_row == batch
    right = match[found[here]] == truth[here]
    group = stages.group(truth[here], batch)
    shares = {name: right[group == name] for name in GROUPS}
    return {
        "all": float(right.mean()),
        **{name: float(of_group.mean()) if len(of_group) else None for name, of_group in shares.items()},
    }


ACCURACY_GROUPS = ("all", *GROUPS)

NOTE = (
    "A first fit sees six tenths of the classes, four tenths with labels; a third of the others comes with each of "
    "three batches, without a label and beside more rows of earlier classes. predict: the first model gives its "
    "classes to all that comes later. extend: each batch extends the model before, which sees earlier rows no more. "
    "refit: all rows so far are fitted from scratch. Only the first fit may be given the number of classes. "
    "All/known/earlier/newest in % of a batch's own rows: all of them, and those of classes with labels, of classes "
    "that were there before without a name, and of classes that come with it. Found classes are matched with the true "
    "ones over all rows without a label so far, so a class that changes its name is wrong."
)


def row_name(record: Record) -> str:
    """The row name of a record: its method, and its way if the protocol has several."""
    way = record.get("way")
    return str(record["method"]) if way is None else f"{record['method']}, {way}"


def by_batch(study: Study, results: Results) -> list[Table]:
    """One row per batch, method and way; per set the accuracy, and the number of found and true classes."""
    rows: list[list[str]] = []
    columns: dict[str, dict[str, str]] = {}
    for batch in range(1, N_BATCHES + 1):
        # A failed cell has no batches, and is missing in all of them.
        own = Results([one for one in (*results.done, *results.failed) if one.get("batch", batch) == batch])
        columns = {}
        for name in results.sets:
            columns[name] = accuracy_column(own, name, ACCURACY_GROUPS)
            columns[f"{name}, classes"] = {method: _classes(own, method, name) for method in own.methods}
        if len(results.sets) > 1:
            columns[AVERAGE] = average_column(own, results.sets, ACCURACY_GROUPS)
        columns["seconds"] = {
            method: formatted(own.average(method, results.sets, "seconds"), ".1f") for method in own.methods
        }
        rows += [[method, str(batch), *(column[method] for column in columns.values())] for method in results.methods]
    n = len(results.seeds)
    over = f"Mean over {n} seeds ± standard deviation of All; the" if n > 1 else "The"
    note = f"{NOTE} {over} best of each batch in bold. Classes: found/true. Seconds: of the batch, mean over sets."
    return [Table(study.title, note, ["method", "batch", *columns], rows)]


def _classes(results: Results, method: str, data_set: str) -> str:
    counts = (results.mean(method, data_set, name) for name in ("n_classes_used", "n_classes_true"))
    return "/".join(formatted(count, ".0f") for count in counts)
