"""The objective of RIM, TIM, PIM and RPIM as one object with nested parameters, and what "auto" becomes in a preset."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Literal, TypeVar

import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils._param_validation import Interval, StrOptions
from torch import Tensor

from rpim._common.errors import InputError
from rpim.core.head import Head
from rpim.core.kmeans import ClassSizes
from rpim.core.objective import Objective
from rpim.core.training import Schedule
from rpim.core.transforms import TRANSFORMS

AUTO: Final = "auto"

PRESETS: dict[str, dict[str, Any]] = {
    "default": {"search": None, "n_members": 16, "n_init": None, "n_components": 256},
    "paper": {
        "search": "paper",
        "n_members": 1,
        "n_init": 100,
        "n_components": None,
        "normalize": True,
        "beta": 0.05,
        "class_sizes": "equal",
        "threshold": 0.5,
        "temperature": 25.0,
    },
}
"""What a parameter left at "auto" becomes. One that is not listed varies between the members of a committee (see
members.py), is searched where the paper searches it, and otherwise takes its value from `DEFAULTS`."""

SCHEDULES: dict[str, dict[str, Any]] = {
    "default": {"learning_rate": 5e-3, "max_iter": 300, "tol": 1e-3},
    "paper": {"learning_rate": 1e-3, "max_iter": 1000, "tol": 0.0},
}
"""The training on all rows of each preset: until the classes of the rows settle, or as published."""

DEFAULTS: dict[str, Any] = {"trade_off": 0.1, "class_sizes": "equal", "beta": 0.2, "weight_decay": 0.01}
DECAY_CLASSES, SCALE_CLASSES = 300, 200
"""With more classes weight decay falls, and the initial prototypes grow."""


def decay_among(n_classes: int, usual: float) -> float:
    """The weight decay of a head with so many classes.

    A prototype is held by the rows of its class, one part in K of the objective. With many classes a fixed weight decay
    outweighs them: it shrinks the prototypes until new classes have no row left, and labels hold up the known ones.

    >>> decay_among(100, 0.01), decay_among(1000, 0.01)
    (0.01, 0.003)
    """
    return usual * min(1.0, DECAY_CLASSES / n_classes)


def prototype_scale(n_classes: int) -> float:
    """The factor of the initial prototypes of a head with so many classes.

    The logit by which one class stands out among K grows with log K. At the centroids themselves the softmax over many
    classes is nearly uniform: the first steps lose new classes, and it takes many more to find them again.

    >>> prototype_scale(100), round(prototype_scale(10_000), 2)
    (1.0, 1.74)
    """
    return max(1.0, math.log(n_classes) / math.log(SCALE_CLASSES))


@dataclass(frozen=True)
class Hyperparameters:
    """The parameters of the objective that are searched, varied or estimated, with the values of a fit."""

    trade_off: float
    beta: float
    weight_decay: float
    class_sizes: ClassSizes = "equal"


class InfoMaxObjective(BaseEstimator):  # type: ignore[misc]
    """What training minimizes: CE or L_S, M, lambda C and L_R, on embeddings refined by h.

    The parameters are nested ones of the estimator: ``RPIM(objective=InfoMaxObjective(eta=0.1))`` is
    ``RPIM().set_params(objective__eta=0.1)``, and a grid search goes over ``objective__trade_off``.

    Parameters
    ----------
    h : {"semantic-bias", "none", "linear", "linear-bias", "semantic-scale-bias", "mlp"}
        Transformation of the embedding.
    h_init : {"identity", "random"}
        Whether h starts as the identity, or with weights and biases as ``torch.nn.Linear`` draws them.
    rank : int, optional
        Makes the semantic bias low-rank, x + UVx + b, with ``2 * rank * n_features`` parameters instead of
        ``n_features ** 2``.
    trade_off : float or "auto"
        lambda, the weight of the conditional entropy C. "auto" is 0.1 (RIM: 1.0), or the paper's search with
        ``preset="paper"``; members of a committee vary it where classes differ in size.
    eta : float
        Weight of L_R relative to lambda.
    beta : float or "auto"
        Weight of the pseudo-label in a mixed label. "auto" is 0.2, and 0.05 with ``preset="paper"``.
    threshold : float
        Minimum probability of a confident pseudo-label.
    temperature : float
        tau, the factor of the logits.
    weight_decay : float or "auto"
        L2 penalty of Adam. "auto" is 0.01, and less with more than 300 classes or where it would empty classes, or the
        paper's search with ``preset="paper"``.
    class_sizes : {"auto", "equal", "estimated"}
        Whether classes are assumed to be equally large, or as large as the initial clusters. With "auto" a committee
        assumes equal sizes as far as its members find them equal; a single fit assumes equal sizes.
    pseudo_labels : bool
        Whether there is L_R: the entropy of rows with a confident Sinkhorn pseudo-label.
    mixed_labels : bool
        Whether there is L_S: the cross-entropy with labels mixed with their pseudo-labels.
    supervision : {"mixed", "added"}
        Whether L_S replaces the cross-entropy CE or is added to it.
    label_weight : float
        Weight of CE and L_S; 1 in every method as published but in TIM's own paper.
    sinkhorn_epsilon : float
        Sinkhorn scales z^(1/epsilon).
    sinkhorn_iterations : int
        Number of Sinkhorn iterations.

    Examples
    --------
    >>> from rpim import RPIM, InfoMaxObjective
    >>> model = RPIM(n_classes=6, objective=InfoMaxObjective(trade_off=0.2))
    >>> model.set_params(objective__eta=0.1).objective
    InfoMaxObjective(eta=0.1, trade_off=0.2)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "h": [StrOptions(set(TRANSFORMS))],
        "h_init": [StrOptions({"identity", "random"})],
        "rank": [None, Interval(Integral, 1, None, closed="left")],
        "trade_off": [StrOptions({AUTO}), Interval(Real, 0, None, closed="neither")],
        "eta": [Interval(Real, 0, None, closed="left")],
        "beta": [StrOptions({AUTO}), Interval(Real, 0, 1, closed="both")],
        "threshold": [Interval(Real, 0, None, closed="left")],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "weight_decay": [StrOptions({AUTO}), Interval(Real, 0, None, closed="left")],
        "class_sizes": [StrOptions({AUTO, "equal", "estimated"})],
        "pseudo_labels": ["boolean"],
        "mixed_labels": ["boolean"],
        "supervision": [StrOptions({"mixed", "added"})],
        "label_weight": [Interval(Real, 0, None, closed="left")],
        "sinkhorn_epsilon": [Interval(Real, 0, None, closed="neither")],
        "sinkhorn_iterations": [Interval(Integral, 1, None, closed="left")],
    }

    def __init__(
        self,
        *,
        h: str = "semantic-bias",
        h_init: Literal["identity", "random"] = "identity",
        rank: int | None = None,
        trade_off: float | Literal["auto"] = AUTO,
        eta: float = 0.03,
        beta: float | Literal["auto"] = AUTO,
        threshold: float = 0.5,
        temperature: float = 25.0,
        weight_decay: float | Literal["auto"] = AUTO,
        class_sizes: Literal["auto", "equal", "estimated"] = AUTO,
        pseudo_labels: bool = True,
        mixed_labels: bool = True,
        supervision: Literal["mixed", "added"] = "mixed",
        label_weight: float = 1.0,
        sinkhorn_epsilon: float = 1.0,
        sinkhorn_iterations: int = 3,
    ) -> None:
        self.h = h
        self.h_init = h_init
        self.rank = rank
        self.trade_off = trade_off
        self.eta = eta
        self.beta = beta
        self.threshold = threshold
        self.temperature = temperature
        self.weight_decay = weight_decay
        self.class_sizes = class_sizes
        self.pseudo_labels = pseudo_labels
        self.mixed_labels = mixed_labels
        self.supervision = supervision
        self.label_weight = label_weight
        self.sinkhorn_epsilon = sinkhorn_epsilon
        self.sinkhorn_iterations = sinkhorn_iterations

    def __eq__(self, other: object) -> bool:
        """Whether the parameters are the same, as for scikit-learn's kernels."""
        return isinstance(other, InfoMaxObjective) and self.get_params() == other.get_params()

    __hash__ = None  # type: ignore[assignment]


