"""Outcomes of cells for the figures, in OUT/outcomes: the class of every row, and positions of a sample.

An outcome is written atomically before the cell's line in cells.jsonl, as arrays without pickles. Figures can be
redrawn from it without the feature sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.blocks import row_blocks
from rpim._common.errors import InputError
from rpim._common.files import open_npz, replacing, writing
from rpim.benchmark.cells import Cell, digest
from rpim.benchmark.protocol import Case
from rpim.benchmark.results import Record
from rpim.data.labels import IntArray, unlabelled_rows
from rpim.estimators.base import DiscoveryEstimator

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
