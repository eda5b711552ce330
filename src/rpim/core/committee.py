"""The mathematics of a committee: the consensus of its members.

New classes come in any order in a member, and a known class with few labels may not be where it is in the others. So
all classes are matched with those of a reference by the Hungarian assignment with the largest shared probability, and
the matched probabilities are averaged. The average is a better reference than any member, so they are matched with it
again until no match changes.
The `Votes` of a member are computed block by block: beyond 128 MB only their mean is stored as an N x K matrix.

The average is then propagated over a k-nearest-neighbor graph (Zhou, Bousquet, Lal, Weston, Schölkopf, "Learning with
Local and Global Consistency", NeurIPS 2003): each row keeps half of its probabilities and takes the other half from its
neighbors, for a few iterations; labelled rows keep their label.

    F <- (1 - alpha) P + alpha mean of F over the k nearest neighbors
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment, minimize_scalar
from torch import Tensor

from rpim.core.objective import one_hot

N_NEIGHBORS = 5
ALPHA = 0.5
ROUNDS = 5
_BLOCK_VALUES = 1 << 23  # 32 MB of float32 similarities per block


def nearest_neighbors(x: Tensor, n_neighbors: int = N_NEIGHBORS) -> Tensor:
    """The k rows with the largest cosine similarity to each row, itself excluded; exact. (N, k)

    Parameters
    ----------
    x : (N, D)
        Rows of length one.

    Examples
    --------
    >>> x = torch.nn.functional.normalize(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]]))
    >>> nearest_neighbors(x, 1).flatten().tolist()
    [1, 0, 3, 2]
    """
    n_rows = len(x)
    n_neighbors = min(n_neighbors, n_rows - 1)
    found = torch.empty(n_rows, n_neighbors, dtype=torch.long, device=x.device)
    for rows in torch.split(torch.arange(n_rows, device=x.device), max(1, _BLOCK_VALUES // n_rows)):
        similarity = x[rows] @ x.T  # (n, N)
        similarity.scatter_(1, rows[:, None], -torch.inf)
        found[rows] = similarity.topk(n_neighbors, dim=1).indices
    return found


def propagate(
    probabilities: Tensor, neighbors: Tensor, labels: Tensor, *, alpha: float = ALPHA, rounds: int = ROUNDS
) -> Tensor:
    """Propagate probabilities between neighbors. (N, K)

    Parameters
    ----------
    probabilities : (N, K)
        P, the labelled rows first.
    neighbors : (N, k)
    labels : (n_labelled,)
        Codes of the first rows, which keep their label.

    Examples
    --------
    >>> p = torch.tensor([[0.5, 0.5], [0.9, 0.1], [0.4, 0.6]])
    >>> propagate(p, torch.tensor([[1], [0], [1]]), torch.tensor([0]), rounds=1)[1:]
    tensor([[0.9500, 0.0500],
            [0.6500, 0.3500]])
    """
    given = one_hot(labels, probabilities.shape[1], probabilities.dtype)
    start = torch.cat([given, probabilities[len(labels) :]])
    if neighbors.shape[1] == 0:
        return start
    spread = start
    for _ in range(rounds):
        spread = (1.0 - alpha) * start + alpha * neighbor_mean(spread, neighbors)
        spread[: len(labels)] = given
    return spread


def neighbor_mean(values: Tensor, neighbors: Tensor) -> Tensor:
    """The mean over the neighbors of each row. (N, K)"""
    total = values[neighbors[:, 0]]
    for column in neighbors.T[1:]:
        total += values[column]
    return total.div_(neighbors.shape[1])


Predictor = Callable[[Tensor], Tensor]
"""From a block of rows (n, D) to the probabilities of their classes (n, K)."""

MAX_ROUNDS = 5
MATCHING_ROWS = 16
"""Rows per class by which members are matched: the probabilities shared by two classes need no more."""
_PRIOR_LABELS = 50
_MAX_LOG_POWER = math.log(4.0)
_BLOCK_ROWS = 4096
_KEPT_VALUES = 1 << 25  # 128 MB of float32 probabilities are kept rather than computed in every pass


class Votes:
    """The probabilities that a member gives to the rows, block by block.

    Parameters
    ----------
    x : (N, D)
    member : callable
        From a block of rows to their probabilities.
    keep : bool
        Compute them once and keep them, rather than in every pass.
    """

    def __init__(self, x: Tensor, member: Predictor, *, keep: bool = False) -> None:
        self.x, self._member = x, member
        self._kept: list[Tensor] | None = None
        if keep:
            self._kept = [z for _, z in self.blocks()]

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """The positions of the rows of a block, and their probabilities. (n, K)"""
        for number, start in enumerate(range(0, len(self.x), _BLOCK_ROWS)):
            rows = slice(start, start + _BLOCK_ROWS)
            yield rows, self._member(self.x[rows]) if self._kept is None else self._kept[number]

    def of_rows(self, rows: Tensor, *, keep: bool) -> Votes:
        """The votes on some of the rows."""
        if self._kept is None:
            return Votes(self.x[rows], self._member, keep=keep)
        return Votes(torch.cat(self._kept)[rows], lambda z: z)


def collect_votes(x: Tensor, members: Sequence[Predictor], n_classes: int) -> list[Votes]:
    """The votes of all members, which are kept where they need little memory."""
    keep = _are_kept(len(members), len(x), n_classes)
    return [Votes(x, member, keep=keep) for member in members]


def _are_kept(n_members: int, n_rows: int, n_classes: int) -> bool:
    return n_members * n_rows * n_classes <= _KEPT_VALUES


@dataclass(frozen=True)
class Consensus:
    """The mean of the members' probabilities, and the match of each member with it.

    Parameters
    ----------
    probabilities : (N, K)
    sizes : (n_members, K)
        The number of rows in each of the member's classes.
    orders : (n_members, K)
        The member's class that each class is matched with.
    """

    probabilities: Tensor
    sizes: Tensor
    orders: Tensor


def average(votes: Sequence[Votes], reference: Tensor, max_rounds: int = MAX_ROUNDS) -> Consensus:
    """Match the members with the reference, then with their mean until no match changes.

    Parameters
    ----------
    votes : sequence of Votes
        One per member.
    reference : (N, K)
        Probabilities that define the order of the classes.
    """
    rows = _matching_rows(*reference.shape).to(reference.device)
    target, orders = reference[rows], torch.empty(0, dtype=torch.long, device=reference.device)
    keep = _are_kept(len(votes), *target.shape)
    some = [each.of_rows(rows, keep=keep) for each in votes]
    for _ in range(max_rounds):
        found = torch.stack([match(each, target) for each in some])  # (n_members, K)
        if torch.equal(found, orders):
            break
        orders = found
        target, _ = _mean(some, orders, target)
    return Consensus(*_mean(votes, orders, reference), orders)


def _matching_rows(n_rows: int, n_classes: int) -> Tensor:
    """The rows by which members are matched: all, or a random sample with `MATCHING_ROWS` per class. (n,)"""
    n_sample = max(MATCHING_ROWS * n_classes, _BLOCK_ROWS)
    if n_rows <= n_sample:
        return torch.arange(n_rows)
    return torch.randperm(n_rows, generator=torch.Generator().manual_seed(0))[:n_sample].sort().values


def _mean(votes: Sequence[Votes], orders: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """The mean of the matched probabilities, and the size of each class of each member. (n, K), (n_members, K)"""
    mean, sizes = torch.zeros_like(like), torch.zeros_like(orders)
    for m, each in enumerate(votes):
        for rows, z in each.blocks():
            mean[rows] += z[:, orders[m]]
            sizes[m] += torch.bincount(z.argmax(dim=1), minlength=orders.shape[1])
    return mean.div_(len(votes)), sizes


def match(votes: Votes, reference: Tensor) -> Tensor:
    """The one-to-one match of a member's classes with those of the reference by shared probability. (K,)"""
    n_classes = reference.shape[1]
    shared = reference.new_zeros(n_classes, n_classes)
    for rows, z in votes.blocks():
        shared.addmm_(reference[rows].T, z)
    return best_match(shared)


