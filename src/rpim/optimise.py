"""The full-batch loop: the objective and its gradient over all rows, then one step of Adam."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rpim import objective as terms
from rpim.engine import InMemory
from rpim.head import Head
from rpim.sinkhorn import Scaling, sinkhorn
from rpim.transforms import Gradients

History = list[dict[str, float]]


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
    sinkhorn_epsilon: float = 1.0
    sinkhorn_iterations: int = 3


@dataclass(frozen=True)
class Schedule:
    """How it is minimised."""

    learning_rate: float = 5e-3
    weight_decay: float = 0.01
    max_iter: int = 150


def gradient(engine: InMemory, head: Head, objective: Objective) -> tuple[dict[str, float], Gradients]:
    """The objective's terms over all rows, and the gradient of each parameter.

    Two passes over the rows: the first for the probabilities and what they add up to (the marginal, Sinkhorn's
    columns), the second for the gradient, which needs those sums.
    """
    n, n_unlabelled, n_labelled = engine.n_rows, max(engine.n_unlabelled, 1), engine.n_labelled
    through = head.begin()
    kept = []
    mass = head.prototypes.new_zeros(engine.n_classes)
    for block in engine.blocks():
        logits, keep = through.logits(block.x)
        kept.append(keep)
        log_z = engine.log_z[block.rows]
        log_z.copy_(torch.log_softmax(logits, dim=1))
        mass += torch.exp(log_z, out=engine.z[block.rows]).sum(dim=0)
    marginal = engine.add_up(mass) / n

    supervised = objective.labels and n_labelled > 0
    scaling = in_t = None
    n_confident = 0
    if objective.pseudo_labels or (objective.mixed_labels and supervised):
        q = _scores(engine.z, engine.log_z, objective)
        scaling = sinkhorn(q, objective.sinkhorn_iterations, engine.add_up, n)
        if objective.pseudo_labels:
            in_t = _confident(engine, scaling, objective)
            n_confident = int(engine.add_up(in_t.sum()))

    log_pi = terms.log_marginal(marginal)
    value = {"M": float((marginal * log_pi).sum()), "C": 0.0, "L_R": 0.0, "CE": 0.0, "L_S": 0.0}
    weight_c = objective.trade_off / n_unlabelled
    weight_r = objective.eta * objective.trade_off / max(n_confident, 1)
    for block, keep in zip(engine.blocks(), kept, strict=True):
        z, log_z = engine.z[block.rows], engine.log_z[block.rows]
        n_here = len(block.labels)
        h = terms.entropy(z, log_z)
        weight = z.new_full((len(z), 1), weight_c)
        weight[:n_here] = 0.0
        value["C"] += float(h[n_here:].sum()) / n_unlabelled
        if in_t is not None:
            weight.add_(in_t[block.rows, None], alpha=weight_r)
            value["L_R"] += weight_r * float(h @ in_t[block.rows])
        by_logits = terms.infomax_gradient(z, log_z, log_pi / n, weight, out=engine.scratch[: len(z)])
        if supervised and n_here:
            for name, term in _supervised(block.labels, block.rows, z, log_z, scaling, objective, n_labelled):
                value[name] += float(term.values.sum()) / n_labelled
                by_logits[:n_here] += term.gradient
        through.backward(block.x, keep, log_z, by_logits)
    for total in through.sums():
        engine.add_up(total)
    value["objective"] = value["M"] + objective.trade_off * value["C"] + value["L_R"] + value["CE"] + value["L_S"]
    value["confident"] = n_confident / n_unlabelled
    return value, through.gradients()


def _scores(z: Tensor, log_z: Tensor, objective: Objective) -> Tensor:
    """What Sinkhorn scales: softmax(logits / epsilon), which is z itself in the paper's reading (epsilon 1)."""
    if objective.sinkhorn_epsilon == 1.0:
        return z
    return torch.softmax(log_z / objective.sinkhorn_epsilon, dim=1)


def _confident(engine: InMemory, scaling: Scaling, objective: Objective) -> Tensor:
    """T: one for rows of U whose largest pseudo-label exceeds the threshold, zero for all others. (N,)"""
    in_t = engine.z.new_empty(len(engine.z))
    for block in engine.blocks():
        q = _scores(engine.z[block.rows], engine.log_z[block.rows], objective)
        largest = (q * scaling.columns).amax(dim=1) * scaling.rows[block.rows]
        in_t[block.rows] = (largest > objective.threshold).to(in_t.dtype)
        in_t[block.rows.start : block.rows.start + len(block.labels)] = 0.0
    return in_t


def _supervised(
    labels: Tensor, rows: slice, z: Tensor, log_z: Tensor, scaling: Scaling | None, objective: Objective,
    n_labelled: int,
) -> Iterator[tuple[str, terms.Term]]:
    """CE or L_S, or both where L_S is added, on the labelled rows of a block."""
    n_here = len(labels)
    z, log_z = z[:n_here], log_z[:n_here]
    if not objective.mixed_labels or objective.supervision == "added":
        yield "CE", terms.cross_entropy(z, log_z, terms.one_hot(labels, z.shape[1], z.dtype), 1.0 / n_labelled)
    if objective.mixed_labels and scaling is not None:
        pseudo = scaling.pseudo_labels(_scores(z, log_z, objective), slice(rows.start, rows.start + n_here))
        mix = terms.mixed_labels(labels, pseudo, objective.beta)
        yield "L_S", terms.cross_entropy(z, log_z, mix, 1.0 / n_labelled)


def optimise(
    engine: InMemory,
    head: Head,
    objective: Objective,
    schedule: Schedule,
    on_step: Callable[[int, dict[str, float]], None] | None = None,
) -> History:
    """Train ``head`` in place; returns the terms of the objective at every step."""
    parameters = {name: torch.nn.Parameter(p, requires_grad=False) for name, p in head.parameters.items()}
    adam = torch.optim.Adam(
        parameters.values(), lr=schedule.learning_rate, weight_decay=schedule.weight_decay, foreach=False
    )
    history: History = []
    for step in range(schedule.max_iter):
        value, gradients = gradient(engine, head, objective)
        for name, parameter in parameters.items():
            parameter.grad = gradients[name]
        adam.step()
        history.append(value)
        if on_step is not None:
            on_step(step, value)
    return history
