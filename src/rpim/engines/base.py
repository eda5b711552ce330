"""The engine protocol: passes over the rows of a fit, which are in memory, on disk, or on Ray workers.

Full-batch InfoMax needs only sums over rows, so a fit asks an engine for four things: a sample of the rows that this
process can hold, sums over all rows, a trained head, and the class of each row. It never asks where the rows are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rpim._common.errors import InputError, some_rows
from rpim._common.hardware import default_memory_budget, format_bytes
from rpim.core.checkpoint import Checkpoint, History
from rpim.core.head import Head
from rpim.core.objective import Objective
from rpim.core.preprocessing import Preprocessing, SumOfSquares, single_precision
from rpim.core.row_blocks import BLOCK_BYTES
from rpim.core.sampling import LABELLED_ROWS_PER_CLASS, sample_rows
from rpim.core.training import Schedule
from rpim.data.labels import IntArray
from rpim.data.row_files import READ_BYTES, RowFiles, row_blocks_of

Rows = RowFiles | NDArray[np.floating]

SAMPLE_ROWS, SAMPLE_ROWS_PER_CLASS = 200_000, 25
"""The largest sample on which the committee, or the start of a single fit, is computed: the larger of the two."""
COMMITTEE_MATRICES = 6
"""N x K matrices of float32 that it takes to combine a committee."""
BLOCK_ROWS = 8192
"""Rows per block outside of the training."""
BYTES_PER_ROW = 120
"""Memory per row in any case: label, class, confidence, runner-up, scores, and a few numbers of a step."""
PROCESS_BYTES = 400_000_000
"""Of Python and the libraries."""


@dataclass(frozen=True)
class TrainingTask:
    """A training on all rows.

    Parameters
    ----------
    x : (n, d)
        The preprocessed sample, the labelled rows first.
    labels : (n_labelled,)
        Codes of its first rows.
    codes : (N,)
        The class of each of all rows, -1 for unlabelled ones.
    """

    x: Tensor
    labels: Tensor
    codes: IntArray
    preprocess: Preprocessing
    objective: Objective
    schedule: Schedule
    cache: bool
    on_step: Callable[[], None]
    checkpoint: Checkpoint | None


@runtime_checkable
class Engine(Protocol):
    """Passes over all rows of a fit."""

    shape: tuple[int, int]
    """N, D"""

    @property
    def rows(self) -> Rows:
        """All rows, as they were given."""

    def sample(self, codes: IntArray, n_classes: int, seed: int) -> IntArray:
        """The indices of a sample that this process can hold, in ascending order; all rows if they fit. (n,)"""

    def scan(
        self, sample: IntArray, preprocess: Preprocessing, *, directions: bool
    ) -> tuple[NDArray[np.floating], Tensor | None]:
        """Check the values; return the rows of the sample (n, D), and if `directions` the Gram matrix X^T X (D, D)."""

    def train(self, head: Head, task: TrainingTask) -> History:
        """Train the head on all rows, in place."""

    def assign(self, head: Head, preprocess: Preprocessing, *, scores: bool) -> tuple[IntArray, NDArray[np.float32]]:
        """The class of each row, and its outlier score if `scores`, else zero. (N,), (N,)"""


def first_block(rows: Rows) -> NDArray[np.floating]:
    """The first rows, the same in every engine: what kind of values there are. (n, D)"""
    return next(row_blocks_of(rows, BLOCK_ROWS))[1]


def sample_within(rows: Rows, codes: IntArray, n_classes: int, seed: int) -> IntArray:
    """The indices of a sample that takes at most half of the free memory. (n,)

    Raises
    ------
    InputError
        If the memory is too small even for the smallest sample.
    """
    n_rows, n_features = rows.shape
    n_known = int(codes.max()) + 1
    memory = memory_of(rows)
    per_row, always = _bytes_per_sampled_row(n_features), _bytes_of_any_fit(n_rows, n_features)
    least = always + 2 * per_row * max(LABELLED_ROWS_PER_CLASS * n_known, 2 * n_classes)
    if memory < least:
        raise InputError(
            f"{n_rows:,} rows of {n_features} features and {n_classes:,} classes need {format_bytes(least)} of memory "
            f"at least, but {format_bytes(memory)} were given: give more, or a smaller n_classes."
        )
    most = max(SAMPLE_ROWS, SAMPLE_ROWS_PER_CLASS * n_classes)
    return sample_rows(codes, int(min(most, (memory - always) // (2 * per_row))), seed)


def memory_of(rows: Rows) -> int:
    """The memory budget of a fit of these rows, in bytes."""
    return rows.memory if isinstance(rows, RowFiles) else default_memory_budget()


def bytes_of_committee(shape: tuple[int, int], n_seen: int, n_classes: int) -> int:
    """The memory budget of a fit whose members see that many rows: half of it is for the sample."""
    return _bytes_of_any_fit(*shape) + 2 * 4 * COMMITTEE_MATRICES * n_seen * n_classes


def bytes_for_rows(rows: RowFiles, n_sampled: int) -> int:
    """The memory left for preprocessed rows beside a sample of that size."""
    n_rows, n_features = rows.shape
    sample = n_sampled * _bytes_per_sampled_row(n_features)
    return max(0, rows.memory - PROCESS_BYTES - _bytes_of_any_fit(n_rows, n_features) - sample)


def _bytes_per_sampled_row(n_features: int) -> int:
    """As read, preprocessed, and projected."""
    return 4 * (3 * n_features + 128)


def _bytes_of_any_fit(n_rows: int, n_features: int) -> int:
    return BYTES_PER_ROW * n_rows + 4 * READ_BYTES + 24 * n_features**2 + 4 * BLOCK_BYTES


def scan_rows(
    rows: Rows, sample: IntArray, preprocess: Preprocessing, *, directions: bool, first_row: int = 0
) -> tuple[NDArray[np.floating], Tensor | None]:
    """Check the values; return the rows of the sample (n, D), and if `directions` the Gram matrix X^T X (D, D).

    `first_row` is the index of the first of these rows among all rows, for the error message.
    """
    gram = SumOfSquares(rows.shape[1], preprocess.device) if directions else None
    values = np.empty((len(sample), rows.shape[1]), dtype=np.promote_types(rows.dtype, np.float32))
    for where, given in row_blocks_of(rows, BLOCK_ROWS):
        block = single_precision(given)
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if bad.size:
            name = rows.path if isinstance(rows, RowFiles) else "X"
            raise InputError(
                f"{name} has NaN or infinity in {some_rows((bad + where.start + first_row).tolist())}: remove them."
            )
        if gram is not None:
            gram.add(preprocess.normalized(block))
        first, last = np.searchsorted(sample, [where.start, where.stop])
        values[first:last] = block[sample[first:last] - where.start]
    return values, None if gram is None else gram.total


def assign_rows(
    rows: Rows, head: Head, preprocess: Preprocessing, *, scores: bool
) -> tuple[IntArray, NDArray[np.float32]]:
    """The class of each row, and its outlier score if `scores`, else zero. (N,), (N,)"""
    classes, outlier_scores = np.empty(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.float32)
    for where, block in row_blocks_of(rows, BLOCK_ROWS):
        x = preprocess(block)
        classes[where] = head.predict(x).cpu().numpy()
        if scores:
            outlier_scores[where] = head.outlier_scores(x).cpu().numpy()
    return classes, outlier_scores