def best_match(shared: Tensor) -> Tensor:
    """The Hungarian assignment with the largest sum. (K,)

    >>> best_match(torch.tensor([[9.0, 0.0, 0.0], [0.0, 1.0, 5.0], [0.0, 6.0, 2.0]])).tolist()
    [0, 2, 1]
    """
    _, order = linear_sum_assignment(shared.double().cpu().numpy(), maximize=True)
    return torch.as_tensor(order, device=shared.device)


def vote_embedding(votes: Sequence[Votes], n_classes: int, n_directions: int, seed: int) -> Tensor:
    """A random projection of the members' votes; rows with similar votes are close together. (N, d)

    The votes of a row are sqrt(z_1), ..., sqrt(z_m), concatenated. The squared distance of two rows is, up to a factor,
    the sum of their squared Hellinger distances over the members, whatever the order of the classes. A random
    projection preserves distances (Johnson and Lindenstrauss), so that the N x mK matrix is not needed.
    """
    x = votes[0].x
    projected = x.new_zeros(len(x), n_directions)
    generator = torch.Generator().manual_seed(seed)
    for each in votes:
        projection = torch.randn(n_classes, n_directions, generator=generator).to(x) / n_directions**0.5
        for rows, z in each.blocks():
            projected[rows] += z.sqrt() @ projection
    return projected - projected.mean(dim=0)


