"""The objective over all rows, and its gradient with respect to the parameters of the head."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from rpim.core import objective as terms
from rpim.core.head import Head, softmax_of
from rpim.core.objective import Objective
from rpim.core.row_blocks import Block, RowBlocks
from rpim.core.sinkhorn import Scaling, pipelined_sinkhorn, sinkhorn
from rpim.core.transforms import Gradients


def gradient(
    rows: RowBlocks,
    head: Head,
    objective: Objective,
    labels: Tensor | None = None,
    factors: Tensor | None = None,
) -> tuple[dict[str, float], Gradients]:
    """The terms of the objective over all rows, and the gradient of each parameter.

    It takes one pass over the rows for the marginal, one per Sinkhorn iteration, and one for the gradient, which needs
    the sums of the others.

    Parameters
    ----------
    labels : (N,), optional
        Memory for the predicted class of each row.
    factors : (iterations, K), optional
        Sinkhorn's factors after the last step, zero before the first; overwritten with those after this step. With them
        the marginal and Sinkhorn share one pass (`pipelined_sinkhorn`), except in the first step.
    """
    probabilities = Probabilities(rows, head)
    sums = _sums_over_rows(rows, probabilities, objective, factors)
    value = {"C": 0.0, "L_R": 0.0, "CE": 0.0, "L_S": 0.0}
    for number, block, z, log_z in probabilities:
        if labels is not None:
            torch.argmax(z, dim=1, out=labels[block.rows])
        block_value, d_logits = _block_gradient(rows, block, z, log_z, sums, objective)
        for name, part in block_value.items():
            value[name] += part
        probabilities.head_pass.backward(block.x, number, log_z, d_logits)
    for total in probabilities.head_pass.sums():
        rows.all_reduce(total)
    totals = rows.all_reduce(torch.tensor(list(value.values()), dtype=torch.float64)).tolist()
    value = {"M": terms.marginal_entropy(sums.pi, sums.log_pi), **dict(zip(value, totals, strict=True))}
    supervised = objective.label_weight * (value["CE"] + value["L_S"])
    value["objective"] = value["M"] + objective.trade_off * value["C"] + value["L_R"] + supervised
    value["confident"] = sums.n_t / max(rows.n_unlabelled, 1)
    return value, probabilities.head_pass.gradients()


class _Sums(NamedTuple):
    """What the gradient of a block needs to know of all rows."""

    n: int  # rows over which pi is the mean
    pi: Tensor  # (K,)
    log_pi: Tensor  # (K,)
    y_hat: Scaling | None  # Y^
    in_t: Tensor | None  # (N,) one on T, zero elsewhere
    n_t: int  # |T|


def _sums_over_rows(
    rows: RowBlocks, probabilities: Probabilities, objective: Objective, factors: Tensor | None
) -> _Sums:
    """The marginal pi, the pseudo-labels Y^, and the confident rows T."""
    over_u = _marginal_over_u(rows, objective)
    mass = _ClassMass(rows, over_u)
    y_hat, in_t, n_t = None, None, 0
    if not (objective.pseudo_labels or (objective.mixed_labels and _is_supervised(rows, objective))):
        mass.add_all(probabilities)
    elif factors is None or not factors.any():
        mass.add_all(probabilities)
        y_hat = _pseudo_labels(rows, probabilities, mass.of_all, objective)
        if factors is not None:
            factors.copy_(y_hat.factors)
    else:
        y_hat = _pipelined_pseudo_labels(rows, probabilities, mass, objective, factors)
    if objective.pseudo_labels and y_hat is not None:
        in_t = terms.confident_rows(y_hat.largest, objective.threshold)
        rows.zero_labelled(in_t)
        n_t = int(rows.all_reduce(in_t.count_nonzero()))
    n = rows.n_unlabelled if over_u else rows.n_rows
    pi = (mass.of_unlabelled if over_u else mass.of_all) / n
    return _Sums(n, pi, terms.log_marginal(pi, objective.class_shares), y_hat, in_t, n_t)


def _block_gradient(
    rows: RowBlocks, block: Block, z: Tensor, log_z: Tensor, sums: _Sums, objective: Objective
) -> tuple[dict[str, float], Tensor]:
    """The parts of C, L_R, CE and L_S of a block, and d(objective)/d(logits), in the workspace. (n, K)"""
    n_unlabelled, n_l = max(rows.n_unlabelled, 1), len(block.labels)
    in_t = None if sums.in_t is None else sums.in_t[block.rows]
    weight_c = objective.trade_off / n_unlabelled
    weight_r = objective.eta * objective.trade_off / max(sums.n_t, 1)
    out = rows.workspace.classes[: len(z)]

    h = terms.entropy(z, log_z, out=out)  # (n,)
    value = {"C": terms.conditional_entropy(h[n_l:], n_unlabelled)}
    if in_t is not None:
        value["L_R"] = terms.pseudo_label_entropy(h, in_t, weight_r)
    weights = terms.entropy_weights(h, n_l, weight_c, in_t, weight_r)  # (n, 1)
    d_logits = terms.infomax_gradient(z, log_z, sums.log_pi / sums.n, weights, h, out=out)  # (n, K)
    if _marginal_over_u(rows, objective):
        d_logits[:n_l] = 0.0
    if n_l and _is_supervised(rows, objective):
        for name, term in _supervised_terms(block, z[:n_l], log_z[:n_l], sums.y_hat, objective, rows.n_labelled):
            value[name] = float(term.values.sum()) / rows.n_labelled
            d_logits[:n_l] += term.gradient
    return value, d_logits


def _marginal_over_u(rows: RowBlocks, objective: Objective) -> bool:
    return objective.marginal_rows == "unlabelled" and rows.n_unlabelled > 0


def _is_supervised(rows: RowBlocks, objective: Objective) -> bool:
    return objective.labels and rows.n_labelled > 0


class Probabilities:
    """z and log z of all rows during one step; every iteration over it is a pass over the blocks."""

    def __init__(self, rows: RowBlocks, head: Head) -> None:
        self._rows = rows
        self.head_pass = head.new_pass(rows.cache, rows.workspace)
        self._cached = False

    def __iter__(self) -> Iterator[tuple[int, Block, Tensor, Tensor]]:
        rows = self._rows
        for number, block in enumerate(rows.blocks()):
            where = block.rows if rows.cache else slice(0, len(block.x))
            z, log_z = rows.z[where], rows.log_z[where]
            if not self._cached:
                softmax_of(self.head_pass.logits(block.x, number), z, log_z)
            yield number, block, z, log_z
        self._cached = rows.cache


def predict(rows: RowBlocks, head: Head, labels: Tensor) -> None:
    """Write the class of each row into ``labels``, the same to the last bit as `gradient` does. (N,)"""
    probabilities = Probabilities(rows, head)
    for _ in range(2):  # the first pass finds the norms of the rows, and rounds otherwise than those after it
        for _, block, z, _ in probabilities:
            torch.argmax(z, dim=1, out=labels[block.rows])


class _ClassMass:
    """The sum of z over all rows, and over U where ``over_u`` asks for it."""

    def __init__(self, rows: RowBlocks, over_u: bool) -> None:
        self._all_reduce, self._over_u = rows.all_reduce, over_u
        self.of_all = rows.z.new_zeros(rows.n_classes)  # (K,)
        self.of_unlabelled = torch.zeros_like(self.of_all)  # (K,)

    def add_all(self, probabilities: Probabilities) -> None:
        """A pass over the rows for these sums alone."""
        for _ in self.adding(probabilities):
            pass

    def adding(self, probabilities: Probabilities) -> Iterator[tuple[Block, Tensor, Tensor]]:
        """A pass over the rows that adds each block on its way; the sums are those of all workers at its end."""
        on_labelled = torch.zeros_like(self.of_all)
        for _, block, z, log_z in probabilities:
            self.of_all += z.sum(dim=0)
            if self._over_u:
                on_labelled += z[: len(block.labels)].sum(dim=0)
            yield block, z, log_z
        self._all_reduce(self.of_all)
        if self._over_u:
            self.of_unlabelled = self.of_all - self._all_reduce(on_labelled)


def _sinkhorn_scores(z: Tensor, log_z: Tensor, epsilon: float) -> Tensor:
    """The matrix that Sinkhorn scales: softmax(logits / epsilon), z itself in the paper (epsilon 1). (n, K)"""
    return z if epsilon == 1.0 else torch.softmax(log_z / epsilon, dim=1)


def _pseudo_labels(rows: RowBlocks, probabilities: Probabilities, mass: Tensor, objective: Objective) -> Scaling:
    """Y^ = Sinkhorn(z) over all rows."""

    def score_blocks() -> Iterator[tuple[slice, Tensor]]:
        for _, block, z, log_z in probabilities:
            yield block.rows, _sinkhorn_scores(z, log_z, objective.sinkhorn_epsilon)

    if objective.sinkhorn_epsilon != 1.0:
        mass = torch.zeros_like(mass)
        for _, q in score_blocks():
            mass += q.sum(dim=0)
        mass = rows.all_reduce(mass)
    return sinkhorn(
        score_blocks,
        mass,
        rows.n_rows,
        rows.n_local_rows,
        objective.sinkhorn_iterations,
        rows.all_reduce,
        rows.workspace.classes,
        objective.class_shares,
    )


def _pipelined_pseudo_labels(
    rows: RowBlocks, probabilities: Probabilities, mass: _ClassMass, objective: Objective, factors: Tensor
) -> Scaling:
    """Y^ in the pass that sums the marginal too; overwrites ``factors`` with those for the next step."""

    def score_blocks() -> Iterator[tuple[slice, Tensor]]:
        for block, z, log_z in mass.adding(probabilities):
            yield block.rows, _sinkhorn_scores(z, log_z, objective.sinkhorn_epsilon)

    y_hat, following = pipelined_sinkhorn(
        score_blocks,
        factors.clone(),
        rows.n_rows,
        rows.n_local_rows,
        rows.all_reduce,
        rows.workspace.classes,
        objective.class_shares,
    )
    factors.copy_(following)
    return y_hat


def _supervised_terms(
    block: Block, z: Tensor, log_z: Tensor, y_hat: Scaling | None, objective: Objective, n_labelled: int
) -> Iterator[tuple[str, terms.Term]]:
    """CE or L_S, or both where L_S is added, on the labelled rows of a block."""
    weight = objective.label_weight / n_labelled
    if not objective.mixed_labels or objective.supervision == "added":
        yield "CE", terms.supervised_cross_entropy(z, log_z, block.labels, weight)
    if objective.mixed_labels and y_hat is not None:
        labelled = slice(block.rows.start, block.rows.start + len(z))
        pseudo = y_hat.pseudo_labels(_sinkhorn_scores(z, log_z, objective.sinkhorn_epsilon), labelled)
        yield "L_S", terms.mixed_cross_entropy(z, log_z, block.labels, pseudo, objective.beta, weight)
