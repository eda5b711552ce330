"""Serialize a fitted estimator to JSON and tensors, and restore it bit by bit; no pickle.

`EmbeddingSpace` detects rows that do not come from the encoder of a run. The leading r principal directions of a sample
of embeddings explain more variance of other embeddings of the same encoder than r random directions do. For rows of
another encoder, or with permuted columns, they explain about r / D, as for random rows. (The mean of each row over its
columns is subtracted first, because it is invariant to permutations; that leaves D - 1 dimensions.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from rpim import estimators as methods
from rpim._common.errors import InputError
from rpim.core.head import Head
from rpim.core.sampling import Exemplars
from rpim.data.feature_set import FeatureSet
from rpim.data.labels import checked_widths
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.infomax import InfoMaxEstimator
from rpim.estimators.objective import InfoMaxObjective

METHODS: dict[str, type[DiscoveryEstimator]] = {name.lower(): getattr(methods, name) for name in methods.__all__}
"""Estimators by the names used on the command line and in run folders."""

_FOUND = (
    "normalize_",
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
    facts: dict[str, Any] = {
        "method": type(model).__name__.lower(),
        "classes": model.classes_.tolist(),
        "n_known": len(model.known_classes_),
        "label_type": "str" if model.classes_.dtype.kind == "U" else model.classes_.dtype.name,
        "n_features": int(model.n_features_in_),
        "widths": list(model.widths_),
        "parameters": _parameters(model),
        "resolved": _resolved(model),
        "transform": head.transform_name,
        "temperature": head.temperature,
        "outlier_threshold": json_value(model.outlier_threshold_),
        "fitted": {name: json_value(getattr(model, name)) for name in _FOUND if hasattr(model, name)},
        "tables": {name: _pairs(getattr(model, name)) for name in _TABLES if hasattr(model, name)},
    }
    if hasattr(model, "class_of_prototype_"):
        facts["class_of_prototype"] = model.class_of_prototype_.tolist()
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
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise ValueError(f"{name} has values that are not finite")
    head = Head.from_tensors(tensors, facts["transform"], float(facts["temperature"]))
    components = tensors.get("components")
    n_features = int(facts["n_features"])
    widths = checked_widths(facts.get("widths") or [n_features], n_features)
    if components is not None and len(components) != n_features:
        raise ValueError(f"the components have {len(components)} features, not {n_features}")
    merged = facts.get("class_of_prototype")
    if merged is not None and not all(isinstance(k, int) and 0 <= k < len(classes) for k in merged):
        raise ValueError("its prototypes are of classes that do not exist")
    n_prototypes = len(classes if merged is None else merged)
    expected = (n_prototypes, n_features if components is None else components.shape[1])
    if head.prototypes.shape != expected:
        raise ValueError(f"the prototypes have shape {tuple(head.prototypes.shape)}, not {expected}")
    if head.offsets is not None and head.offsets.shape != expected[:1]:
        raise ValueError(f"the offsets have shape {tuple(head.offsets.shape)}, not {expected[:1]}")
    fitted = {name: from_json_value(value) for name, value in facts["fitted"].items() if name in _FOUND}
    fitted |= {name: _from_pairs(value) for name, value in facts["tables"].items() if name in _TABLES}
    if isinstance(fitted.get("normalize_"), tuple) and len(fitted["normalize_"]) != len(widths):
        raise ValueError("its embeddings are not those that are normalized")
    head.calibration = float(fitted.get("calibration_", 1.0))
    try:
        head.proba_and_score(torch.zeros(1, expected[1]))
    except (RuntimeError, KeyError) as error:
        raise ValueError("its tensors do not fit together") from error
    if facts.get("outlier_threshold") is not None:
        fitted["outlier_threshold_"] = float(facts["outlier_threshold"])
    fitted |= {
        "head_": head,
        "classes_": classes,
        "known_classes_": classes[:n_known],
        "new_classes_": classes[n_known:],
        "n_classes_": len(classes),
        "n_features_in_": n_features,
        "widths_": widths,
    }
    if merged is not None:
        fitted["class_of_prototype_"] = np.asarray(merged, dtype=np.int64)
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
    """A JSON scalar: number, string, bool or None; a tuple becomes a list, and NaN and everything else None."""
    if isinstance(value, tuple):
        return [json_value(each) for each in value]
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float) else None


def from_json_value(value: Any) -> Any:
    """The inverse for numbers and tuples: None becomes NaN."""
    if isinstance(value, list):
        return tuple(value)
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


N_DIRECTIONS = 128
MIN_FEATURES = 128
MIN_FITTED_ROWS = 4 * N_DIRECTIONS
MIN_ROWS = 32
"""With fewer features or rows, the test has no power, and no rows are refused."""

LEAST_ALIGNMENT = 2.0
"""Rows with a smaller alignment are refused. Identical rows count as one; by chance one row in forty exceeds it."""

CLEAR_ALIGNMENT = 2 * LEAST_ALIGNMENT
"""If one half of the run's own rows has a smaller alignment with the other, no rows are refused."""

