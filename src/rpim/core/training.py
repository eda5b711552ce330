"""The full-batch loop: the objective and its gradient over all rows, then one step of Adam."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from rpim.core import objective as terms
from rpim.core.head import Head
from rpim.core.row_blocks import Block, RowBlocks
from rpim.core.sinkhorn import Scaling, sinkhorn
from rpim.core.training_state import History, TrainingState
from rpim.core.transforms import Gradients

_CHECK_EVERY = 10  # steps between two looks at the classes of the rows
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8  # Adam's usual numbers


@dataclass(frozen=True)
class Objective:
    """What is minimised: the weights and switches of the paper's objective.

    PIM is ``pseudo_labels=False, mixed_labels=False``; ``labels=False`` leaves out the supervised term as well, as
    the paper's search for lambda does.
    """

    trade_off: float = 0.1
    """lambda"""
    eta: float = 0.03
    beta: float = 0.2
    threshold: float = 0.5
    pseudo_labels: bool = True
    """L_R"""
    mixed_labels: bool = True
    """L_S"""
    supervision: Literal["mixed", "added"] = "mixed"
    """L_S in the place of CE, or added to it."""
    labels: bool = True
    marginal_rows: Literal["all", "unlabelled"] = "all"
    """The rows whose mean prediction pi is: all, or as TIM has it U alone."""
    class_shares: Tensor | None = None
    """The share of the rows that each class is taken to have, in M and in Sinkhorn; None for equal shares. (K,)"""
    sinkhorn_epsilon: float = 1.0
    sinkhorn_iterations: int = 3


@dataclass(frozen=True)
class Schedule:
    """How it is minimised."""

    learning_rate: float = 5e-3
    weight_decay: float = 0.01
    max_iter: int = 150
    tol: float = 0.0
    """Stop when on average fewer than this share of the rows change their class in a step."""


class Adam:
    """Adam on one parameter, in place, with weight decay added to the gradient: what ``torch.optim.Adam`` does.

    That one loads torch's compiler, which takes seconds in a process that lives for ten.
    """

    def __init__(self, parameter: Tensor, weight_decay: float) -> None:
        self._parameter = parameter
        self._decay = weight_decay
        self._mean, self._square = torch.zeros_like(parameter), torch.zeros_like(parameter)
        self._steps = 0

    @property
    def state(self) -> dict[str, Tensor]:
        """The running means of the gradient and of its square."""
        return {"mean": self._mean, "square": self._square}

    def go_on(self, state: dict[str, Tensor], steps: int) -> None:
        """Take over what another had after so many steps."""
        self._mean.copy_(state["mean"])
        self._square.copy_(state["square"])
        self._steps = steps

    def step(self, gradient: Tensor, learning_rate: float) -> None:
        """One step against the gradient."""
        self._steps += 1
        gradient = gradient.add(self._parameter, alpha=self._decay)
        self._mean.lerp_(gradient, 1.0 - _BETA_1)
        self._square.mul_(_BETA_2).addcmul_(gradient, gradient, value=1.0 - _BETA_2)
        scale = self._square.sqrt().div_((1.0 - _BETA_2**self._steps) ** 0.5).add_(_EPSILON)
        self._parameter.addcdiv_(self._mean, scale, value=-learning_rate / (1.0 - _BETA_1**self._steps))


class Probabilities:
    """z and log z of all rows in the course of a step, block by block, as often as they are wanted."""

    def __init__(self, rows: RowBlocks, head: Head) -> None:
        self._rows = rows
        self.through = head.begin(rows.cache, rows.workspace)
        self._kept = False

    def __iter__(self) -> Iterator[tuple[int, Block, Tensor, Tensor]]:
        rows = self._rows
        for number, block in enumerate(rows.blocks()):
            where = block.rows if rows.cache else slice(0, len(block.x))
            z, log_z = rows.z[where], rows.log_z[where]
            if not self._kept:
                torch.log_softmax(self.through.logits(block.x, number), dim=1, out=log_z)
                torch.exp(log_z, out=z)
            yield number, block, z, log_z
        self._kept = rows.cache


def gradient(
    rows: RowBlocks, head: Head, objective: Objective, labels: Tensor | None = None
) -> tuple[dict[str, float], Gradients]:
    """The objective's terms over all rows, and the gradient of each parameter.

    A few passes over the rows: the first for the marginal, one for each of Sinkhorn's rounds, and the last for the
    gradient, which needs their sums. ``labels``, where given, is filled with the class of each row.
    """
    n, n_unlabelled, n_labelled = rows.n_rows, max(rows.n_unlabelled, 1), rows.n_labelled
    probabilities = Probabilities(rows, head)
    mass = head.prototypes.new_zeros(rows.n_classes)
    on_labelled = torch.zeros_like(mass)
    unlabelled_alone = objective.marginal_rows == "unlabelled" and rows.n_unlabelled > 0
    for _, block, z, _ in probabilities:
        mass += z.sum(dim=0)
        if unlabelled_alone:
            on_labelled += z[: len(block.labels)].sum(dim=0)
    mass = rows.all_reduce(mass)

    supervised = objective.labels and n_labelled > 0
    scaling = in_t = None
    n_confident = 0
    if objective.pseudo_labels or (objective.mixed_labels and supervised):
        scaling = _pseudo_labels(rows, probabilities, mass, objective)
        if objective.pseudo_labels:
            in_t = (scaling.largest > objective.threshold).to(mass.dtype)  # T, among the unlabelled rows
            rows.zero_labelled(in_t)
            n_confident = int(rows.all_reduce(in_t.count_nonzero()))

    if unlabelled_alone:
        mass, n = mass - rows.all_reduce(on_labelled), n_unlabelled
    marginal = mass / n
    log_pi = terms.log_marginal(marginal, objective.class_shares)
    value = {"C": 0.0, "L_R": 0.0, "CE": 0.0, "L_S": 0.0}
    weight_c = objective.trade_off / n_unlabelled
    weight_r = objective.eta * objective.trade_off / max(n_confident, 1)
    for number, block, z, log_z in probabilities:
        if labels is not None:
            torch.argmax(z, dim=1, out=labels[block.rows])
        n_here = len(block.labels)
        out = rows.workspace.classes[: len(z)]
        h = terms.entropy(z, log_z, out=out)
        weight = z.new_full((len(z), 1), weight_c)
        weight[:n_here] = 0.0
        value["C"] += float(h[n_here:].sum()) / n_unlabelled
        if in_t is not None:
            weight.add_(in_t[block.rows, None], alpha=weight_r)
            value["L_R"] += weight_r * float(h @ in_t[block.rows])
        by_logits = terms.infomax_gradient(z, log_z, log_pi / n, weight, h, out=out)
        if unlabelled_alone:
            by_logits[:n_here] = 0.0
        if supervised and n_here:
            for name, term in _supervised(block, z, log_z, scaling, objective, n_labelled):
                value[name] += float(term.values.sum()) / n_labelled
                by_logits[:n_here] += term.gradient
        probabilities.through.backward(block.x, number, log_z, by_logits)
    for total in probabilities.through.sums():
        rows.all_reduce(total)
    totals = rows.all_reduce(torch.tensor(list(value.values()), dtype=torch.float64)).tolist()
    value = {"M": float((marginal * log_pi).sum()), **dict(zip(value, totals, strict=True))}
    value["objective"] = value["M"] + objective.trade_off * value["C"] + value["L_R"] + value["CE"] + value["L_S"]
    value["confident"] = n_confident / n_unlabelled
    return value, probabilities.through.gradients()


def _scores(z: Tensor, log_z: Tensor, objective: Objective) -> Tensor:
    """What Sinkhorn scales: softmax(logits / epsilon), which is z itself in the paper's reading (epsilon 1)."""
    if objective.sinkhorn_epsilon == 1.0:
        return z
    return torch.softmax(log_z / objective.sinkhorn_epsilon, dim=1)


