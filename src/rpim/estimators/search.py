"""Held-out splits, and published searches: lambda, the weight decay, and the number of classes by Max-ACC.

A split is made of the labelled rows alone: half of the known classes are treated as new, and a quarter of the rows of
the others lose their label. The truth is known, so any hyperparameters can be scored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor

from rpim._common.errors import InputError
from rpim._common.progress import parallel_map
from rpim.core.head import Head
from rpim.core.kmeans import PIM_RULE, Rule, Start, kmeans, single_start
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import Schedule, train
from rpim.core.transforms import Transform
from rpim.estimators.objective import AUTO, DEFAULTS, PRESETS, Hyperparameters, InfoMaxParameters
from rpim.estimators.problem import ClassCount, FitProblem, Search, step_cost
from rpim.metrics import IntArray, clustering_accuracy, contingency, gcd_accuracy, matched_rows

MIN_CLASSES = 4
"""Fewer known classes cannot be split into two halves of at least two."""


@dataclass(frozen=True)
class HeldOutSplit:
    """A smaller discovery problem made of labelled rows, whose truth is known."""

    x: Tensor  # (n, D), the rows that keep their label first
    labels: Tensor  # (n_kept,)
    truth: np.ndarray  # (n,) known classes are 0 .. n_known - 1
    n_known: int
    n_classes: int

    def engine(self) -> InMemoryBlocks:
        """The rows, ready to train on; each training needs its own."""
        return InMemoryBlocks(self.x, self.labels, self.n_classes)

    def score(self, predicted: Tensor) -> float:
        """GCD accuracy (All) on the rows whose label was hidden."""
        hidden = slice(len(self.labels), None)
        return gcd_accuracy(self.truth[hidden], predicted[hidden].cpu().numpy(), np.arange(self.n_known)).all


def can_split(labels: Tensor) -> bool:
    """Whether there are enough classes and rows for a held-out split."""
    sizes = torch.bincount(labels)
    return bool(len(sizes) >= MIN_CLASSES and int(sizes.min()) >= 1 and len(labels) >= 2 * len(sizes))


def held_out_split(
    x: Tensor, labels: Tensor, generator: torch.Generator, share_new: float = 0.5, max_rows: int | None = None
) -> HeldOutSplit:
    """Hide the labels of a share of the classes (the paper: half), and of a quarter of the rows of the others.

    The paper splits all labelled rows; ``max_rows`` limits them, but leaves at least four of each class.
    """
    n_classes = int(labels.max()) + 1
    share = 1.0 if max_rows is None else min(1.0, max_rows / len(labels))
    order = torch.randperm(n_classes, generator=generator).to(labels.device)
    n_known = n_classes - min(max(int(share_new * n_classes), 1), n_classes - 2)
    code = torch.empty_like(order)
    code[order] = torch.arange(n_classes, device=labels.device)  # the first n_known codes keep their label
    coded = code[labels]
    kept, hidden = [], []
    for c in range(n_classes):
        rows = torch.nonzero(coded == c).flatten()
        rows = rows[torch.randperm(len(rows), generator=generator).to(rows.device)]
        rows = rows[: max(4, round(len(rows) * share))]
        # A known class keeps at least one row: of a class of one row nothing is hidden.
        n_hidden = min(max(1, round(len(rows) * 0.25)), len(rows) - 1) if c < n_known else len(rows)
        hidden.append(rows[:n_hidden])
        kept.append(rows[n_hidden:])
    index = torch.cat(kept + hidden)
    truth = coded[index]
    n_kept = sum(map(len, kept))
    return HeldOutSplit(x[index], truth[:n_kept].clone(), truth.cpu().numpy(), n_known, n_classes)


TRADE_OFFS = tuple(round(0.05 * i, 2) for i in range(1, 21))
WEIGHT_DECAYS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
PLAIN_RESTARTS, PLAIN_RULE = 10, Rule(max_iter=300)
"""scikit-learn's k-means as PIM and GCD call it, with its defaults of the time."""


