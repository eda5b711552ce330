"""Check the given labels by the members of a committee that did not see them.

Even where every label is right, some rows get little probability for theirs: classes overlap. How many, the
probabilities say themselves: among rows with probabilities p, a label drawn from p falls on a class with p_k <= t with
probability sum_k p_k [p_k <= t]. What is observed beyond that is wrong labels: their number is estimated by the largest
excess over all t, and so many of the most suspect rows are reported. (Confident learning, by Northcutt, Jiang and
Chuang, JAIR 2021, compares with a threshold a class instead; on overlapping classes it reports a fifth of clean
labels.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from scipy.optimize import brentq
from torch import Tensor

_ROUNDS = 20


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
    """Comparison of the labels with the predictions of members that did not see them.

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
    def of(cls, out_of_bag: Tensor, labels: Tensor) -> LabelCheck:
        """Compare the labels with the out-of-bag probabilities. (n_labelled, K)

        Examples
        --------
        >>> p = torch.tensor([[0.99, 0.01]] * 9 + [[0.01, 0.99]] * 9 + [[0.99, 0.01]] * 2)
        >>> check = LabelCheck.of(p, torch.tensor([0] * 9 + [1] * 11))
        >>> torch.nonzero(check.suspect).flatten().tolist(), check.accuracy
        ([18, 19], 0.9)
        """
        checked = ~out_of_bag.isnan().any(dim=1)
        quality = out_of_bag.nan_to_num(0.0).gather(1, labels[:, None])[:, 0]
        confidence, predicted = out_of_bag.nan_to_num(0.0).max(dim=1)
        accuracy = float((predicted == labels)[checked].double().mean()) if bool(checked.any()) else float("nan")
        suspect = torch.zeros_like(checked)
        contradicted = torch.nonzero(checked & (predicted != labels)).flatten()
        if len(contradicted):
            n_wrong = _n_wrong(out_of_bag[checked].double(), labels[checked])
            ranked = contradicted[torch.argsort((quality - confidence)[contradicted], stable=True)]
            suspect[ranked[:n_wrong]] = True
        return cls(quality.masked_fill(~checked, torch.nan), predicted, confidence, suspect, accuracy)

    def tensors(self) -> dict[str, Tensor]:
        """What `from_tensors` needs."""
        return {
            "quality": self.quality,
            "predicted": self.predicted,
            "confidence": self.confidence,
            "suspect": self.suspect,
            "accuracy": torch.tensor(self.accuracy, dtype=torch.float64),
        }

    @classmethod
    def from_tensors(cls, tensors: dict[str, Tensor]) -> LabelCheck:
        """What `tensors` gave."""
        return cls(
            tensors["quality"],
            tensors["predicted"],
            tensors["confidence"],
            tensors["suspect"],
            float(tensors["accuracy"]),
        )

    def ranked(self) -> list[int]:
        """The suspect rows, the most suspect first: by how much likelier another class is than the label."""
        rows = torch.nonzero(self.suspect).flatten()
        margin = (self.quality - self.confidence)[rows]
        ranked: list[int] = rows[torch.argsort(margin, stable=True)].tolist()
        return ranked


def _n_wrong(probabilities: Tensor, labels: Tensor) -> int:
    """Estimate the number of wrong labels.

    The probabilities have to be calibrated for it, but wrong labels make them look less right than they are: so both
    are estimated in turn, from "every contradicted label is wrong" on.
    """
    right = float((probabilities.argmax(dim=1) == labels).sum())
    n_wrong = len(labels) - int(right)
    for _ in range(_ROUNDS):
        before = n_wrong
        accuracy = right / max(len(labels) - n_wrong, 1)
        n_wrong = min(n_wrong, _excess(_as_confident_as_right(probabilities, accuracy), labels))
        if n_wrong == before:
            break
    return n_wrong


def _as_confident_as_right(probabilities: Tensor, accuracy: float) -> Tensor:
    """The probabilities, softened so that on average they are as confident as they are right. (n, K)"""
    log_p = probabilities.clamp_min(1e-12).log()

    def gap(log_power: float) -> float:
        return float(torch.softmax(math.exp(log_power) * log_p, dim=1).amax(dim=1).mean()) - accuracy

    softest = math.log(0.1)
    if gap(0.0) <= 0.0:
        return probabilities
    power = softest if gap(softest) >= 0.0 else brentq(gap, softest, 0.0, xtol=1e-3)
    return torch.softmax(math.exp(power) * log_p, dim=1)


def _excess(probabilities: Tensor, labels: Tensor) -> int:
    """How many more labels have a small probability than would if each were drawn from its row's probabilities."""
    own = probabilities.gather(1, labels[:, None])[:, 0]
    thresholds = own.sort().values  # (n,)
    values, _ = probabilities.flatten().sort()
    expected = torch.cat([values.new_zeros(1), values.cumsum(0)])  # of p_k <= t, since each counts by p_k
    expected = expected[torch.searchsorted(values, thresholds, right=True)]
    observed = torch.arange(1, len(own) + 1, dtype=expected.dtype, device=own.device)
    return max(0, round(float((observed - expected).max())))
