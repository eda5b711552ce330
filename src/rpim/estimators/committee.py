"""The committee: many cheap fits that differ, matched, averaged and distilled into one head; and its check of labels.

A single InfoMax fit is a lottery ticket: start, representation and lambda each move the result by points. Members
(`members.py`) differ in all of them, and each does not see a part of the labels.

`combine`: the rows are clustered once more by how the members vote (`vote_embedding`), which gives the order of the
classes; members are matched with it and averaged (`core/committee.py`); the average is made as confident as it is right
on labels that members did not see (`calibrated_power`); nearest neighbors are brought into agreement (`propagate`) and
classes to their sizes (`balance`), which are equal as far as the members find them so (`size_trust`). The result is
distilled into one linear head (`core/training.py`), the model.

It also gives calibrated probabilities, the stability of each class, and out-of-bag predictions of the labelled rows,
by which `LabelCheck` checks the labels. Even where every label is right, some rows get little probability for theirs:
classes overlap. How many, the probabilities say themselves: among rows with probabilities p, a label drawn from p falls
on a class with p_k <= t with probability sum_k p_k [p_k <= t]. What is observed beyond that is wrong labels: their
number is estimated by the largest excess over all t, and so many of the most suspect rows are reported. (Confident
learning, by Northcutt, Jiang and Chuang, JAIR 2021, compares with a threshold a class instead; on overlapping classes
it reports a fifth of clean labels.)
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from scipy.optimize import brentq
from torch import Tensor

from rpim.core.committee import (
    N_NEIGHBORS,
    average,
    balance,
    between_equal_and,
    calibrated_power,
    class_stability,
    collect_votes,
    nearest_neighbors,
    neighbor_mean,
    propagate,
    raised,
    size_trust,
    variation,
    vote_embedding,
)
from rpim.core.kmeans import ClassSizes, estimated_shares, merged_start
from rpim.core.preprocessing import fit_representation
from rpim.estimators.members import N_DIRECTIONS, Member, Trainer, train_from_clusters

NOISE_AT_START, NOISE_OF_ALL = (0.25, 0.065, 0.42), (0.10, 0.09, 0.36)
NOISE_OF_KNOWN = 0.18
"""The coefficient of variation with which equally large classes are found: all classes at a start, all classes by a
committee, and known ones by a committee. The more classes, the more of them are split and merged by chance: the first
two are a + b log(K / 5), and c at most."""
MAYBE = 0.08
"""Up to the noise at the start, members assume that classes are equally large; above it by more than this, that they
are as large as at their own start; between the two they take turns."""
FEW = 0.5
"""A known class is held by its labels unless the labelled share of its rows is below this part of the usual one."""
ENOUGH_KNOWN = 5
"""With fewer such classes than this, the sizes of all classes are looked at."""

VOTE_DIRECTIONS = 128
_ROUNDS = 20  # of estimating the number of wrong labels


def noise_among(n_classes: int, of: tuple[float, float, float]) -> float:
    """The coefficient of variation with which so many equally large classes are found.

    >>> [round(noise_among(k, NOISE_AT_START), 2) for k in (5, 20, 77, 200)]
    [0.25, 0.34, 0.42, 0.42]
    """
    least, slope, most = of
    return min(most, least + slope * math.log(max(n_classes, 5) / 5))


def sizes_at_start(x: Tensor, labels: Tensor, n_classes: int, seed: int) -> tuple[ClassSizes, ...]:
    """The class sizes that members assume in turn, by the merged clusters that a training would start from."""
    rows = fit_representation("raw", x, labels, N_DIRECTIONS)(x)
    start = merged_start(rows, labels, n_classes, generator=torch.Generator().manual_seed(seed))
    excess = variation(estimated_shares(start.labels, start.prototypes)) - noise_among(n_classes, NOISE_AT_START)
    if excess > MAYBE:
        return ("estimated",)
    return ("equal", "estimated") if excess > 0.0 else ("equal",)


@dataclass(frozen=True)
class Combined:
    """The combined predictions of the members on the rows that they were trained on.

    Parameters
    ----------
    probabilities : (N, K)
        Averaged, calibrated, in agreement with neighbors, and balanced.
    shares : (K,), optional
        The share of the rows that each class is assumed to have; None where classes are equally large.
    stability : (K,)
        The mean Jaccard index of each class and its match in the members; NaN where it has no row.
    supporters : (K,)
        How many members have the class, with a Jaccard index of a half at least.
    lost : (n_members,)
        How many classes each member lost: those that no row chose.
    label_check : LabelCheck
        Comparison of the labels with the out-of-bag predictions.
    """

    probabilities: Tensor
    shares: Tensor | None
    stability: Tensor
    supporters: Tensor
    lost: Tensor
    label_check: LabelCheck


def combine(trainer: Trainer, members: Sequence[Member], seed: int, class_sizes: ClassSizes | None = None) -> Combined:
    """Match, average, bring neighbors into agreement and classes into balance.

    ``class_sizes`` are those that were asked for; by default the members decide how equal the classes are.
    """
    x, labels, n_classes = trainer.x, trainer.labels, trainer.n_classes
    space = fit_representation("whitened", x, trainer.whitened_by)(x)
    neighbors = nearest_neighbors(space, N_NEIGHBORS)
    del space
    votes = collect_votes(x, members, n_classes)
    projected = vote_embedding(votes, n_classes, VOTE_DIRECTIONS, seed)
    if neighbors.shape[1]:
        projected += neighbor_mean(projected, neighbors)
    projected = torch.nn.functional.normalize(projected, dim=1, eps=1e-12)
    judge, _ = train_from_clusters(
        projected,
        labels,
        n_classes,
        trainer.objective,
        trainer.new_head,
        class_sizes="estimated" if any(m.plan.class_sizes == "estimated" for m in members) else "equal",
        seed=seed,
        schedule=trainer.schedule,
        cache=trainer.cache,
    )
    reference = judge.proba_and_score(projected)[0]
    del projected
    consensus = average(votes, reference)
    out_of_bag = _out_of_bag(x, members, consensus.orders, trainer)
    check = LabelCheck.of(out_of_bag, labels)
    trusted = ~check.quality.isnan() & ~check.suspect
    power = calibrated_power(out_of_bag[trusted], labels[trusted])
    spread = propagate(raised(consensus.probabilities, power), neighbors, labels)
    found = spread.mean(dim=0)  # (K,)
    trust = _size_trust(found, labels, len(x), class_sizes)
    shares = between_equal_and(found, trust)
    final = balance(spread, shares)
    classes = final.argmax(dim=1)
    classes[: len(labels)] = labels
    jaccard = class_stability(votes, consensus.orders, classes, len(labels))
    return Combined(
        probabilities=final,
        shares=shares if trust > 0.0 else None,
        stability=jaccard.nanmean(dim=0),
        supporters=(jaccard >= 0.5).sum(dim=0),
        lost=(consensus.sizes == 0).sum(dim=1),
        label_check=check,
    )


def _size_trust(found: Tensor, labels: Tensor, n_rows: int, class_sizes: ClassSizes | None) -> float:
    """How far to trust the shares of the rows that the classes were given. (K,)

    Labels hold the known classes, so their sizes are found with less noise than those of new ones. A class with few
    labels, such as one that was new until now, is no better than a new one.
    """
    if class_sizes is not None:
        return float(class_sizes == "estimated")
    counts = torch.bincount(labels, minlength=len(found))
    labelled = counts / (n_rows * found)  # of the rows of each class, the share that has a label
    usual = len(labels) / float((n_rows * found)[counts > 0].sum()) if len(labels) else 0.0
    held = (counts > 0) & (labelled >= FEW * usual)
    if int(held.sum()) >= ENOUGH_KNOWN:
        return size_trust(found[held], NOISE_OF_KNOWN)
    return size_trust(found, noise_among(len(found), NOISE_OF_ALL))


def _out_of_bag(x: Tensor, members: Sequence[Member], orders: Tensor, trainer: Trainer) -> Tensor:
    """Mean probabilities of each labelled row by the members that did not see its label. (n_labelled, K)"""
    total = x.new_zeros(len(trainer.labels), trainer.n_classes)
    count = x.new_zeros(len(trainer.labels), 1)
    for m, member in enumerate(members):
        rows = torch.nonzero(trainer.folds == member.plan.fold).flatten()
        if len(rows):
            total[rows] += member(x[rows])[:, orders[m]]
            count[rows] += 1.0
    return total / count  # 0 / 0 is NaN


def warn_of_disagreement(combined: Combined, n_known: int) -> None:
    """Warn where members do not agree on new classes, or most of them lost a class."""
    losers = int((combined.lost > 0).sum())
    if 2 * losers > len(combined.lost):
        warnings.warn(
            f"{losers} of {len(combined.lost)} members of the committee ended with classes that no row is in "
            f"({float(combined.lost.double().mean()):.1f} on average): there may be fewer classes. Give a smaller "
            "n_classes, or None to have it estimated.",
            UserWarning,
            stacklevel=6,
        )
    alone = torch.nonzero(combined.supporters[n_known:] < 2).flatten()
    there = ~combined.stability[n_known:].isnan()
    alone = alone[there[alone]]
    if len(alone):
        warnings.warn(
            f"{len(alone)} of {len(there)} new classes were found by fewer than two members of the committee: there "
            "may be fewer classes, or more rows are needed to tell them apart (stability_ says which).",
            UserWarning,
            stacklevel=6,
        )


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
