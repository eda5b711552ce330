"""k-means, the floor of every comparison.

MacQueen, "Some methods for classification and analysis of multivariate observations", 1967; seeded by k-means++ (Arthur
and Vassilvitskii, SODA 2007).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import torch
from scipy.optimize import linear_sum_assignment

from rpim.core.kmeans import Clustering, Rule, kmeans
from rpim.estimators.gcd import GCD
from rpim.estimators.problem import Problem


class KMeans(GCD):
    """k-means on all rows, without the labels; its clusters then get the names of the classes they match best.

    Labels only name clusters: the known classes go to the clusters that share most labelled rows with
    them (one to one), and the clusters that are left are the new classes. On stored embeddings nothing had to change.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes, known and new together. ``None`` estimates it.
    preset : {"default", "paper"}
        What a parameter left at "auto" becomes. "paper" is scikit-learn's k-means, as the published figures have it:
        10 restarts, up to 300 iterations each, on all features.
    n_init : int or "auto"
        Number of restarts; the best by inertia is kept. "auto" is 10.
    max_iter : int or "auto"
        Largest number of iterations of a restart. "auto" is 100, and 300 with ``preset="paper"``.
    temperature : float, default=25.0
        How sharply probabilities fall with the squared distance to a centroid; it changes no class.
    n_components : int, None or "auto"
        Number of principal components of the embeddings to keep; ``None`` keeps all. "auto" is 256, and
        ``None`` with ``preset="paper"``.
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
        The class of every row of ``fit``; labelled rows keep their label.
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
        The centroids; the largest logit is that of the nearest one.
    history_ : list of dict
        The inertia at the end.
    n_iter_ : int
        Iterations of the best restart.
    """

    needs_labels = False
    _presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"n_init": 10, "max_iter": 100, "n_components": 256},
        "paper": {"n_init": 10, "max_iter": 300, "n_components": None},
    }
    _rules: ClassVar[dict[str, Rule]] = {"default": Rule(), "paper": Rule()}

    def _cluster(self, problem: Problem) -> Clustering:
        found = kmeans(
            problem.x,
            problem.n_classes,
            n_init=self._resolved("n_init"),
            rule=self._rule(),
            generator=problem.generator,
        )
        at = found.labels[: len(problem.labels)]
        counts = torch.zeros(problem.n_known, problem.n_classes, device=at.device)
        counts.index_put_((problem.labels, at), torch.ones(len(at), device=at.device), accumulate=True)
        _, named = linear_sum_assignment(counts.cpu().numpy(), maximize=True)
        rest = sorted(set(range(problem.n_classes)) - set(named.tolist()))
        return replace(found, centroids=found.centroids[torch.as_tensor([*named.tolist(), *rest], device=at.device)])
