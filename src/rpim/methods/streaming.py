"""Fitting RIM, TIM, PIM and RPIM to rows that stay on disk.

The settings and the start are found on a sample of the rows that fits into memory, all of them where they do; then the
training passes over every row of the files, and is the same as in memory but for rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rpim.devices import device_of
from rpim.directions import SumOfSquares, leading_directions
from rpim.engine import Engine, Streamed
from rpim.engine.memory import BLOCK_BYTES
from rpim.engine.streamed import Prepare
from rpim.errors import InputError
from rpim.labels import UNLABELLED, IntArray, name_rows
from rpim.memory_budget import in_words
from rpim.messages import some_rows
from rpim.methods.base import Problem
from rpim.outliers import least_fitting
from rpim.progress import Progress
from rpim.row_files import READ_BYTES, RowFiles, row_blocks_of

if TYPE_CHECKING:
    from rpim.methods.infomax import InfoMaxEstimator

SAMPLE_ROWS = 200_000
"""Rows on which settings and start are found, where there are more. At least `ROWS_A_CLASS` are labelled of each known
class that has as many."""
ROWS_A_CLASS = 20
BLOCK_ROWS = 8192
"""Rows that are prepared at once outside of the training."""
BYTES_A_ROW = 120
"""What is kept of every row: label, class, sureness, runner-up, scores, and a few numbers of a step."""


@dataclass
class StreamedProblem(Problem):
    """A problem of which `x` and `labels` are a sample of the rows, and the rest is in files."""

    files: RowFiles | None = None
    codes: IntArray | None = None  # (N,) of all rows
    prepare: Prepare | None = None

    def engine(self, *, keep: bool = True) -> Engine:
        """All rows, to train on; nothing of them is kept."""
        assert self.files is not None
        assert self.codes is not None
        assert self.prepare is not None
        return Streamed(self.files, self.codes, self.n_classes, self.x.shape[1], self.prepare, self.x.device)


def fit_files(model: InfoMaxEstimator, rows: RowFiles, y: ArrayLike) -> None:
    """What ``fit`` does, with rows that are never all in memory."""
    model._validate_params()
    codes, known = model._check_labels(len(rows), y)
    model.n_features_in_ = rows.shape[1]
    generator = model._generator()
    device = device_of(model.device)
    n_sample = sample_size(rows, model.n_classes or 2 * len(known), len(known))
    with Progress(model.verbose, "looking through the rows") as progress:
        sample = draw_sample(codes, n_sample, int(generator.initial_seed()))
        model.sample_rows_ = len(sample)
        values = _look_through(model, rows, sample, device)
        order = np.concatenate([np.flatnonzero(codes[sample] >= 0), np.flatnonzero(codes[sample] < 0)])
        x = model._ordered(values, order, device)
        del values
        labels = torch.from_numpy(codes[sample][order][codes[sample][order] >= 0]).to(device)
        n_classes = model._n_classes(x, labels, len(known), generator, progress)

        def prepare(block: NDArray[np.floating]) -> Tensor:
            return model._project(model._unit(block, device))

        problem = StreamedProblem(x, labels, len(known), n_classes, generator, progress, (), rows, codes, prepare)
        model.head_ = model._discover(problem)
        progress.stage("assigning")
        assigned, scores = _assigned(model, rows, prepare)
    model._name_classes(known)
    free = np.flatnonzero(codes < 0)
    left_out, model.outlier_threshold_ = least_fitting(scores[free] if model.abstain else scores[:0], model.abstain)
    assigned[free[left_out]] = UNLABELLED
    assigned = np.where(codes >= 0, codes, assigned)
    model.labels_ = name_rows(assigned, model.classes_)
    model._remember(problem, torch.from_numpy(assigned[sample][order]).to(device))


def sample_size(rows: RowFiles, n_classes: int, n_known: int) -> int:
    """How many rows settings and start may be found on, within half of what the memory leaves.

    Raises
    ------
    InputError
        If the memory is too small for what has to be there whatever is done.
    """
    n_rows, n_features = rows.shape
    each = 4 * (3 * n_features + 128) + 8 * n_classes  # as read, as prepared, in fewer directions, and probabilities
    always = BYTES_A_ROW * n_rows + 4 * READ_BYTES + 24 * n_features**2 + 4 * BLOCK_BYTES
    least = always + 2 * each * max(ROWS_A_CLASS * n_known, 2 * n_classes)
    if rows.memory < least:
        raise InputError(
            f"{n_rows:,} rows of {n_features} features and {n_classes:,} classes need {in_words(least)} of memory at "
            f"least, but {in_words(rows.memory)} were given: give more, or spread them over workers."
        )
    return min(SAMPLE_ROWS, (rows.memory - always) // (2 * each))


def draw_sample(codes: IntArray, n_rows: int, seed: int) -> IntArray:
    """Numbers of rows in order: all of them, or so many drawn at random, with some labelled ones of each class. (n,)"""
    if len(codes) <= n_rows:
        return np.arange(len(codes))
    random = np.random.RandomState(seed % 2**32)
    drawn = random.permutation(len(codes))
    chosen = np.zeros(len(codes), dtype=bool)
    chosen[drawn[:n_rows]] = True
    labelled = drawn[codes[drawn] >= 0]
    by_class = labelled[np.argsort(codes[labelled], kind="stable")]
    first = np.searchsorted(codes[by_class], np.arange(codes.max() + 2))
    place = np.arange(len(by_class)) - first[codes[by_class]]
    chosen[by_class[place < ROWS_A_CLASS]] = True
    return np.flatnonzero(chosen)


def _look_through(
    model: InfoMaxEstimator, rows: RowFiles, sample: IntArray, device: torch.device
) -> NDArray[np.float32]:
    """One pass: check the values, find the principal directions, and bring the rows of the sample. (n, D)"""
    kept = model._n_components()
    wanted = kept is not None and kept < rows.shape[1]
    gram = SumOfSquares(rows.shape[1], device) if wanted else None
    values = np.empty((len(sample), rows.shape[1]), dtype=np.float32)
    for where, block in row_blocks_of(rows, BLOCK_ROWS):
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if bad.size:
            bad += where.start
            raise InputError(f"{rows.path} has NaN or infinity in {some_rows(bad.tolist())}: remove them.")
        if gram is not None:
            gram.add(model._unit(block, device))
        first, last = np.searchsorted(sample, [where.start, where.stop])
        values[first:last] = block[sample[first:last] - where.start]
    model.components_ = None if gram is None or kept is None else leading_directions(gram.total, kept)
    return values


def _assigned(model: InfoMaxEstimator, rows: RowFiles, prepare: Prepare) -> tuple[IntArray, NDArray[np.float32]]:
    """The class of each row by number, and how little it fits any. (N,), (N,)"""
    classes, scores = np.empty(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.float32)
    for where, block in row_blocks_of(rows, BLOCK_ROWS):
        x = prepare(block)
        classes[where] = model.head_.predict(x).cpu().numpy()
        if model.abstain:
            scores[where] = model.head_.outlier_scores(x).cpu().numpy()
    return classes, scores
