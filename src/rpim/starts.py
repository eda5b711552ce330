"""Where the training starts: several starts, combined into one by what they agree on.

The same objective from two sets of k-means centroids ends several points of accuracy apart. What the starts agree on is
more often right than any one of them, and nothing but the data is needed to see it:

1. each restart of semi-supervised k-means is trained for a short while (as PIM, without h, which is cheap);
2. their new classes are matched with those of the member with the lowest objective (known classes need no matching)
   and their probabilities averaged; then matched with that average, until no class changes its partner;
3. the centroids of the resulting classes are the start of the real training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from rpim.centroids import class_means, restarts, semi_supervised_kmeans
from rpim.engine import InMemory
from rpim.head import Head
from rpim.optimise import Objective, Schedule, optimise
from rpim.transforms import Transform

STEPS, LEARNING_RATE, TRADE_OFF = 50, 1e-2, 0.1
"""The short training of each member. Its lambda is the same whatever the real training takes: a large one makes rows
sure of the class that k-means happened to give them, and the members then agree on little."""


@dataclass(frozen=True)
class Start:
    """Initial prototypes, and how far the starts that were combined into them agree."""

    prototypes: Tensor  # (K, D)
    agreement: float
    """Mean share of rows on which a member agrees with the combination (1.0 for a single start)."""


def single_start(x: Tensor, labels: Tensor, n_classes: int, *, n_init: int, generator: torch.Generator) -> Start:
    """The centroids of the best of ``n_init`` restarts by inertia, as the paper starts."""
    return Start(semi_supervised_kmeans(x, labels, n_classes, n_init=n_init, generator=generator).centroids, 1.0)


def consensus_start(
    engine: InMemory, n_known: int, *, n_starts: int, temperature: float, generator: torch.Generator,
    trade_off: float = TRADE_OFF, on_start: Callable[[], None] = lambda: None,
) -> Start:  # fmt: skip
    """The centroids of the classes that ``n_starts`` short trainings agree on."""
    pim = Objective(trade_off=trade_off, pseudo_labels=False, mixed_labels=False)
    runs = restarts(engine.x, engine.labels, engine.n_classes, n_init=n_starts, max_iter=20, generator=generator)
    members, objectives = [], []
    for run in runs:
        head = Head(run.centroids.clone(), Transform({}), temperature)
        objectives.append(optimise(engine, head, pim, Schedule(LEARNING_RATE, max_iter=STEPS))[-1]["objective"])
        members.append(head.probabilities(engine.x))
        on_start()
    best = min(range(n_starts), key=objectives.__getitem__)
    assigned = consensus(members, best, n_known).argmax(dim=1)
    agreement = sum(float((m.argmax(dim=1) == assigned).double().mean()) for m in members) / n_starts
    assigned[: engine.n_labelled] = engine.labels
    return Start(class_means(engine.x, assigned, runs[best].centroids), agreement)


def consensus(members: Sequence[Tensor], reference: int, n_known: int, max_rounds: int = 5) -> Tensor:
    """The mean of several N x K probabilities whose new classes (columns from ``n_known`` on) come in any order.

    Each member's columns are put into the order of the reference, in place, by the matching that shares most mass. The
    mean is a better reference than any member, so they are matched with it again until no column moves any more.
    """
    target = members[reference]
    for _ in range(max_rounds):
        moved = [_match(member, target, n_known) for member in members]
        mean = members[0].clone()
        for member in members[1:]:
            mean += member
        target = mean.div_(len(members))
        if not any(moved):
            break
    return target


def _match(member: Tensor, target: Tensor, n_known: int) -> bool:
    """Put the member's new classes into the target's order; whether any moved."""
    shared = target[:, n_known:].T @ member[:, n_known:]  # (new, new)
    _, order = linear_sum_assignment(shared.cpu().numpy(), maximize=True)
    if (order[1:] > order[:-1]).all():
        return False
    member[:, n_known:] = member[:, n_known:][:, torch.as_tensor(order, device=member.device)]
    return True
