"""InfoMax without RPIM's transformation, pseudo-labels and mixed labels: RIM with labels, TIM and PIM.

RIM: Gomes, Krause and Perona, "Discriminative Clustering by Regularized Information Maximization", NeurIPS 2010.
TIM: Boudiaf, Masud, Rony, Dolz, Piantanida and Ben Ayed, "Transductive Information Maximization For Few-Shot Learning",
NeurIPS 2020. PIM: Chiaroni, Dolz, Masud, Mitiche and Ben Ayed, "Parametric Information Maximization for Generalized
Category Discovery", ICCV 2023.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from rpim.estimators.infomax import InfoMaxEstimator
from rpim.estimators.objective import AUTO, InfoMaxObjective


class PlainInfoMaxEstimator(InfoMaxEstimator):
    """Without RPIM's transformation, pseudo-labels and mixed labels: what RIM, TIM and PIM are."""

    absent_terms: ClassVar[dict[str, Any]] = {
        "h": "none",
        "h_init": "identity",
        "rank": None,
        "eta": 0.0,
        "beta": 0.0,
        "threshold": 0.5,
        "pseudo_labels": False,
        "mixed_labels": False,
        "supervision": "mixed",
        "sinkhorn_epsilon": 1.0,
        "sinkhorn_iterations": 3,
    }


class UnsearchedEstimator(PlainInfoMaxEstimator):
    """RIM and TIM: no search, and classes of equal size."""

    search = AUTO
    _own_defaults: ClassVar[dict[str, Any]] = {"search": None, "weight_decay": 0.01}
    absent_terms: ClassVar[dict[str, Any]] = {**PlainInfoMaxEstimator.absent_terms, "class_sizes": "equal"}

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        preset: Literal["default", "paper"] = "default",
        n_members: int | Literal["auto"] = 1,
        objective: InfoMaxObjective | None = None,
        n_init: int | Literal["auto"] | None = AUTO,
        learning_rate: float | Literal["auto"] = AUTO,
        max_iter: int | Literal["auto"] = AUTO,
        n_components: int | Literal["auto"] | None = AUTO,
        normalize: bool | str = "auto",
        abstain: float = 0.0,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.preset = preset
        self.n_members = n_members
        self.objective = objective
        self.n_init = n_init
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.n_components = n_components
        self.normalize = normalize
        self.abstain = abstain
        self.device = device
        self.random_state = random_state
        self.verbose = verbose


class RIM(UnsearchedEstimator):
    """CE + M + C with an L2 penalty on the prototypes: mutual information with both of its terms at full weight.

    **On stored embeddings.**

    The published classifier is a multinomial regression with a bias, initialized by k-means or at random. Here it is
    PIM's: rows of unit length, prototypes without a bias, a temperature, the same initialization, and Adam on the full
    batch, whose weight decay is the L2 penalty. PIM is RIM with a searched lambda.

    See `RPIM` for further attributes.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes, known and new together. ``None`` estimates it.
    preset : {"default", "paper"}
        What a parameter left at "auto" becomes. "paper" is the procedure of the published comparison, PIM's without a
        search, which no other parameter may contradict but `n_init` and `max_iter`, its cost.
    n_members : int or "auto", default=1
        Number of members of the committee. 1 is a single fit; "auto" is 16, and 1 with ``preset="paper"``.
    objective : InfoMaxObjective, optional
        Its `trade_off` (here 1.0 by default), `label_weight`, `weight_decay` and `temperature` are used; the other
        parameters are of terms that RIM does not have and must be left at their defaults.
    n_init : int, None or "auto"
        Start a single fit from the best of that many restarts of semi-supervised k-means; ``None`` starts it from
        merged clusters. "auto" is ``None``, and 100 with ``preset="paper"``.
    learning_rate : float or "auto"
        Adam's learning rate in the training on all rows. "auto" is 5e-3, and 1e-3 with ``preset="paper"``.
    max_iter : int or "auto"
        Largest number of steps of that training, which stops earlier once the classes of the rows settle. "auto" is
        300, and 1000 without stopping early with ``preset="paper"``.
    n_components : int, None or "auto"
        Number of principal components of the embeddings to keep; ``None`` keeps all. "auto" is 256, and
        ``None`` with ``preset="paper"``.
    normalize : bool, "sqrt" or "auto", default="auto"
        Scale rows to unit length. "sqrt" first takes the square root of each value, with its sign. "auto" is "sqrt"
        in a committee on features as after a ReLU (none negative, few large), else True.
    abstain : float, default=0.0
        Share of the unlabelled rows that get no class (-1, NaN or ""): those with the largest outlier scores. New rows
        with scores as large get none either.
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
    normalize_ : bool, "sqrt" or tuple of both
        How rows are normalized; a tuple has one for each embedding.
    sample_rows_ : int
        Number of rows that were held in memory.
    beta_ : float
        0: there are no mixed labels.
    class_sizes_ : {"equal", "estimated"}
        Whether classes were assumed to be equally large.
    search_ : dict
        The score of each value that was tried, by parameter, where the paper's search was used.
    n_members_ : int
        Number of members that were trained.
    stability_ : ndarray of shape (n_classes,)
        How well the members reproduce each class, from 0 to 1. A single fit has none.
    expected_accuracy_ : float
        Share of the labels that were predicted by the members that did not see them. A single fit has none.
    label_issues_ : list of LabelIssue
        Labelled rows that look mislabelled, the most suspect first. Empty for a single fit.
    label_quality_ : ndarray of shape (n_rows,)
        The probability of a row's label by the members that did not see it; NaN for a single fit.
    calibration_ : float
        Factor of the logits in the probabilities, where a committee's head was trained on all rows; otherwise 1.
    outlier_threshold_ : float
        A row with larger ``outlier_scores`` gets no class; infinite unless ``abstain`` is given.
    exemplars_ : Exemplars
        Rows of each class that ``extend`` trains on.
    trade_off_, weight_decay_ : float
        The values that were used.
    history_ : list of dict
        The terms of the objective at every step; in a committee their mean over the members.
    n_iter_ : int
        Number of steps.
    head_ : Head
        The trained prototypes.
    """

    _own_defaults: ClassVar[dict[str, Any]] = {**UnsearchedEstimator._own_defaults, "trade_off": 1.0}


