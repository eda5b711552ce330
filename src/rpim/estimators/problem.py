"""What a method is given (rows, labels, number of classes), and what its training on all rows starts with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rpim._common.errors import first_line
from rpim._common.progress import Progress
from rpim.core.checkpoint import Checkpoint, History, SampleCheckpoint, check_tensors
from rpim.core.head import Head
from rpim.core.kmeans import ClassSizes
from rpim.core.objective import Objective
from rpim.core.preprocessing import Preprocessing
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import Schedule, train
from rpim.data.labels import IntArray
from rpim.engines.base import Engine, TrainingTask, memory_of
from rpim.estimators.committee import LabelCheck
from rpim.estimators.objective import Hyperparameters

_TYPICAL_STEPS, _MORE_STEPS = 20, 10

Search = dict[str, dict[Any, float]]
"""For each parameter that was searched, the score of each value."""


@dataclass(frozen=True)
class ClassCount:
    """An estimate of the number of classes.

    Parameters
    ----------
    n_classes : int
        Known and new classes together.
    low, high : int
        The 95 % interval, as far as the choice of the known classes decides it.
    curve : dict
        What the estimate rests on: for each neighborhood the number of classes (``neighbors``), for each number of
        classes the accuracy on the labelled rows (``max-acc``).
    chosen : int
        The point of the curve that was taken.
    """

    n_classes: int
    low: int
    high: int
    curve: dict[int, float]
    chosen: int

    def within(self, at_least: int, at_most: int) -> ClassCount:
        """The same, with every number of classes brought into these bounds."""
        low, n_classes, high = (min(max(k, at_least), at_most) for k in (self.low, self.n_classes, self.high))
        return ClassCount(n_classes, low, high, self.curve, self.chosen)


@dataclass(frozen=True)
class CommitteeFindings:
    """What a committee found besides its head."""

    stability: NDArray[np.float64]  # (K,)
    label_check: LabelCheck
    labelled_rows: IntArray  # (n_checked,) numbers, among the rows of the problem, of the rows that were checked


@dataclass(frozen=True)
class TrainingStart:
    """A distilled committee, or the initial head of a single fit."""

    head: Head
    hyperparameters: Hyperparameters
    shares: Tensor | None  # (K,)
    n_members: int = 1
    search: Search = field(default_factory=dict)
    committee: CommitteeFindings | None = None

    def to_state(self, generator: torch.Generator) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON for a checkpoint, with the state of the generator."""
        tensors = {f"head.{name}": value for name, value in self.head.tensors().items()}
        tensors["generator"] = generator.get_state()
        if self.shares is not None:
            tensors["shares"] = self.shares
        facts: dict[str, Any] = {
            "hyperparameters": asdict(self.hyperparameters),
            "search": {name: list(scores.items()) for name, scores in self.search.items()},
        }
        if self.committee is not None:
            tensors |= {f"check.{name}": value for name, value in self.committee.label_check.tensors().items()}
            tensors["stability"] = torch.from_numpy(self.committee.stability)
        return tensors, facts

    @classmethod
    def from_state(
        cls, tensors: dict[str, Tensor], facts: Any, generator: torch.Generator, like: TrainingStart
    ) -> TrainingStart:
        """Restore what `to_state` gave, and the state of the generator; `like` is a start of the same fit.

        Raises
        ------
        ValueError
            If the tensors have other names, shapes or dtypes than those of `like`, or a fact is damaged.
        """
        found, search = _checked_facts(facts)
        expected, device = like.to_state(generator)[0], like.head.prototypes.device
        if found.class_sizes == "estimated":
            expected["shares"] = like.head.prototypes[:, 0]
        check_tensors(tensors, expected)
        shares = tensors.get("shares")
        findings = None
        if like.committee is not None:
            check = LabelCheck.from_tensors(_under("check.", tensors))
            if bool(((check.predicted < 0) | (check.predicted >= len(like.head.prototypes))).any()):
                raise ValueError("it has classes that the fit has not")
            findings = CommitteeFindings(tensors["stability"].numpy(), check, like.committee.labelled_rows)
        try:
            generator.set_state(tensors["generator"])
        except RuntimeError as error:
            raise ValueError(first_line(error)) from error
        of_head = {name: value.to(device) for name, value in _under("head.", tensors).items()}
        head = Head.from_tensors(of_head, like.head.transform_name, like.head.temperature)
        return cls(head, found, None if shares is None else shares.to(device), like.n_members, search, findings)


