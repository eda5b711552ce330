"""RankStats+, ranking statistics in the generalized setting.

Han, Rebuffi, Ehrhardt, Vedaldi and Zisserman, "Automatically Discovering and Learning New Visual Categories with
Ranking Statistics", ICLR 2020 (AutoNovel, TPAMI 2021); taken to unlabelled rows of known and new classes alike by Vaze,
Han, Vedaldi and Zisserman, "Generalized Category Discovery", CVPR 2022.
"""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any, ClassVar

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor
from torch.nn import functional

from rpim.errors import InputError
from rpim.head import Head
from rpim.methods.base import Problem
from rpim.methods.two_views import Network, TwoViewEstimator

EPSILON = 1e-6
"""Keeps the logarithms of the pair loss finite where two predictions are surer than float32 can say."""


def same_ranking(embeddings: Tensor, n_top: int, n_shared: int) -> Tensor:
    """Which rows have at least n_shared of their n_top features of largest magnitude in common, as bools. (n, n)"""
    top = embeddings.abs().topk(n_top, dim=1).indices  # (n, n_top)
    chosen = torch.zeros_like(embeddings).scatter_(1, top, 1.0)  # (n, D), a one for each top feature
    return chosen @ chosen.T > n_shared - 0.5


def pair_loss(p: Tensor, p_other: Tensor, same: Tensor) -> Tensor:
    """Binary cross-entropy of <p_i, p'_j> and the label of each pair, averaged over all pairs; zero without a pair."""
    agreement = (p @ p_other.T).clamp(EPSILON, 1 - EPSILON)  # (n, n)
    losses = functional.binary_cross_entropy(agreement, same.to(p.dtype), reduction="sum")
    return losses / max(1, same.numel())


def consistency_loss(p: Tensor, p_other: Tensor) -> Tensor:
    """The squared distance of the predictions for two views, averaged over the rows."""
    return (p - p_other).square().sum(dim=1).mean()


