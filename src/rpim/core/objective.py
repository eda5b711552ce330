"""The terms of the objective and their closed-form gradient with respect to the logits.

These functions know neither where the rows are nor how the head is optimized. They take a block of rows, and their
results add up over blocks and workers. `gradient.gradient` calls each of them. Shapes: n rows in the block, K classes.

Symbols of the paper: ``z`` is a row of class probabilities, ``pi`` the mean of z over all N rows (the *marginal*),
``L`` the labelled rows, ``U`` the unlabelled ones, ``T`` the rows of U whose pseudo-label Y^ is confident, lambda the
*trade-off*.

    M   = sum_k pi_k log pi_k                               marginal_entropy
    C   = mean over U of H(z_i)                             conditional_entropy
    T   = rows i of U with max_k Y^[i,k] > threshold        confident_rows
    L_R = eta lambda mean over T of H(z_i)                  pseudo_label_entropy
    CE  = mean over L of -log z[i, y_i]                     supervised_cross_entropy
    L_S = mean over L of -sum_k mix[i,k] log z[i,k]         mixed_cross_entropy, mix = mixed_labels(y, Y^, beta)

    objective = M + lambda C + L_R + w (CE or L_S, or both),  w = 1 in the paper
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True)
class Objective:
    """The weights and switches of the paper's objective.

    PIM is ``pseudo_labels=False, mixed_labels=False``; ``labels=False`` drops the supervised term as well, as the
    paper does in its search for lambda.
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
    """L_S replaces CE, or is added to it."""
    labels: bool = True
    label_weight: float = 1.0
    """w, the weight of CE and L_S: 1 in all methods but TIM."""
    marginal_rows: Literal["all", "unlabelled"] = "all"
    """The rows over which pi is the mean: all of them, or U alone as in TIM."""
    class_shares: Tensor | None = None
    """The assumed share of the rows in each class, in M and in Sinkhorn; None for equal shares. (K,)"""
    sinkhorn_epsilon: float = 1.0
    sinkhorn_iterations: int = 3
    pipelined: bool = False
    """Sinkhorn's iterations share the pass of the marginal, each with what the one before found a step ago."""


class Term(NamedTuple):
    """A term of the objective on a block of rows."""

    values: Tensor
    """Its unreduced values, one per row. (n,)"""
    gradient: Tensor
    """d(weighted sum of the values) / d(logits). (n, K)"""


# -- M, C, L_R: the entropies ---------------------------------------------------------------------------------------


def log_marginal(marginal: Tensor, shares: Tensor | None = None) -> Tensor:
    """Log pi, finite for a class without mass. (K,)

    With class shares q it is log pi_k / (K q_k), so that M has its minimum at pi = q. Equal shares change nothing.
    """
    log_pi = marginal.clamp_min(torch.finfo(marginal.dtype).tiny).log()
    return log_pi if shares is None else log_pi - (shares * len(shares)).log()


def marginal_entropy(marginal: Tensor, log_pi: Tensor) -> float:
    """M = sum_k pi_k log pi_k, the negative entropy of the marginal: small when the classes are evenly used."""
    return float((marginal * log_pi).sum())


def entropy(z: Tensor, log_z: Tensor, out: Tensor | None = None) -> Tensor:
    """H(z_i) = -sum_k z_ik log z_ik of each row; ``out`` is optional (n, K) memory for the products. (n,)"""
    # Not einsum: it falls back to a batched product of width one, which takes two more passes.
    return torch.mul(z, log_z, out=out).sum(dim=1).neg_()


def conditional_entropy(entropies: Tensor, n_unlabelled: int) -> float:
    """C = 1/|U| sum over U of H(z_i): the part of a block, from the entropies of its unlabelled rows."""
    return float(entropies.sum()) / n_unlabelled


def confident_rows(largest_pseudo_label: Tensor, threshold: float) -> Tensor:
    """T = {i : max_k Y^[i,k] > threshold}, as ones and zeros; the caller sets labelled rows to zero. (n,)"""
    return (largest_pseudo_label > threshold).to(largest_pseudo_label.dtype)