def _checked_facts(facts: Any) -> tuple[Hyperparameters, Search]:
    """The hyperparameters and the search; raises ValueError if they are damaged."""
    try:
        found = Hyperparameters(**facts["hyperparameters"])
        search = {name: {value: float(score) for value, score in scores} for name, scores in facts["search"].items()}
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"its facts are damaged, {first_line(error)}") from error
    weights = (found.trade_off, found.beta, found.weight_decay)
    if found.class_sizes not in get_args(ClassSizes) or not all(
        type(value) in (int, float) and 0.0 <= value < math.inf for value in weights
    ):
        raise ValueError(f"it has impossible hyperparameters, {found}")
    return found, search


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names have the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


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

    @cached_property
    def memory(self) -> int:
        """The memory budget of the fit, in bytes: the same at every point of it."""
        return memory_of(self.engine.rows)

    def train_on_sample(
        self, head: Head, objective: Objective, schedule: Schedule, *, on_step: Callable[[], None]
    ) -> History:
        """Train the head on the rows of x alone, in place."""
        cache = caches_probabilities(len(self.x), self.n_classes, self.memory)
        rows = InMemoryBlocks(self.x, self.labels, self.n_classes, cache=cache)
        checkpoints = None if self.checkpoint is None else SampleCheckpoint(self.checkpoint)
        return train(rows, head, objective, schedule, lambda *_: on_step(), checkpoints)

    def train(self, head: Head, objective: Objective, schedule: Schedule, *, on_step: Callable[[], None]) -> History:
        """Train the head on all rows, in place."""
        cache = caches_probabilities(len(self.x), self.n_classes, self.memory)
        task = TrainingTask(
            self.x, self.labels, self.codes, self.preprocess, objective, schedule, cache, on_step, self.checkpoint
        )
        return self.engine.train(head, task)


class TrainingProgress:
    """Announces and counts the steps of a training that ends when the classes of the rows settle.

    How many it takes is unknown before: `_TYPICAL_STEPS` are announced, and `_MORE_STEPS` whenever they are used up.
    A training that starts again may take more than ``max_iter``.
    """

    def __init__(self, progress: Progress, step_cost: float, schedule: Schedule) -> None:
        self._progress, self._cost = progress, step_cost
        self._left, self._most, self._max_iter = 0, schedule.max_iter, schedule.max_iter
        self._announce(schedule.max_iter if schedule.tol == 0.0 else _TYPICAL_STEPS)

    def step(self) -> None:
        """Count a step."""
        if self._left == 0:
            self._most = self._most or self._max_iter
            self._announce(_MORE_STEPS)
        self._left -= 1
        self._progress.advance(self._cost)

    def _announce(self, steps: int) -> None:
        steps = min(steps, self._most)
        self._left, self._most = self._left + steps, self._most - steps
        self._progress.expect(steps * self._cost)


def caches_probabilities(n_rows: int, n_classes: int, memory: int) -> bool:
    """Whether the probabilities of all rows are kept between the passes of a step, two N x K matrices of float32.

    They are where they take at most a quarter of the memory budget; otherwise each pass computes them again.
    """
    return 8 * n_rows * n_classes <= memory // 4


def step_cost(x: Tensor, n_classes: int, h: str) -> float:
    """Multiplications of one training step over the rows, the unit of progress."""
    n, d = x.shape
    return float(n * d) * (2.0 * n_classes if h == "none" else 3.0 * n_classes + 2.0 * d)
