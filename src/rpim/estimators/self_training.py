"""Self-training: a classifier of the known classes that learns from its confident predictions.

Yarowsky, "Unsupervised word sense disambiguation rivaling supervised methods", ACL 1995, as scikit-learn has it, round
a logistic regression. A row without a confident prediction is taken as new, as by the maximum softmax probability of
Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples", ICLR 2017.
"""

from __future__ import annotations

import warnings
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils._param_validation import Interval
from torch import Tensor

from rpim.data.labels import BoolArray
from rpim.estimators.fitted import FloatArray
from rpim.estimators.problem import Problem
from rpim.estimators.search import HeldOutSplit, can_split, held_out_split
from rpim.estimators.transductive import TransductiveEstimator, cluster_into_new

STRENGTHS = (1.0, 10.0, 100.0, 1000.0)
"""Inverse regularisation strengths that are tried: rows of length one want more than scikit-learn's 1."""

N_SPLITS = 3
MAX_ROWS = 10_000
"""Largest number of labelled rows in a split (but at least four of each class): enough to compare thresholds."""
_UNTRIED = (10.0, 0.75)  # strength and threshold where there are too few labels to try; the latter is scikit-learn's


class SelfTraining(TransductiveEstimator):
    """scikit-learn's SelfTrainingClassifier on the known classes; k-means makes new ones of what it rejects.

    A logistic regression is trained on the labelled rows, labels the rows that it predicts with confidence, is trained
    again with these, and so on. The rows that it never predicts with confidence are clustered into the new classes.

    **What was decided.**

    * Confident is a probability above a threshold, not the best k rows of a round, which in the end are all rows.
    * The threshold is found on the labelled rows alone. A part of their classes, as large as that of the new ones, is
      hidden, and so is a quarter of the rows of the others. A regression trained on the rest judges the hidden rows;
      the threshold that best parts those of its classes from those of hidden ones (share of the former above it less
      share of the latter) is taken, over three such held-out splits together. The strength of the regression is the one
      with the least log loss there. With too few labels to split, it is 10, and the threshold scikit-learn's 0.75.
    * The threshold stays the same while the classifier is trained again with rows it accepted, so what it accepts
      grows: it may swallow new classes, as self-training does when they are there.
    * If fewer rows than new classes are rejected, the least confident rows are clustered. If there are no new classes,
      rejected rows get the most probable known one.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes, known and new together. ``None`` estimates it.
    n_rounds : int, default=10
        Largest number of rounds of self-training.
    n_init : int, default=10
        Number of restarts of k-means.
    max_iter : int, default=100
        Largest number of iterations of a restart.
    temperature : float
        How sharply probabilities fall with the squared distance to a class mean; it changes no class.
    n_components : int or None, default=256
        Number of principal components of the embeddings to keep; ``None`` keeps all.
    normalize : bool or "sqrt", default=True
        Scale rows to unit length. "sqrt" first takes the square root of each value, with its sign.
    device : str, optional
        A torch device; by default a GPU where there is one.
    random_state : int, RandomState instance or None
        Makes a fit repeatable bit for bit on the same machine.
    verbose : bool, default=False
        Show progress with the time left on a terminal.

    Attributes
    ----------
    labels_ : ndarray of shape (n_rows,)
        The class of every row of ``fit``: what self-training and k-means say; labelled rows keep their label.
    classes_, known_classes_, new_classes_ : ndarray
        All classes, those with labels in ``fit``, and the discovered ones.
    components_ : ndarray of shape (n_components, n_features) or None
        The principal components that were kept; ``None`` where all features are.
    n_classes_ : int
        Number of classes.
    n_classes_low_, n_classes_high_ : int
        95 % interval of the number of classes, where it was estimated.
    n_classes_curve_ : dict
        What the estimate rests on: the number of classes for each neighborhood size.
    n_features_in_ : int
        Number of features of X.
    widths_ : tuple of int
        Number of columns of each embedding; more than one number where X has several.
    normalize_ : bool or "sqrt"
        How rows are normalized.
    sample_rows_ : int
        Number of rows that were held in memory.
    outlier_threshold_ : float
        Infinite: no row is left without a class.
    head_ : Head
        The class means: ``predict`` gives the class of the nearest one, which may differ from ``labels_``.
    history_ : list of dict
        The strength, the threshold, and how many rows were rejected.
    n_iter_ : int
        Rounds of self-training.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TransductiveEstimator._parameter_constraints,
        "n_rounds": [Interval(Integral, 1, None, closed="left")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        n_rounds: int = 10,
        n_init: int = 10,
        max_iter: int = 100,
        temperature: float = 25.0,
        n_components: int | None = 256,
        normalize: bool | str = True,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.n_rounds = n_rounds
        self.n_init = n_init
        self.max_iter = max_iter
        self.temperature = temperature
        self.n_components = n_components
        self.normalize = normalize
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _decide(self, problem: Problem) -> tuple[Tensor, int]:
        n_labelled = len(problem.labels)
        x, labels = problem.x.cpu().numpy(), problem.labels.cpu().numpy()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            problem.progress.stage("choosing the threshold")
            strength, threshold = choose_threshold(
                problem.x[:n_labelled], problem.labels, problem.n_new / problem.n_classes, problem.generator
            )
            problem.progress.stage("self-training")
            trained = SelfTrainingClassifier(_regression(strength), threshold=threshold, max_iter=self.n_rounds)
            trained.fit(x, np.concatenate([labels, np.full(len(x) - n_labelled, -1)]))
            probabilities = trained.predict_proba(x[n_labelled:])  # (n_unlabelled, n_known)
        accepted = trained.labeled_iter_[n_labelled:] >= 0
        classes = np.where(accepted, trained.transduction_[n_labelled:], probabilities.argmax(axis=1))
        rows, new = cluster_into_new(
            problem,
            torch.from_numpy(-probabilities.max(axis=1)),
            torch.from_numpy(~accepted),
            n_init=self.n_init,
            max_iter=self.max_iter,
        )
        classes[rows.cpu().numpy()] = new.cpu().numpy()
        self.history_ = [{"strength": strength, "threshold": threshold, "rejected": int((~accepted).sum())}]
        self.n_iter_ = int(trained.n_iter_)
        return torch.from_numpy(classes), problem.n_classes


def choose_threshold(x: Tensor, labels: Tensor, share_new: float, generator: torch.Generator) -> tuple[float, float]:
    """The strength and threshold for these labelled rows, judged on classes whose labels are hidden."""
    if not can_split(labels):
        return _UNTRIED
    splits = [held_out_split(x, labels, generator, share_new, MAX_ROWS) for _ in range(N_SPLITS)]
    is_known = np.concatenate([split.truth[len(split.labels) :] < split.n_known for split in splits])
    if is_known.all() or not is_known.any():
        return _UNTRIED
    tried = {}
    for strength in STRENGTHS:
        judged = [_judge(split, strength) for split in splits]
        surprise, confidence = (np.concatenate(parts) for parts in zip(*judged, strict=True))
        tried[strength] = float(surprise[is_known].mean()), confidence
    best = min(tried, key=lambda strength: tried[strength][0])
    return best, parting_threshold(is_known, tried[best][1])


def parting_threshold(is_known: BoolArray, confidence: FloatArray) -> float:
    """The probability above which most rows of known classes and fewest others are: the largest difference of shares.

    >>> parting_threshold(np.array([False, True, False, True, True]), np.array([0.3, 0.4, 0.5, 0.6, 0.9]))  # 2/3 and 0
    0.5
    """
    thresholds = np.unique(confidence)[:-1]  # each leaves at least one row above
    if len(thresholds) == 0:
        return _UNTRIED[1]
    below = [np.searchsorted(np.sort(confidence[rows]), thresholds, side="right") for rows in (is_known, ~is_known)]
    gains = below[1] / (~is_known).sum() - below[0] / is_known.sum()
    return float(thresholds[gains.argmax()])


def _judge(split: HeldOutSplit, strength: float) -> tuple[FloatArray, FloatArray]:
    """For each hidden row, -log of its own class's probability, if that is a known one, and the largest of all."""
    x, n_kept = split.x.cpu().numpy(), len(split.labels)
    regression = _regression(strength).fit(x[:n_kept], split.labels.cpu().numpy())
    probabilities = regression.predict_proba(x[n_kept:])  # (n_hidden, n_known)
    own = np.minimum(split.truth[n_kept:], split.n_known - 1)
    right = probabilities[np.arange(len(own)), own]
    return -np.log(np.maximum(right, np.finfo(right.dtype).tiny)), probabilities.max(axis=1)


def _regression(strength: float) -> LogisticRegression:
    return LogisticRegression(C=strength, max_iter=200)
