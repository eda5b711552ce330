"""Classes that come later: rows in three arrivals after the first fit, as in continual category discovery.

Of the classes four tenths are known from the start and two more are there without a name; of the others a third comes
with each arrival. A class brings seven tenths of its rows when it first appears, and the others in equal parts with
the arrivals after that. Half of the first rows of a known class are labelled, and nothing else ever is.

Three ways to deal with an arrival:

    predict   the first model gives classes to everything that comes later (the lower line)
    extend    each arrival extends the model before, which sees the earlier rows no more
    refit     all rows so far are fitted from scratch (the upper line)

An arrival is judged by its own rows: those of classes known by labels ("known"), of classes that were there without a
name ("earlier"), and of classes that come with it ("newest"). Found classes are matched one to one with the true ones
over all rows without a label so far, so that a class which changes its name from one arrival to the next is wrong.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from rpim.labels import UNLABELLED, IntArray
from rpim.methods.infomax import InfoMaxEstimator
from rpim.metrics import contingency

N_ARRIVALS = 3
WAYS = ("predict", "extend", "refit")
GROUPS = ("known", "earlier", "newest")
_KNOWN, _NAMELESS, _AT_ONCE = 0.4, 0.2, 0.7

FloatArray = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Stages:
    """Which rows come when. Stage 0 is the first fit. (N,), (K,), (N,)"""

    of_row: IntArray
    of_class: IntArray
    known: IntArray
    y: IntArray

    def group(self, truth: IntArray, arrival: int) -> NDArray[np.str_]:
        """What each row's class is to this arrival: known, earlier or newest."""
        newest = self.of_class[truth] == arrival
        return np.where(np.isin(truth, self.known), "known", np.where(newest, "newest", "earlier"))


def draw(truth: IntArray, seed: int) -> Stages:
    """The stages of rows with these classes, numbers from 0 on."""
    random = np.random.RandomState(seed)
    n_classes = int(truth.max()) + 1
    drawn = random.permutation(n_classes)
    n_first = int((_KNOWN + _NAMELESS) * n_classes)
    known = np.sort(drawn[: int(_KNOWN * n_classes)])
    of_class = np.zeros(n_classes, dtype=np.int64)
    for arrival, classes in enumerate(np.array_split(drawn[n_first:], N_ARRIVALS), start=1):
        of_class[classes] = arrival
    of_row, y = np.empty(len(truth), dtype=np.int64), np.full(len(truth), UNLABELLED, dtype=np.int64)
    for c in range(n_classes):
        rows, first = random.permutation(np.flatnonzero(truth == c)), of_class[c]
        n_at_once = len(rows) if first == N_ARRIVALS else int(_AT_ONCE * len(rows))
        of_row[rows[:n_at_once]] = first
        for later, part in enumerate(np.array_split(rows[n_at_once:], max(N_ARRIVALS - first, 1)), start=first + 1):
            of_row[part] = later
        if c in known:
            y[rows[: n_at_once // 2]] = c
    return Stages(of_row, of_class, known, y)


def run(model: InfoMaxEstimator, X: FloatArray, truth: IntArray, stages: Stages, way: str) -> Iterator[dict[str, Any]]:
    """Go through the arrivals in one way; a record for each.

    Parameters
    ----------
    model : estimator
        Not fitted. Its number of classes, where given, is that of the first fit; a refit estimates it.
    X, truth : (N, D), (N,)
    way : {"predict", "extend", "refit"}
    """
    found = np.full(len(X), UNLABELLED, dtype=np.int64)
    rows = stages.of_row == 0
    model.fit(X[rows], stages.y[rows])
    found[rows] = model.labels_
    for arrival in range(1, N_ARRIVALS + 1):
        rows, start = stages.of_row == arrival, time.perf_counter()
        if way == "predict":
            found[rows] = model.predict(X[rows])
        elif way == "extend":
            found[rows] = model.extend(X[rows]).labels_
        else:
            so_far = stages.of_row <= arrival
            model.set_params(n_classes=None).fit(X[so_far], stages.y[so_far])
            found[so_far] = model.labels_
        seconds = time.perf_counter() - start
        n_classes = int((stages.of_class <= arrival).sum())
        yield {
            "arrival": arrival, "way": way, **judge(truth, found, stages, arrival), "classes": n_classes,
            "classes_found": int(model.n_classes_), "seconds": round(seconds, 2),
        }  # fmt: skip


def judge(truth: IntArray, found: IntArray, stages: Stages, arrival: int) -> dict[str, float | None]:
    """The share of an arrival's rows that have their class, all of them and by group; None for a group without rows."""
    so_far = (stages.of_row <= arrival) & (stages.y < 0)
    n_found = int(found[so_far].max()) + 1
    counts = contingency(truth[so_far], found[so_far], int(truth.max()) + 1, n_found)
    match = np.full(n_found, UNLABELLED)
    true, predicted = linear_sum_assignment(counts, maximize=True)
    match[predicted] = true
    here = stages.of_row == arrival
    right = match[found[here]] == truth[here]
    group = stages.group(truth[here], arrival)
    shares = {name: right[group == name] for name in GROUPS}
    return {
        "all": float(right.mean()),
        **{name: float(of_group.mean()) if len(of_group) else None for name, of_group in shares.items()},
    }
