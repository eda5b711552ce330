"""RPIM, Regularized Parametric InfoMax.

Tan, Zhang, Yang, Sun and Huang, "Revisiting Information Maximization for Generalized Category Discovery", 2024.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Literal

from sklearn.utils._param_validation import Interval, StrOptions

from rpim.methods.infomax import InfoMaxEstimator
from rpim.methods.settings import AUTO
from rpim.transforms import TRANSFORMS


class RPIM(InfoMaxEstimator):
    """Give every row its class: a known one, or a newly discovered one.

    A linear classifier on (refined) embeddings, trained on the full batch to keep as much information about the rows
    as it can: confident predictions, classes evenly used, labels where there are any, Sinkhorn pseudo-labels, mixed
    labels, and a learned shift of each embedding.

    Parameters
    ----------
    n_classes : int, optional
        How many classes there are in all, known and unknown. ``None`` estimates it.
    settings : {"default", "paper"}
        What a parameter left at "auto" becomes. "paper" is the published procedure: lambda searched without labels,
        one start, 1000 steps of Adam at 1e-3, beta 0.05.
    h : {"semantic-bias", "none", "linear", "linear-bias", "semantic-scale-bias", "mlp"}
        The transformation of the embedding.
    rank : int, optional
        Makes the semantic bias low-rank, x + UVx + b, with ``2 * rank * n_features`` numbers instead of
        ``n_features ** 2``.
    pseudo_labels : bool
        L_R: rows with a confident Sinkhorn pseudo-label are made surer still.
    mixed_labels : bool
        L_S: labels are softened by the pseudo-labels.
    supervision : {"mixed", "added"}
        Whether L_S takes the place of the cross-entropy or is added to it.
    trade_off : float or "auto"
        lambda, the weight of the conditional entropy. "auto" searches it.
    weight_decay : float or "auto"
        "auto" searches it.
    class_sizes : {"auto", "equal", "estimated"}
        What classes are taken to be: equally large, or as large as the start finds them. "auto" searches it along with
        lambda; where lambda is given, classes are taken to be equal.
    beta : float or "auto"
        The share of the pseudo-label in a mixed label. "auto" searches it.
    eta : float
        The weight of L_R relative to lambda.
    threshold : float
        How large a pseudo-label must be to count as confident.
    temperature : float
        tau, the factor of the logits.
    sinkhorn_epsilon, sinkhorn_iterations : float, int
        Sinkhorn scales z^(1/epsilon), so many times.
    search : {"auto", "held-out", "paper"}
        How what is "auto" is searched: by hiding the labels of known classes, or as the paper does.
    n_starts : int or "auto"
        Number of starts that are combined into one; 1 takes the best k-means.
    n_init : int or "auto"
        Restarts of semi-supervised k-means, of which the best by inertia is taken, where there is one start.
    schedule : {"auto", "fast", "paper"}
        "fast" trains with large steps until the classes of the rows settle, "paper" for 1000 steps at 1e-3.
    learning_rate, max_iter : float, int or "auto"
        Adam's step size and the largest number of steps, where they should differ from the schedule's.
    n_components : int, None or "auto"
        Keep that many principal directions of the embeddings; ``None`` keeps all.
    normalise : bool
        Scale rows to unit length.
    low_memory : bool
        Compute the probabilities of all rows again for each pass instead of keeping them: memory then does not grow
        with rows times classes, and a step takes up to three times as long.
    calibrate : bool
        Train twice more with some labels hidden, briefly, to learn how far the probabilities can be believed, and scale
        them accordingly. It changes no class.
    abstain : float
        The share of the unlabelled rows that get no class (-1, NaN or ""): those that fit least. New rows that fit no
        better than these get none either.
    device : str, optional
        A torch device; by default a GPU where there is one.
    random_state : int, RandomState instance or None
        Makes a run repeatable bit for bit on the same machine.
    verbose : bool
        Show progress with the time left on a terminal.

    Attributes
    ----------
    labels_ : ndarray of shape (n_rows,)
        The class of every row of ``fit``; labelled rows keep their label.
    classes_, known_classes_, new_classes_ : ndarray
        All classes, those that had labels, and the discovered ones.
    trade_off_, beta_, weight_decay_, class_sizes_ : float, float, float, str
        The values that were used.
    search_ : dict
        The score of each value that was tried.
    history_ : list of dict
        The terms of the objective at every step.
    n_iter_ : int
        Steps taken.
    agreement_ : float
        Share of rows on which the starts agree with their combination.
    calibration_ : float
        The factor of the logits in the probabilities; 1 where too few rows or classes (16) are known to find one.
    calibration_error_ : dict
        The expected calibration error on the rows whose labels were hidden, "before" and "after".
    outlier_threshold_ : float
        A row with a larger ``outlier_scores`` gets no class; infinite unless ``abstain`` is given.
    head_ : Head
        The trained prototypes and transformation.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from rpim import RPIM
    >>> X, y = make_blobs(300, n_features=8, centers=6, random_state=0)
    >>> seen = y.copy()
    >>> seen[(y > 3) | (range(300) > 150 * (y >= 0))] = -1   # classes 4 and 5 have no label at all
    >>> model = RPIM(n_classes=6, random_state=0).fit(X, seen)
    >>> model.known_classes_.tolist(), model.new_classes_.tolist()
    ([0, 1, 2, 3], [4, 5])
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **InfoMaxEstimator._parameter_constraints,
        "h": [StrOptions(set(TRANSFORMS))],
        "rank": [None, Interval(Integral, 1, None, closed="left")],
        "pseudo_labels": ["boolean"],
        "mixed_labels": ["boolean"],
        "supervision": [StrOptions({"mixed", "added"})],
        "beta": [StrOptions({AUTO}), Interval(Real, 0, 1, closed="both")],
        "eta": [Interval(Real, 0, None, closed="left")],
        "threshold": [Interval(Real, 0, None, closed="left")],
        "sinkhorn_epsilon": [Interval(Real, 0, None, closed="neither")],
        "sinkhorn_iterations": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        settings: Literal["default", "paper"] = "default",
        h: str = "semantic-bias",
        rank: int | None = None,
        pseudo_labels: bool = True,
        mixed_labels: bool = True,
        supervision: Literal["mixed", "added"] = "mixed",
        trade_off: float | Literal["auto"] = AUTO,
        weight_decay: float | Literal["auto"] = AUTO,
        class_sizes: Literal["auto", "equal", "estimated"] = AUTO,
        beta: float | Literal["auto"] = AUTO,
        eta: float = 0.03,
        threshold: float = 0.5,
        temperature: float = 25.0,
        sinkhorn_epsilon: float = 1.0,
        sinkhorn_iterations: int = 3,
        search: Literal["auto", "held-out", "paper"] = AUTO,
        n_starts: int | Literal["auto"] = AUTO,
        n_init: int | Literal["auto"] = AUTO,
        schedule: Literal["auto", "fast", "paper"] = AUTO,
        learning_rate: float | Literal["auto"] = AUTO,
        max_iter: int | Literal["auto"] = AUTO,
        n_components: int | Literal["auto"] | None = AUTO,
        normalise: bool = True,
        low_memory: bool = False,
        calibrate: bool = True,
        abstain: float = 0.0,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.settings = settings
        self.h = h
        self.rank = rank
        self.pseudo_labels = pseudo_labels
        self.mixed_labels = mixed_labels
        self.supervision = supervision
        self.trade_off = trade_off
        self.weight_decay = weight_decay
        self.class_sizes = class_sizes
        self.beta = beta
        self.eta = eta
        self.threshold = threshold
        self.temperature = temperature
        self.sinkhorn_epsilon = sinkhorn_epsilon
        self.sinkhorn_iterations = sinkhorn_iterations
        self.search = search
        self.n_starts = n_starts
        self.n_init = n_init
        self.schedule = schedule
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.n_components = n_components
        self.normalise = normalise
        self.low_memory = low_memory
        self.calibrate = calibrate
        self.abstain = abstain
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
