"""Run one cell of a benchmark: fit and measure, in its own process, so that its peak memory is its own."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from rpim._common.errors import InputError, first_line
from rpim._version import __version__
from rpim.benchmark.batches import BatchesCase, follow
from rpim.benchmark.cells import Cell
from rpim.benchmark.outcomes import save_outcome
from rpim.benchmark.protocol import Case, SplitFeatures, Unseen
from rpim.benchmark.results import ACCURACY, CONFUSION, TEST_ACCURACY, Record
from rpim.data.labels import IntArray
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.infomax import InfoMaxEstimator
from rpim.metrics import gcd_accuracy
from rpim.runs.saved_model import json_value

_CHOSEN = ("trade_off", "beta", "weight_decay", "n_members")


def run_cell(cell: Cell, threads: int, folder: Path | None = None, parts: SplitFeatures | None = None) -> Record:
    """The record of a cell; exceptions become an ``error`` in it. Its outcome is stored in the benchmark folder.

    Without `parts`, the rows are read from disk.
    """
    # At most OMP_NUM_THREADS threads.
    torch.set_num_threads(max(1, min(threads, torch.get_num_threads())))
    try:
        return {**cell.facts, **_measured(cell, folder, parts)}
    except Exception as error:
        what = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {first_line(error)}"
        return {**cell.facts, "error": " ".join(what.split()), "traceback": traceback.format_exc()}


def _measured(cell: Cell, folder: Path | None, parts: SplitFeatures | None) -> Record:
    case = cell.case(parts)
    model = cell.method.estimator()
    # The seed is also the method's random state; for sets with given labels it varies nothing else.
    model.set_params(n_classes=cell.n_classes, random_state=cell.seed)
    with warnings.catch_warnings(record=True) as caught:
        if isinstance(case, BatchesCase):  # the plan has no method for it that cannot be extended
            measured = {**follow(cast(InfoMaxEstimator, model), case), "peak_mb": peak_memory_mb()}
        else:
            measured = _fitted(model, case)
    record = {
        **measured,
        "n_classes_used": int(model.n_classes_),
        "n_iter": json_value(getattr(model, "n_iter_", None)),
        **{name: json_value(getattr(model, f"{name}_", None)) for name in _CHOSEN},
        "trained_parameters": sum(value.numel() for value in model.head_.parameters.values()),
        "threads": torch.get_num_threads(),
        "warnings": sorted({first_line(w.message) for w in caught if isinstance(w.message, Warning)}),
        "versions": {
            "rpim": __version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("torch", "numpy", "scikit-learn")},
        },
    }
    if folder is not None and not isinstance(case, BatchesCase):  # after measuring time and memory
        try:
            save_outcome(folder, cell, case, model)
        except Exception as error:  # only the figures are lost
            record["warnings"].append(f"No data for the figures was stored ({first_line(error)}).")
    return record


def _fitted(model: DiscoveryEstimator, case: Case) -> Record:
    """Fit as ``rpim discover`` does, and measure; time and memory cover only the fit."""
    X = case.features.rows(normalize=model.normalize)
    views = case.features.rows_of_views(model.normalize) if model.uses_views else []
    start = time.perf_counter()
    model.fit(X, case.y, views)
    seconds, peak = time.perf_counter() - start, peak_memory_mb()
    return {
        **measure(case, model.labels_, model.known_classes_),
        **_tested(model, case.test, case.known),
        "unused_rows": case.unused,
        "seconds": round(seconds, 3),
        "peak_mb": peak,
    }


def measure(case: Case, predicted: IntArray, named: Any) -> Record:
    """Accuracy and confusion on the unlabelled rows with a true class; None without such rows.

    Confusion is the share of rows of unknown classes assigned to known ones, and the reverse. `named` are the known
    classes of the method.
    """
    rows = case.evaluated
    counts = {"rows": len(case.y), "labelled": int((~case.hidden).sum()), "evaluated": int(rows.sum())}
    names = ACCURACY + CONFUSION
    if not rows.any():
        return {**counts, **dict.fromkeys(names)}
    truth, found = case.truth[rows], predicted[rows]
    accuracy = gcd_accuracy(truth, found, case.known)
    is_known, in_known = np.isin(truth, case.known), np.isin(found, named)
    shares = (*accuracy.as_dict().values(), _share(in_known[~is_known]), _share(~in_known[is_known]))
    return {**counts, **dict(zip(names, map(json_value, shares), strict=True))}


def _tested(model: DiscoveryEstimator, test: Unseen | None, known: IntArray) -> Record:
    """Accuracy of prediction on unseen test rows; None without test rows."""
    if test is None:
        return {"test_rows": 0, **dict.fromkeys(TEST_ACCURACY)}
    predicted = model.predict(test.features.rows(normalize=model.normalize))
    accuracy = gcd_accuracy(test.truth, predicted, known).as_dict().values()
    return {"test_rows": len(test.truth), **dict(zip(TEST_ACCURACY, map(json_value, accuracy), strict=True))}


def _share(where: Any) -> float | None:
    return float(where.mean()) if len(where) else None


def peak_memory_mb() -> float | None:
    """Peak memory of this process, including Python and torch.

    On Linux that is VmHWM rather than getrusage's ru_maxrss: a new program inherits in ru_maxrss the peak of the
    process that started it, so that a parent which has read a large file would be counted to every cell.
    """
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found is not None:
        return round(int(found[1]) / 1024, 1)
    try:
        import resource
    except ImportError:  # not on Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024**2 if sys.platform == "darwin" else 1024), 1)
