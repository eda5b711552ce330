"""Where the training starts: several starts, combined into one by what they agree on.

The same objective from two sets of centroids ends several points of accuracy apart. What the starts agree on is more
often right than any one of them, and nothing but the data is needed to see it:

1. each start, small clusters merged into K, is trained for a short while (as PIM, without h, which is cheap);
2. their new classes are matched with those of the member with the lowest objective (known classes need no matching)
   and their probabilities averaged; then matched with that average, until no class changes its partner;
3. the centroids of the resulting classes are the start of the real training.

Where class sizes are to be estimated, a member takes them from its merged clusters, and the real training from the
resulting classes: trained for equal classes, the members would have made them more equal than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from rpim.centroids import class_means, merged_clusters, nearest_centroid, semi_supervised_kmeans
from rpim.directions import principal_directions
from rpim.engine import InMemory
from rpim.head import Head
from rpim.optimise import Objective, Schedule, optimise
from rpim.parallel import side_by_side
from rpim.transforms import Transform

ClassSizes = Literal["equal", "estimated"]

TRADE_OFF = 0.1
SPREAD, SETTLE = Schedule(learning_rate=2e-2, max_iter=20), Schedule(learning_rate=1e-2, max_iter=10)
STEPS = SPREAD.max_iter + SETTLE.max_iter
"""The short training of each member: first with a fifth of lambda, so that prototypes move to where rows are before
rows grow sure of where they are, then with all of it. lambda is the same whatever the real training takes: a large one
makes rows sure of the class that they happened to start in, and the members then agree on little."""

DIRECTIONS = 128
"""Members see the rows in their leading principal directions alone: half the work, and as good a vote."""


@dataclass(frozen=True)
class Start:
    """Initial prototypes, the class of each row, and how far the starts that were combined into them agree."""

    prototypes: Tensor  # (K, D)
    labels: Tensor  # (N,)
    agreement: float
    """Mean share of rows on which a member agrees with the combination (1.0 for a single start)."""

    def shares(self, class_sizes: ClassSizes) -> Tensor | None:
        """The shares that the classes are taken to have in the training; None for equal ones. (K,)"""
        return estimated_shares(self.labels, self.prototypes) if class_sizes == "estimated" else None


def estimated_shares(labels: Tensor, prototypes: Tensor) -> Tensor:
    """The share of the rows that each class has, as if it had one row more: a class without rows may yet get some. (K,)

    >>> estimated_shares(torch.tensor([0, 0, 0, 1, 1]), torch.zeros(3, 2)).tolist()
    [0.5, 0.375, 0.125]
    """
    counts = torch.bincount(labels, minlength=len(prototypes)).to(prototypes.dtype) + 1.0
    return counts / counts.sum()


def single_start(x: Tensor, labels: Tensor, n_classes: int, *, n_init: int, generator: torch.Generator) -> Start:
    """The centroids of the best of ``n_init`` restarts by inertia, as the paper starts."""
    best = semi_supervised_kmeans(x, labels, n_classes, n_init=n_init, generator=generator)
    return Start(best.centroids, best.labels, 1.0)


def consensus_start(
    x: Tensor, labels: Tensor, n_classes: int, *, n_starts: int, temperature: float, generator: torch.Generator,
    trade_off: float = TRADE_OFF, class_sizes: ClassSizes = "equal", keep: bool = True,
    on_start: Callable[[], None] = lambda: None,
) -> Start:  # fmt: skip
    """The centroids of the classes that ``n_starts`` short trainings agree on.

    Parameters
    ----------
    x, labels : (N, D), (n_labelled,)
        The rows, the labelled ones first, and their codes.
    trade_off : float
        lambda of the short trainings.
    class_sizes : {"equal", "estimated"}
        What the short trainings take the classes to be: equal, or as large as the clusters that they start from.
    keep : bool
        See `InMemory`.
    """
    pim = Objective(trade_off=trade_off, pseudo_labels=False, mixed_labels=False)
    directions = principal_directions(x, min(DIRECTIONS, x.shape[1]))
    narrow = x @ directions
    engine = InMemory(narrow, labels, n_classes, keep=keep)
    seeds = torch.randint(2**31, (n_starts,), generator=generator).tolist()

    def start(seed: int) -> Tensor:
        return merged_clusters(narrow, labels, n_classes, generator=torch.Generator().manual_seed(seed))

    members, objectives = [], []
    for prototypes in side_by_side(start, seeds):
        if class_sizes == "estimated":
            nearest, _ = nearest_centroid(narrow, prototypes)
            nearest[: len(labels)] = labels
            pim = replace(pim, class_shares=estimated_shares(nearest, prototypes))
        head = Head(prototypes, Transform({}), temperature)
        optimise(engine, head, replace(pim, trade_off=trade_off / 5), SPREAD)
        objectives.append(optimise(engine, head, pim, SETTLE)[-1]["objective"])
        members.append(head.prototypes)
        on_start()
    best = min(range(n_starts), key=objectives.__getitem__)
    n_known = int(labels.max()) + 1 if len(labels) else 0
    assigned, agreement = consensus(engine, members, best, n_known, temperature)
    assigned[: len(labels)] = labels
    return Start(class_means(x, assigned, members[best] @ directions.T), assigned, agreement)


def consensus(
    engine: InMemory, members: list[Tensor], reference: int, n_known: int, temperature: float, max_rounds: int = 5
) -> tuple[Tensor, float]:
    """The class of each row by the mean of the members' probabilities, and how far they agree with it. (N,)

    Members are prototypes whose new classes (from ``n_known`` on) come in any order. They are put into the order of
    the reference, in place, by the matching that shares most mass. What they say together is a better reference than
    any member, so they are matched with it again until no class moves any more. Probabilities are made block by block
    when they are wanted: no N x K matrix is held for any member.
    """
    labels, agreement = _vote(engine, [members[reference]], temperature)
    for _ in range(max_rounds):
        moved = False
        for i, member in enumerate(members):
            order = _matching(engine, member, labels, n_known, temperature)
            if (order[1:] < order[:-1]).any():
                members[i] = torch.cat([member[:n_known], member[n_known:][order]])
                moved = True
        labels, agreement = _vote(engine, members, temperature)
        if not moved:
            break
    return labels, agreement


def _matching(engine: InMemory, member: Tensor, labels: Tensor, n_known: int, temperature: float) -> Tensor:
    """Which new class of the member each new class of the labels is: the matching that shares most mass. (new,)"""
    shared = member.new_zeros(engine.n_classes, engine.n_classes)
    for block in engine.blocks():
        shared.index_add_(0, labels[block.rows], _probabilities(block.x, member, temperature))
    _, order = linear_sum_assignment(engine.add_up(shared)[n_known:, n_known:].cpu().numpy(), maximize=True)
    return torch.as_tensor(order, device=member.device)


def _vote(engine: InMemory, members: Sequence[Tensor], temperature: float) -> tuple[Tensor, float]:
    """The class with the largest mean probability of each row, and the mean share of rows that a member has alike."""
    labels = engine.new_labels()
    alike = torch.zeros((), dtype=torch.float64, device=engine.x.device)
    for block in engine.blocks():
        votes = [_probabilities(block.x, member, temperature) for member in members]
        own = [vote.argmax(dim=1) for vote in votes]
        total = votes[0]
        for vote in votes[1:]:
            total += vote
        labels[block.rows] = total.argmax(dim=1)
        alike += sum((choice == labels[block.rows]).sum() for choice in own)
    return labels, float(engine.add_up(alike)) / (engine.n_rows * len(members))


def _probabilities(x: Tensor, prototypes: Tensor, temperature: float) -> Tensor:
    return torch.softmax((x @ prototypes.T).mul_(temperature), dim=1)
