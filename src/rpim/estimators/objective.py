"""The objective of RIM, TIM, PIM and RPIM as one object with nested parameters, and what "auto" becomes in a preset."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, ClassVar, Final, Literal

from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, StrOptions

from rpim.core.initialization import ClassSizes
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
committee.py), is searched where the paper searches it, and otherwise takes its value from `DEFAULTS`."""

SCHEDULES: dict[str, dict[str, Any]] = {
    "default": {"learning_rate": 5e-3, "max_iter": 300, "tol": 1e-3},
    "paper": {"learning_rate": 1e-3, "max_iter": 1000, "tol": 0.0},
}
"""The training on all rows of each preset: until the classes of the rows settle, or as published."""

DEFAULTS: dict[str, Any] = {"trade_off": 0.1, "class_sizes": "equal", "beta": 0.2, "weight_decay": 0.01}


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
        L2 penalty of Adam. "auto" is 0.01, or the paper's search with ``preset="paper"``.
    class_sizes : {"auto", "equal", "estimated"}
        Whether classes are assumed to be equally large, or as large as the initial clusters. "auto" decides it from the
        initial clusters in a committee; a single fit assumes equal sizes.
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