def _pseudo_labels(rows: RowBlocks, probabilities: Probabilities, mass: Tensor, objective: Objective) -> Scaling:
    """Y^ = Sinkhorn(z) over all rows."""

    def parts() -> Iterator[tuple[slice, Tensor]]:
        for _, block, z, log_z in probabilities:
            yield block.rows, _scores(z, log_z, objective)

    if objective.sinkhorn_epsilon != 1.0:
        mass = torch.zeros_like(mass)
        for _, q in parts():
            mass += q.sum(dim=0)
        mass = rows.all_reduce(mass)
    return sinkhorn(
        parts,
        mass,
        rows.n_rows,
        rows.n_rows_here,
        objective.sinkhorn_iterations,
        rows.all_reduce,
        rows.workspace.classes,
        objective.class_shares,
    )


def _supervised(
    block: Block, z: Tensor, log_z: Tensor, scaling: Scaling | None, objective: Objective, n_labelled: int
) -> Iterator[tuple[str, terms.Term]]:
    """CE or L_S, or both where L_S is added, on the labelled rows of a block."""
    labels, n_here, first = block.labels, len(block.labels), block.rows.start
    z, log_z = z[:n_here], log_z[:n_here]
    if not objective.mixed_labels or objective.supervision == "added":
        yield "CE", terms.cross_entropy(z, log_z, terms.one_hot(labels, z.shape[1], z.dtype), 1.0 / n_labelled)
    if objective.mixed_labels and scaling is not None:
        pseudo = scaling.pseudo_labels(_scores(z, log_z, objective), slice(first, first + n_here))
        mix = terms.mixed_labels(labels, pseudo, objective.beta)
        yield "L_S", terms.cross_entropy(z, log_z, mix, 1.0 / n_labelled)


