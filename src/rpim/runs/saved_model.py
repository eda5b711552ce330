"""Serialize a fitted estimator to JSON and tensors, and restore it bit by bit; no pickle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from rpim import estimators as methods
from rpim.core.exemplars import Exemplars
from rpim.core.head import Head
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.infomax import InfoMaxEstimator
from rpim.estimators.objective import InfoMaxObjective

METHODS: dict[str, type[DiscoveryEstimator]] = {name.lower(): getattr(methods, name) for name in methods.__all__}
"""Estimators by the names used on the command line and in run folders."""

_FOUND = (
    "n_iter_",
    "n_members_",
    "expected_accuracy_",
    "trade_off_",
    "beta_",
    "weight_decay_",
    "class_sizes_",
    "calibration_",
    "n_classes_low_",
    "n_classes_high_",
    "sample_rows_",
)
_REMOVED = ("n_starts", "calibrate")
"""Parameters of older versions."""
_MEMORY = "memory."
_TABLES = ("search_", "n_classes_curve_")


def describe(model: DiscoveryEstimator) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The JSON facts and the tensors that `restore` needs."""
    check_is_fitted(model)
    head: Head = model.head_
    facts = {
        "method": type(model).__name__.lower(),
        "classes": model.classes_.tolist(),
        "n_known": len(model.known_classes_),
        "label_type": "str" if model.classes_.dtype.kind == "U" else model.classes_.dtype.name,
        "n_features": int(model.n_features_in_),
        "parameters": _parameters(model),
        "resolved": _resolved(model),
        "transform": head.transform_name,
        "temperature": head.temperature,
        "outlier_threshold": json_value(model.outlier_threshold_),
        "fitted": {name: json_value(getattr(model, name)) for name in _FOUND if hasattr(model, name)},
        "tables": {name: _pairs(getattr(model, name)) for name in _TABLES if hasattr(model, name)},
    }
    tensors = head.tensors()
    if model._directions is not None:
        tensors["components"] = model._directions
    if hasattr(model, "exemplars_"):
        tensors |= {f"{_MEMORY}{name}": value for name, value in model.exemplars_.tensors().items()}
    return facts, {name: value.detach().cpu().contiguous() for name, value in tensors.items()}


def restore(facts: dict[str, Any], tensors: dict[str, Tensor]) -> DiscoveryEstimator:
    """Restore the estimator on the CPU, ready for prediction; the caller sets ``labels_``.

    Raises
    ------
    KeyError, TypeError, ValueError
        If the facts and tensors do not match.
    """
    model = METHODS[facts["method"]](**_without_removed(facts["parameters"]))
    classes = np.asarray(facts["classes"], dtype=facts["label_type"])
    if classes.dtype.kind not in "biufU":
        raise ValueError(f"its labels are of type {facts['label_type']}")
    n_known = int(facts["n_known"])
    head = Head.from_tensors(tensors, facts["transform"], float(facts["temperature"]))
    components = tensors.get("components")
    n_features = int(facts["n_features"])
    expected = (len(classes), n_features if components is None else components.shape[1])
    if head.prototypes.shape != expected:
        raise ValueError(f"the prototypes have shape {tuple(head.prototypes.shape)}, not {expected}")
    if head.offsets is not None and head.offsets.shape != expected[:1]:
        raise ValueError(f"the offsets have shape {tuple(head.offsets.shape)}, not {expected[:1]}")
    fitted = {name: from_json_value(value) for name, value in facts["fitted"].items() if name in _FOUND}
    fitted |= {name: _from_pairs(value) for name, value in facts["tables"].items() if name in _TABLES}
    head.calibration = float(fitted.get("calibration_", 1.0))
    if facts.get("outlier_threshold") is not None:
        fitted["outlier_threshold_"] = float(facts["outlier_threshold"])
    fitted |= {
        "head_": head,
        "classes_": classes,
        "known_classes_": classes[:n_known],
        "new_classes_": classes[n_known:],
        "n_classes_": len(classes),
        "n_features_in_": n_features,
    }
    remembered = {name.removeprefix(_MEMORY): value for name, value in tensors.items() if name.startswith(_MEMORY)}
    if remembered:
        fitted["exemplars_"] = Exemplars.from_tensors(remembered, *expected)
    for name, value in fitted.items():
        setattr(model, name, value)
    model._set_components(components)
    return model


def _without_removed(parameters: dict[str, Any]) -> dict[str, Any]:
    """The parameters of this version, the objective as an object; those of older versions are dropped."""
    kept = {name: value for name, value in parameters.items() if name not in _REMOVED}
    if kept.get("objective") is not None:
        kept["objective"] = InfoMaxObjective(**kept["objective"])
    return {**kept, "search": "auto"} if kept.get("search") == "held-out" else kept


def _parameters(model: DiscoveryEstimator) -> dict[str, Any]:
    """The constructor's parameters, the objective's as a dict of their own.

    A random state that is not a number becomes None.
    """
    given = {name: json_value(value) for name, value in model.get_params(deep=False).items()}
    if isinstance(model, InfoMaxEstimator) and model.objective is not None:
        given["objective"] = {name: json_value(value) for name, value in model.objective.get_params().items()}
    return given


def _resolved(model: DiscoveryEstimator) -> dict[str, Any]:
    """The resolved values of parameters left at "auto" (or None, for the number of classes)."""
    given = model.get_params()
    found: dict[str, Any] = {"n_classes": model.n_classes_} if given.get("n_classes") is None else {}
    for nested, value in given.items():
        name = nested.removeprefix("objective__")
        if name in model.absent_terms:
            continue
        if isinstance(value, str) and value == "auto":
            searched = f"{name}_" in _FOUND and hasattr(model, f"{name}_")
            found[name] = getattr(model, f"{name}_") if searched else model._resolved(name)
    return {name: json_value(value) for name, value in found.items()}


def json_value(value: Any) -> Any:
    """A JSON scalar: number, string, bool or None; NaN and everything else become None."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float) else None


def from_json_value(value: Any) -> Any:
    """The inverse for numbers: None becomes NaN."""
    return math.nan if value is None else value


def _pairs(table: Any) -> Any:
    """A dict with numeric keys as a list of pairs, because JSON keys are strings."""
    if isinstance(table, dict) and all(isinstance(key, str) for key in table):
        return {key: _pairs(value) for key, value in table.items()}
    if isinstance(table, dict):
        return [[json_value(key), json_value(value)] for key, value in table.items()]
    return json_value(table)


def _from_pairs(stored: Any) -> Any:
    if isinstance(stored, dict):
        return {key: _from_pairs(value) for key, value in stored.items()}
    if isinstance(stored, list):
        return {key: from_json_value(value) for key, value in stored}
    return stored
