"""Fitting RIM, TIM, PIM and RPIM to rows that stay where they are: on disk, or spread over workers.

The committee, or the start of a single fit, is found on a sample of the rows that fits into memory, all of them where
they do; then the training passes over every row, and is the same as in memory but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rpim.core.sampling import LABELLED_ROWS_A_CLASS, sample_rows
from rpim.devices import device_of
from rpim.directions import SumOfSquares, leading_directions
from rpim.engine import Streamed
from rpim.engine.memory import BLOCK_BYTES
from rpim.errors import InputError
from rpim.head import Head
from rpim.labels import UNLABELLED, IntArray, name_rows
from rpim.memory_budget import in_words, usual_budget
from rpim.messages import some_rows
from rpim.methods.base import Problem
from rpim.optimise import Objective, Schedule, optimise
from rpim.outliers import least_fitting
from rpim.places import Place, Rows
from rpim.preparation import Preparation
from rpim.progress import Progress
from rpim.row_files import READ_BYTES, RowFiles, row_blocks_of
from rpim.training_state import History
from rpim.unfinished import Unfinished

if TYPE_CHECKING:
    from rpim.methods.infomax import InfoMaxEstimator

SAMPLE_ROWS = 200_000
"""Rows on which the committee, or the start, is found, where there are more."""
BLOCK_ROWS = 8192
"""Rows that are prepared at once outside of the training."""
BYTES_A_ROW = 120
"""What is kept of every row: label, class, sureness, runner-up, scores, and a few numbers of a step."""


class Here:
    """This process alone."""

    def look(
        self, rows: Rows, sample: IntArray, prepare: Preparation, *, directions: bool
    ) -> tuple[NDArray[np.float32], Tensor | None]:
        return look_through(rows, sample, prepare, directions=directions)

    def train(
        self, problem: SpreadProblem, head: Head, objective: Objective, schedule: Schedule, *, keep: bool,
        on_step: Callable[[], None], unfinished: Unfinished | None,
    ) -> History:  # fmt: skip
        assert isinstance(problem.rows, RowFiles)
        n_features, device = problem.x.shape[1], problem.x.device
        engine = Streamed(problem.rows, problem.codes, problem.n_classes, n_features, problem.prepare, device)
        return optimise(engine, head, objective, schedule, lambda *_: on_step(), unfinished)

    def assign(
        self, rows: Rows, head: Head, prepare: Preparation, *, scores: bool
    ) -> tuple[IntArray, NDArray[np.float32]]:
        return assigned(rows, head, prepare, scores=scores)


@dataclass(kw_only=True)
class SpreadProblem(Problem):
    """A problem of which `x` and `labels` are a sample of the rows; all of them are elsewhere."""

    rows: Rows
    codes: IntArray  # (N,) of all rows
    prepare: Preparation
    place: Place

    @property
    def is_whole(self) -> bool:
        return len(self.x) == len(self.codes)

    def train(
        self, head: Head, objective: Objective, schedule: Schedule, *, keep: bool, on_step: Callable[[], None],
        unfinished: Unfinished | None = None,
    ) -> History:  # fmt: skip
        """Train the head on all rows."""
        return self.place.train(
            self, head, objective, schedule, keep=keep, on_step=on_step, unfinished=unfinished
        )


def fit_where_they_are(model: InfoMaxEstimator, rows: Rows, y: ArrayLike, place: Place) -> None:
    """What ``fit`` does, with rows that are never all in this process."""
    model._validate_params()
    codes, known = model._check_labels(len(rows), y)
    model.n_features_in_ = rows.shape[1]
    generator = model._generator()
    device = device_of(model.device)
    n_sample = sample_size(rows, model.n_classes or 2 * len(known), len(known))
    with Progress(model.verbose, "looking through the rows") as progress:
        sample = sample_rows(codes, n_sample, int(generator.initial_seed()))
        model.sample_rows_ = len(sample)
        model.components_ = None
        kept = model._n_components()
        all_here = len(sample) == len(rows)
        fewer = kept is not None and kept < rows.shape[1] and not all_here
        values, gram = place.look(rows, sample, model._preparation(device), directions=fewer)
        model._check_distinct(values, len(known))
        order = np.concatenate([np.flatnonzero(codes[sample] >= 0), np.flatnonzero(codes[sample] < 0)])
        if gram is not None and kept is not None:
            # In single precision, so that its last bits are not those of how the rows were cut into shards.
            model.components_ = leading_directions(gram.float(), kept).to(device)
        x = model._prepare(values, order, device) if all_here else model._ordered(values, order, device)
        del values
        labels = torch.from_numpy(codes[sample][order][codes[sample][order] >= 0]).to(device)
        n_classes = model._n_classes(x, labels, len(known), generator, progress)
        prepare = model._preparation(device)
        problem = SpreadProblem(
            x, labels, len(known), n_classes, generator, progress, rows=rows, codes=codes, prepare=prepare, place=place
        )
        model.head_ = model._discover(problem)
        progress.stage("assigning")
        classes, scores = place.assign(rows, model.head_, prepare, scores=model.abstain > 0)
    model._name_classes(known)
    free = np.flatnonzero(codes < 0)
    left_out, model.outlier_threshold_ = least_fitting(scores[free] if model.abstain else scores[:0], model.abstain)
    classes[free[left_out]] = UNLABELLED
    classes = np.where(codes >= 0, codes, classes)
    model.labels_ = name_rows(classes, model.classes_)
    model._remember(problem, torch.from_numpy(classes[sample][order]).to(device))
    model._finish(sample[order], classes)


def sample_size(rows: Rows, n_classes: int, n_known: int) -> int:
    """How many rows settings and start may be found on, within half of what the memory leaves.

    Raises
    ------
    InputError
        If the memory is too small for what has to be there whatever is done.
    """
    n_rows, n_features = rows.shape
    memory = rows.memory if isinstance(rows, RowFiles) else usual_budget()
    each = 4 * (3 * n_features + 128) + 8 * n_classes  # as read, as prepared, in fewer directions, and probabilities
    always = BYTES_A_ROW * n_rows + 4 * READ_BYTES + 24 * n_features**2 + 4 * BLOCK_BYTES
    least = always + 2 * each * max(LABELLED_ROWS_A_CLASS * n_known, 2 * n_classes)
    if memory < least:
        raise InputError(
            f"{n_rows:,} rows of {n_features} features and {n_classes:,} classes need {in_words(least)} of memory at "
            f"least, but {in_words(memory)} were given: give more, or spread them over workers."
        )
    return int(min(SAMPLE_ROWS, (memory - always) // (2 * each)))


def look_through(
    rows: Rows, sample: IntArray, prepare: Preparation, *, directions: bool, first_row: int = 0
) -> tuple[NDArray[np.float32], Tensor | None]:
    """One pass: check the values, bring the rows of the sample (n, D), and add up what directions come from (D, D).

    `first_row` is the number that the first of these rows has among all, for the message.
    """
    gram = SumOfSquares(rows.shape[1], prepare.device) if directions else None
    values = np.empty((len(sample), rows.shape[1]), dtype=np.float32)
    for where, block in row_blocks_of(rows, BLOCK_ROWS):
        bad = np.flatnonzero(~np.isfinite(block).all(axis=1))
        if bad.size:
            name = rows.path if isinstance(rows, RowFiles) else "X"
            raise InputError(
                f"{name} has NaN or infinity in {some_rows((bad + where.start + first_row).tolist())}: remove them."
            )
        if gram is not None:
            gram.add(prepare.scaled(block))
        first, last = np.searchsorted(sample, [where.start, where.stop])
        values[first:last] = block[sample[first:last] - where.start]
    return values, None if gram is None else gram.total


def assigned(
    rows: Rows, head: Head, prepare: Preparation, *, scores: bool
) -> tuple[IntArray, NDArray[np.float32]]:
    """The class of each row by number, and where `scores` are wanted how little it fits any. (N,), (N,)"""
    classes, little = np.empty(len(rows), dtype=np.int64), np.zeros(len(rows), dtype=np.float32)
    for where, block in row_blocks_of(rows, BLOCK_ROWS):
        x = prepare(block)
        classes[where] = head.predict(x).cpu().numpy()
        if scores:
            little[where] = head.outlier_scores(x).cpu().numpy()
    return classes, little