def paper_search(
    model: InfoMaxParameters, problem: FitProblem, initial: Hyperparameters
) -> tuple[Hyperparameters, Search]:
    """Search lambda and the weight decay as the paper does, where they are "auto"; the scores of the values tried.

    Parameters
    ----------
    initial : Hyperparameters
        The parameters as they were given, and the defaults of the others.
    """
    if not len(problem.labels):
        raise InputError(
            "search='paper' compares with labels, but no row has one: use search='auto', or label some rows."
        )
    found, search = initial, Search()
    problem.progress.stage("searching lambda and the weight decay")
    n_init = model._resolved("n_init") or PRESETS["paper"]["n_init"]
    # A generator for each search, drawn in any case: a value that is given leaves the rest of the fit as it was.
    of_lambda, of_decay = (
        torch.Generator().manual_seed(seed) for seed in torch.randint(2**31, (2,), generator=problem.generator).tolist()
    )
    if model._resolved("trade_off") == AUTO:
        schedule = model._schedule(replace(found, weight_decay=DEFAULTS["weight_decay"]))  # PIM's, always
        work = step_cost(problem.x, problem.n_classes, "none") * schedule.max_iter
        problem.progress.expect(work * len(TRADE_OFFS))
        trade_off, search["trade_off"] = paper_trade_off(
            problem.x,
            problem.labels,
            problem.n_classes,
            model._training_objective(found),
            schedule,
            temperature=model._resolved("temperature"),
            generator=of_lambda,
            on_trial=lambda: problem.progress.advance(work),
        )
        found = replace(found, trade_off=trade_off)
    if model._resolved("weight_decay") == AUTO and can_split(problem.labels):
        split = held_out_split(problem.x[: len(problem.labels)], problem.labels, of_decay)
        start = single_start(split.x, split.labels, split.n_classes, n_init=n_init, rule=PIM_RULE, generator=of_decay)
        candidates = [replace(found, weight_decay=value) for value in WEIGHT_DECAYS]
        work = step_cost(split.x, split.n_classes, model._resolved("h")) * model._schedule(found).max_iter
        problem.progress.expect(work * len(candidates))
        scores = parallel_map(
            lambda candidate: _held_out_score(model, split, start, candidate),
            candidates,
            lambda *_: problem.progress.advance(work),
        )
        search["weight_decay"] = dict(zip(WEIGHT_DECAYS, scores, strict=True))
        best = candidates[int(np.argmax(scores))]
        # The whole problem is about twice the size of the held-out one, so the paper halves it.
        found = replace(found, weight_decay=best.weight_decay / 2)
    return found, search


def paper_trade_off(
    x: Tensor,
    labels: Tensor,
    n_classes: int,
    objective: Objective,
    schedule: Schedule,
    *,
    temperature: float,
    generator: torch.Generator,
    on_trial: Callable[[], None] = lambda: None,
) -> tuple[float, dict[float, float]]:
    """PIM's search for lambda: train *without CE* from plain k-means, keep the best Hungarian accuracy on L.

    C is over the unlabelled rows, as in the training itself. The smallest value of the grid, 0.05, is tried but never
    chosen, as in the paper.
    """
    start = kmeans(x, n_classes, n_init=PLAIN_RESTARTS, rule=PLAIN_RULE, generator=generator).centroids
    truth = labels.cpu().numpy()

    def score(trade_off: float) -> float:
        head = Head(start.clone(), Transform({}), temperature)
        unsupervised = replace(objective, trade_off=trade_off, labels=False, pseudo_labels=False, mixed_labels=False)
        train(InMemoryBlocks(x, labels, n_classes), head, unsupervised, schedule)
        return clustering_accuracy(truth, head.predict(x[: len(labels)]).cpu().numpy())

    scores = dict(zip(TRADE_OFFS, parallel_map(score, TRADE_OFFS, lambda *_: on_trial()), strict=True))
    allowed = TRADE_OFFS[1:]
    return allowed[int(np.argmax([scores[value] for value in allowed]))], scores


def _held_out_score(
    model: InfoMaxParameters, split: HeldOutSplit, start: Start, hyperparameters: Hyperparameters
) -> float:
    """Train on the held-out split and score the classes of its hidden rows."""
    head = model._new_head(start.prototypes)
    objective = model._training_objective(hyperparameters, start.shares(hyperparameters.class_sizes))
    train(split.engine(), head, objective, model._schedule(hyperparameters))
    return split.score(head.predict(split.x))


_N_RESAMPLES = 500
_TEMPERATURE = 25.0


@dataclass(frozen=True)
class Budget:
    """How thoroughly Max-ACC clusters and searches."""

    n_evaluations: int
    """Most values of K that Brent's method tries."""
    n_init: int
    rule: Rule
    objective: Objective
    schedule: Schedule