_SAMPLE = 4096


@dataclass(frozen=True, eq=False)
class EmbeddingSpace:
    """The embedding space of a run, to compare new rows with.

    Parameters
    ----------
    encoder : Any
        The encoder in the metadata of the features; None if unknown.
    directions : array of shape (D, r), or None
        The leading principal directions; None with too few rows or features, or if the spectrum is flat.
    """

    encoder: Any = None
    directions: NDArray[np.float16] | None = None

    @classmethod
    def of(cls, features: FeatureSet) -> EmbeddingSpace:
        """Estimate the space from a sample of the rows."""
        from sklearn.utils.extmath import randomized_svd

        encoder = features.metadata.get("encoder")
        rows = _centred(features.X[:: -(-len(features) // _SAMPLE)])  # (n, D)
        if len(rows) < MIN_FITTED_ROWS or features.n_features < MIN_FEATURES:
            return cls(encoder)
        n_directions = min(N_DIRECTIONS, features.n_features // 3)

        def leading(rows: NDArray[np.float32]) -> NDArray[np.float16]:
            directions: NDArray[np.float16] = randomized_svd(rows, n_directions, random_state=0)[2].T.astype(np.float16)
            return directions

        one, other = np.array_split(np.random.RandomState(0).permutation(len(rows)), 2)
        if _alignment(leading(rows[one]), rows[other]) < CLEAR_ALIGNMENT:
            return cls(encoder)  # flat spectrum, as after whitening
        return cls(encoder, np.ascontiguousarray(leading(rows)))  # (D, r)

    def alignment(self, features: FeatureSet) -> float | None:
        """Excess variance of the rows explained by the directions; None if it cannot be estimated."""
        if self.directions is None:
            return None
        rows = _centred(features.X[:_SAMPLE])  # (n, D)
        return None if len(rows) < MIN_ROWS else _alignment(self.directions, rows)

    def check(self, features: FeatureSet) -> None:
        """Raise if the rows do not come from the same encoder.

        Rows of another domain pass; few or identical rows may pass, because the test has no power.
        """
        what_to_do = "embed them with the same encoder, or use --any-encoder (any_encoder=True) to skip this check"
        encoder = features.metadata.get("encoder")
        if encoder is not None and self.encoder is not None:
            if encoder != self.encoder:
                raise InputError(
                    f"The rows were embedded by {encoder!r} but those of the run by {self.encoder!r}: {what_to_do}."
                )
            return
        alignment = self.alignment(features)
        if alignment is not None and alignment < LEAST_ALIGNMENT:
            raise InputError(
                f"The rows are not aligned with the principal directions of the run's embeddings, so they seem to come "
                f"from another encoder: {what_to_do}."
            )


def _alignment(directions: NDArray[np.float16], rows: NDArray[np.float32]) -> float:
    """The z-score of the explained variance under random rows.

    The explained share of one random row is Beta(r / 2, (d - r) / 2), with d = D - 1.
    """
    d, r = directions.shape[0] - 1, directions.shape[1]
    held = np.square(rows @ directions.astype(np.float32)).sum(axis=1).mean()
    return float((held - r / d) / np.sqrt(2 * r * (d - r) / (d * d * (d + 2))))


def _centred(matrix: NDArray[Any]) -> NDArray[np.float32]:
    """Subtract the mean of each row and normalize it; constant rows are dropped."""
    rows: NDArray[np.float64] = matrix.astype(np.float64)
    rows -= rows.mean(axis=1, keepdims=True)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows[largest[:, 0] > 0] / largest[largest > 0][:, None]  # so that no square overflows
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)
