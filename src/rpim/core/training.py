"""Training of a head: Adam, the loop over full-batch steps, and the distillation of a committee.

Distillation gives the one linear head that is saved, applied to new rows, extended and shown. It minimizes the
cross-entropy against the probabilities of the committee, so that the head takes over their confidence as well as their
classes:

    minimize over W, B, b     mean_i  -sum_k  P[i,k] log z[i,k],      z = softmax(tau h(x) W^T)

with weight decay, which is for new rows: without it, the head learns the probabilities of its own rows by heart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from rpim.core import objective as terms
from rpim.core.checkpoint import History, TrainingState
from rpim.core.gradient import gradient, predict
from rpim.core.head import Head, softmax_of
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks, RowBlocks
from rpim.core.transforms import SemanticBias

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # Adam's defaults


class Adam:
    """Adam on one parameter, in place, with weight decay added to the gradient, as in ``torch.optim.Adam``.

    ``torch.optim`` imports torch's compiler, which takes seconds in a process that may live for ten.
    """

    def __init__(self, parameter: Tensor, weight_decay: float, epsilon: float = _EPSILON) -> None:
        self._parameter = parameter
        self._decay, self._epsilon = weight_decay, epsilon
        self._mean, self._square = torch.zeros_like(parameter), torch.zeros_like(parameter)
        self.steps = 0

    @property
    def state(self) -> dict[str, Tensor]:
        """The running means of the gradient and of its square."""
        return {"mean": self._mean, "square": self._square}

    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """Take one step against the gradient."""
        self.steps += 1
        gradient = gradient.add(self._parameter, alpha=self._decay)
        self._mean.lerp_(gradient, 1.0 - _BETA_1)
        self._square.mul_(_BETA_2).addcmul_(gradient, gradient, value=1.0 - _BETA_2)
        scale = self._square.sqrt().div_((1.0 - _BETA_2**self.steps) ** 0.5).add_(self._epsilon)
        self._parameter.addcdiv_(self._mean, scale, value=-learning_rate / (1.0 - _BETA_1**self.steps))


@dataclass(frozen=True)
class Schedule:
    """The hyperparameters of the optimization."""

    learning_rate: float = 5e-3
    weight_decay: float = 0.01
    max_iter: int = 150
    tol: float = 0.0
    """Stop when on average fewer than this share of the rows change their class per step."""
    check_every: int = 10
    """Steps between two checks whether rows still change their class."""
    keep_classes: bool = False
    """Start again with half of the weight decay if it empties classes; see `train`."""


CLASSES_LOST, MOST_HALVINGS = 0.1, 4
"""With ``keep_classes``: the share of classes that may lose all their rows, and how often weight decay is halved."""


class Checkpoints(Protocol):
    """Where a training saves its state, and resumes from."""

    def last(self, like: Mapping[str, Tensor]) -> TrainingState | None:
        """The state to resume from, with tensors like these; None to start from the beginning."""

    def due(self) -> bool:
        """Whether it is time to save again."""

    def save(self, state: TrainingState) -> None:
        """Save the state."""


def train(
    rows: RowBlocks,
    head: Head,
    objective: Objective,
    schedule: Schedule,
    on_step: Callable[[int, dict[str, float]], None] | None = None,
    checkpoints: Checkpoints | None = None,
) -> History:
    """Train ``head`` in place; returns the terms of the objective and the weight decay at every step.

    With ``checkpoints`` it resumes from the last one, and ends with the same bits as an uninterrupted training.

    Too much weight decay empties new classes, whose rows then go to the known ones, which labels hold up. How much is
    too much depends on how far the classes overlap. So with ``schedule.keep_classes`` the training starts again with
    half of it if at its end more than a tenth of the classes have lost all their rows. Not earlier: on rows that are
    all similar, classes are lost in the first steps and found again.
    """
    state = _State(rows, head, objective, schedule)
    if checkpoints is not None:
        state.resume(checkpoints)
    if on_step is not None:
        for step, value in enumerate(state.history):
            on_step(step, value)
    labels, previous = rows.new_labels(), rows.new_labels()
    resumed_at = len(state.history)
    if resumed_at > 0 and schedule.tol > 0.0:
        predict(rows, state.checked, previous)
    while (step := len(state.history)) < schedule.max_iter:
        if step not in (0, resumed_at) and checkpoints is not None and _any_worker(rows, checkpoints.due()):
            checkpoints.save(state.to_save())
        compare = step % schedule.check_every == 0 and schedule.tol > 0.0
        count = schedule.keep_classes and step in (0, schedule.max_iter - 1)
        value, gradients = gradient(rows, head, objective, labels if compare or count else None, state.factors)
        settled = compare and step > 0 and _share_changed(rows, labels, previous) <= schedule.tol * schedule.check_every
        if count and step == 0:
            state.n_used.fill_(_n_used(rows, labels))
        elif count or (schedule.keep_classes and settled):
            lost = (int(state.n_used) - _n_used(rows, labels)) / rows.n_classes
            if lost > CLASSES_LOST and state.weight_decay > schedule.weight_decay / 2**MOST_HALVINGS:
                state.begin(state.weight_decay / 2)
                continue
        state.history.append({**value, "weight_decay": state.weight_decay})
        if on_step is not None:
            on_step(step, state.history[-1])
        if settled:
            break
        if compare:
            labels, previous = previous, labels
            state.checked = head.copy()
        for name, slope in gradients.items():
            state.adam[name].step(slope, schedule.learning_rate)
    return state.history


class _State:
    """What changes from step to step: the head, Adam, Sinkhorn's factors, and the history."""

    def __init__(self, rows: RowBlocks, head: Head, objective: Objective, schedule: Schedule) -> None:
        self.head, self.start = head, head.copy()
        self.n_used = torch.tensor(0)
        """The number of classes with rows at the start."""
        self.factors: Tensor | None = None
        if objective.pipelined:
            self.factors = rows.z.new_zeros(objective.sinkhorn_iterations, rows.n_classes)
        self.begin(schedule.weight_decay)

    def begin(self, weight_decay: float) -> None:
        """Go back to the start."""
        for name, parameter in self.head.parameters.items():
            parameter.copy_(self.start.parameters[name])
        if self.factors is not None:
            self.factors.zero_()
        self.weight_decay = weight_decay
        self.adam = {name: Adam(parameter, weight_decay) for name, parameter in self.head.parameters.items()}
        self.checked = self.head.copy()
        """The head of the last check, with whose classes those of the next one are compared."""
        self.history: History = []

    def to_save(self) -> TrainingState:
        """What the next step needs."""
        checked = {f"checked.{name}": value for name, value in self.checked.parameters.items()}
        tensors = {**self.head.parameters, **checked, "n_used": self.n_used}
        if self.factors is not None:
            tensors["sinkhorn"] = self.factors
        for name, each in self.adam.items():
            tensors |= {f"{name}.{what}": value for what, value in each.state.items()}
        return TrainingState(tensors, self.history)

    def resume(self, checkpoints: Checkpoints) -> None:
        """Go to the last checkpoint, if there is one."""
        saved = checkpoints.last(self.to_save().tensors)
        if saved is None:
            return
        self.begin(saved.history[-1]["weight_decay"])
        for name, tensor in self.to_save().tensors.items():
            tensor.copy_(saved.tensors[name])
        for each in self.adam.values():
            each.steps = len(saved.history)
        self.history = list(saved.history)


