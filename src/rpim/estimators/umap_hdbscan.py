"""UMAP, then HDBSCAN: how embeddings are mostly explored in practice.

McInnes, Healy and Melville, "UMAP: Uniform Manifold Approximation and Projection for Dimension Reduction", 2018;
Campello, Moulavi and Sander, "Density-Based Clustering Based on Hierarchical Density Estimates", PAKDD 2013, as
scikit-learn has it; the two in a row with these hyperparameters: Grootendorst, "BERTopic", 2022.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from sklearn.cluster import HDBSCAN
from sklearn.utils._param_validation import Interval
from torch import Tensor

from rpim._common.errors import InputError
from rpim.data.labels import IntArray
from rpim.estimators.fitted import FloatArray
from rpim.estimators.nearest_centroid import TransductiveEstimator, nearest_row
from rpim.estimators.problem import FitProblem, Problem

SMALLEST_CLUSTER = 5
"""The smallest cluster that is tried where the number of classes is given: scikit-learn's default."""


class UMAPHDBSCAN(TransductiveEstimator):
    """UMAP, then HDBSCAN; labels name the clusters.

    A cluster becomes the known class that most of its labelled rows have; several clusters may be one class. A cluster
    without a labelled row is a new class, so one stray label makes a cluster a known class. Needs ``umap-learn``: ``pip
    install 'rpim[maps]'``.

    **Choices.**

    * UMAP has BERTopic's hyperparameters: 15 neighbors, 5 dimensions, no minimal distance. Rows of unit length are
      compared by Euclidean distance, which orders them as the cosine does. It sees no labels.
    * HDBSCAN has no parameter for the number of classes, but a minimum cluster size. If ``n_classes`` is given, that
      size is found by bisection, from 5 to the mean size of a class: the one with the number of classes nearest to
      ``n_classes``, and among equals the one with the fewest noise rows. The result may still have **another number of
      classes than asked for**; then there is a warning, and ``n_classes_`` is the number found.
    * If ``n_classes`` is not given, ``min_cluster_size`` decides the number of classes; 10 is BERTopic's.
    * ``min_samples`` is the same for all sizes, so that all are cuts of one hierarchy.
    * A noise row does not name a cluster, and gets the class of the nearest clustered row on the map. If there is no
      cluster at all, a row gets the class of the nearest labelled row.

    Parameters
    ----------
    n_classes : int, optional
        How many classes to aim at, known and unknown. ``None`` leaves it to HDBSCAN.
    n_neighbors : int
        Neighbors of a row in UMAP's graph, at most the number of other rows.
    map_components : int
        Dimensions of the map.
    min_cluster_size : int
        The smallest cluster where ``n_classes`` is not given.
    min_samples : int
        The neighbors by which HDBSCAN measures density, the row itself included.
    temperature : float
        How sharply probabilities fall with the squared distance to a class mean; it changes no class.
    n_components : int or None, default=256
        Number of principal components of the embeddings to keep before UMAP; ``None`` keeps all.
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
        The class of every row of ``fit``: that of its cluster; labelled rows keep their label.
    classes_, known_classes_, new_classes_ : ndarray
        All classes, those with labels in ``fit``, and the discovered ones.
    components_ : ndarray of shape (n_components, n_features) or None
        The principal components that were kept; ``None`` where all features are.
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
    n_classes_ : int
        Number of classes that were found.
    history_ : list of dict
        For each size tried: the clusters, classes and noise rows that it gives.
    n_iter_ : int
        Sizes tried.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TransductiveEstimator._parameter_constraints,
        "n_neighbors": [Interval(Integral, 2, None, closed="left")],
        "map_components": [Interval(Integral, 1, None, closed="left")],
        "min_cluster_size": [Interval(Integral, 2, None, closed="left")],
        "min_samples": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        n_neighbors: int = 15,
        map_components: int = 5,
        min_cluster_size: int = 10,
        min_samples: int = 5,
        temperature: float = 25.0,
        n_components: int | None = 256,
        normalize: bool | str = True,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.n_neighbors = n_neighbors
        self.map_components = map_components
        self.min_cluster_size = min_cluster_size
        self.min_samples = min_samples
        self.temperature = temperature
        self.n_components = n_components
        self.normalize = normalize
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    @classmethod
    def missing_extra(cls) -> str | None:
        """What has to be installed, where umap-learn is not."""
        if importlib.util.find_spec("umap") is not None:
            return None
        return "it needs umap-learn, which is not installed: pip install 'rpim[maps]', or choose another method."

    def _n_classes(self, problem: FitProblem) -> int:
        """The number asked for; where none is, the known ones, and HDBSCAN will tell the others."""
        return problem.n_known if self.n_classes is None else self.n_classes

    def _decide(self, problem: Problem) -> tuple[Tensor, int]:
        labels = problem.labels.cpu().numpy()
        problem.progress.stage("mapping")
        seed = int(torch.randint(2**31 - 1, (1,), generator=problem.generator))
        on_map = umap_of(problem.x.cpu().numpy(), self.n_neighbors, self.map_components, seed)  # (N, d)
        problem.progress.stage("clustering")

        def cut(size: int) -> Cut:
            hdbscan = HDBSCAN(min_cluster_size=size, min_samples=min(self.min_samples, len(on_map)), copy=True)
            return Cut.named(size, hdbscan.fit_predict(on_map), labels, problem.n_known)

        if self.n_classes is None:
            tried = [cut(self.min_cluster_size)]
        else:
            tried = cuts_towards(self.n_classes, cut, largest=len(on_map) // self.n_classes)
        self.history_ = [
            {"min_cluster_size": one.size, "clusters": len(one.names), "classes": one.n_classes, "noise": one.n_noise}
            for one in tried
        ]
        self.n_iter_ = len(tried)
        best = min(tried, key=lambda one: (abs(one.n_classes - problem.n_classes), one.n_noise))
        if self.n_classes is not None and best.n_classes != self.n_classes:
            warnings.warn(
                f"HDBSCAN found {best.n_classes} classes and not n_classes={self.n_classes}, because it does not "
                "take a number; history_ has what it finds with other minimum cluster sizes.",
                UserWarning,
                stacklevel=4,
            )
        if len(best.names) == 0:  # nothing but noise: no place is denser than another, so no new class
            nearest = nearest_row(on_map[: len(labels)], on_map[len(labels) :])
            return torch.from_numpy(labels[nearest]), best.n_classes
        clusters = without_noise(on_map, best.clusters)
        return torch.from_numpy(best.names[clusters[len(labels) :]]), best.n_classes


@dataclass(frozen=True)
class Cut:
    """Clusters of at least some size, and the class that each of them is."""

    size: int
    clusters: IntArray  # (N,), -1 for noise
    names: IntArray  # (n_clusters,): below n_known a known class
    n_classes: int

    @property
    def n_noise(self) -> int:
        """How many rows are in no cluster."""
        return int((self.clusters < 0).sum())

    @classmethod
    def named(cls, size: int, clusters: IntArray, labels: IntArray, n_known: int) -> Cut:
        """Each cluster by the most frequent label in it; the labelled rows come first.

        >>> Cut.named(2, np.array([1, 1, 1, -1, 0, 0, 1]), labels=np.array([0, 1, 1, 0]), n_known=2).names.tolist()
        [2, 1]
        """
        votes = np.zeros((int(clusters.max()) + 1, n_known), dtype=np.int64)
        voting = clusters[: len(labels)] >= 0
        np.add.at(votes, (clusters[: len(labels)][voting], labels[voting]), 1)
        is_new = votes.sum(axis=1) == 0
        names = np.where(is_new, n_known + is_new.cumsum() - 1, votes.argmax(axis=1))
        return cls(size, clusters.astype(np.int64), names, n_known + int(is_new.sum()))


def cuts_towards(n_classes: int, cut: Callable[[int], Cut], largest: int) -> list[Cut]:
    """Halve the range of sizes until a cut has that many classes; larger clusters are fewer, by and large."""
    low, high = SMALLEST_CLUSTER, max(SMALLEST_CLUSTER, largest)
    tried = []
    while low <= high:
        size = (low + high) // 2
        tried.append(cut(size))
        if tried[-1].n_classes > n_classes:
            low = size + 1
        elif tried[-1].n_classes < n_classes or tried[-1].n_noise == len(tried[-1].clusters):
            high = size - 1
        else:
            break
    return tried


def without_noise(on_map: FloatArray, clusters: IntArray) -> IntArray:
    """Every row in a cluster: a row without one in that of the nearest row which has one.

    >>> without_noise(np.array([[0.0], [1.0], [5.0], [4.0]]), np.array([0, -1, 1, -1])).tolist()
    [0, 0, 1, 1]
    """
    noise = clusters < 0
    if not noise.any():
        return clusters
    clusters = clusters.copy()
    clusters[noise] = clusters[~noise][nearest_row(on_map[~noise], on_map[noise])]
    return clusters


def umap_of(x: FloatArray, n_neighbors: int, n_dimensions: int, seed: int) -> FloatArray:
    """The rows on a map of a few dimensions. (N, d)"""
    UMAP = _import_umap()
    n_neighbors = min(n_neighbors, len(x) - 1)
    # The eigenvectors by which UMAP starts do not exist for very few rows.
    start = "spectral" if len(x) > 2 * n_dimensions + 2 else "random"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parts of the graph that hang together with nothing: duplicates make such
        on_map: FloatArray = UMAP(
            n_neighbors=n_neighbors, n_components=n_dimensions, min_dist=0.0, init=start, random_state=seed, n_jobs=1
        ).fit_transform(x)
    return on_map


def _import_umap() -> Any:
    """umap-learn's class; imported late, because it is an extra and compiles for seconds."""
    missing = UMAPHDBSCAN.missing_extra()
    if missing is not None:
        raise InputError(f"UMAPHDBSCAN cannot be used: {missing}")
    from umap import UMAP

    return UMAP