class Checkpoints(Protocol):
    """Where a training keeps how far it is, to be gone on with after a stop."""

    def last(self) -> TrainingState | None:
        """Where to go on; None for the beginning."""

    def due(self) -> bool:
        """Whether it is time to keep it again."""

    def save(self, state: TrainingState) -> None:
        """Keep it."""


def train(
    rows: RowBlocks,
    head: Head,
    objective: Objective,
    schedule: Schedule,
    on_step: Callable[[int, dict[str, float]], None] | None = None,
    checkpoints: Checkpoints | None = None,
) -> History:
    """Train ``head`` in place; returns the terms of the objective at every step.

    With ``checkpoints`` it goes on where it was stopped, and ends with the same bits as without the stop.
    """
    adam = {name: Adam(parameter, schedule.weight_decay) for name, parameter in head.parameters.items()}
    history: History = []
    if checkpoints is not None and (state := checkpoints.last()) is not None:
        _go_on(head, adam, state)
        history = list(state.history)
        for step, value in enumerate(history):
            if on_step is not None:
                on_step(step, value)
    first = len(history)
    labels, before = rows.new_labels(), rows.new_labels()
    for step in range(first, schedule.max_iter):
        look = step % _CHECK_EVERY == 0
        check = look and schedule.tol > 0.0
        value, gradients = gradient(rows, head, objective, labels if check else None)
        history.append(value)
        if on_step is not None:
            on_step(step, value)
        if check:
            changed = float(rows.all_reduce((labels != before).sum())) / rows.n_rows
            if step > first and changed <= schedule.tol * _CHECK_EVERY:
                break
            labels, before = before, labels
        # Kept between the look at the classes and the step: whoever goes on here looks first, and has `before` again.
        if look and step > first and checkpoints is not None and _all_agree(rows, checkpoints.due()):
            checkpoints.save(_state(head, adam, history[:-1]))
        for name, slope in gradients.items():
            adam[name].step(slope, schedule.learning_rate)
    return history


def _all_agree(rows: RowBlocks, due: bool) -> bool:
    """Whether any place finds it due: clocks differ, and all keep the same step."""
    return bool(rows.all_reduce(torch.tensor(int(due))))


def _state(head: Head, adam: dict[str, Adam], history: History) -> TrainingState:
    tensors = dict(head.parameters)
    for name, each in adam.items():
        tensors |= {f"{name}.{what}": value for what, value in each.state.items()}
    return TrainingState({name: value.clone() for name, value in tensors.items()}, history)


def _go_on(head: Head, adam: dict[str, Adam], state: TrainingState) -> None:
    for name, parameter in head.parameters.items():
        parameter.copy_(state.tensors[name])
        moments = {what: state.tensors[f"{name}.{what}"] for what in adam[name].state}
        adam[name].go_on(moments, len(state.history))