class TIM(UnsearchedEstimator):
    """CE + M + alpha C with the marginal over the unlabelled rows alone (alpha is `trade_off`).

    **On stored embeddings.**

    Published for few-shot learning, where all classes have labelled examples, with alpha 0.1 and a cross-entropy of
    weight 0.1 (`label_weight`). Here the cross-entropy has weight 1, as in PIM, so that TIM differs from PIM only in
    the marginal, and new classes are initialized with clusters. The published comparison does not state its alpha. With
    alpha 1 TIM comes close to RIM, and its accuracy on known classes falls far below PIM's, as in that comparison. So
    ``preset="paper"`` has alpha 1.

    See `RPIM` for further attributes.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes, known and new together. ``None`` estimates it.
    preset : {"default", "paper"}
        What a parameter left at "auto" becomes. "paper" is the procedure of the published comparison, PIM's without a
        search, which no other parameter may contradict but `n_init` and `max_iter`, its cost.
    n_members : int or "auto", default=1
        Number of members of the committee. 1 is a single fit; "auto" is 16, and 1 with ``preset="paper"``.
    objective : InfoMaxObjective, optional
        Its `trade_off` (here 0.1 by default, and 1 with ``preset="paper"``), `label_weight`, `weight_decay` and
        `temperature` are used; the other parameters are of terms that TIM does not have and must be left at their
        defaults.
    n_init : int, None or "auto"
        Start a single fit from the best of that many restarts of semi-supervised k-means; ``None`` starts it from
        merged clusters. "auto" is ``None``, and 100 with ``preset="paper"``.
    learning_rate : float or "auto"
        Adam's learning rate in the training on all rows. "auto" is 5e-3, and 1e-3 with ``preset="paper"``.
    max_iter : int or "auto"
        Largest number of steps of that training, which stops earlier once the classes of the rows settle. "auto" is
        300, and 1000 without stopping early with ``preset="paper"``.
    n_components : int, None or "auto"
        Number of principal components of the embeddings to keep; ``None`` keeps all. "auto" is 256, and
        ``None`` with ``preset="paper"``.
    normalize : bool, "sqrt" or "auto", default="auto"
        Scale rows to unit length. "sqrt" first takes the square root of each value, with its sign. "auto" is "sqrt"
        in a committee on features as after a ReLU (none negative, few large), else True.
    abstain : float, default=0.0
        Share of the unlabelled rows that get no class (-1, NaN or ""): those with the largest outlier scores. New rows
        with scores as large get none either.
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
    normalize_ : bool, "sqrt" or tuple of both
        How rows are normalized; a tuple has one for each embedding.
    sample_rows_ : int
        Number of rows that were held in memory.
    beta_ : float
        0: there are no mixed labels.
    class_sizes_ : {"equal", "estimated"}
        Whether classes were assumed to be equally large.
    search_ : dict
        The score of each value that was tried, by parameter, where the paper's search was used.
    n_members_ : int
        Number of members that were trained.
    stability_ : ndarray of shape (n_classes,)
        How well the members reproduce each class, from 0 to 1. A single fit has none.
    expected_accuracy_ : float
        Share of the labels that were predicted by the members that did not see them. A single fit has none.
    label_issues_ : list of LabelIssue
        Labelled rows that look mislabelled, the most suspect first. Empty for a single fit.
    label_quality_ : ndarray of shape (n_rows,)
        The probability of a row's label by the members that did not see it; NaN for a single fit.
    calibration_ : float
        Factor of the logits in the probabilities, where a committee's head was trained on all rows; otherwise 1.
    outlier_threshold_ : float
        A row with larger ``outlier_scores`` gets no class; infinite unless ``abstain`` is given.
    exemplars_ : Exemplars
        Rows of each class that ``extend`` trains on.
    trade_off_, weight_decay_ : float
        The values that were used.
    history_ : list of dict
        The terms of the objective at every step; in a committee their mean over the members.
    n_iter_ : int
        Number of steps.
    head_ : Head
        The trained prototypes.
    """

    marginal_rows = "unlabelled"
    _own_defaults: ClassVar[dict[str, Any]] = {**UnsearchedEstimator._own_defaults, "trade_off": 0.1}
    _published: ClassVar[dict[str, Any]] = {"trade_off": 1.0}


