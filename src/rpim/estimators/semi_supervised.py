"""scikit-learn's semi-supervised classifiers, with new classes: self-training and label spreading.

Self-training: Yarowsky, "Unsupervised word sense disambiguation rivaling supervised methods", ACL 1995, round a
logistic regression. A row without a confident prediction is taken as new, as by the maximum softmax probability of
Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and Out-of-Distribution Examples", ICLR 2017.

Label spreading: Zhou, Bousquet, Lal, Weston and Schölkopf, "Learning with Local and Global Consistency", NeurIPS 2003.
The rows that found the new classes are those which the nearest-neighbor test of Sun, Ming, Zhu and Li,
"Out-of-Distribution Detection with Deep Nearest Neighbors", ICML 2022, would call foreign.
"""

from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestNeighbors
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.utils._param_validation import Interval
from torch import Tensor

from rpim.data.labels import BoolArray
from rpim.estimators.fitted import FloatArray
from rpim.estimators.nearest_centroid import TransductiveEstimator, cluster_into_new, nearest_row
from rpim.estimators.problem import Problem
from rpim.estimators.search import HeldOutSplit, can_split, held_out_split

STRENGTHS = (1.0, 10.0, 100.0, 1000.0)
"""Inverse regularisation strengths that are tried: rows of length one want more than scikit-learn's 1."""

N_SPLITS = 3
MAX_ROWS = 10_000
"""Largest number of labelled rows in a split (but at least four of each class): enough to compare thresholds."""
_UNTRIED = (10.0, 0.75)  # strength and threshold where there are too few labels to try; the latter is scikit-learn's


class SelfTraining(TransductiveEstimator):
    """scikit-learn's SelfTrainingClassifier on the known classes; k-means clusters rejected rows into new classes.

    A logistic regression is trained on the labelled rows, labels the rows that it predicts with confidence, and is
    trained again with these, repeatedly. k-means clusters the rows that it never predicts with confidence.

    **Choices.**

    * A row is confident if its probability is above a threshold. (The best k rows of every round would in the end be
      all rows.)
    * The threshold is found on the labelled rows. As large a share of their classes as is new is hidden, and so is a
      quarter of the rows of the other classes. A regression trained on the rest predicts the hidden rows. The threshold
      with the largest difference between the shares of rows of its classes and of hidden classes above it is taken,
      over three such held-out splits. The regularisation strength has the lowest log loss there. With too few labels to
      split, it is 10, and the threshold is scikit-learn's 0.75.
    * The threshold stays the same in all rounds, so more rows are accepted over time, also of new classes.
    * If fewer rows than new classes are rejected, the least confident rows are clustered. If there are no new classes,
      rejected rows get the most probable known class.

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
        The class of every row of ``fit``: from self-training and k-means; labelled rows keep their label.
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
        The inverse regularisation strength, the threshold, and the number of rejected rows.
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


class SpreadLabels(TransductiveEstimator):
    """scikit-learn's LabelSpreading; k-means on rows far from all labels seeds the new classes.

    Labels cannot spread to new classes, which have none. So k-means clusters the unlabelled rows far from every
    labelled row into the new classes, and these seeds spread like labels.

    **Choices.**

    * A row is far if it is farther from the nearest labelled row than ``known_share`` of the labelled rows are from
      their nearest labelled neighbor. About that share of the unlabelled rows of known classes is then not far; 0.95 is
      customary in out-of-distribution detection.
    * If fewer rows than new classes are far, the farthest rows are the seeds.
    * The graph and the clamping have scikit-learn's defaults (7 neighbors, alpha 0.2). The kernel of neighbors keeps
      the graph sparse; memory grows with rows x classes.
    * A row that no seed reaches on the graph gets the class of the nearest seed.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes, known and new together. ``None`` estimates it.
    n_neighbors : int
        Neighbors of a row in the graph, itself included; no more than there are rows.
    alpha : float
        Weight of the neighbors against a seed's own label, between 0 and 1.
    known_share : float
        Share of the labelled rows that are not far from the other ones.
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
        The class of every row of ``fit``: from label spreading; labelled rows keep their label.
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
        The distance above which a row is far, and the number of rows that seeded the new classes.
    n_iter_ : int
        Rounds of spreading.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TransductiveEstimator._parameter_constraints,
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, 1, closed="neither")],
        "known_share": [Interval(Real, 0, 1, closed="both")],
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        n_neighbors: int = 7,
        alpha: float = 0.2,
        known_share: float = 0.95,
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
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.known_share = known_share
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
        x = problem.x.cpu().numpy()
        problem.progress.stage("looking for rows far from all labels")
        away, limit = distances_to_labelled(x[:n_labelled], x[n_labelled:], self.known_share)
        rows, classes = cluster_into_new(
            problem, torch.from_numpy(away), torch.from_numpy(away > limit), n_init=self.n_init, max_iter=self.max_iter
        )
        seeds = np.full(len(x), -1)
        seeds[:n_labelled] = problem.labels.cpu().numpy()
        seeds[n_labelled + rows.cpu().numpy()] = classes.cpu().numpy()
        self.history_ = [{"limit": limit, "seeds": len(rows)}]
        problem.progress.stage("spreading labels")
        return torch.from_numpy(self._spread(x, seeds)[n_labelled:]), problem.n_classes

    def _spread(self, x: NDArray[np.float32], seeds: NDArray[np.int64]) -> NDArray[np.int64]:
        """The class of each row, given those of some and -1 for the others. (N,)"""
        spreading = LabelSpreading(kernel="knn", n_neighbors=min(self.n_neighbors, len(x)), alpha=self.alpha)
        with warnings.catch_warnings():
            # What is left to change after thirty rounds is alpha^30 of a label at most.
            warnings.simplefilter("ignore", ConvergenceWarning)
            spreading.fit(x, seeds)
        self.n_iter_ = int(spreading.n_iter_)
        classes: NDArray[np.int64] = spreading.transduction_.astype(np.int64)
        unreached = spreading.label_distributions_.sum(axis=1) == 0
        if unreached.any():
            founded = np.flatnonzero(seeds >= 0)
            classes[unreached] = seeds[founded[nearest_row(x[founded], x[unreached])]]
        return classes


def distances_to_labelled(
    labelled: NDArray[np.float32], unlabelled: NDArray[np.float32], known_share: float
) -> tuple[NDArray[np.float32], float]:
    """How far each unlabelled row is from the nearest labelled one, and the limit beyond which that is far.

    >>> labelled = np.array([[0.0], [1.0], [3.0]])  # 1, 1 and 2 away from each other
    >>> away, limit = distances_to_labelled(labelled, np.array([[1.5], [7.0]]), known_share=1.0)
    >>> away.tolist(), limit
    ([0.5, 4.0], 2.0)
    """
    neighbors = NearestNeighbors(n_neighbors=1).fit(labelled)
    among_themselves, _ = neighbors.kneighbors()  # of each labelled row without itself
    away, _ = neighbors.kneighbors(unlabelled)
    return away[:, 0], float(np.quantile(among_themselves[:, 0], known_share))
