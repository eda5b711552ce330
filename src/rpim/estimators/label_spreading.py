"""Label spreading: labels flow along a graph of nearest neighbors.

Zhou, Bousquet, Lal, Weston and Schölkopf, "Learning with Local and Global Consistency", NeurIPS 2003, as scikit-learn
has it. The rows that found the new classes are those which the nearest-neighbor test of Sun, Ming, Zhu and Li,
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
from sklearn.neighbors import NearestNeighbors
from sklearn.semi_supervised import LabelSpreading
from sklearn.utils._param_validation import Interval
from torch import Tensor

from rpim.estimators.problem import Problem
from rpim.estimators.transductive import TransductiveEstimator, cluster_into_new, nearest_row


class SpreadLabels(TransductiveEstimator):
    """scikit-learn's LabelSpreading, with seeds for the new classes where no label is near.

    A label can only spread where there is one. So the unlabelled rows far from every labelled one are clustered by
    k-means into the new classes, and these seeds spread along with the labels.

    **What was decided.**

    * Far is: farther from the nearest labelled row than ``known_share`` of the labelled rows are from the nearest
      other one. Labelled rows and unlabelled ones of known classes are alike, so that share of the latter stays below
      the limit; 0.95 is the custom in the detection of foreign rows. No label of an unlabelled row is needed for it.
    * If fewer rows than new classes are far, the farthest rows are the seeds.
    * The graph, its width and the clamping are scikit-learn's defaults (7 neighbors, alpha 0.2). Its kernel of
      neighbors keeps the graph sparse; memory grows with rows x classes.
    * A row to which nothing spreads, as no seed is within a few steps on the graph, takes the nearest seed's class.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes, known and new together. ``None`` estimates it.
    n_neighbors : int
        Neighbors of a row in the graph, itself included; no more than there are rows.
    alpha : float
        How far a seed gives way to its neighbors, between 0 and 1.
    known_share : float
        The share of labelled rows that are not far from the others.
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
        The class of every row of ``fit``: what spread; labelled rows keep their label.
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
        The limit beyond which a row is far, and how many rows founded the new classes.
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
