"""The full-batch loop: the objective and its gradient over all rows, then one step of Adam."""

from __future__ import annotations

from collections.abc import Callable
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
    decay: bool = False
    """Let the learning rate fall to zero along a half cosine."""


def gradient_(engine: InMemory, head: Head, objective: Objective, gradients: Gradients) -> dict[str, float]:
    """The objective's terms over all rows; their gradient is added into ``gradients``.

    Two passes over the rows: the first for the probabilities and what they add up to (the marginal, Sinkhorn's
    columns), the second for the gradient, which needs those sums.
    """
    n, n_unlabelled, n_labelled = engine.n_rows, engine.n_unlabelled, engine.n_labelled
    kept = []
    mass = head.prototypes.new_zeros(engine.n_classes)
    for block in engine.blocks():
        logits, keep = head.logits(block.x)
        kept.append(keep)
        log_z = engine.log_z[block.rows] = torch.log_softmax(logits, dim=1)
        torch.exp(log_z, out=engine.z[block.rows])
        mass += engine.z[block.rows].sum(dim=0)
    marginal = engine.add_up(mass) / n

    wants_labels = objective.labels and n_labelled > 0
    scaling: Scaling | None = None
    confident = None
    n_confident = 0
    if objective.pseudo_labels or (objective.mixed_labels and wants_labels):
        scaling = sinkhorn(_scores(engine.z, objective), objective.sinkhorn_iterations, engine.add_up, n)
    if objective.pseudo_labels and scaling is not None:
        confident = _confident(engine, scaling, objective)
        n_confident = int(engine.add_up(confident.sum()))

    log_pi = terms.log_marginal(marginal)
    slope = log_pi / n
    value = {"M": float((marginal * log_pi).sum()), "C": 0.0, "L_R": 0.0, "CE": 0.0, "L_S": 0.0}
    for block, keep in zip(engine.blocks(), kept, strict=True):
        z, log_z = engine.z[block.rows], engine.log_z[block.rows]
        n_here = len(block.labels)
        weight = z.new_full((len(z), 1), objective.trade_off / max(n_unlabelled, 1))
        if n_labelled:
            weight[:n_here] = 0.0
        h = terms.entropy(z, log_z)
        value["C"] += float(h[n_here:].sum()) / max(n_unlabelled, 1)
        if confident is not None and n_confident:
            in_t = confident[block.rows]
            value["L_R"] += objective.eta * objective.trade_off * float(h @ in_t) / n_confident
            weight += (objective.eta * objective.trade_off / n_confident) * in_t[:, None]
        supervised = (
            _supervised(block.labels, block.rows, z, log_z, scaling, objective, n_labelled, value)
            if wants_labels and n_here
            else None
        )
        gradient = terms.infomax_gradient_(z, log_z, slope, weight)
        if supervised is not None:
            gradient[:n_here] += supervised
        head.backward(block.x, keep, gradient, gradients)
    value["objective"] = (
        value["M"] + objective.trade_off * value["C"] + value["L_R"] + value["CE"] + value["L_S"]
    )
    value["confident"] = n_confident / max(n_unlabelled, 1)
    return value


def _scores(z: Tensor, objective: Objective) -> Tensor:
    """What Sinkhorn scales: z^(1/epsilon), which is z itself in the paper's reading."""
    if objective.sinkhorn_epsilon == 1.0:
        return z
    return torch.pow(z / z.amax(dim=1, keepdim=True), 1.0 / objective.sinkhorn_epsilon)


def _confident(engine: InMemory, scaling: Scaling, objective: Objective) -> Tensor:
    """T: one for rows of U whose largest pseudo-label exceeds the threshold, zero for all others. (N,)"""
    in_t = engine.z.new_empty(len(engine.z))
    for block in engine.blocks():
        q = _scores(engine.z[block.rows], objective)
        largest = (q * scaling.columns).amax(dim=1) * scaling.rows[block.rows]
        in_t[block.rows] = (largest > objective.threshold).to(in_t.dtype)
        in_t[block.rows.start : block.rows.start + len(block.labels)] = 0.0
    return in_t


def _supervised(
    labels: Tensor, rows: slice, z: Tensor, log_z: Tensor, scaling: Scaling | None, objective: Objective,
    n_labelled: int, value: dict[str, float],
) -> Tensor:
    """CE or L_S (or both, where L_S is added) on the labelled rows of a block: the gradient by their logits."""
    n_here = len(labels)
    z, log_z = z[:n_here], log_z[:n_here]
    gradient = torch.zeros_like(z)
    if not objective.mixed_labels or objective.supervision == "added":
        ce = terms.cross_entropy(z, log_z, terms.one_hot(labels, z.shape[1], z.dtype), 1.0 / n_labelled)
        value["CE"] += float(ce.values.sum()) / n_labelled
        gradient += ce.gradient
    if objective.mixed_labels and scaling is not None:
        pseudo = scaling.pseudo_labels(_scores(z, objective), slice(rows.start, rows.start + n_here))
        mix = terms.mixed_labels(labels, pseudo, objective.beta)
        ls = terms.cross_entropy(z, log_z, mix, 1.0 / n_labelled)
        value["L_S"] += float(ls.values.sum()) / n_labelled
        gradient += ls.gradient
    return gradient


def optimise(
    engine: InMemory,
    head: Head,
    objective: Objective,
    schedule: Schedule,
    on_step: Callable[[int, dict[str, float]], None] | None = None,
) -> History:
    """Train ``head`` in place; returns the terms of the objective at every step."""
    parameters = [torch.nn.Parameter(p, requires_grad=False) for p in head.parameters.values()]
    gradients = head.zero_gradients()
    for parameter, gradient in zip(parameters, gradients.values(), strict=True):
        parameter.grad = gradient
    adam = torch.optim.Adam(parameters, lr=schedule.learning_rate, weight_decay=schedule.weight_decay)
    history: History = []
    for step in range(schedule.max_iter):
        if schedule.decay:
            share = 0.5 * (1.0 + torch.cos(torch.tensor(torch.pi * step / schedule.max_iter)).item())
            for group in adam.param_groups:
                group["lr"] = schedule.learning_rate * share
        for gradient in gradients.values():
            gradient.zero_()
        value = gradient_(engine, head, objective, gradients)
        adam.step()
        history.append(value)
        if on_step is not None:
            on_step(step, value)
    return history