def pseudo_label_entropy(entropies: Tensor, in_t: Tensor, weight: float) -> float:
    """L_R = eta lambda/|T| sum over T of H(z_i): the part of a block, with ``weight`` = eta lambda/|T|."""
    return weight * float(entropies @ in_t)


def entropy_weights(
    entropies: Tensor, n_labelled: int, weight: float, in_t: Tensor | None, weight_in_t: float
) -> Tensor:
    """w_i such that lambda C + L_R = sum_i w_i H(z_i). (n, 1)

    That is ``weight`` = lambda/|U| on U, ``weight_in_t`` = eta lambda/|T| more on T, and zero on L, the first
    ``n_labelled`` rows of the block.
    """
    weights = entropies.new_full((len(entropies), 1), weight)
    weights[:n_labelled] = 0.0
    return weights if in_t is None else weights.add_(in_t[:, None], alpha=weight_in_t)


def infomax_gradient(
    z: Tensor,
    log_z: Tensor,
    marginal_slope: Tensor,
    entropy_weight: Tensor,
    entropies: Tensor,
    out: Tensor | None = None,
) -> Tensor:
    """Gradient of  M + lambda C + L_R = M + sum_i w_i H(z_i)  with respect to the logits. (n, K)

    The derivative of both terms with respect to z is c[i,k] = slope_k - w_i log z[i,k], up to a constant per row that
    the softmax cancels. The chain rule through the softmax is  z * (c - <z, c>)  with
    <z_i, c_i> = <z_i, slope> + w_i H(z_i). M, C and L_R share this one pass over n x K.

    Parameters
    ----------
    z, log_z : (n, K)
    marginal_slope : (K,)
        dM/dz, ``log_marginal(pi) / N``.
    entropy_weight : (n, 1)
        ``entropy_weights(...)``, w.
    entropies : (n,)
        ``entropy(z, log_z)``.
    out : (n, K), optional
        Memory for the result.
    """
    mean = torch.addcmul(z @ marginal_slope, entropy_weight[:, 0], entropies)  # (n,)
    slope = torch.addcmul(marginal_slope, log_z, entropy_weight, value=-1.0, out=out)  # (n, K)
    return slope.sub_(mean[:, None]).mul_(z)


# -- CE, L_S: the supervised terms ----------------------------------------------------------------------------------


def cross_entropy(z: Tensor, log_z: Tensor, target: Tensor, weight: float) -> Term:
    """-sum_k target[i,k] log z[i,k] of each row, and the gradient of ``weight`` times their sum.

    Rows of ``target`` sum to one, so the gradient is z - target.
    """
    return Term(-(target * log_z).sum(dim=1), (z - target).mul_(weight))


def supervised_cross_entropy(z: Tensor, log_z: Tensor, labels: Tensor, weight: float) -> Term:
    """CE = 1/|L| sum over L of -log z[i, y_i], on the labelled rows of a block, with ``weight`` = w/|L|."""
    return cross_entropy(z, log_z, one_hot(labels, z.shape[1], z.dtype), weight)


def mixed_cross_entropy(
    z: Tensor, log_z: Tensor, labels: Tensor, pseudo_labels: Tensor, beta: float, weight: float
) -> Term:
    """L_S = 1/|L| sum over L of -sum_k mix[i,k] log z[i,k], on the labelled rows of a block, with ``weight`` = w/|L|.

    ``pseudo_labels`` is overwritten.
    """
    return cross_entropy(z, log_z, mixed_labels(labels, pseudo_labels, beta), weight)


def one_hot(labels: Tensor, n_classes: int, dtype: torch.dtype) -> Tensor:
    """The labels y as one-hot rows. (n, K)"""
    return torch.zeros(len(labels), n_classes, dtype=dtype, device=labels.device).scatter_(1, labels[:, None], 1.0)


def mixed_labels(labels: Tensor, pseudo_labels: Tensor, beta: float) -> Tensor:
    """mix = (1 - beta) onehot(y) + beta Y^, the target of L_S. (n, K)

    The result is written into ``pseudo_labels``.
    """
    mix = pseudo_labels.mul_(beta)
    return mix.scatter_add_(1, labels[:, None], mix.new_full((len(labels), 1), 1.0 - beta))
