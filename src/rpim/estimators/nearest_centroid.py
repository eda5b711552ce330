"""Methods whose head is the nearest centroid: GCD, k-means, and what the baselines of everyday practice share.

GCD: Vaze, Han, Vedaldi and Zisserman, "Generalized Category Discovery", CVPR 2022. k-means: MacQueen, "Some methods for
classification and analysis of multivariate observations", 1967; seeded by k-means++ (Arthur and Vassilvitskii, SODA
2007).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from numbers import Integral
from typing import Any, ClassVar, Literal

import torch
from scipy.optimize import linear_sum_assignment
from sklearn.neighbors import NearestNeighbors
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from rpim._common.errors import InputError
from rpim.core.head import Head
from rpim.core.kmeans import GCD_RULE, Clustering, Rule, class_means, kmeans, semi_supervised_kmeans
from rpim.core.transforms import Transform
from rpim.data.labels import IntArray
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.fitted import FloatArray
from rpim.estimators.objective import AUTO
from rpim.estimators.problem import FitProblem, Problem


def nearest_centroid_head(centroids: Tensor, temperature: float) -> Head:
    """A head whose largest logit is that of the nearest centroid.

    <x, c> - |c|^2 / 2 is -|x - c|^2 / 2 up to |x|^2 / 2, which all classes share. Its probabilities are those of
    Gaussians of variance 1 / tau around the centroids, all of the same weight.
    """
    return Head(centroids, Transform({}), temperature, -0.5 * (centroids * centroids).sum(dim=1))


class GCD(DiscoveryEstimator):
    """Semi-supervised k-means: labelled rows stay in their class, all others go to the nearest centroid.

    **On stored embeddings.**

    The published system fine-tunes the encoder by contrastive learning and then clusters the embeddings. This is the
    clustering: semi-supervised k-means, of which the restart with the lowest inertia is kept.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes, known and new together. ``None`` estimates it.
    preset : {"default", "paper"}
        What a parameter left at "auto" becomes. "paper" is the published clustering: 100 restarts of plain k-means++,
        up to 200 iterations each, on all features.
    n_init : int or "auto"
        Number of restarts; the best by inertia is kept. "auto" is 10, and 100 with ``preset="paper"``.
    max_iter : int or "auto"
        Largest number of iterations of a restart. "auto" is 100, and 200 with ``preset="paper"``.
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

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DiscoveryEstimator._parameter_constraints,
        "preset": [StrOptions({"default", "paper"})],
        "n_init": [StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "max_iter": [StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
        "n_components": [None, StrOptions({AUTO}), Interval(Integral, 1, None, closed="left")],
    }
    _presets: ClassVar[dict[str, dict[str, Any]]] = {
        "default": {"n_init": 10, "max_iter": 100, "n_components": 256},
        "paper": {"n_init": 100, "max_iter": 200, "n_components": None},
    }
    _rules: ClassVar[dict[str, Rule]] = {"default": Rule(), "paper": GCD_RULE}

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        preset: Literal["default", "paper"] = "default",
        n_init: int | Literal["auto"] = AUTO,
        max_iter: int | Literal["auto"] = AUTO,
        temperature: float = 25.0,
        n_components: int | Literal["auto"] | None = AUTO,
        normalize: bool | str = True,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.preset = preset
        self.n_init = n_init
        self.max_iter = max_iter
        self.temperature = temperature
        self.n_components = n_components
        self.normalize = normalize
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _validate_params(self) -> None:
        super()._validate_params()
        if self.preset == "paper" and self.n_components not in (AUTO, None):
            raise InputError(
                f"n_components={self.n_components!r} contradicts preset='paper', which has n_components=None: leave "
                "n_components out, or use preset='default'."
            )

    def _resolved(self, name: str) -> Any:
        value = getattr(self, name)
        return self._presets[self.preset][name] if isinstance(value, str) and value == AUTO else value

    def _rule(self) -> Rule:
        return replace(self._rules[self.preset], max_iter=self._resolved("max_iter"))

    def _discover(self, problem: Problem) -> Head:
        problem.progress.stage("clustering")
        found = self._cluster(problem)
        self.n_iter_ = found.n_iter
        self.history_ = [{"inertia": found.inertia}]
        return nearest_centroid_head(found.centroids, self.temperature)

    def _cluster(self, problem: Problem) -> Clustering:
        return semi_supervised_kmeans(
            problem.x,
            problem.labels,
            problem.n_classes,
            n_init=self._resolved("n_init"),
            rule=self._rule(),
            generator=problem.generator,
        )


class KMeans(GCD):
    """k-means on all rows, without the labels; its clusters then get the names of the classes they match best.

    Labels only name clusters: known classes are matched one to one with the clusters that share most labelled rows
    with them, and the remaining clusters are the new classes.

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


class TransductiveEstimator(DiscoveryEstimator):
    """A method that decides row by row; a subclass offers ``_decide``, from a `Problem` to the class of each row.

    Spreading labels over a graph, or clustering a map, gives the rows of the fit a class each and has no rule for a new
    row. ``labels_`` is what they decided. A new row gets the class of the nearest class mean, so ``predict`` on the
    rows of the fit may differ from ``labels_``.
    """

    temperature: float
    history_: list[dict[str, float]]

    @abstractmethod
    def _decide(self, problem: Problem) -> tuple[Tensor, int]:
        """The class of each unlabelled row, by number, and how many classes there are. (n_unlabelled,)

        There is one such row at least. Sets ``history_`` and ``n_iter_``.
        """

    def _discover(self, problem: FitProblem) -> Head:
        if len(problem.labels) == len(problem.x):
            self.history_, self.n_iter_ = [{"unlabelled": 0}], 1
            decided, n_classes = problem.labels[:0], problem.n_classes
        else:
            decided, n_classes = self._decide(problem)
        self._row_classes = torch.cat([problem.labels, decided.to(problem.labels)])
        means = class_means(problem.x, self._row_classes, problem.x.new_zeros(n_classes, problem.x.shape[1]))
        head = nearest_centroid_head(means, self.temperature)
        # More classes than different rows leave one without a row: it has no mean, and no probability.
        assert head.offsets is not None
        head.offsets[torch.bincount(self._row_classes, minlength=n_classes) == 0] = -torch.inf
        return head

    def _assign(self, problem: FitProblem) -> tuple[IntArray, FloatArray]:
        classes, scores = super()._assign(problem)
        classes[problem.rows] = self._row_classes.cpu().numpy()
        return classes, scores


def cluster_into_new(
    problem: Problem, novelty: Tensor, is_novel: Tensor, *, n_init: int, max_iter: int
) -> tuple[Tensor, Tensor]:
    """k-means of the unlabelled rows that look like no known class, into the new classes.

    Parameters
    ----------
    novelty : (n_unlabelled,)
        Novelty of each row; larger is less like a known class.
    is_novel : (n_unlabelled,)
        Whether a row is novel. If fewer rows than new classes are, the most novel rows are taken.

    Returns
    -------
    rows : (n_novel,)
        Numbers of the rows, among the unlabelled ones.
    classes : (n_novel,)
        The class of each, from n_known on.
    """
    unlabelled = problem.x[len(problem.labels) :]
    rows = torch.nonzero(is_novel).flatten()
    if len(rows) < problem.n_new:
        rows = novelty.topk(min(problem.n_new, len(unlabelled))).indices
    if problem.n_new == 0 or len(rows) == 0:
        empty = torch.empty(0, dtype=torch.long, device=unlabelled.device)
        return empty, empty
    found = kmeans(
        unlabelled[rows], problem.n_new, n_init=n_init, rule=Rule(max_iter=max_iter), generator=problem.generator
    )
    return rows, found.labels + problem.n_known


def nearest_row(rows: FloatArray, to: FloatArray) -> IntArray:
    """The number of the row nearest to each of some others."""
    nearest: IntArray = NearestNeighbors(n_neighbors=1).fit(rows).kneighbors(to, return_distance=False)[:, 0]
    return nearest
