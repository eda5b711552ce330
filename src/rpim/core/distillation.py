"""Distil a committee into one linear head: the model that is saved, applied to new rows, extended and shown.

The head minimizes the cross-entropy of its probabilities against those of the committee, so that it takes over their
confidence as well as their classes:

    minimize over W, B, b     mean_i  -sum_k  P[i,k] log z[i,k],      z = softmax(tau h(x) W^T)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from rpim.core import objective as terms
from rpim.core.adam import Adam
from rpim.core.head import Head
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import Schedule
from rpim.core.transforms import SemanticBias

_EPSILON = 1e-6
"""Of Adam: directions in which the rows hardly differ have gradients of the size of rounding. With Adam's usual 1e-8 it
takes full steps along them, and what the head says of rows of unseen classes hangs on the last bit."""
SCHEDULE = Schedule(learning_rate=1e-2, weight_decay=0.0, max_iter=50)
_MAX_LOG_FACTOR = math.log(5.0)


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
    adam = {name: Adam(parameter, schedule.weight_decay, _EPSILON) for name, parameter in head.parameters.items()}
    losses = []
    for _ in range(schedule.max_iter):
        head_pass = head.new_pass(rows.cache, rows.workspace)
        loss = 0.0
        for number, block in enumerate(rows.blocks()):
            z, log_z = rows.z[: len(block.x)], rows.log_z[: len(block.x)]
            torch.log_softmax(head_pass.logits(block.x, number), dim=1, out=log_z)
            torch.exp(log_z, out=z)
            term = terms.cross_entropy(z, log_z, targets[block.rows], 1.0 / len(x))
            loss += float(term.values.sum()) / len(x)
            head_pass.backward(block.x, number, log_z, term.gradient)
        losses.append(loss)
        for name, slope in head_pass.gradients().items():
            adam[name].step(slope, schedule.learning_rate)
        on_step()
    return losses


def matching_factor(head: Head, teacher: Head, x: Tensor) -> float:
    """The factor of the head's logits that brings its probabilities closest to the teacher's on these rows.

    Training a distilled head further with the InfoMax objective makes it more confident than the committee. This undoes
    it: temperature scaling against the committee instead of against labels.
    """
    logits, targets = head.logits(x).double(), teacher.proba_and_score(x)[0].double()

    def loss(log_factor: float) -> float:
        log_z = torch.log_softmax(logits * math.exp(log_factor), dim=1)
        return float(-(targets * log_z).sum(dim=1).mean())

    found = minimize_scalar(loss, bounds=(-_MAX_LOG_FACTOR, _MAX_LOG_FACTOR), method="bounded", options={"xatol": 1e-3})
    return float(math.exp(found.x))