OBJECTIVE_DEFAULTS: dict[str, Any] = {
    name: parameter.default for name, parameter in inspect.signature(InfoMaxObjective).parameters.items()
}
"""Every parameter of the objective with its default."""


Own = TypeVar("Own", bound="InfoMaxParameters")


class InfoMaxParameters(BaseEstimator):  # type: ignore[misc]
    """The parameters of RIM, TIM, PIM and RPIM, the objective's nested: checked, and as training takes them."""

    preset: str
    objective: InfoMaxObjective | None
    learning_rate: Any
    max_iter: Any
    marginal_rows: Literal["all", "unlabelled"] = "all"
    absent_terms: ClassVar[dict[str, Any]]
    _own_defaults: ClassVar[dict[str, Any]] = {}
    """What "auto" is for this method, in any preset."""
    _published: ClassVar[dict[str, Any]] = {}
    """What "auto" is for this method with ``preset="paper"``."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Get the parameters, with `deep` those of the objective too, as ``objective__eta``.

        Parameters
        ----------
        deep : bool
            Include the parameters of the objective.

        Returns
        -------
        dict
            Values by the name of the parameter.
        """
        params: dict[str, Any] = super().get_params(deep=deep)
        if deep and self.objective is None:
            params |= {f"objective__{name}": value for name, value in OBJECTIVE_DEFAULTS.items()}
        return params

    def set_params(self: Own, **params: Any) -> Own:
        """Set parameters; ``objective__eta=0.1`` works where no objective was given, too.

        Parameters
        ----------
        **params : dict
            Values by the name of the parameter.

        Returns
        -------
        InfoMaxEstimator
            The estimator itself.
        """
        if self.objective is None and any(name.startswith("objective__") for name in params):
            params = {"objective": InfoMaxObjective(), **params}
        super().set_params(**params)
        return self

    def _validate_params(self) -> None:
        super()._validate_params()
        if self.objective is not None:
            self.objective._validate_params()
            self._check_absent(self.objective)
        if self.preset == "paper":
            self._check_published()

    def _check_absent(self, objective: InfoMaxObjective) -> None:
        """Raise where a parameter is set of a term that the method does not have."""
        for name, absent in self.absent_terms.items():
            given = getattr(objective, name)
            if given not in (OBJECTIVE_DEFAULTS[name], absent):
                method = type(self).__name__
                raise InputError(f"{method} has no {name}, but {name}={given!r} was given: leave it out, or use RPIM.")

    def _check_published(self) -> None:
        """Raise where a parameter contradicts ``preset="paper"``."""
        published = {**PRESETS["paper"], "learning_rate": SCHEDULES["paper"]["learning_rate"], "label_weight": 1.0}
        if self._own_defaults.get("search", AUTO) is None:  # trade_off and weight_decay cannot replace a search
            published |= {**self._own_defaults, **self._published}
        for name, value in published.items():
            given = self._given(name)
            # The number of restarts, like max_iter, is what the procedure costs, not what it is; and rows may come
            # normalized.
            free = name in self.absent_terms or (name == "n_init" and given is not None) or given is False
            if not free and not (isinstance(given, str) and given == AUTO) and given != value:
                raise InputError(
                    f"{name}={given!r} contradicts preset='paper', which has {name}={value!r}: leave {name} out, or "
                    "use preset='default'."
                )

    def _terms(self) -> InfoMaxObjective:
        """The objective without the terms that the method does not have."""
        objective = InfoMaxObjective() if self.objective is None else self.objective
        return clone(objective).set_params(**self.absent_terms) if self.absent_terms else objective

    def _given(self, name: str) -> Any:
        """The parameter of the estimator or of its objective."""
        return getattr(self._terms() if name in OBJECTIVE_DEFAULTS else self, name)

    def _resolved(self, name: str) -> Any:
        """The parameter, or what the preset makes of "auto" (which stays "auto" where it is searched or varied)."""
        value = self._given(name)
        if not (isinstance(value, str) and value == AUTO):
            return value
        published = self._published if self.preset == "paper" else {}
        return {**PRESETS[self.preset], **self._own_defaults, **published}.get(name, AUTO)

    def _hyperparameters(self, n_classes: int) -> Hyperparameters:
        """The parameters as they were given, and the defaults of those that were not."""
        given = {name: self._resolved(name) for name in DEFAULTS}
        if not self._terms().mixed_labels:
            given["beta"] = 0.0
        found = {name: DEFAULTS[name] if value == AUTO else value for name, value in given.items()}
        if self._given("weight_decay") == AUTO and self.preset != "paper":
            found["weight_decay"] = decay_among(n_classes, found["weight_decay"])
        return Hyperparameters(**found)

    @property
    def _decay_is_free(self) -> bool:
        """Whether a training may lower the weight decay: where it is neither given, nor searched, nor published."""
        return self._given("weight_decay") == AUTO and self.preset != "paper" and self._resolved("search") != "paper"

    def _training_objective(self, found: Hyperparameters, class_shares: Tensor | None = None) -> Objective:
        terms = self._terms()
        return Objective(
            trade_off=found.trade_off,
            eta=terms.eta,
            beta=found.beta,
            threshold=terms.threshold,
            pseudo_labels=terms.pseudo_labels,
            mixed_labels=terms.mixed_labels,
            supervision=terms.supervision,
            label_weight=terms.label_weight,
            sinkhorn_epsilon=terms.sinkhorn_epsilon,
            sinkhorn_iterations=terms.sinkhorn_iterations,
            marginal_rows=self.marginal_rows,
            class_shares=class_shares,
        )

    def _schedule(self, found: Hyperparameters) -> Schedule:
        schedule = dict(SCHEDULES[self.preset])
        given = {name: getattr(self, name) for name in ("learning_rate", "max_iter")}
        schedule.update({name: value for name, value in given.items() if value != AUTO})
        return Schedule(weight_decay=found.weight_decay, **schedule)

    def _new_head(self, prototypes: Tensor) -> Head:
        terms = self._terms()
        # What starts at random numbers starts at the same ones in every training of a fit.
        generator = torch.Generator().manual_seed(0)
        transform = TRANSFORMS[terms.h].initial(prototypes, terms.rank, generator)
        transform = transform.randomized(generator) if terms.h_init == "random" else transform
        scale = 1.0 if self.preset == "paper" else prototype_scale(len(prototypes))
        return Head(prototypes * scale, transform, terms.temperature)


def nested_names(kind: type[BaseEstimator], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters under the names of ``set_params``: those of the objective may be given without ``objective__``.

    Commands and benchmark configs name ``trade_off`` what is ``objective__trade_off`` in Python.

    >>> from rpim import GCD, RPIM
    >>> nested_names(RPIM, {"eta": 0.1, "n_members": 4}), nested_names(GCD, {"temperature": 10.0})
    ({'objective__eta': 0.1, 'n_members': 4}, {'temperature': 10.0})
    """
    if "objective" not in inspect.signature(kind).parameters:
        return dict(parameters)
    return {f"objective__{name}" if name in OBJECTIVE_DEFAULTS else name: v for name, v in parameters.items()}
