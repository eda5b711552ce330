"""RPIM, Regularized Parametric InfoMax.

Tan, Zhang, Yang, Sun and Huang, "Revisiting Information Maximization for Generalized Category Discovery", 2024.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar, Literal

from sklearn.utils._param_validation import Interval, StrOptions

from rpim.core.transforms import TRANSFORMS
from rpim.estimators.infomax import InfoMaxEstimator
from rpim.estimators.presets import AUTO


class RPIM(InfoMaxEstimator):
    """Give every row its class: a known one, or a newly discovered one.

    A linear classifier on (refined) embeddings, trained on the full batch to keep as much information about the rows
    as it can: confident predictions, classes evenly used, labels where there are any, Sinkhorn pseudo-labels, mixed
    labels, and a learned shift of each embedding.

    By default a fit is a committee: `n_members` short fits that differ in representation, width and start, each without
    a part of the labels, are matched, averaged and distilled into one linear head. A single fit depends on its start by
    several points; the committee does not, and its confidence can be believed.

    Parameters
    ----------
    n_classes : int, optional
        How many classes there are in all, known and unknown. ``None`` estimates it.
    n_members : int or "auto"
        Number of members of the committee. 1 is a single fit, whose probabilities are too confident. "auto" is 16, and
        1 with ``preset="paper"``.
    preset : {"default", "paper"}
        What a parameter left at "auto" becomes. "paper" is the published procedure: lambda searched without labels,
        one fit from one start, 1000 steps of Adam at 1e-3, beta 0.05.
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
        lambda, the weight of the conditional entropy; 0.1 by default.
    weight_decay : float or "auto"
        0.01 by default.
    class_sizes : {"auto", "equal", "estimated"}
        What classes are taken to be: equally large, or as large as the start finds them. "auto" lets the members of a
        committee differ in it; a single fit takes them to be equal.
    beta : float or "auto"
        The share of the pseudo-label in a mixed label; 0.2 by default.
    eta : float
        The weight of L_R relative to lambda.
    threshold : float
        How large a pseudo-label must be to count as confident.
    temperature : float
        tau, the factor of the logits.
    sinkhorn_epsilon, sinkhorn_iterations : float, int
        Sinkhorn scales z^(1/epsilon), so many times.
    search : {"auto", "paper"}
        "paper" searches lambda and the weight decay as the paper does, where they are "auto".
    n_init : int, None or "auto"
        Start a single fit at the best of so many restarts of semi-supervised k-means; ``None`` starts it at small
        clusters that were merged.
    schedule : {"auto", "fast", "paper"}
        A single fit, and the training on all rows where there are too many for a committee: "fast" trains with large
        steps until the classes of the rows settle, "paper" for 1000 steps at 1e-3.
    learning_rate, max_iter : float, int or "auto"
        Adam's step size and the largest number of steps, where they should differ from the schedule's.
    n_components : int, None or "auto"
        Keep that many principal directions of the embeddings; ``None`` keeps all.
    normalize : bool
        Scale rows to unit length.
    low_memory : bool
        Compute the probabilities of all rows again for each pass instead of keeping them: memory then does not grow
        with rows times classes, and a step takes up to three times as long.
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
    n_members_ : int
        Number of members that were trained.
    stability_ : ndarray of shape (n_classes_,)
        How well the members reproduce each class, from 0 to 1: the mean Jaccard index of the class and its match in a
        member. NaN where a class has no unlabelled row. A single fit has none.
    expected_accuracy_ : float
        The share of the labels that were predicted by the members that did not see them: what to expect on unlabelled
        rows of known classes.
    label_issues_ : list of LabelIssue
        Labelled rows that look mislabelled, the most suspect first: ``row``, ``label``, ``suggested``,
        ``label_quality``, ``confidence``.
    label_quality_ : ndarray of shape (n_rows,)
        The probability of a row's label by the members that did not see it; NaN where there is no label, or every
        member saw it.
    trade_off_, beta_, weight_decay_, class_sizes_ : float, float, float, str
        The values that were used; those of a committee's members are drawn around them.
    search_ : dict
        The score of each value that was tried, where the paper's search was asked for.
    history_ : list of dict
        The terms of the objective at every step, the mean over the members.
    n_iter_ : int
        Steps taken.
    calibration_ : float
        The factor of the logits in the probabilities, where a committee's head was trained on all rows; 1 elsewhere.
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
        n_members: int | Literal["auto"] = AUTO,
        preset: Literal["default", "paper"] = "default",
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
        search: Literal["auto", "paper"] = AUTO,
        n_init: int | Literal["auto"] | None = AUTO,
        schedule: Literal["auto", "fast", "paper"] = AUTO,
        learning_rate: float | Literal["auto"] = AUTO,
        max_iter: int | Literal["auto"] = AUTO,
        n_components: int | Literal["auto"] | None = AUTO,
        normalize: bool = True,
        low_memory: bool = False,
        abstain: float = 0.0,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.n_members = n_members
        self.preset = preset
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
        self.n_init = n_init
        self.schedule = schedule
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.n_components = n_components
        self.normalize = normalize
        self.low_memory = low_memory
        self.abstain = abstain
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
