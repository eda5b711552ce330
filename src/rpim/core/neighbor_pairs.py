"""Neighbors in one class: how the members of a committee are trained further where there are few labels or none.

A row and one of its nearest neighbors, drawn anew in every step, should be in the same class, the more so if it is a
rare one. This is the loss of TEMI (Adaloglou, Michels, Kalisch and Kollmann, "Exploring the Limits of Deep Image
Clustering using Pretrained Models", BMVC 2023):

    minimize over W     mean_i  -log sum_k  (z[i,k] z[j,k])^beta / pi_k,      j = a neighbor of i

With r_i = softmax(beta (log z_i + log z_j) - log pi), the share of each class in the sum, and rho the mean of r, the
derivative with respect to z is  -beta (r[i,k] + sum of r over the rows that drew i) / z[i,k] + rho_k / pi_k.
Labelled rows add CE.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rpim.core.committee import nearest_neighbors
from rpim.core.head import Head
from rpim.core.objective import supervised_cross_entropy
from rpim.core.training import Adam

N_NEIGHBORS = 10
BETA = 0.6
STEPS = 40
LEARNING_RATE = 5e-3


def pair_gradient(log_z: Tensor, pairs: Tensor, beta: float = BETA) -> tuple[float, Tensor]:
    """The loss, and its gradient with respect to the logits. (n, K)

    Parameters
    ----------
    log_z : (n, K)
    pairs : (n,)
        The neighbor that each row drew.
    """
    n = len(log_z)
    z = log_z.exp()
    pi = z.mean(dim=0).clamp_min(torch.finfo(z.dtype).tiny)  # (K,)
    scores = (log_z + log_z[pairs]).mul_(beta).sub_(pi.log())  # (n, K)
    loss = -float(scores.logsumexp(dim=1).mean())
    r = scores.softmax(dim=1)
    slope = r.mean(dim=0) / pi  # (K,)
    drawn = torch.bincount(pairs, minlength=n).to(z.dtype)  # (n,)
    both = r.index_add(0, pairs, r)  # (n, K)
    # The chain rule through the softmax is  z * (c - <z, c>); a row of `both` sums to 1 + drawn.
    gradient = z * (beta * (1.0 + drawn)[:, None] + slope - (z @ slope)[:, None]) - beta * both
    return loss, gradient.div_(n)


def train_on_pairs(x: Tensor, labels: Tensor, head: Head, seed: int, steps: int = STEPS) -> list[float]:
    """Train the prototypes in place so that neighbors agree; returns the loss at every step.

    Parameters
    ----------
    x : (N, D)
        At most `N_NEIGHBORS` neighbors are drawn from, and no more than a third of the rows per class.
    labels : (n_labelled,)
        Codes of the first rows.
    """
    n_neighbors = min(N_NEIGHBORS, max(2, len(x) // (3 * len(head.prototypes))))
    neighbors = nearest_neighbors(torch.nn.functional.normalize(x, dim=1), n_neighbors)  # (N, k)
    if not neighbors.shape[1]:
        return []
    generator = torch.Generator().manual_seed(seed)
    refined = head.transform.forward(x)[0]
    adam = Adam(head.prototypes, weight_decay=0.0)
    n_labelled = len(labels)
    losses = []
    for _ in range(steps):
        drawn = torch.randint(neighbors.shape[1], (len(x), 1), generator=generator).to(x.device)
        log_z = torch.log_softmax(head.temperature * (refined @ head.prototypes.T), dim=1)
        loss, d_logits = pair_gradient(log_z, neighbors.gather(1, drawn)[:, 0])
        if n_labelled:
            given = log_z[:n_labelled]
            term = supervised_cross_entropy(given.exp(), given, labels, 1.0 / n_labelled)
            loss += float(term.values.mean())
            d_logits[:n_labelled] += term.gradient
        losses.append(loss)
        adam.step(head.temperature * (d_logits.T @ refined), LEARNING_RATE)
    return losses