def calibrated_power(probabilities: Tensor, labels: Tensor) -> float:
    """The maximum-likelihood power of the probabilities, given held-out labels; `raised` applies it.

    An average of different members is underconfident where classes are well separated, and overconfident where they
    overlap. This is temperature scaling (Guo, Pleiss, Sun and Weinberger, ICML 2017) on labels that the members did not
    see. With few labels the power is shrunk towards 1, with the weight of 50 more labels.

    Parameters
    ----------
    probabilities : (n, K)
        Out-of-bag: from members that did not see the label of the row.
    labels : (n,)

    Examples
    --------
    >>> p, labels = torch.tensor([[0.7, 0.3], [0.3, 0.7]]).repeat(500, 1), torch.tensor([0, 1] * 475 + [1, 0] * 25)
    >>> power = calibrated_power(p, labels)
    >>> raised(p, power)[0].round(decimals=2)  # 95 % are right
    tensor([0.9400, 0.0600])
    """
    if not len(labels):
        return 1.0
    log_p = probabilities.double().clamp_min(1e-12).log()

    def loss(log_power: float) -> float:
        log_z = torch.log_softmax(math.exp(log_power) * log_p, dim=1)
        return float(-log_z.gather(1, labels[:, None]).mean())

    found = minimize_scalar(loss, bounds=(-_MAX_LOG_POWER, _MAX_LOG_POWER), method="bounded", options={"xatol": 1e-3})
    return float(math.exp(found.x * len(labels) / (len(labels) + _PRIOR_LABELS)))


def raised(probabilities: Tensor, power: float) -> Tensor:
    """The probabilities to a power, renormalized: more confident above 1, less below. (N, K)"""
    return torch.softmax(power * probabilities.clamp_min(1e-12).log(), dim=1)


def size_trust(shares: Tensor, noise: float) -> float:
    """How far the found sizes of some classes differ because the classes do, and not by chance: between 0 and 1.

    The part of the variance of the sizes that is not noise, 1 - noise^2 / cv^2, with their coefficient of variation cv.

    Parameters
    ----------
    shares : (k,)
        The share of the rows that each class was given.
    noise : float
        The coefficient of variation with which equally large classes are found.

    Examples
    --------
    >>> size_trust(torch.tensor([0.24, 0.26, 0.25, 0.25]), noise=0.2)
    0.0
    >>> round(size_trust(torch.tensor([0.4, 0.3, 0.2, 0.1]), noise=0.2), 2)
    0.85
    """
    found = variation(shares)
    return 1.0 - (noise / found) ** 2 if found > noise else 0.0


def variation(shares: Tensor) -> float:
    """The coefficient of variation of some class sizes: their standard deviation over their mean."""
    return float(shares.std() / shares.mean()) if len(shares) > 1 else 0.0


def between_equal_and(shares: Tensor, trust: float) -> Tensor:
    """The geometric mean of equal shares and these: equal with a trust of 0, these with 1. (K,)"""
    powers = shares.clamp_min(torch.finfo(shares.dtype).tiny) ** trust
    return powers / powers.sum()


def balance(probabilities: Tensor, shares: Tensor, rounds: int = 3) -> Tensor:
    """Scale the columns to these class shares and the rows to one, in turn (Sinkhorn). (N, K)

    >>> balance(torch.tensor([[0.9, 0.1], [0.7, 0.3]]), torch.tensor([0.5, 0.5]), rounds=20).round(decimals=2)
    tensor([[0.6600, 0.3400],
            [0.3400, 0.6600]])
    """
    scaled = probabilities
    for _ in range(rounds):
        mass = scaled.sum(dim=0).clamp_min(1e-12)
        scaled = scaled * (shares * len(scaled) / mass)
        scaled = scaled / scaled.sum(dim=1, keepdim=True).clamp_min(1e-12)
    return scaled


def class_stability(votes: Sequence[Votes], orders: Tensor, classes: Tensor, first_row: int) -> Tensor:
    """The Jaccard index |A and B| / |A or B| of each class and its match in each member. (n_members, K)

    NaN for an empty class. Only rows from `first_row` on count: the others are in the class of their label.
    """
    n_classes = orders.shape[1]
    classes = classes[first_row:]
    sizes = torch.bincount(classes, minlength=n_classes)
    found = torch.full((len(votes), n_classes), torch.nan, device=classes.device)
    for m, each in enumerate(votes):
        predicted = torch.cat([z[:, orders[m]].argmax(dim=1) for _, z in each.blocks()])[first_row:]
        both = torch.bincount(predicted[predicted == classes], minlength=n_classes)
        either = sizes + torch.bincount(predicted, minlength=n_classes) - both
        found[m] = torch.where(sizes > 0, both / either.clamp_min(1), torch.nan)
    return found
