"""UNO+, a unified objective for labels and pseudo-labels.

Fini, Sangineto, Lathuilière, Zhong, Nabi and Ricci, "A Unified Objective for Novel Class Discovery", ICCV 2021, as
Vaze, Han, Vedaldi and Zisserman, "Generalized Category Discovery", CVPR 2022, extend it to unlabelled rows of known
classes.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import torch
from sklearn.utils._param_validation import Interval
from torch import Tensor
from torch.nn import functional

from rpim.core.head import Head
from rpim.core.sinkhorn import sinkhorn
from rpim.estimators.problem import FitProblem
from rpim.estimators.two_views import Network, TwoViewEstimator


def class_factors(cosines: Tensor, epsilon: float, iterations: int = 3) -> Tensor:
    """What Sinkhorn multiplies each class by, so that the classes share all these rows about equally. (K,)"""
    q = functional.softmax(cosines / epsilon, dim=1)  # exp(cosine / epsilon) up to a factor a row, and never too large
    return sinkhorn(lambda: [(slice(0, len(q)), q)], q.sum(dim=0), len(q), len(q), iterations).columns


def balanced_assignment(cosines: Tensor, factors: Tensor, epsilon: float) -> Tensor:
    """Soft labels of some rows, given the factors of the classes; smaller epsilon, harder labels. (n, K)"""
    return functional.softmax(cosines / epsilon + factors.log(), dim=1)


def swapped_targets(
    cosines_1: Tensor, cosines_2: Tensor, labels: Tensor, factors: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """What each of two views is to predict, as constants: the label, or else what the other view is assigned.

    Parameters
    ----------
    cosines_1, cosines_2 : (n, K)
        Of the same rows in the two views, with the prototypes.
    labels : (n,)
        The class of each row, -1 where it has none.
    factors : (K,)
        Sinkhorn's factors of the classes.
    epsilon : float
        The sharpness of the assignment.
    """
    known = functional.one_hot(labels.clamp_min(0), cosines_1.shape[1]).to(cosines_1.dtype)
    is_known = labels[:, None] >= 0
    first, second = (
        torch.where(is_known, known, balanced_assignment(other.detach(), factors, epsilon))
        for other in (cosines_2, cosines_1)
    )
    return first, second


class UNO(TwoViewEstimator):
    """UNO+: one cross-entropy for all rows, with labels or with the Sinkhorn assignment of the other view.

    Every head classifies two views of each row of a batch. The target of a labelled row is its label; that of an
    unlabelled row is the Sinkhorn assignment of its other view, which keeps classes about equally used. Over-clustering
    heads, with more and smaller clusters than K classes, improve the shared embedding.

    Published in Fini et al., "A Unified Objective for Novel Class Discovery", ICCV 2021; the extension to unlabelled
    rows of known classes is that of Vaze et al., "Generalized Category Discovery", CVPR 2022.

    **On stored embeddings.**

    * the encoder is fixed; a shift of the embedding, (x + Bx + b) / norm, is trained instead;
    * the two views of a row are the stored ones (``rpim embed --views 2``), or two copies with some features dropped;
    * prototypes are initialized with merged clusters, as in RPIM, instead of at random;
    * Sinkhorn balances classes over all rows, labelled ones included, before every epoch; in the paper, over the
      unlabelled rows of a batch. With 200 classes a batch has two or three rows of each, so equal shares are far from
      the truth. And known classes have fewer unlabelled rows than new ones, so equal shares send rows of new classes to
      known ones. On problems made of the labelled rows of four real feature sets, this gained 6 points of All and 7 of
      Unknown;
    * heads are prototypes on the shifted embedding, without UNO's projection network;
    * a head holds known and new classes, as UNO+ needs;
    * over-clustering heads learn from unlabelled rows only, because a label does not tell which of the clusters of a
      class is right;
    * there is no pre-training on the labels, because the initialization uses them;
    * the optimizer is Adam, with fewer epochs, and there are two heads of each kind instead of five.

    Most of its gain over k-means comes from the initialization: on the same problems, training added half a point of
    All and 9 of Known, and cost 2 of Unknown.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes, known and new together. ``None`` estimates it.
    n_heads : int
        Number of heads of K classes, and of over-clustering heads.
    overclustering : int
        Number of clusters of an over-clustering head, as a multiple of K; at most one per row.
    sinkhorn_epsilon : float
        The assignment is made from exp(cosine / epsilon): smaller is harder.
    n_epochs : int, default=30
        Number of epochs.
    batch_size : int, default=512
        Number of rows in a batch.
    learning_rate : float, default=5e-3
        Adam's learning rate in the first epoch; it falls as a cosine.
    weight_decay : float, default=0.0
        L2 penalty of Adam.
    feature_dropout : float
        Share of features that a view drops, where no views are stored.
    temperature : float
        tau, the factor of the logits in the cross-entropy.
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
    history_ : list of dict
        The loss of every epoch: each head's share of it (``head_0``, ..., ``overclustering_0``, ...) and their sum.
    n_iter_ : int
        Epochs.
    best_head_ : int
        The head that predicts: the one of K classes with the lowest loss in the last epoch.
    head_ : Head
        Its prototypes, and the trained shift.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from rpim import UNO
    >>> X, y = make_blobs(300, n_features=8, centers=6, random_state=0)
    >>> seen = y.copy()
    >>> seen[(y > 3) | (range(300) > 150 * (y >= 0))] = -1   # classes 4 and 5 have no label at all
    >>> model = UNO(n_classes=6, random_state=0).fit(X, seen)
    >>> model.known_classes_.tolist(), model.new_classes_.tolist()
    ([0, 1, 2, 3], [4, 5])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **TwoViewEstimator._parameter_constraints,
        "n_heads": [Interval(Integral, 1, None, closed="left")],
        "overclustering": [Interval(Integral, 1, None, closed="left")],
        "sinkhorn_epsilon": [Interval(Real, 0, None, closed="neither")],
    }

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        n_heads: int = 2,
        overclustering: int = 3,
        sinkhorn_epsilon: float = 0.05,
        n_epochs: int = 30,
        batch_size: int = 512,
        learning_rate: float = 5e-3,
        weight_decay: float = 0.0,
        feature_dropout: float = 0.1,
        temperature: float = 10.0,
        n_components: int | None = 256,
        normalize: bool | str = True,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.n_heads = n_heads
        self.overclustering = overclustering
        self.sinkhorn_epsilon = sinkhorn_epsilon
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.feature_dropout = feature_dropout
        self.temperature = temperature
        self.n_components = n_components
        self.normalize = normalize
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def _discover(self, problem: FitProblem) -> Head:
        n_rows, n_classes, n_heads = len(problem.x), problem.n_classes, self.n_heads
        n_clusters = min(self.overclustering * n_classes, n_rows)
        starts = self._starts(problem, [n_classes] * n_heads + [n_clusters] * n_heads)
        network = Network(starts, self.temperature)
        labels = functional.pad(problem.labels, (0, n_rows - len(problem.labels)), value=-1)  # (N,)
        factors: list[Tensor] = []

        def before_epoch(epoch: int) -> None:
            factors[:] = self._factors(network, problem.x)

        def loss(rows: Tensor, epoch: int) -> dict[str, Tensor]:
            y = labels[rows]
            first, second = (network.refine(view) for view in self._two_views(problem, rows))
            unlabelled = y < 0
            terms = {f"head_{k}": self._unified(network, k, first, second, y, factors[k]) for k in range(n_heads)}
            for k in range(n_heads):
                j = n_heads + k
                unified = self._unified(network, j, first[unlabelled], second[unlabelled], y[unlabelled], factors[j])
                terms[f"overclustering_{k}"] = unified
            return {name: term / len(terms) for name, term in terms.items()}

        self._train(problem, network, loss, before_epoch)
        self.best_head_ = min(range(n_heads), key=lambda k: self.history_[-1][f"head_{k}"])
        return network.as_head(self.best_head_)

    @torch.no_grad()
    def _factors(self, network: Network, x: Tensor) -> list[Tensor]:
        """Of the classes of each head, from all rows: a batch has too few of a class to balance it."""
        refined = network.refine(x)
        return [
            class_factors(network.cosines(refined, head), self.sinkhorn_epsilon) for head in range(len(network.heads))
        ]

    def _unified(
        self, network: Network, head: int, first: Tensor, second: Tensor, labels: Tensor, factors: Tensor
    ) -> Tensor:
        """The cross-entropy of a head with the swapped targets, a row and view; of no rows it is zero."""
        cosines = network.cosines(first, head), network.cosines(second, head)
        targets = swapped_targets(*cosines, labels, factors, self.sinkhorn_epsilon)
        losses = [
            functional.cross_entropy(network.temperature * cosine, target, reduction="sum")
            for cosine, target in zip(cosines, targets, strict=True)
        ]
        return (losses[0] + losses[1]) / (2 * max(len(labels), 1))
