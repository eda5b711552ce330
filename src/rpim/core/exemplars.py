"""What a model keeps of the rows it was fitted to, so that it can be extended without them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

ROWS_PER_CLASS = 30
"""Enough to hold a class in its place; more would make a run folder grow with the rows."""
_LEVELS = 1000


@dataclass(frozen=True)
class Exemplars:
    """Some rows of each class, and how well rows fitted.

    Parameters
    ----------
    rows : (M, D)
        Normalized and projected, as the head takes them.
    classes : (M,)
        The number of each row's class.
    labelled : (M,)
        Whether a person gave that class, or the model.
    typical : (K,)
        The median outlier score of the rows of each class: in a wide class all rows fit less.
    scores : (levels,)
        By how much the outlier scores of the rows of the fit were above that of their class, from the smallest on.
    """

    rows: Tensor
    classes: Tensor
    labelled: Tensor
    typical: Tensor
    scores: Tensor

    def unfamiliarity(self, scores: Tensor, classes: Tensor) -> Tensor:
        """The share of the rows of the fit that fitted better, each into its class, than these rows. (n,)"""
        above = (scores - self.typical[classes]).contiguous()
        return torch.searchsorted(self.scores, above).to(scores.dtype) / len(self.scores)

    def tensors(self) -> dict[str, Tensor]:
        """What is written to the disk: the rows in half precision, which is as good as they were given."""
        return {
            "rows": self.rows.half(),
            "classes": self.classes.to(torch.int32),
            "labelled": self.labelled,
            "typical": self.typical,
            "scores": self.scores,
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], n_classes: int, n_features: int) -> Exemplars:
        """What `tensors` gave, of a model with so many classes and features.

        Raises
        ------
        KeyError, ValueError
            If they do not belong together.
        """
        memory = cls(
            tensors["rows"].float(),
            tensors["classes"].long(),
            tensors["labelled"],
            tensors["typical"],
            tensors["scores"],
        )
        n = len(memory.rows)
        if memory.rows.shape != (n, n_features) or memory.classes.shape != (n,) or memory.labelled.shape != (n,):
            raise ValueError(f"the rows in memory have shape {tuple(memory.rows.shape)}")
        if memory.typical.shape != (n_classes,):
            raise ValueError(f"the memory is of {len(memory.typical)} classes, not of {n_classes}")
        if n and not 0 <= int(memory.classes.min()) <= int(memory.classes.max()) < n_classes:
            raise ValueError("rows in memory are of classes that are not there")
        return memory

    def renumbered(self, place: Tensor, n_classes: int) -> Exemplars:
        """The same, with the classes under other numbers, and of those that are added nothing but what is usual."""
        typical = self.typical.median().expand(n_classes).clone()
        typical[place] = self.typical
        return replace(self, classes=place[self.classes], typical=typical)


def select_exemplars(
    x: Tensor, classes: Tensor, n_labelled: int, n_classes: int, scores: Tensor, generator: torch.Generator
) -> Exemplars:
    """Up to `ROWS_PER_CLASS` rows of each class drawn at random, labelled ones first.

    Parameters
    ----------
    x : (N, D)
        The rows, the labelled ones first.
    classes : (N,)
        The number of each row's class, -1 where it has none.
    scores : (N,)
        Their outlier scores.
    """
    drawn = torch.randperm(len(x), generator=generator).to(x.device)
    drawn = drawn[torch.argsort((drawn >= n_labelled).to(torch.int8), stable=True)]
    drawn = drawn[classes[drawn] >= 0]
    by_class = drawn[torch.argsort(classes[drawn], stable=True)]
    sizes = torch.bincount(classes[by_class], minlength=n_classes)
    first = torch.cumsum(sizes, 0) - sizes  # where each class begins
    place = torch.arange(len(by_class), device=x.device) - first[classes[by_class]]
    kept = by_class[place < ROWS_PER_CLASS]
    typical = scores.median().expand(n_classes).clone()
    for k, rows in enumerate(torch.split(by_class, sizes.tolist())):
        if len(rows):
            typical[k] = scores[rows].median()
    above = (scores[by_class] - typical[classes[by_class]]).sort().values
    levels = torch.linspace(0, len(above) - 1, min(_LEVELS, len(above)), device=x.device).round().long()
    return Exemplars(x[kept].clone(), classes[kept].clone(), kept < n_labelled, typical, above[levels])