class PIM(PlainInfoMaxEstimator):
    """CE + M + lambda C: RPIM without its transformation, pseudo-labels and mixed labels.

    ``RPIM(objective=InfoMaxObjective(h="none", pseudo_labels=False, mixed_labels=False), ...)`` with the same number of
    members gives the same result, bit for bit. The PIM of the literature is ``PIM(preset="paper")``: lambda searched
    without labels, weight decay 0.01, one fit of 1000 steps.

    See `RPIM` for further attributes.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes, known and new together. ``None`` estimates it.
    preset : {"default", "paper"}
        What a parameter left at "auto" becomes. "paper" is the published procedure, which no other parameter may
        contradict but `n_init` and `max_iter`, its cost; see `RPIM`.
    n_members : int or "auto", default=1
        Number of members of the committee. 1 is a single fit; "auto" is 16, and 1 with ``preset="paper"``.
    objective : InfoMaxObjective, optional
        Its `trade_off`, `label_weight`, `weight_decay`, `temperature` and `class_sizes` are used; the other
        parameters are of terms that PIM does not have and must be left at their defaults.
    search : {"auto", "paper"}
        "paper" searches lambda as published, where it is "auto". "auto" leaves it to the preset.
    n_init : int, None or "auto"
        Start a single fit from the best of that many restarts of semi-supervised k-means; ``None`` starts it from
        merged clusters. "auto" is ``None``, and 100 with ``preset="paper"``.
    learning_rate : float or "auto"
        Adam's learning rate in the training on all rows. "auto" is 5e-3, and 1e-3 with ``preset="paper"``.
    max_iter : int or "auto"
        Largest number of steps of that training, which stops earlier once the classes of the rows settle. "auto" is
        300, and 1000 without stopping early with ``preset="paper"``.
    n_components : int, None or "auto"
        Number of principal components of the embeddings to keep; ``None`` keeps all. "auto" is 256, and
        ``None`` with ``preset="paper"``.
    normalize : bool, "sqrt" or "auto", default="auto"
        Scale rows to unit length. "sqrt" first takes the square root of each value, with its sign. "auto" is "sqrt"
        in a committee on features as after a ReLU (none negative, few large), else True.
    abstain : float, default=0.0
        Share of the unlabelled rows that get no class (-1, NaN or ""): those with the largest outlier scores. New rows
        with scores as large get none either.
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
    normalize_ : bool, "sqrt" or tuple of both
        How rows are normalized; a tuple has one for each embedding.
    sample_rows_ : int
        Number of rows that were held in memory.
    beta_ : float
        0: there are no mixed labels.
    class_sizes_ : {"equal", "estimated"}
        Whether classes were assumed to be equally large.
    search_ : dict
        The score of each value that was tried, by parameter, where the paper's search was used.
    n_members_ : int
        Number of members that were trained.
    stability_ : ndarray of shape (n_classes,)
        How well the members reproduce each class, from 0 to 1. A single fit has none.
    expected_accuracy_ : float
        Share of the labels that were predicted by the members that did not see them. A single fit has none.
    label_issues_ : list of LabelIssue
        Labelled rows that look mislabelled, the most suspect first. Empty for a single fit.
    label_quality_ : ndarray of shape (n_rows,)
        The probability of a row's label by the members that did not see it; NaN for a single fit.
    calibration_ : float
        Factor of the logits in the probabilities, where a committee's head was trained on all rows; otherwise 1.
    outlier_threshold_ : float
        A row with larger ``outlier_scores`` gets no class; infinite unless ``abstain`` is given.
    exemplars_ : Exemplars
        Rows of each class that ``extend`` trains on.
    trade_off_, weight_decay_ : float
        The values that were used.
    history_ : list of dict
        The terms of the objective at every step; in a committee their mean over the members.
    n_iter_ : int
        Number of steps.
    head_ : Head
        The trained prototypes.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = PlainInfoMaxEstimator._parameter_constraints
    _own_defaults: ClassVar[dict[str, Any]] = {"weight_decay": 0.01}

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        preset: Literal["default", "paper"] = "default",
        n_members: int | Literal["auto"] = 1,
        objective: InfoMaxObjective | None = None,
        search: Literal["auto", "paper"] = AUTO,
        n_init: int | Literal["auto"] | None = AUTO,
        learning_rate: float | Literal["auto"] = AUTO,
        max_iter: int | Literal["auto"] = AUTO,
        n_components: int | Literal["auto"] | None = AUTO,
        normalize: bool | str = "auto",
        abstain: float = 0.0,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.preset = preset
        self.n_members = n_members
        self.objective = objective
        self.search = search
        self.n_init = n_init
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.n_components = n_components
        self.normalize = normalize
        self.abstain = abstain
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