def _share_changed(rows: RowBlocks, labels: Tensor, previous: Tensor) -> float:
    """The share of rows whose class has changed, of all workers. labels, previous: (N,)"""
    return float(rows.all_reduce((labels != previous).sum())) / rows.n_rows


def _n_used(rows: RowBlocks, labels: Tensor) -> int:
    """The number of classes with rows, of all workers. labels: (N,)"""
    return int((rows.all_reduce(torch.bincount(labels, minlength=rows.n_classes)) > 0).sum())


def _any_worker(rows: RowBlocks, due: bool) -> bool:
    """Whether it is due on any worker: clocks differ, and all workers must save the same step."""
    return bool(rows.all_reduce(torch.tensor(int(due))))


_DISTILLATION_EPSILON = 1e-6
"""Of Adam: directions in which the rows hardly differ have gradients of the size of rounding. With Adam's usual 1e-8 it
takes full steps along them, and what the head says of rows of unseen classes hangs on the last bit."""
SCHEDULE = Schedule(learning_rate=1e-2, weight_decay=4e-3, max_iter=50)
_MAX_LOG_FACTOR = math.log(5.0)
_FACTOR_ROWS = 5_000  # about as many rows are enough for one factor


def initial_head(x: Tensor, targets: Tensor, temperature: float) -> Head:
    """A head with the class means as prototypes, and the identity as h.

    A start in a whitened space fits as well, but there outliers have as low a free energy as other rows: the angles
    between the rows as given tell them apart.
    """
    sizes = targets.sum(dim=0).clamp_min(1e-6)
    prototypes = (targets.T @ x) / sizes[:, None]  # (K, D)
    return Head(prototypes, SemanticBias.initial(prototypes), temperature)


def distil(
    x: Tensor,
    targets: Tensor,
    head: Head,
    schedule: Schedule = SCHEDULE,
    on_step: Callable[[], None] = lambda: None,
) -> list[float]:
    """Train the head in place to predict the targets; returns the cross-entropy at every step.

    Parameters
    ----------
    x : (N, D)
    targets : (N, K)
        Probabilities; rows sum to one.
    """
    rows = InMemoryBlocks(x, torch.empty(0, dtype=torch.long, device=x.device), targets.shape[1], cache=False)
    adam = {
        name: Adam(parameter, schedule.weight_decay, _DISTILLATION_EPSILON)
        for name, parameter in head.parameters.items()
    }
    losses = []
    for _ in range(schedule.max_iter):
        head_pass = head.new_pass(rows.cache, rows.workspace)
        loss = 0.0
        for number, block in enumerate(rows.blocks()):
            z, log_z = rows.z[: len(block.x)], rows.log_z[: len(block.x)]
            softmax_of(head_pass.logits(block.x, number), z, log_z)
            term = terms.cross_entropy(z, log_z, targets[block.rows], 1.0 / len(x))
            loss += float(term.values.sum()) / len(x)
            head_pass.backward(block.x, number, log_z, term.gradient)
        losses.append(loss)
        for name, slope in head_pass.gradients().items():
            adam[name].step(slope, schedule.learning_rate)
        on_step()
    return losses


def factor_rows(n_rows: int) -> slice:
    """Rows to find a `matching_factor` on, evenly spread."""
    return slice(None, None, max(1, n_rows // _FACTOR_ROWS))


def matching_factor(head: Head, x: Tensor, targets: Tensor) -> float:
    """The factor of the head's logits that brings its probabilities closest to the targets.

    Weight decay makes a head less confident than the committee that it is distilled from, and training it further with
    the InfoMax objective more confident. This is temperature scaling against the committee instead of against labels.
    """
    logits, targets = head.logits(x).double(), targets.double()

    def loss(log_factor: float) -> float:
        log_z = torch.log_softmax(logits * math.exp(log_factor), dim=1)
        return float(-(targets * log_z).sum(dim=1).mean())

    found = minimize_scalar(loss, bounds=(-_MAX_LOG_FACTOR, _MAX_LOG_FACTOR), method="bounded", options={"xatol": 1e-3})
    return float(math.exp(found.x))
