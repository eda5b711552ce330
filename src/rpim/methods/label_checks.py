"""Checking the given labels by the members of a committee that did not see them.

A label is suspect where those members are confident of another class: at least as confident as they are, on average, of
the rows that do carry that class's label. After confident learning: Northcutt, Jiang and Chuang, "Confident Learning:
Estimating Uncertainty in Dataset Labels" (JAIR 2021).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


class LabelIssue(NamedTuple):
    """A labelled row that looks mislabelled."""

    row: int
    """Its number among the rows of the fit."""
    label: Any
    """The label that was given."""
    suggested: Any
    """The class that the members suggest instead."""
    label_quality: float
    """The probability that the members give to the label; the smaller, the more suspect."""
    confidence: float
    """The probability that they give to the suggested class."""


@dataclass(frozen=True)
class LabelCheck:
    """What members that did not see a label say of its row.

    Parameters
    ----------
    quality : (n_labelled,)
        The probability of the given label; NaN where every member saw it.
    predicted, confidence : (n_labelled,)
        The likeliest class and its probability.
    suspect : (n_labelled,)
        Whether the row looks mislabelled.
    accuracy : float
        The share of labels that were predicted; NaN where none was hidden.
    """

    quality: Tensor
    predicted: Tensor
    confidence: Tensor
    suspect: Tensor
    accuracy: float

    @classmethod
    def of(cls, out_of_bag: Tensor, labels: Tensor, n_known: int) -> LabelCheck:
        """Compare the labels with the out-of-bag probabilities. (n_labelled, K)

        Examples
        --------
        >>> p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.9, 0.1], [0.1, 0.9]])
        >>> check = LabelCheck.of(p, torch.tensor([0, 0, 1, 1]), 2)
        >>> check.suspect.tolist(), check.predicted.tolist(), check.accuracy
        ([False, False, True, False], [0, 0, 0, 1], 0.75)
        """
        checked = ~out_of_bag.isnan().any(dim=1)
        probabilities = out_of_bag.nan_to_num(0.0)
        quality = probabilities.gather(1, labels[:, None])[:, 0]
        confidence, predicted = probabilities.max(dim=1)
        # The usual confidence in a class: the mean over the rows with its label. A new class has none; it is given that
        # of the known classes.
        totals = torch.zeros(n_known, dtype=quality.dtype, device=quality.device)
        counts = torch.zeros_like(totals)
        totals.index_add_(0, labels[checked], quality[checked])
        counts.index_add_(0, labels[checked], torch.ones_like(quality[checked]))
        usual = quality[checked].mean().expand(out_of_bag.shape[1]).clone()
        usual[:n_known] = torch.where(counts > 0, totals / counts.clamp_min(1.0), usual[:n_known])
        suspect = checked & (predicted != labels) & (confidence >= usual[predicted])
        accuracy = float((predicted == labels)[checked].double().mean()) if bool(checked.any()) else float("nan")
        return cls(quality.masked_fill(~checked, torch.nan), predicted, confidence, suspect, accuracy)

    def tensors(self) -> dict[str, Tensor]:
        """What `from_tensors` needs."""
        return {
            "quality": self.quality, "predicted": self.predicted, "confidence": self.confidence,
            "suspect": self.suspect, "accuracy": torch.tensor(self.accuracy, dtype=torch.float64),
        }  # fmt: skip

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> LabelCheck:
        """What `tensors` gave."""
        return cls(
            tensors["quality"], tensors["predicted"], tensors["confidence"], tensors["suspect"],
            float(tensors["accuracy"]),
        )  # fmt: skip

    def ranked(self) -> list[int]:
        """The suspect rows, the most suspect first: by how much likelier another class is than the label."""
        rows = torch.nonzero(self.suspect).flatten()
        margin = (self.quality - self.confidence)[rows]
        ranked: list[int] = rows[torch.argsort(margin, stable=True)].tolist()
        return ranked