def label_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy, averaged over the rows; zero without a row."""
    return functional.cross_entropy(logits, labels, reduction="sum") / max(1, len(labels))


def ramp_up(epoch: int, n_epochs: int) -> float:
    """exp(-5 (1 - t)^2), with t going from 0 at the first epoch to 1 after n_epochs, and staying there."""
    t = min(1.0, epoch / n_epochs) if n_epochs else 1.0
    return math.exp(-5 * (1 - t) ** 2)


class RankStats(TwoViewEstimator):
    """Rows whose strongest features are the same ones are taken to be of one class.

    Two classifiers of all classes are trained on the shifted embedding. The pairwise one learns which pairs of
    unlabelled rows of a batch belong together, as their ranking statistics say: a pair is of one class when the
    features of largest magnitude are the same ones. The incremental one learns from the labels, and from the class that
    the pairwise one gives to each unlabelled row; its predictions are the result. Both have to predict the same for
    two views of a row. These last two demands start weak and ramp up.

    On stored embeddings
    --------------------
    See `rpim.methods.two_views` for what takes the place of encoder, augmentation and random start. Besides:

    * Published, a pair is of one class when the five largest features of a rectified, hence non-negative, network are
      the very same. Here features have signs, so magnitudes are ranked, and no layer is trained to keep the five
      stable. On synthetic blobs an exact match found mostly less than a tenth of the pairs of one class, four of five
      several times as many; three of five cost accuracy on new classes where all rows share a direction. So one
      feature may differ; ``n_shared=5`` is the published rule.
    * The whole row is ranked and classified for its pair and pseudo-labels, not a view with features dropped.
    * Unlabelled rows may be of known classes, so the pairwise classifier too has all classes. To keep the order of
      classes the same in both, they start from the same prototypes and both learn the labels.
    * The squared error between views is summed over classes, not averaged, so that its weight means the same for any
      number of them.

    Parameters
    ----------
    n_classes : int, optional
        How many classes there are in all, known and unknown. ``None`` estimates it.
    n_top : int
        How many features of largest magnitude are compared; never more than half of all features.
    n_shared : int, optional
        How many of them two rows of one class have in common. ``None`` takes all but one, 4 of 5.
    consistency_weight : float
        The weight of the squared error between views after the ramp. Published values, per class, are 0.25 to 5.
    incremental_weight : float
        The weight of the pairwise classifier's classes as labels of the incremental one, after the ramp. Published is
        0.05, over hundreds of epochs; over 50, on synthetic blobs, that was worse for new classes.
    ramp_up_epochs : int
        How long both weights take to grow.
    n_epochs, batch_size : int
        Passes over all rows, and the rows of a batch.
    learning_rate, weight_decay : float
        Adam's.
    feature_dropout : float
        The share of features dropped to make a view, where no views are given.
    temperature : float
        The factor of the logits.
    n_components : int, optional
        Keep that many principal directions of the embeddings; ``None`` keeps all.
    normalise : bool
        Scale rows to unit length.
    device : str, optional
        A torch device; by default a GPU where there is one.
    random_state : int, RandomState instance or None
        Makes a run repeatable bit for bit on the same machine.
    verbose : bool
        Show progress with the time left on a terminal.

    Attributes
    ----------
    labels_, classes_, known_classes_, new_classes_, head_ :
        As in `RPIM`.
    n_top_, n_shared_ : int
        The numbers of features that were used.
    history_ : list of dict
        The terms of the objective, averaged over the batches of every epoch.
    n_iter_ : int
        Epochs trained.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TwoViewEstimator._parameter_constraints,
        "n_top": [Interval(Integral, 1, None, closed="left")],
        "n_shared": [None, Interval(Integral, 1, None, closed="left")],
        "consistency_weight": [Interval(Real, 0, None, closed="left")],
        "incremental_weight": [Interval(Real, 0, None, closed="left")],
        "ramp_up_epochs": [Interval(Integral, 0, None, closed="left")],
    }

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        n_top: int = 5,
        n_shared: int | None = None,
        consistency_weight: float = 1.0,
        incremental_weight: float = 1.0,
        ramp_up_epochs: int = 25,
        n_epochs: int = 50,
        batch_size: int = 512,
        learning_rate: float = 1e-3,
        weight_decay: float = 0.0,
        feature_dropout: float = 0.1,
        temperature: float = 10.0,
        n_components: int | None = 256,
        normalise: bool = True,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.n_top = n_top
        self.n_shared = n_shared
        self.consistency_weight = consistency_weight
        self.incremental_weight = incremental_weight
        self.ramp_up_epochs = ramp_up_epochs
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.feature_dropout = feature_dropout
        self.temperature = temperature
        self.n_components = n_components
        self.normalise = normalise
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _discover(self, problem: Problem) -> Head:
        self._count_features(problem.x.shape[1])
        (start,) = self._starts(problem, [problem.n_classes])
        network = Network([start, start], self.temperature)  # the incremental head, and the pairwise one

        def loss(rows: Tensor, epoch: int) -> dict[str, Tensor]:
            labelled = rows < len(problem.labels)
            unlabelled = ~labelled
            labels = problem.labels[rows[labelled]]
            ramp = ramp_up(epoch, self.ramp_up_epochs)
            one, two = (network.refine(view) for view in self._two_views(problem, rows))
            logits = [network.logits(one, head) for head in (0, 1)]
            p = [z.softmax(dim=1) for z in logits]  # two of (n, K)
            p_other = [network.logits(two, head).softmax(dim=1) for head in (0, 1)]
            with torch.no_grad():
                whole = network.refine(problem.x[rows[unlabelled]])
                same = same_ranking(whole, self.n_top_, self.n_shared_)
                found = network.logits(whole, head=1).argmax(dim=1)
            disagreement = consistency_loss(p[0], p_other[0]) + consistency_loss(p[1], p_other[1])
            return {
                "labels": label_loss(logits[0][labelled], labels) + label_loss(logits[1][labelled], labels),
                "pairs": pair_loss(p[1][unlabelled], p_other[1][unlabelled], same),
                "incremental": self.incremental_weight * ramp * label_loss(logits[0][unlabelled], found),
                "consistency": self.consistency_weight * ramp * disagreement,
            }

        self._train(problem, network, loss)
        return network.as_head(0)

    def _count_features(self, n_features: int) -> None:
        if self.n_shared is not None and self.n_shared > self.n_top:
            raise InputError(f"n_shared={self.n_shared} is larger than n_top={self.n_top}; give at most {self.n_top}.")
        # of more than half of all features, any two choices overlap, whatever the rows are
        self.n_top_ = min(self.n_top, max(1, n_features // 2))
        self.n_shared_ = min(self.n_shared or max(1, self.n_top_ - 1), self.n_top_)
