"""RPIM, Regularized Parametric InfoMax.

Tan, Zhang, Yang, Sun and Huang, "Revisiting Information Maximization for Generalized Category Discovery", 2024.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from numpy.typing import ArrayLike

from rpim._common.errors import InputError, choose
from rpim.estimators.count_classes import ESTIMATORS
from rpim.estimators.infomax import InfoMaxEstimator
from rpim.estimators.objective import AUTO, InfoMaxObjective
from rpim.estimators.problem import ClassCount
from rpim.estimators.search import BUDGETS


class RPIM(InfoMaxEstimator):
    """Give every row its class: a known one, or a newly discovered one.

    A linear classifier on (refined) embeddings, trained on the full batch to maximize the mutual information between
    rows and classes. The objective makes predictions confident and classes evenly used, and has labels, Sinkhorn
    pseudo-labels, mixed labels and a learned shift of each embedding.

    By default a fit is a committee: `n_members` short fits, which differ in representation and initialization and do
    not see a part of the labels, are matched, averaged and distilled into one linear head. A single fit varies by
    several points with its initialization; a committee varies less, and its confidence is calibrated.

    Parameters
    ----------
    n_classes : int, optional
        Number of classes, known and new together. ``None`` estimates it.
    preset : {"default", "paper"}
        What a parameter left at "auto" becomes. "paper" is the whole published procedure: lambda and weight decay
        searched, one fit from the best of 100 restarts of k-means, 1000 steps of Adam at 1e-3, beta 0.05, all features.
        ``fit`` raises an error where a parameter contradicts it. What the paper leaves free may be given (e.g.
        `trade_off` and `weight_decay` instead of the search, `eta`, the parts of its ablation), and so may `n_init` and
        `max_iter`, which are the cost of the procedure.
    n_members : int or "auto"
        Number of members of the committee. 1 is a single fit, whose probabilities are overconfident. "auto" is 16, and
        1 with ``preset="paper"``.
    objective : InfoMaxObjective, optional
        The weights and terms of the objective; ``None`` is ``InfoMaxObjective()``. Its parameters are nested ones:
        ``set_params(objective__eta=0.1)``.
    search : {"auto", "paper"}
        "paper" searches lambda and the weight decay as the paper does, where they are "auto". "auto" leaves it to the
        preset.
    n_init : int, None or "auto"
        Start a single fit from the best of that many restarts of semi-supervised k-means; ``None`` starts it from
        merged clusters. "auto" is ``None``, and 100 with ``preset="paper"``.
    learning_rate : float or "auto"
        Adam's learning rate in the training on all rows. "auto" is 5e-3, and 1e-3 with ``preset="paper"``.
    max_iter : int or "auto"
        Largest number of steps of that training, which stops earlier once the classes of the rows settle. "auto" is
        300, and 1000 without stopping early with ``preset="paper"``.
    n_components : int, None or "auto"
        Number of principal components of the embeddings to keep, of each where there are several; ``None`` keeps all.
        "auto" is 256, and ``None`` with ``preset="paper"``.
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
    classes_ : ndarray of shape (n_classes,)
        All classes, the known ones first.
    known_classes_ : ndarray
        The classes with labels in ``fit``.
    new_classes_ : ndarray
        The discovered classes.
    n_classes_ : int
        Number of classes.
    n_classes_low_, n_classes_high_ : int
        95 % interval of the number of classes, where it was estimated, by ``fit`` or by ``extend``.
    n_classes_curve_ : dict
        What the estimate rests on: the number of classes for each neighborhood size.
    n_features_in_ : int
        Number of features of X.
    widths_ : tuple of int
        Number of columns of each embedding; more than one number where X has several.
    normalize_ : bool, "sqrt" or tuple of both
        How rows are normalized; a tuple has one for each embedding.
    components_ : ndarray of shape (n_components, n_features) or None
        The principal components that were kept; ``None`` where all features are.
    n_members_ : int
        Number of members that were trained.
    stability_ : ndarray of shape (n_classes,)
        How well the members reproduce each class, from 0 to 1: the mean Jaccard index of the class and its match in a
        member. NaN where a class has no unlabelled row. A single fit has none.
    expected_accuracy_ : float
        Share of the labels that were predicted by the members that did not see them: what to expect on unlabelled rows
        of known classes. A single fit has none.
    label_issues_ : list of LabelIssue
        Labelled rows that look mislabelled, the most suspect first: ``row``, ``label``, ``suggested``,
        ``label_quality``, ``confidence``.
    label_quality_ : ndarray of shape (n_rows,)
        The probability of a row's label by the members that did not see it; NaN where there is no label, or every
        member saw it.
    trade_off_, beta_, weight_decay_ : float
        The values that were used; members of a committee may vary lambda, and the weight decay is their median.
    class_sizes_ : {"equal", "estimated"}
        Whether classes were assumed to be equally large.
    search_ : dict
        The score of each value that was tried, by parameter, where the paper's search was used.
    history_ : list of dict
        The terms of the objective at every step; in a committee their mean over the members.
    n_iter_ : int
        Number of steps.
    calibration_ : float
        Factor of the logits in the probabilities, where a committee's head was trained on all rows; otherwise 1.
    outlier_threshold_ : float
        A row with larger ``outlier_scores`` gets no class; infinite unless ``abstain`` is given.
    sample_rows_ : int
        Number of rows that were held in memory.
    exemplars_ : Exemplars
        Rows of each class that ``extend`` trains on.
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
    >>> model.score(X, y)
    1.0
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = InfoMaxEstimator._parameter_constraints

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        preset: Literal["default", "paper"] = "default",
        n_members: int | Literal["auto"] = AUTO,
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


