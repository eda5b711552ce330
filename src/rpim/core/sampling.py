"""Rows drawn from each class: random samples, and the exemplars that a model keeps to be extended without the rest."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rpim.data.labels import IntArray

LABELLED_ROWS_PER_CLASS = 20
"""A sample has at least this many labelled rows of each known class, or all of them."""


def rank_within_class(codes: IntArray, drawn: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Sort rows that were drawn at random by class, so that the first n of each class are n rows drawn at random.

    Parameters
    ----------
    codes : (N,)
        The class of each row.
    drawn : (n,)
        Rows in random order.

    Returns
    -------
    rows : (n,)
        The rows, class by class, in the order in which they were drawn.
    rank : (n,)
        The number of each row within its class: 0, 1, 2, ...
    size : (n,)
        How many rows of its class were drawn.

    Examples
    --------
    >>> rows, rank, size = rank_within_class(np.array([1, 0, 1, 1]), np.array([3, 1, 0, 2]))
    >>> rows.tolist(), rank.tolist(), size.tolist()
    ([1, 3, 0, 2], [0, 0, 1, 2], [1, 3, 3, 3])
    """
    rows = drawn[np.argsort(codes[drawn], kind="stable")]
    _, starts, sizes = np.unique(codes[rows], return_index=True, return_counts=True)
    return rows, np.arange(len(rows)) - np.repeat(starts, sizes), np.repeat(sizes, sizes)


def sample_rows(codes: IntArray, n_rows: int, seed: int) -> IntArray:
    """Draw rows at random, and add labelled rows of the classes that have too few; all rows if there are no more. (n,)

    Parameters
    ----------
    codes : (N,)
        The class of each labelled row, -1 for the others.
    n_rows : int
        How many rows to draw, before those that are added.
    seed : int

    Returns
    -------
    Row numbers in ascending order.
    """
    if len(codes) <= n_rows:
        return np.arange(len(codes))
    drawn = np.random.RandomState(seed % 2**32).permutation(len(codes))
    labelled, rank, _ = rank_within_class(codes, drawn[codes[drawn] >= 0])
    chosen = np.zeros(len(codes), dtype=bool)
    chosen[drawn[:n_rows]] = True
    chosen[labelled[rank < LABELLED_ROWS_PER_CLASS]] = True
    return np.flatnonzero(chosen)


ROWS_PER_CLASS = 30
"""Enough to represent a class; more would let the run folder grow with the rows."""
_LEVELS = 1000


@dataclass(frozen=True)
class Exemplars:
    """Some rows of each class, and the distribution of the outlier scores of the fit.

    Parameters
    ----------
    rows : (M, D)
        Normalized and projected, as the head takes them.
    classes : (M,)
        The class of each row.
    labelled : (M,)
        Whether the class is a given label, or predicted.
    typical : (K,)
        The median outlier score of the rows of each class: it is larger for a wide class.
    scores : (levels,)
        Quantiles of the outlier scores of the fit, each minus the median of its class, in ascending order.
    """

    rows: Tensor
    classes: Tensor
    labelled: Tensor
    typical: Tensor
    scores: Tensor

    def unfamiliarity(self, scores: Tensor, classes: Tensor) -> Tensor:
        """The share of the rows of the fit with a smaller outlier score, relative to their class. (n,)"""
        above = (scores - self.typical[classes]).contiguous()
        return torch.searchsorted(self.scores, above).to(scores.dtype) / len(self.scores)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors to save, the rows in half precision."""
        return {
            "rows": self.rows.half(),
            "classes": self.classes.to(torch.int32),
            "labelled": self.labelled,
            "typical": self.typical,
            "scores": self.scores,
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor], n_classes: int, n_features: int) -> Exemplars:
        """The inverse of `tensors`, for a model with that many classes and features.

        Raises
        ------
        KeyError, ValueError
            If the tensors do not belong together.
        """
        exemplars = cls(
            tensors["rows"].float(),
            tensors["classes"].long(),
            tensors["labelled"],
            tensors["typical"],
            tensors["scores"],
        )
        n = len(exemplars.rows)
        if (
            exemplars.rows.shape != (n, n_features)
            or exemplars.classes.shape != (n,)
            or exemplars.labelled.shape != (n,)
        ):
            raise ValueError(f"the exemplars have shape {tuple(exemplars.rows.shape)}")
        if exemplars.typical.shape != (n_classes,):
            raise ValueError(f"the exemplars are of {len(exemplars.typical)} classes, not of {n_classes}")
        if n and not 0 <= int(exemplars.classes.min()) <= int(exemplars.classes.max()) < n_classes:
            raise ValueError("exemplars are of classes that do not exist")
        return exemplars

    def renumbered(self, new_numbers: Tensor, n_classes: int) -> Exemplars:
        """The same with other class numbers; an added class has the median of the typical scores."""
        typical = self.typical.median().expand(n_classes).clone()
        typical[new_numbers] = self.typical
        return replace(self, classes=new_numbers[self.classes], typical=typical)


def select_exemplars(
    x: Tensor, classes: Tensor, n_labelled: int, n_classes: int, scores: Tensor, generator: torch.Generator
) -> Exemplars:
    """Draw up to `ROWS_PER_CLASS` rows of each class at random, labelled ones first.

    Parameters
    ----------
    x : (N, D)
        The rows, the labelled ones first.
    classes : (N,)
        The class of each row, -1 for none.
    scores : (N,)
        The outlier score of each row.
    """
    drawn = torch.randperm(len(x), generator=generator).to(x.device)
    drawn = drawn[torch.argsort((drawn >= n_labelled).to(torch.int8), stable=True)]
    drawn = drawn[classes[drawn] >= 0]
    by_class = drawn[torch.argsort(classes[drawn], stable=True)]
    sizes = torch.bincount(classes[by_class], minlength=n_classes)
    first = torch.cumsum(sizes, 0) - sizes  # where each class begins
    rank = torch.arange(len(by_class), device=x.device) - first[classes[by_class]]
    selected = by_class[rank < ROWS_PER_CLASS]
    typical = scores.median().expand(n_classes).clone()
    for k, rows in enumerate(torch.split(by_class, sizes.tolist())):
        if len(rows):
            typical[k] = scores[rows].median()
    above = (scores[by_class] - typical[classes[by_class]]).sort().values
    levels = torch.linspace(0, len(above) - 1, min(_LEVELS, len(above)), device=x.device).round().long()
    return Exemplars(x[selected].clone(), classes[selected].clone(), selected < n_labelled, typical, above[levels])
