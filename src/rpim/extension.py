"""New rows for a model that is there already: its classes stay, and new ones are added where rows call for them.

The rows of the fit are gone but for a few of each class (see memory.py). These hold the classes in their place, as if
they were labelled, while the head is trained on from where it stands, on them and on the new rows. How many classes to
add is decided in three steps, each of which can end with none:

1. **How many rows fit no class.** A row's unfamiliarity u is the share of the fit's rows that fitted better. Rows of
   old classes have any u with equal probability, rows of new ones a large one; so with a share s of rows above one
   half, 2 s - 1 of the rows are of new classes.
2. **How many classes these are.** Two rows of one class are more alike than theta with probability a, two rows of
   different ones with probability b, both seen among the labelled rows in memory. Among the unfamiliar rows it is P.
   So two of them are of one class with probability S = (P - b) / (a - b), and there are 1 / S classes (Simpson's
   count: a class with few rows counts little).
3. **Whether each of them is there.** After the training a new class must have some rows, and half of them must be less
   familiar than most rows of the fit. Others are taken out again, and the rows go where they fit next.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rpim.centroids import merged_clusters
from rpim.memory import Memory

UNFAMILIAR = 0.75
"""The rows that are looked at for new classes: less familiar than three quarters of the rows of the fit."""
NOT_FAMILIAR = 0.7
"""Half of the rows of a new class must be less familiar than this share of the rows of the fit."""
MIN_ROWS = 5
"""A new class has at least so many rows."""
_ALIKE_BY_CHANCE = 0.005  # b: of the pairs of different classes so many are more alike than theta
_MAX_ROWS = 3000  # pairs are looked at among so many rows at most


@dataclass(frozen=True)
class Arrival:
    """Rows without a label that have come in, as the head takes them, and how unfamiliar each is. (n, D), (n,)"""

    x: Tensor
    unfamiliarity: Tensor

    @property
    def n_new_rows(self) -> float:
        """About how many of the rows are of classes that were not there: (2 s - 1) n."""
        above = float((self.unfamiliarity > 0.5).double().mean()) if len(self.x) else 0.0
        return max(2.0 * above - 1.0, 0.0) * len(self.x)


def n_classes_to_add(arrival: Arrival, memory: Memory, generator: torch.Generator) -> int:
    """How many new classes the arrival may hold, by how alike its unfamiliar rows are to each other."""
    pool = arrival.x[arrival.unfamiliarity > UNFAMILIAR]
    n_new, n_rows = arrival.n_new_rows, len(arrival.x)
    if n_new < MIN_ROWS or len(pool) < MIN_ROWS:
        return 0
    centre = memory.rows.mean(dim=0)
    told = _some(torch.nonzero(memory.labelled).flatten(), generator)
    likeness, first, second = _pairs(memory.rows[told] - centre)
    together = memory.classes[told][first] == memory.classes[told][second]
    if not bool(together.any()) or bool(together.all()):
        return 0
    apart = likeness[~together]
    theta = apart.kthvalue(max(1, round((1.0 - _ALIKE_BY_CHANCE) * len(apart)))).values
    a, b = float((likeness[together] > theta).double().mean()), _ALIKE_BY_CHANCE
    p = float((_pairs(_some(pool, generator) - centre)[0] > theta).double().mean())
    # Rows of old classes that are in the pool by chance are of many classes and hardly ever make a pair.
    share = 1.0 - (n_rows - n_new) * (1.0 - UNFAMILIAR) / len(pool)
    one_class = (p - b) / (max(a - b, 1e-6) * max(share, 0.1) ** 2)  # S
    most = len(pool) // MIN_ROWS
    return min(most, max(1, round(1.0 / one_class))) if one_class > 0.0 else most


def first_prototypes(arrival: Arrival, n_new: int, generator: torch.Generator) -> Tensor:
    """Where new classes start: the centroids of the unfamiliar rows, small clusters merged into so many. (n_new, D)"""
    pool = arrival.x[arrival.unfamiliarity > UNFAMILIAR]
    nobody = torch.empty(0, dtype=torch.long, device=pool.device)
    return merged_clusters(pool, nobody, n_new, generator=generator)


def is_there(arrival: Arrival, classes: Tensor, n_old: int, n_classes: int) -> Tensor:
    """Which of the new classes, numbers ``n_old`` to ``n_classes`` of the rows, have what a class needs. (new,)"""
    sizes = torch.bincount(classes, minlength=n_classes)
    unfamiliar = torch.bincount(classes[arrival.unfamiliarity > NOT_FAMILIAR], minlength=n_classes)
    return ((sizes >= MIN_ROWS) & (2 * unfamiliar >= sizes))[n_old:]


def _some(rows: Tensor, generator: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=generator)[:_MAX_ROWS].to(rows.device)]


def _pairs(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The cosine of every two rows, once, and which they are. (n (n - 1) / 2,) each"""
    unit = x / x.norm(dim=1, keepdim=True).clamp_min(1e-12)
    first, second = torch.triu_indices(len(x), len(x), 1, device=x.device)
    return (unit @ unit.T)[first, second], first, second
