"""What a method is given: rows, the labels of some, and the number of classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from rpim._common.memory_budget import default_memory_budget
from rpim._common.progress import Progress
from rpim.core.checkpoint import Checkpoint, History
from rpim.core.head import Head
from rpim.core.objective import Objective
from rpim.core.preprocessing import Preprocessing
from rpim.core.training import Schedule
from rpim.data.labels import IntArray
from rpim.engines.base import Engine, TrainingTask
from rpim.estimators.training_start import TrainingStart


@dataclass
class Problem:
    """What a method gets to see: rows, the labels of some, and how many classes to find."""

    x: Tensor  # (N, D), normalized and projected, the labelled rows first
    labels: Tensor  # (n_labelled,) codes 0 .. n_known - 1
    n_known: int
    n_classes: int
    generator: torch.Generator
    progress: Progress

    @property
    def n_new(self) -> int:
        """How many classes are to be discovered."""
        return self.n_classes - self.n_known


@dataclass
class FitProblem(Problem):
    """The problem of a fit: `x` and `labels` are of a sample of the rows, of all of them where they fit in memory."""

    engine: Engine
    codes: IntArray  # (N,) of all rows; -1 without a label
    rows: IntArray  # (n,) the numbers of the rows of x
    preprocess: Preprocessing
    checkpoint: Checkpoint | None = None
    views: tuple[Tensor, ...] = ()
    """Further views of the same rows, for the methods that compare two of them."""
    start: TrainingStart | None = None
    """What the training on all rows started with (RIM, TIM, PIM, RPIM)."""

    @property
    def is_whole(self) -> bool:
        """Whether `x` holds all rows, and not a sample of them."""
        return len(self.x) == self.engine.shape[0]

    def train(self, head: Head, objective: Objective, schedule: Schedule, *, on_step: Callable[[], None]) -> History:
        """Train the head on all rows."""
        cache = caches_probabilities(len(self.x), self.n_classes)
        task = TrainingTask(
            self.x, self.labels, self.codes, self.preprocess, objective, schedule, cache, on_step, self.checkpoint
        )
        return self.engine.train(head, task)


def caches_probabilities(n_rows: int, n_classes: int) -> bool:
    """Whether the probabilities of all rows are kept between the passes of a step, two N x K matrices of float32.

    They are where they take at most a quarter of the memory budget; otherwise each pass computes them again.
    """
    return 8 * n_rows * n_classes <= default_memory_budget() // 4


def step_cost(x: Tensor, n_classes: int, h: str) -> float:
    """Multiplications of one training step over the rows, the unit of progress."""
    n, d = x.shape
    return float(n * d) * (2.0 * n_classes if h == "none" else 3.0 * n_classes + 2.0 * d)
