"""New rows for a model that is there already: its classes stay, and new ones are added where rows call for them.

The rows of the fit are gone but for a few of each class (see memory.py). These hold the classes in their place, as if
they were labelled, while the head is trained on from where it stands, on them and on the new rows. How many classes to
add is decided in four steps, each of which can end with none:

1. **How many rows fit no class.** A row's unfamiliarity u is the share of the fit's rows that fitted better. Rows of
   old classes have any u with equal probability, rows of new ones a large one; so with a share s of rows above one
   half, 2 s - 1 of the rows are of new classes.
2. **How many classes these are.** Two rows of one class are more alike than theta with probability a, two rows of
   different ones with probability b, both seen among the labelled rows in memory. Among the unfamiliar rows it is P.
   So two of them are of one class with probability S = (P - b) / (a - b), and there are 1 / S classes (Simpson's
   count: a class with few rows counts little).
3. **Whether two of them are one.** After the training, classes whose rows are alike to each other's nearly as often as
   among themselves are made one.
4. **Whether each of them is there.** A new class must have some rows, and half of them must be less familiar than most
   rows of the fit. Others are taken out again, and the rows go where they fit next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from rpim.core.exemplars import Exemplars
from rpim.core.kmeans import merged_clusters

UNFAMILIAR = 0.75
"""The rows that are looked at for new classes: less familiar than three quarters of the rows of the fit."""
NOT_FAMILIAR = 0.7
"""Half of the rows of a new class must be less familiar than this share of the rows of the fit."""
MIN_ROWS = 5
"""A new class has at least so many rows."""
AS_ALIKE = 0.3
"""Two classes are one if their rows are alike to each other's at least this often, compared with among themselves."""
_ALIKE_BY_CHANCE = 0.005  # b: of the pairs of different classes so many are more alike than theta
_MAX_ROWS = 3000  # pairs are looked at among so many rows at most


@dataclass(frozen=True)
class NewBatch:
    """Rows without a label that have come in, as the head takes them, and how unfamiliar each is. (n, D), (n,)"""

    x: Tensor
    unfamiliarity: Tensor

    @property
    def n_new_rows(self) -> float:
        """About how many of the rows are of classes that were not there: (2 s - 1) n."""
        above = float((self.unfamiliarity > 0.5).double().mean()) if len(self.x) else 0.0
        return max(2.0 * above - 1.0, 0.0) * len(self.x)

    @property
    def pool(self) -> Tensor:
        """The rows among which new classes are looked for."""
        return self.x[self.unfamiliarity > UNFAMILIAR]


@dataclass(frozen=True)
class PairSimilarity:
    """When two rows are alike, and how often two rows of one class are."""

    theta: Tensor
    of_one_class: float
    """a"""

    @classmethod
    def among(cls, memory: Exemplars, generator: torch.Generator) -> PairSimilarity | None:
        """As seen among the rows that a person has labelled; None where these are too few to say."""
        told = _some(torch.nonzero(memory.labelled).flatten(), generator)
        cosines, first, second = _pairs(memory.rows[told])
        together = memory.classes[told][first] == memory.classes[told][second]
        if not bool(together.any()) or bool(together.all()):
            return None
        apart = cosines[~together]
        theta = apart.kthvalue(max(1, round((1.0 - _ALIKE_BY_CHANCE) * len(apart)))).values
        return cls(theta, float((cosines[together] > theta).double().mean()))

    def alike(self, x: Tensor) -> Tensor:
        """Of every two rows, whether they are alike; each once. (n (n - 1) / 2,)"""
        return _pairs(x)[0] > self.theta

    def between_classes(self, x: Tensor, classes: Tensor, n_classes: int) -> Tensor:
        """How often two rows are alike, one of this class and one of that. (n_classes, n_classes)"""
        unit = _unit(x)
        alike = ((unit @ unit.T) > self.theta).double().fill_diagonal_(0.0)
        member = torch.nn.functional.one_hot(classes, n_classes).double()
        pairs = member.sum(dim=0)[:, None] * member.sum(dim=0) - torch.diag(member.sum(dim=0))
        return (member.T @ alike @ member) / pairs.clamp_min(1.0)


def n_classes_to_add(arrival: NewBatch, similarity: PairSimilarity | None, generator: torch.Generator) -> int:
    """How many new classes the arrival may hold, by how alike its unfamiliar rows are to each other."""
    pool, n_new = arrival.pool, arrival.n_new_rows
    if similarity is None or n_new < MIN_ROWS or len(pool) < MIN_ROWS:
        return 0
    p, a, b = float(similarity.alike(_some(pool, generator)).double().mean()), similarity.of_one_class, _ALIKE_BY_CHANCE
    # Rows of old classes that are in the pool by chance are of many classes and hardly ever make a pair.
    share = 1.0 - (len(arrival.x) - n_new) * (1.0 - UNFAMILIAR) / len(pool)
    one_class = (p - b) / (max(a - b, 1e-6) * max(share, 0.1) ** 2)  # S
    most = len(pool) // MIN_ROWS
    return min(most, max(1, round(1.0 / one_class))) if one_class > 0.0 else most


def first_prototypes(refined: Tensor, n_new: int, generator: torch.Generator) -> Tensor:
    """Where new classes start: the unfamiliar rows in small clusters, merged until so many are left. (n_new, D)"""
    nobody = torch.empty(0, dtype=torch.long, device=refined.device)
    return merged_clusters(refined, nobody, n_new, generator=generator)


def one_of_each(
    x: Tensor, classes: Tensor, n_classes: int, similarity: PairSimilarity, generator: torch.Generator
) -> Tensor:
    """For each class of the rows, numbers 0 to ``n_classes``, the first that it is one with. (n_classes,)"""
    rows = _some(torch.arange(len(x), device=x.device), generator)
    rate = similarity.between_classes(x[rows], classes[rows], n_classes)
    own = torch.minimum(rate.diagonal()[:, None], rate.diagonal())
    one = (rate >= AS_ALIKE * own) & (own > 0.0)
    _, group = connected_components(one.cpu().numpy(), directed=False)
    _, first, of_class = np.unique(group, return_index=True, return_inverse=True)
    return torch.from_numpy(first[of_class]).to(classes.device)


def is_there(arrival: NewBatch, classes: Tensor, n_old: int, n_classes: int) -> Tensor:
    """Which of the new classes, numbers ``n_old`` to ``n_classes`` of the rows, have what a class needs. (new,)"""
    sizes = torch.bincount(classes, minlength=n_classes)
    unfamiliar = torch.bincount(classes[arrival.unfamiliarity > NOT_FAMILIAR], minlength=n_classes)
    return torch.logical_and(sizes >= MIN_ROWS, 2 * unfamiliar >= sizes)[n_old:]


def _some(rows: Tensor, generator: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=generator)[:_MAX_ROWS].to(rows.device)]


def _unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=1)


def _pairs(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The cosine of every two rows, once, and which they are. (n (n - 1) / 2,) each"""
    unit = _unit(x)
    first, second = torch.triu_indices(len(x), len(x), 1, device=x.device)
    return (unit @ unit.T)[first, second], first, second