def estimate_n_classes(
    X: ArrayLike,
    y: ArrayLike,
    *,
    method: str = ESTIMATORS[0],
    preset: str = "default",
    at_least: int | None = None,
    at_most: int | None = None,
    normalize: bool | str = "auto",
    random_state: Any = None,
    verbose: bool = False,
    widths: Sequence[int] = (),
) -> ClassCount:
    """Estimate the number of classes, known and new together, with a 95 % interval.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features), or list of such
        Embeddings; a list has those of several encoders.
    y : array-like of shape (n_rows,)
        The labels of the rows that have one; -1, None, NaN or "" for the others.
    method : {"neighbors", "max-acc", "max-acc-pim"}
        "neighbors" counts how many of the rows around labelled ones are labelled too; it takes seconds. "max-acc" is
        GCD's: the number of k-means clusters that fits the labels best. "max-acc-pim" is the same over PIM.
    preset : {"default", "paper"}
        "paper" gives Max-ACC the published budget, which takes minutes to hours; the default is a shortened search.
    at_least, at_most : int, optional
        Bounds of the answer.
    normalize : bool, "sqrt" or "auto", default="auto"
        Scale rows to unit length. "sqrt" first takes the square root of each value, with its sign. "auto" is "sqrt"
        in a committee on features as after a ReLU (none negative, few large), else True.
    random_state : int, RandomState instance or None
        Makes the estimate repeatable.
    verbose : bool
        Show progress with the time left on a terminal.
    widths : sequence of int
        The number of columns of each embedding, where X is one matrix with several side by side.

    Returns
    -------
    ClassCount
        ``n_classes``, the interval from ``low`` to ``high``, and the ``curve`` that it rests on.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> X, y = make_blobs(1200, n_features=16, centers=12, cluster_std=0.5, random_state=0)
    >>> seen = [c if c < 8 and i % 2 else -1 for i, c in enumerate(y)]
    >>> estimate_n_classes(X, seen, random_state=0).n_classes
    12
    """
    choose("The method", method, ESTIMATORS)
    choose("The preset", preset, BUDGETS)
    if preset == "paper" and method == "neighbors":
        raise InputError("preset='paper' is for Max-ACC, but method is 'neighbors': give 'max-acc' or 'max-acc-pim'.")
    model = RPIM(normalize=normalize, random_state=random_state, verbose=verbose)
    return model._count_classes(X, y, method, preset, at_least, at_most, widths)
