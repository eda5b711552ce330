"""Classes that come later: rows in three batches after the first fit, as in continual category discovery.

Of the classes four tenths are known from the start and two more are there without a name; of the others a third comes
with each batch. A class brings seven tenths of its rows when it first appears, and the others in equal parts with
the batches after that; one that comes with the last batch brings them all. Half of the first rows of a known class
are labelled, and nothing else ever is. Every row needs a class; labels that a set has for some rows only are truth
like the rest.

Three ways to deal with a batch:

    predict   the first model gives classes to everything that comes later (the lower line)
    extend    each batch extends the model before, which sees the earlier rows no more
    refit     all rows so far are fitted from scratch, their number of classes estimated (the upper line)

A batch is judged by its own rows: those of classes known by labels ("known"), of classes that were there without a
name ("earlier"), and of classes that come with it ("newest"). Found classes are matched one to one with the true ones
over all rows without a label so far, so that a class which changes its name from one batch to the next is wrong.
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
from rpim.benchmark.layouts import AVERAGE
from rpim.benchmark.protocol import Case, SplitFeatures
from rpim.benchmark.results import Record, Results, Table, accuracy_column, average_column, formatted
from rpim.benchmark.studies import Study
from rpim.data.labels import UNLABELLED, IntArray
from rpim.estimators.infomax import InfoMaxEstimator
from rpim.metrics import contingency
from rpim.runs.saved_model import METHODS

N_BATCHES = 3
WAYS = ("predict", "extend", "refit")
GROUPS = ("known", "earlier", "newest")
MIN_CLASSES = 6
"""Two known classes, one without a name, and one for each batch."""


@dataclass(frozen=True, eq=False)
class Stages:
    """Which rows come when. Stage 0 is the first fit."""

    of_row: IntArray  # (N,)
    of_class: IntArray  # (K,)
    known: IntArray
    y: IntArray  # (N,), -1 for rows without a label

    def group(self, truth: IntArray, batch: int) -> NDArray[np.str_]:
        """What each row's class is to this batch: known, earlier or newest."""
        newest = self.of_class[truth] == batch
        return np.where(np.isin(truth, self.known), "known", np.where(newest, "newest", "earlier"))


def draw(truth: IntArray, seed: int) -> Stages:
    """The stages of rows with these classes, numbers from 0 on without a gap."""
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
    """A feature set whose rows come in stages; `n_classes` is how many there are in the first."""

    stages: Stages
    way: str

    def fingerprint(self, of_features: str) -> str:
        digest = hashlib.sha256(f"{self.way} {super().fingerprint(of_features)}\n".encode())
        digest.update(np.ascontiguousarray(self.stages.of_row, dtype="<i8").data)
        return digest.hexdigest()


@dataclass(frozen=True)
class BatchesDraw:
    """One of the ways through the batches of a feature set."""

    way: str

    def case(self, parts: SplitFeatures, seed: int) -> BatchesCase:
        """The problem under this seed. Rows called test come in no batch."""
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
        """What a record says of it."""
        return {"way": self.way}


def must_be_extendable(methods: tuple[Method, ...]) -> tuple[Method, ...]:
    """The methods, if each of them can go on with new rows."""
    able = [name for name, kind in METHODS.items() if issubclass(kind, InfoMaxEstimator)]
    for method in methods:
        if method.method not in able:
            raise InputError(
                f"The method {method.name!r} cannot be extended, as the protocol batches does: "
                f"choose among {', '.join(able)}."
            )
    return methods


def follow(model: InfoMaxEstimator, case: BatchesCase) -> Record:
    """Fit the first stage and go through the batches; what is measured, with a record for each batch."""
    X, first = case.features.rows(normalize=model.normalize), case.stages.of_row == 0
    start = time.perf_counter()
    model.fit(X[first], case.y[first])
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
            model.set_params(n_classes=None).fit(X[so_far], stages.y[so_far])
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
    """The share of a batch's rows that have their class, all of them and by group; None for a group without rows.

    A row that was given no class (-1) is wrong.
    """
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
    "refit: all rows so far are fitted from scratch. The first fit alone may be told how many classes there are. "
    "All/known/earlier/newest in % of a batch's own rows: all of them, and those of classes with labels, of classes "
    "that were there before without a name, and of classes that come with it. Found classes are matched with the true "
    "ones over all rows without a label so far, so a class that changes its name is wrong."
)


def row_name(record: Record) -> str:
    """Who a record is about: its method, with the way it took where the protocol has several."""
    way = record.get("way")
    return str(record["method"]) if way is None else f"{record['method']}, {way}"


def by_batch(study: Study, results: Results) -> list[Table]:
    """A row for each batch, method and way; for each set accuracy, and how many classes were found of how many."""
    rows: list[list[str]] = []
    columns: dict[str, dict[str, str]] = {}
    for batch in range(1, N_BATCHES + 1):
        # A failed cell has no batches, and is missing in each of them.
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
