"""GCD: semi-supervised k-means.

Vaze, Han, Vedaldi and Zisserman, "Generalized Category Discovery", CVPR 2022.
"""

from __future__ import annotations

from numbers import Integral
from typing import Any, ClassVar

from sklearn.utils._param_validation import Interval
from torch import Tensor

from rpim.core.head import Head
from rpim.core.kmeans import Clustering, semi_supervised_kmeans
from rpim.core.transforms import Transform
from rpim.estimators.base import DiscoveryEstimator, Problem


def nearest_centroid_head(centroids: Tensor, temperature: float) -> Head:
    """A head whose largest logit is that of the nearest centroid.

    <x, c> - |c|^2 / 2 is -|x - c|^2 / 2 up to |x|^2 / 2, which all classes share. Its probabilities are those of
    Gaussians of variance 1 / tau around the centroids, all of the same weight.
    """
    return Head(centroids, Transform({}), temperature, -0.5 * (centroids * centroids).sum(dim=1))


class GCD(DiscoveryEstimator):
    """Semi-supervised k-means: labelled rows stay in their class, all others go to the nearest centroid.

    **On stored embeddings.**

    The published system first tunes the encoder by contrastive learning, which stored embeddings have had or not; what
    is left of it is its clustering. The best of several restarts by inertia is kept.

    Parameters
    ----------
    n_classes : int, optional
        How many classes there are in all, known and unknown. ``None`` estimates it.
    n_init : int
        Restarts.
    max_iter : int
        Rounds of a restart, at most.
    temperature : float
        How sharply probabilities fall with the squared distance to a centroid; it changes no class.
    n_components : int, optional
        Keep that many principal directions of the embeddings; ``None`` keeps all.
    normalize, device, random_state, verbose
        As in `RPIM`.

    Attributes
    ----------
    labels_, classes_, known_classes_, new_classes_, head_ :
        As in `RPIM`.
    history_ : list of dict
        The inertia at the end.
    n_iter_ : int
        Rounds of the best restart.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **DiscoveryEstimator._parameter_constraints,
        "n_init": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        n_init: int = 10,
        max_iter: int = 100,
        temperature: float = 25.0,
        n_components: int | None = 256,
        normalize: bool = True,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.n_init = n_init
        self.max_iter = max_iter
        self.temperature = temperature
        self.n_components = n_components
        self.normalize = normalize
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

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
            n_init=self.n_init,
            max_iter=self.max_iter,
            generator=problem.generator,
        )
