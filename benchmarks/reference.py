"""PIM's published procedure, written as plainly as torch allows: the yardstick for speed.

100 restarts of semi-supervised k-means; a training without labels of 1000 full-batch steps of Adam, by automatic
differentiation, for each of 20 values of lambda; and one more with labels. Nothing here is shared with the package, so
that neither its speed nor its mistakes are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

TAU = 25.0
GRID = [round(0.05 * i, 2) for i in range(1, 21)]


@dataclass
class Reference:
    """What the procedure found, and what it would have cost in full."""

    labels: np.ndarray  # (N,)
    trade_off: float
    seconds: float
    """Of the whole procedure; where it ran fewer restarts or steps, scaled up from those."""
    ran: float
    """Seconds that it really ran."""


def pim(
    x: Tensor,
    y: Tensor,
    n_classes: int,
    *,
    restarts: int = 100,
    steps: int = 1000,
    lr: float = 1e-3,
    timed_restarts: int | None = None,
    timed_steps: int | None = None,
    seed: int = 0,
) -> Reference:
    """The whole procedure on unit rows ``x`` with labels ``y`` (-1 for none).

    ``timed_restarts`` and ``timed_steps`` run it shorter (at a learning rate that is larger in the same ratio) and
    scale the time up to the whole.
    """
    generator = torch.Generator().manual_seed(seed)
    run_restarts, run_steps = timed_restarts or restarts, timed_steps or steps
    lr = lr * steps / run_steps
    torch.optim.Adam([torch.zeros(1)])  # loads torch's compiler, once: that time must not be scaled up
    begin = time.perf_counter()
    nobody = torch.full_like(y, -1)
    start = _kmeans(x, nobody, n_classes, run_restarts, generator)
    labelled_start = _kmeans(x, y, n_classes, run_restarts, generator)
    clustered = time.perf_counter()
    scores = []
    for trade_off in GRID:
        w = _train(x, nobody, start, trade_off, run_steps, lr)
        scores.append(_hungarian(y[y >= 0], (x[y >= 0] @ w.T).argmax(dim=1), n_classes))
    best = GRID[1:][int(np.argmax(scores[1:]))]
    w = _train(x, y, labelled_start, best, run_steps, lr)
    end = time.perf_counter()
    seconds = (clustered - begin) * restarts / run_restarts + (end - clustered) * steps / run_steps
    labels = (x @ w.T).argmax(dim=1)
    return Reference(torch.where(y >= 0, y, labels).numpy(), best, seconds, end - begin)


def _train(x: Tensor, y: Tensor, start: Tensor, trade_off: float, steps: int, lr: float) -> Tensor:
    w = start.clone().requires_grad_()
    adam = torch.optim.Adam([w], lr=lr, weight_decay=0.01)
    known = y >= 0
    for _ in range(steps):
        log_z = torch.log_softmax(TAU * x @ w.T, dim=1)
        z = log_z.exp()
        marginal = z.mean(dim=0)
        entropy = -(z * log_z).sum(dim=1)
        loss = (marginal * marginal.log()).sum() + trade_off * entropy[~known].mean()
        if known.any():
            loss = loss + torch.nn.functional.nll_loss(log_z[known], y[known])
        adam.zero_grad()
        loss.backward()
        adam.step()
    return w.detach()


def _kmeans(x: Tensor, y: Tensor, n_classes: int, restarts: int, generator: torch.Generator) -> Tensor:
    known = y >= 0
    n_known = int(y.max()) + 1
    best, best_inertia = x[:n_classes], float("inf")
    for _ in range(restarts):
        centroids = torch.stack([x[y == k].mean(dim=0) for k in range(n_known)]) if n_known else x[:0]
        if not n_known:
            centroids = x[torch.randint(len(x), (1,), generator=generator)]
        free = x[~known]
        while len(centroids) < n_classes:
            distance = torch.cdist(free, centroids).min(dim=1).values.square()
            centroids = torch.cat([centroids, free[torch.multinomial(distance, 1, generator=generator)]])
        for _ in range(50):
            distance = torch.cdist(x, centroids)
            assigned = torch.where(known, y, distance.argmin(dim=1))
            moved = torch.stack(
                [x[assigned == k].mean(dim=0) if (assigned == k).any() else centroids[k] for k in range(n_classes)]
            )
            shift = (moved - centroids).square().sum()
            centroids = moved
            if shift < 1e-4:
                break
        inertia = float(torch.cdist(x, centroids).gather(1, assigned[:, None]).square().sum())
        if inertia < best_inertia:
            best, best_inertia = centroids, inertia
    return best


def _hungarian(truth: Tensor, predicted: Tensor, n_classes: int) -> float:
    counts = torch.zeros(n_classes, n_classes, dtype=torch.long)
    counts.index_put_((truth, predicted), torch.ones_like(truth), accumulate=True)
    rows, columns = linear_sum_assignment(counts.numpy(), maximize=True)
    return float(counts.numpy()[rows, columns].sum() / len(truth))
