"""New classes in a batch of new rows, for a fitted model that keeps its classes.

Of the rows of the fit only a few exemplars of each class are left (see `sampling.py`). They keep the classes in place,
as if they were labelled, while the head is trained further on them and on the new rows. The number of classes to add is
decided in four steps, each of which can end with none:

1. **The number of rows that fit no class.** The unfamiliarity u of a row is the share of the rows of the fit with a
   smaller outlier score. It is uniform for rows of old classes and large for rows of new ones. So if a share s of the
   rows has u > 1/2, a share 2 s - 1 of the rows is of new classes.
2. **The number of new classes.** The cosine of two rows of one class is above theta with probability a, of two rows of
   different classes with probability b, both estimated on the labelled exemplars. Among the unfamiliar rows it is
   above theta with probability P. So two of them are of one class with probability S = (P - b) / (a - b), and there
   are 1 / S classes (the inverse Simpson index: a class with few rows counts little).
3. **Merging.** After the training, classes are merged if their rows are similar to each other's nearly as often as
   among themselves.
4. **Support.** A new class must have some rows, and half of them must be less familiar than most rows of the fit.
   Other new classes are removed, and their rows go to the next best class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from rpim.core.kmeans import kmeans, merged_clusters
from rpim.core.sampling import Exemplars

UNFAMILIAR = 0.75
"""New classes are searched among rows that are less familiar than this share of the rows of the fit."""
NOT_FAMILIAR = 0.7
"""Half of the rows of a new class must be less familiar than this share of the rows of the fit."""
MIN_ROWS = 5
"""The minimum number of rows of a new class."""
MERGE_RATE = 0.3
"""Two classes are merged if the rate of similar pairs between them is at least this share of the rate within them."""
PART_RATE, APART = 0.1, 0.05
"""Two parts of a class are probably two classes if similar pairs are this frequent within both, relative to a, and at
most this frequent between them, relative to that."""
_CHANCE_RATE = 0.005  # b: the share of pairs of different classes with a cosine above theta
_ERRORS = 3.0
"""Standard errors on each side of an interval: chosen so that it holds the truth in 95 % of the batches."""
_MAX_ROWS = 3000  # for pairwise similarities


@dataclass(frozen=True)
class NewBatch:
    """New unlabelled rows, preprocessed, and their unfamiliarity. (n, D), (n,)"""

    x: Tensor
    unfamiliarity: Tensor

    @property
    def n_new_rows(self) -> float:
        """The estimated number of rows of new classes, (2 s - 1) n."""
        above = float((self.unfamiliarity > 0.5).double().mean()) if len(self.x) else 0.0
        return max(2.0 * above - 1.0, 0.0) * len(self.x)

    @property
    def pool(self) -> Tensor:
        """The rows among which new classes are searched. (m, D)"""
        return self.x[self.unfamiliarity > UNFAMILIAR]


@dataclass(frozen=True)
class PairSimilarity:
    """The threshold theta of similar pairs, and the rate of similar pairs within a class."""

    theta: Tensor
    of_one_class: float
    """a"""
    n_classes: int
    """The number of classes that a is estimated on."""
    variance: float
    """The variance of log (a - b) if a is the rate within a single class, by leaving out each class (the jackknife)."""

    @classmethod
    def among(cls, exemplars: Exemplars, generator: torch.Generator) -> PairSimilarity | None:
        """Estimate both on the labelled exemplars, or on all where none is labelled; None if these are too few."""
        trusted = exemplars.labelled if bool(exemplars.labelled.any()) else torch.ones_like(exemplars.labelled)
        rows = _some(torch.nonzero(trusted).flatten(), generator)
        cosines, first, second = _pairs(exemplars.rows[rows])
        same_class = exemplars.classes[rows][first] == exemplars.classes[rows][second]
        if not bool(same_class.any()) or bool(same_class.all()):
            return None
        different = cosines[~same_class]
        theta = different.kthvalue(max(1, round((1.0 - _CHANCE_RATE) * len(different)))).values
        of_pair = exemplars.classes[rows][first[same_class]]
        similar = torch.bincount(of_pair, weights=(cosines[same_class] > theta).double())
        pairs = torch.bincount(of_pair).double()
        similar, pairs = similar[pairs > 0], pairs[pairs > 0]  # (n_classes,)
        n = len(pairs)
        variance = np.log(2.0) ** 2  # of a single class, which cannot say how classes differ
        if n > 1:
            without = (similar.sum() - similar) / (pairs.sum() - pairs)
            variance = n * (n - 1) * float((without - _CHANCE_RATE).clamp_min(1e-6).log().var(correction=0))
        return cls(theta, float(similar.sum() / pairs.sum()), n, variance)

    def similar(self, x: Tensor) -> Tensor:
        """Whether the rows of each pair are similar. (n (n - 1) / 2,)"""
        return _pairs(x)[0] > self.theta

    def between_classes(self, x: Tensor, classes: Tensor, n_classes: int) -> Tensor:
        """The rate of similar pairs between each two classes. (n_classes, n_classes)"""
        unit = _unit(x)
        similar = ((unit @ unit.T) > self.theta).double().fill_diagonal_(0.0)
        member = torch.nn.functional.one_hot(classes, n_classes).double()
        pairs = member.sum(dim=0)[:, None] * member.sum(dim=0) - torch.diag(member.sum(dim=0))
        return (member.T @ similar @ member) / pairs.clamp_min(1.0)


def n_classes_to_add(batch: NewBatch, similarity: PairSimilarity | None, generator: torch.Generator) -> int:
    """The number of new classes in the batch, estimated from the similar pairs among its unfamiliar rows."""
    pool, n_new = batch.pool, batch.n_new_rows
    if similarity is None or n_new < MIN_ROWS or len(pool) < MIN_ROWS:
        return 0
    p, a, b = float(similarity.similar(_some(pool, generator)).double().mean()), similarity.of_one_class, _CHANCE_RATE
    # Rows of old classes in the pool are of many classes, and hardly ever make a similar pair.
    share = 1.0 - (len(batch.x) - n_new) * (1.0 - UNFAMILIAR) / len(pool)
    one_class = (p - b) / (max(a - b, 1e-6) * max(share, 0.1) ** 2)  # S
    most = len(pool) // MIN_ROWS
    return min(most, max(1, round(1.0 / one_class))) if one_class > 0.0 else most


def added_interval(n_added: int, batch: NewBatch, similarity: PairSimilarity) -> tuple[float, float]:
    """The 95 % interval of the number of added classes.

    Log 1 / S has three errors: a is estimated on some known classes, the new classes are a draw of so many classes as
    well, and P is estimated on some rows. The merging and the choice of unfamiliar rows have errors too, which only
    `_ERRORS` accounts for.
    """
    pool = batch.pool
    unit = _unit(pool[:: -(-len(pool) // _MAX_ROWS)])
    n = len(unit)
    similar = ((unit @ unit.T) > similarity.theta).double().fill_diagonal_(0.0).sum(dim=1)
    without = (similar.sum() - 2.0 * similar) / ((n - 1) * (n - 2))  # P without each row
    of_rows = (n - 1) * float((without - _CHANCE_RATE).clamp_min(1e-6).log().var(correction=0))
    of_classes = similarity.variance * (1.0 / similarity.n_classes + 1.0 / n_added)
    factor = float(np.exp(_ERRORS * np.sqrt(of_rows + of_classes)))
    return n_added / factor, min(n_added * factor, max(n_added, len(pool) // MIN_ROWS))


def first_prototypes(refined: Tensor, n_new: int, generator: torch.Generator) -> Tensor:
    """Initial prototypes of the new classes: merged clusters of the unfamiliar rows. (n_new, D)"""
    no_labels = torch.empty(0, dtype=torch.long, device=refined.device)
    return merged_clusters(refined, no_labels, n_new, generator=generator)


def one_of_each(
    x: Tensor, classes: Tensor, n_classes: int, similarity: PairSimilarity, generator: torch.Generator
) -> Tensor:
    """For each class, the first class that it is merged with, or itself. (n_classes,)"""
    rows = _some(torch.arange(len(x), device=x.device), generator)
    rate = similarity.between_classes(x[rows], classes[rows], n_classes)
    own = torch.minimum(rate.diagonal()[:, None], rate.diagonal())
    merge = (rate >= MERGE_RATE * own) & (own > 0.0)
    _, group = connected_components(merge.cpu().numpy(), directed=False)
    _, first, of_class = np.unique(group, return_index=True, return_inverse=True)
    return torch.from_numpy(first[of_class]).to(classes.device)


def two_parts(x: Tensor, similarity: PairSimilarity, generator: torch.Generator) -> tuple[int, int] | None:
    """The sizes of two parts of a class, found by k-means, if these are probably two classes; None otherwise.

    It finds one such class in six and takes 3 % of the single ones for two: see docs/results.md.
    """
    if len(x) < 2 * MIN_ROWS:
        return None
    x = _some(x, generator)
    parts = kmeans(x, 2, generator=generator).labels
    sizes = torch.bincount(parts, minlength=2)
    rate = similarity.between_classes(x, parts, 2)
    own = float(rate.diagonal().min())
    if int(sizes.min()) < MIN_ROWS or own < PART_RATE * similarity.of_one_class or float(rate[0, 1]) >= APART * own:
        return None
    return int(sizes.max()), int(sizes.min())


def is_there(batch: NewBatch, classes: Tensor, n_old: int, n_classes: int) -> Tensor:
    """Which of the new classes, ``n_old`` to ``n_classes``, have enough unfamiliar rows. (n_classes - n_old,)"""
    sizes = torch.bincount(classes, minlength=n_classes)
    unfamiliar = torch.bincount(classes[batch.unfamiliarity > NOT_FAMILIAR], minlength=n_classes)
    return torch.logical_and(sizes >= MIN_ROWS, 2 * unfamiliar >= sizes)[n_old:]


def _some(rows: Tensor, generator: torch.Generator) -> Tensor:
    return rows[torch.randperm(len(rows), generator=generator)[:_MAX_ROWS].to(rows.device)]


def _unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=1)


def _pairs(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The cosine of each pair of rows, and their indices. (n (n - 1) / 2,) each"""
    unit = _unit(x)
    first, second = torch.triu_indices(len(x), len(x), 1, device=x.device)
    return (unit @ unit.T)[first, second], first, second
