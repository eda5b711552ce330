"""The terms of the objective, each with its closed-form gradient with respect to the logits.

Nothing here knows where the rows come from or how they are optimised. A term takes a block of rows and returns its
*unreduced* values, one a row, and the gradient of their weighted sum, so that it can be looked at, switched off in an
ablation, and added up over blocks or workers. Shapes: n rows in the block, K classes.

Symbols of the paper: ``z`` is a row of class probabilities, ``pi`` the mean of z over all N rows (the *marginal*),
``L`` the labelled rows, ``U`` the unlabelled ones, ``T`` the rows of U whose pseudo-label is confident, lambda the
*trade-off*.

    CE  = mean over L of -log z[i, y_i]                     cross_entropy, target = onehot(y)
    M   = sum_k pi_k log pi_k                               marginal_entropy
    C   = mean over U of H(z_i)                             conditional_entropy, weight = 1/|U| on U
    L_R = eta lambda mean over T of H(z_i)                  conditional_entropy, weight = eta lambda/|T| on T
    L_S = mean over L of -sum_k mix[i,k] log z[i,k]         cross_entropy, target = mixed_labels(...)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Term(NamedTuple):
    """A term of the objective on a block of rows."""

    values: Tensor
    """Its unreduced values: one a row, or a single number for the marginal's."""
    gradient: Tensor
    """d(weighted sum of the values) / d(logits). (n, K)"""


def log_marginal(marginal: Tensor, shares: Tensor | None = None) -> Tensor:
    """Log pi, finite for a class that no row chooses.

    With ``shares`` it is log pi_k / (K q_k), q being how the rows are taken to be shared out among the classes: M is
    then smallest at pi = q. Equal shares change nothing.
    """
    log_pi = marginal.clamp_min(torch.finfo(marginal.dtype).tiny).log()
    return log_pi if shares is None else log_pi - (shares * len(shares)).log()


def entropy(z: Tensor, log_z: Tensor, out: Tensor | None = None) -> Tensor:
    """H(z_i) = -sum_k z_ik log z_ik of each row; ``out``, where given, is (n, K) room for the products. (n,)"""
    # einsum would be one pass less to write and two more to run: it falls back to a batched product of width one.
    return torch.mul(z, log_z, out=out).sum(dim=1).neg_()


def infomax_gradient(
    z: Tensor,
    log_z: Tensor,
    marginal_slope: Tensor,
    entropy_weight: Tensor,
    entropies: Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """Gradient of  M + sum_i w_i H(z_i)  with respect to the logits. (n, K)

    With c[i,k] = slope_k - w_i log z[i,k], the derivative of both terms by z up to a constant a row (which the
    softmax takes away), the chain rule through the softmax is  z * (c - <z, c>),  where <z_i, c_i> is
    <z_i, slope> + w_i H(z_i). It is the one pass over n x K that all of M, C and L_R share.

    Parameters
    ----------
    z, log_z : (n, K)
    marginal_slope : (K,)
        ``log_marginal(pi) / N``, dM/dz.
    entropy_weight : (n, 1)
        The weight of a row's entropy: lambda/|U| on U, eta lambda/|T| more on T, zero on L.
    entropies : (n,), optional
        ``entropy(z, log_z)``, where it is known already.
    """
    h = entropy(z, log_z) if entropies is None else entropies
    mean = torch.addcmul(z @ marginal_slope, entropy_weight[:, 0], h)  # (n,)
    slope = torch.addcmul(marginal_slope, log_z, entropy_weight, value=-1.0, out=out)  # (n, K)
    return slope.sub_(mean[:, None]).mul_(z)


def marginal_entropy(z: Tensor, marginal: Tensor, n_rows: int) -> Term:
    """M = sum_k pi_k log pi_k, minus the entropy of the marginal: small when the classes are evenly used."""
    log_pi = log_marginal(marginal)
    gradient = infomax_gradient(z, torch.zeros_like(z), log_pi / n_rows, z.new_zeros(len(z), 1))
    return Term((marginal * log_pi).sum(), gradient)


def conditional_entropy(z: Tensor, log_z: Tensor, weight: Tensor) -> Term:
    """H(z_i) of each row, weighted: C with 1/|U| on U, L_R with eta lambda/|T| on T. Small when rows are sure."""
    gradient = infomax_gradient(z, log_z, z.new_zeros(z.shape[1]), weight.reshape(-1, 1))
    return Term(entropy(z, log_z), gradient)


def cross_entropy(z: Tensor, log_z: Tensor, target: Tensor, weight: float) -> Term:
    """-sum_k target[i,k] log z[i,k] of each row: CE with one-hot targets, L_S with mixed ones.

    Rows of ``target`` sum to one, so the gradient is z - target.
    """
    return Term(-(target * log_z).sum(dim=1), (z - target).mul_(weight))


def one_hot(labels: Tensor, n_classes: int, dtype: torch.dtype) -> Tensor:
    """The labels y as rows of zeros with a single one. (n, K)"""
    return torch.zeros(len(labels), n_classes, dtype=dtype, device=labels.device).scatter_(1, labels[:, None], 1.0)


def mixed_labels(labels: Tensor, pseudo_labels: Tensor, beta: float) -> Tensor:
    """mix = (1 - beta) onehot(y) + beta Y^: the target of L_S, labels softened by the pseudo-labels. (n, K)

    Written over ``pseudo_labels``.
    """
    mix = pseudo_labels.mul_(beta)
    return mix.scatter_add_(1, labels[:, None], mix.new_full((len(labels), 1), 1.0 - beta))