BUDGETS = {
    "default": Budget(
        n_evaluations=20,
        n_init=2,
        rule=Rule(max_iter=20),
        objective=Objective(trade_off=0.1, labels=False, pseudo_labels=False, mixed_labels=False),
        schedule=Schedule(learning_rate=1e-2, max_iter=60),
    ),
    "paper": Budget(
        n_evaluations=500,
        n_init=10,
        rule=Rule(max_iter=300),
        objective=Objective(trade_off=1.0, labels=False, pseudo_labels=False, mixed_labels=False),
        schedule=Schedule(learning_rate=1e-3, max_iter=1000, weight_decay=0.01),
    ),
}
"""Shortened, and as published: scikit-learn's k-means and SciPy's Brent with their defaults; PIM, of which no code for
this is public, with lambda 1, as its authors say, and its own training."""
PUBLISHED_MAX = 1000
"""The largest K that GCD's search tries."""


def max_acc(
    x: Tensor,
    labels: Tensor,
    *,
    clusterer: Literal["kmeans", "pim"] = "kmeans",
    at_least: int,
    at_most: int,
    budget: Budget = BUDGETS["default"],
    generator: torch.Generator,
    on_trial: Callable[[], None] = lambda: None,
) -> ClassCount:
    """Max-ACC, the published estimate of the number of classes.

    A clustering of all rows into K clusters, made without labels, is scored by its Hungarian accuracy on the labelled
    rows. Too few clusters merge known classes, too many split them, so the score peaks near the true number; Brent's
    method finds the peak with a handful of clusterings. GCD clusters with k-means, PIM with PIM itself.
    What it cannot see: an unknown class that is split, or merged with another one, costs nothing on the labelled rows.

    Vaze et al., "Generalized Category Discovery", CVPR 2022; Chiaroni et al., "Parametric Information Maximization for
    Generalized Category Discovery", ICCV 2023.

    The curve of the result has every K that was tried.

    Parameters
    ----------
    x : (N, D)
        The rows, the labelled ones first.
    labels : (n_labelled,)
    clusterer : {"kmeans", "pim"}
        What clusters the rows: k-means, or PIM trained without labels from its centroids.
    """
    n_known = int(labels.max()) + 1
    truth = labels.cpu().numpy()
    seed = int(torch.randint(2**31, (1,), generator=generator))
    hits: dict[int, IntArray] = {}
    """For each K the labelled rows of each known class that are in its cluster."""

    def loss(k: float) -> float:
        n_clusters = round(k)
        if n_clusters not in hits:
            # The same seed for every K: the curve then differs by K alone.
            found = _cluster(x, n_clusters, clusterer, budget, torch.Generator().manual_seed(seed))
            counts = contingency(truth, found[: len(labels)].cpu().numpy(), n_known, n_clusters)
            hits[n_clusters] = matched_rows(counts)
            on_trial()
        return -int(hits[n_clusters].sum())

    if at_most > at_least:
        options = {"maxiter": budget.n_evaluations, "xatol": 0.5}  # K is whole
        minimize_scalar(loss, bounds=(at_least, at_most), method="bounded", options=options)
    loss(at_least)
    best = max(hits, key=lambda k: (-loss(k), k))
    # Too few clusters may merge an unknown class with a known one at no cost to L; one too many begins to split. So of
    # equals the largest, and Brent, who may stop anywhere on a plateau, is followed to its far end.
    while best < at_most and loss(best + 1) <= loss(best):
        best += 1
    low, high = _interval(hits, generator)
    curve = {k: float(hits[k].sum() / len(truth)) for k in sorted(hits)}
    return ClassCount(best, min(low, best), max(high, best), curve, best)


def _cluster(x: Tensor, n_clusters: int, clusterer: str, budget: Budget, generator: torch.Generator) -> Tensor:
    run = kmeans(x, n_clusters, n_init=budget.n_init, rule=budget.rule, generator=generator)
    if clusterer == "kmeans":
        return run.labels
    head = Head(run.centroids, Transform({}), _TEMPERATURE)
    train(InMemoryBlocks(x, run.labels[:0], n_clusters), head, budget.objective, budget.schedule)
    return head.predict(x)


def _interval(hits: dict[int, IntArray], generator: torch.Generator) -> tuple[int, int]:
    """Where the peak would be with other known classes: 95 % of the peaks when these are drawn anew (the bootstrap)."""
    tried = np.array(sorted(hits))
    per_class = np.stack([hits[k] for k in tried])  # (tried, n_known)
    n_known = per_class.shape[1]
    drawn = torch.randint(n_known, (_N_RESAMPLES, n_known), generator=generator).numpy()
    peaks = [tried[per_class[:, classes].sum(axis=1).argmax()] for classes in drawn]
    low, high = np.percentile(peaks, [2.5, 97.5])
    return int(low), int(high)
