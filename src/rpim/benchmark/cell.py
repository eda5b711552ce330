"""Run one cell of a benchmark in its own process, so that its peak memory is its own, and save its outcome.

An outcome is the class of every row and positions of a sample, for the figures. It is written atomically to
OUT/outcomes before the cell's line in cells.jsonl, as arrays without pickles. Figures can be redrawn from it without
the feature sets.
"""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line
from rpim._common.files import replacing, writing
from rpim._common.hardware import row_blocks
from rpim._version import __version__
from rpim.benchmark.batches import BatchesCase, follow
from rpim.benchmark.cells import Cell, digest
from rpim.benchmark.protocol import Case, SplitFeatures, Unseen
from rpim.benchmark.results import ACCURACY, CONFUSION, TEST_ACCURACY, Record
from rpim.data.formats.arrays import open_npz
from rpim.data.labels import IntArray, unlabelled_rows
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
    if cell.trade_off is not None:
        model.set_params(objective__trade_off=cell.trade_off)
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
    if cell.trade_off is not None:
        record["warnings"].append("Lambda was searched by another cell of this set and seed; seconds are without it.")
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
    model.fit(X, case.y, views, widths=case.features.widths)
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


FOLDER = "outcomes"
MAX_SAMPLE = 2000
MAX_DIRECTIONS = 50  # the usual practice before t-SNE

_LEAST = 1e-12  # of a probability under the logarithm

FloatArray = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of a cell, row by row. Classes are numbers, as in the `Case`; E rows are evaluated, S are sampled."""

    predicted: IntArray  # (N,)
    truth: IntArray  # (N,), -1 if unknown
    evaluated: IntArray  # (E,) row numbers
    known: IntArray
    names: NDArray[np.str_]
    """Names of the true classes."""
    sample: IntArray | None = None  # (S,) row numbers among the evaluated ones
    z: FloatArray | None = None  # (S, at most 50) roots of the class probabilities on their principal directions
    refined: FloatArray | None = None  # (S, at most 50) h(x) likewise, x itself for a method without h
    lean: FloatArray | None = None  # (E,) log(largest probability of a known class / largest of a new one)


def outcome_file(folder: Path, record: Record) -> Path:
    """Where the outcome of a cell is, by its key or its record."""
    return folder / FOLDER / f"{digest(record)}.npz"


def save_outcome(folder: Path, cell: Cell, case: Case, model: DiscoveryEstimator) -> None:
    """Write the outcome of a cell whose model is fitted; with a sample where the cell is to keep one."""
    arrays: dict[str, Any] = {
        "predicted": np.asarray(model.labels_, dtype=np.int32),
        "truth": case.truth.astype(np.int32),
        "evaluated": np.flatnonzero(case.evaluated).astype(np.int32),
        "known": case.known.astype(np.int32),
        "names": class_names(case),
    }
    if cell.keeps_sample and case.evaluated.any():
        arrays |= _sampled(case, model, cell.seed)
    path = outcome_file(folder, cell.key)
    with writing(path.parent):
        path.parent.mkdir(exist_ok=True)
    with replacing(path) as file:
        np.savez_compressed(file, **arrays)


def read_outcome(folder: Path, record: Record) -> Outcome:
    """The outcome of a cell.

    Raises
    ------
    InputError
        If there is none, as in the folder of an older version, or it is damaged.
    """
    path = outcome_file(folder, record)
    if not path.is_file():
        raise InputError("its cells were run before outcomes were kept, so run them again in a new folder")
    with open_npz(path) as archive:
        held = {name: archive[name] for name in archive.files}
    try:
        return Outcome(**held)
    except TypeError as error:
        raise InputError(f"{path} is no outcome of this version, so remove it and run its cell again") from error


def class_names(case: Case) -> NDArray[np.str_]:
    """Names of the true classes."""
    names = np.full(int(case.truth.max()) + 1, "", dtype=object)
    for values in (case.features.labels, case.features.truth):
        if values is not None:
            has_class = ~unlabelled_rows(values) & (case.truth >= 0)
            names[case.truth[has_class]] = values[has_class]
    return names.astype(str)


def sample_rows(evaluated: IntArray, seed: int) -> IntArray:
    """At most 2,000 of the evaluated rows in ascending order, drawn by the seed alone: the same for every method."""
    if len(evaluated) <= MAX_SAMPLE:
        return evaluated
    return np.sort(np.random.RandomState(seed).permutation(evaluated)[:MAX_SAMPLE])


def _sampled(case: Case, model: DiscoveryEstimator, seed: int) -> dict[str, Any]:
    X = case.features.rows(normalize=model.normalize)
    evaluated = np.flatnonzero(case.evaluated)
    sample = sample_rows(evaluated, seed)
    return {
        "sample": sample.astype(np.int32),
        # Of roots: rows are then as far apart as Hellinger has it, and small probabilities count.
        "z": principal(np.sqrt(model.predict_proba(X[sample]))),
        "refined": principal(model.transform(X[sample])),
        "lean": _lean(model, X, evaluated),
    }


def principal(rows: FloatArray) -> NDArray[np.float16]:
    """The rows about their mean, on the directions in which they differ most; scaled so that float16 holds them.

    >>> principal(np.array([[0.0, 0.0], [3.0, 4.0]])).tolist()
    [[-1.0], [1.0]]
    """
    centred = rows - rows.mean(axis=0)  # (S, D)
    u, scales, _ = np.linalg.svd(centred.astype(np.float64), full_matrices=False)
    kept = min(MAX_DIRECTIONS, max(1, int((scales > 1e-6 * scales[0]).sum())))
    projected = u[:, :kept] * scales[:kept]
    # The sign of a direction is arbitrary: the entry of largest size is positive, on every machine, the last of equals.
    largest = len(rows) - 1 - np.abs(projected[::-1]).argmax(axis=0)
    projected *= np.where(projected[largest, np.arange(kept)] < 0, -1.0, 1.0)
    scaled: NDArray[np.float16] = (projected / max(float(np.abs(projected).max()), 1e-30)).astype(np.float16)
    return scaled


def _lean(model: DiscoveryEstimator, X: FloatArray, rows: IntArray) -> NDArray[np.float16]:
    """log(p best known / p best new) of each row: positive if it is assigned to a known class."""
    n_known = len(model.known_classes_)
    lean = np.full(len(rows), -np.log(_LEAST), dtype=np.float16)
    if n_known == model.n_classes_:
        return lean
    for block in row_blocks(len(rows), X.shape[1]):
        z = model.predict_proba(X[rows[block]]).clip(_LEAST)
        lean[block] = np.log(z[:, :n_known].max(axis=1)) - np.log(z[:, n_known:].max(axis=1))
    return lean
