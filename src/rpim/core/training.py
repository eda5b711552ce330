"""The full-batch training loop: the gradient over all rows, then one step of Adam."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from rpim.core.adam import Adam
from rpim.core.checkpoint import History, TrainingState
from rpim.core.gradient import gradient
from rpim.core.head import Head
from rpim.core.objective import Objective
from rpim.core.row_blocks import RowBlocks

_CHECK_EVERY = 10  # steps between two checks: do rows still change their class, is a checkpoint due


@dataclass(frozen=True)
class Schedule:
    """The hyperparameters of the optimization."""

    learning_rate: float = 5e-3
    weight_decay: float = 0.01
    max_iter: int = 150
    tol: float = 0.0
    """Stop when on average fewer than this share of the rows change their class per step."""


class Checkpoints(Protocol):
    """Where a training saves its state, and resumes from."""

    def last(self) -> TrainingState | None:
        """The state to resume from; None to start from the beginning."""

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
    """Train ``head`` in place; returns the terms of the objective at every step.

    With ``checkpoints`` it resumes from the last one, and ends with the same bits as an uninterrupted training.
    """
    adam = {name: Adam(parameter, schedule.weight_decay) for name, parameter in head.parameters.items()}
    history = _resume(head, adam, checkpoints)
    first = len(history)
    if on_step is not None:
        for step, value in enumerate(history):
            on_step(step, value)
    labels, previous = rows.new_labels(), rows.new_labels()
    for step in range(first, schedule.max_iter):
        at_check = step % _CHECK_EVERY == 0
        compare = at_check and schedule.tol > 0.0
        value, gradients = gradient(rows, head, objective, labels if compare else None)
        history.append(value)
        if on_step is not None:
            on_step(step, value)
        if compare:
            changed = float(rows.all_reduce((labels != previous).sum())) / rows.n_rows
            if step > first and changed <= schedule.tol * _CHECK_EVERY:
                break
            labels, previous = previous, labels
        # Saved after the comparison and before the step: a resumed training repeats the comparison's first half, and so
        # has `previous` again.
        if at_check and step > first and checkpoints is not None and _any_worker(rows, checkpoints.due()):
            checkpoints.save(_state(head, adam, history[:-1]))
        for name, slope in gradients.items():
            adam[name].step(slope, schedule.learning_rate)
    return history


def _any_worker(rows: RowBlocks, due: bool) -> bool:
    """Whether it is due on any worker: clocks differ, and all workers must save the same step."""
    return bool(rows.all_reduce(torch.tensor(int(due))))


def _state(head: Head, adam: dict[str, Adam], history: History) -> TrainingState:
    tensors = dict(head.parameters)
    for name, each in adam.items():
        tensors |= {f"{name}.{what}": value for what, value in each.state.items()}
    return TrainingState({name: value.clone() for name, value in tensors.items()}, history)


def _resume(head: Head, adam: dict[str, Adam], checkpoints: Checkpoints | None) -> History:
    """Set the head and Adam to the last checkpoint; returns the history until then."""
    state = None if checkpoints is None else checkpoints.last()
    if state is None:
        return []
    for name, parameter in head.parameters.items():
        parameter.copy_(state.tensors[name])
        moments = {what: state.tensors[f"{name}.{what}"] for what in adam[name].state}
        adam[name].resume(moments, len(state.history))
    return list(state.history)
