"""What the files of a run folder must hold. A file that does not is damaged: nothing of it is used.

The checks raise ValueError; the model is checked where it is restored, in `saved_model`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rpim.data.labels import unlabelled_rows

if TYPE_CHECKING:
    from rpim.runs.assignments import Assignments

Check = Callable[[Any], bool]


def _is_whole(least: int) -> Check:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


def _is_number(least: float = -math.inf, most: float = math.inf) -> Check:
    return lambda value: (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and abs(value) < 2.0**1000  # so finite, as a float too
        and least <= value <= most
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _is_dict_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _is_none_or(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _is_label(value: Any) -> bool:
    return isinstance(value, bool | str) or _is_number()(value)


def _has(schema: dict[str, Check]) -> Check:
    """Whether a dict has values that pass; a name that ends in "?" may be missing."""

    def check(value: Any) -> bool:
        return isinstance(value, dict) and not any(_wrong(value, schema))

    return check


def _wrong(facts: dict[str, Any], schema: dict[str, Check]) -> list[str]:
    return [
        name.rstrip("?")
        for name, check in schema.items()
        if (name.rstrip("?") in facts or not name.endswith("?")) and not check(facts.get(name.rstrip("?")))
    ]


_SCALAR = _is_none_or(_is_label)
_FITTED: dict[str, Check] = {
    "n_iter_?": _is_whole(0),
    "n_members_?": _is_whole(1),
    "sample_rows_?": _is_whole(1),
    "expected_accuracy_?": _is_none_or(_is_number(0, 1)),
    "calibration_?": _is_number(0),
}
_PROVENANCE: dict[str, Check] = {
    "created": _is_text,
    "duration_seconds?": _is_none_or(_is_number(0)),
    "command?": _is_none_or(_is_list_of(_is_text)),
    "seed?": _SCALAR,
    "versions?": _is_dict_of(_is_text),
    "data": _has(
        {
            "path?": _is_none_or(_is_text),
            "fingerprint": _is_text,
            "metadata?": lambda value: isinstance(value, dict),
        }
    ),
    "refit?": _has({"of": _is_text, "version": _is_whole(0)}),
    "extends?": lambda value: isinstance(value, dict),
}
_RUN: dict[str, Check] = {
    "rows": _is_whole(1),
    "method": _is_text,
    "classes": _is_list_of(_is_label),
    "n_known": _is_whole(0),
    "label_type": lambda value: _is_text(value) and (value == "str" or np.dtype(value).kind in "biuf"),
    "n_features": _is_whole(1),
    "parameters": _is_dict_of(lambda value: _SCALAR(value) or _is_dict_of(_SCALAR)(value)),
    "resolved": _is_dict_of(_SCALAR),
    "transform": _is_text,
    "temperature": _is_number(0),
    "outlier_threshold?": _is_none_or(_is_number()),
    "fitted": lambda value: _is_dict_of(_SCALAR)(value) and not _wrong(value, _FITTED),
    "tables": lambda value: isinstance(value, dict),
    "class_of_prototype?": _is_list_of(_is_whole(0)),
    "stability?": _is_none_or(_is_list_of(_is_none_or(_is_number(0, 1)))),
    "suggested_names?": _is_none_or(_is_list_of(_is_text)),
    "provenance": _has(_PROVENANCE),
}


def check_facts(facts: dict[str, Any]) -> None:
    """Check the contents of ``run.json``."""
    wrong = _wrong(facts, _RUN)
    if wrong == ["provenance"] and isinstance(facts.get("provenance"), dict):
        wrong = [f"provenance.{name}" for name in _wrong(facts["provenance"], _PROVENANCE)]
    if wrong:
        raise ValueError(f"{wrong[0]} is missing or not what it should be")
    n = len(facts["classes"])
    if facts["n_known"] > n or len(set(facts["classes"])) < n:
        raise ValueError(f"it has {facts['n_known']} known classes among {n}, or a class twice")
    if (facts["label_type"] == "str") != all(isinstance(name, str) for name in facts["classes"]):
        raise ValueError(f"its classes are not of type {facts['label_type']}")
    for name in ("stability", "suggested_names"):
        if facts.get(name) is not None and len(facts[name]) != n:
            raise ValueError(f"{name} is of {len(facts[name])} classes, not of {n}")
    before = facts["provenance"].get("extends")
    while before is not None:
        if not _has(_PROVENANCE)(before):
            raise ValueError("provenance.extends is not what it should be")
        before = before.get("extends")


def check_history(steps: Any) -> None:
    """Check the terms of the objective at every step."""
    if not _is_list_of(_is_dict_of(_is_none_or(_is_number())))(steps):
        raise ValueError("it is not a list of terms")


def check_assignments(found: Assignments, facts: dict[str, Any]) -> None:
    """Check that the rows belong to the run: as many, in its classes, and with values in their ranges."""
    if len(found) != facts["rows"]:
        raise ValueError(f"it has {len(found)} rows, not {facts['rows']}")
    classes = np.asarray(facts["classes"], dtype=facts["label_type"])
    if found.ids.ndim != 1 or found.ids.dtype.kind not in "iuU" or len(np.unique(found.ids)) < len(found):
        raise ValueError("its ids are not unique texts or whole numbers")
    for name in ("labels", "runner_up", "suggested"):
        values: NDArray[Any] | None = getattr(found, name)
        if values is not None and not (_is_flat(values) and (np.isin(values, classes) | unlabelled_rows(values)).all()):
            raise ValueError(f"{name} has classes that the run has not")
    if found.given is not None and not _is_flat(found.given):
        raise ValueError("its given labels are not flat")
    for name in ("confidence", "runner_up_confidence"):
        values = getattr(found, name)
        if not (_is_flat(values) and values.dtype.kind == "f" and (np.abs(values) <= 1.001).all()):
            raise ValueError(f"{name} is not a probability")
    for name in ("outlier", "label_quality", "suggested_confidence"):
        values = getattr(found, name)
        if values is not None and not (_is_flat(values) and values.dtype.kind == "f"):
            raise ValueError(f"{name} is not of numbers")


def _is_flat(values: NDArray[Any]) -> bool:
    return values.ndim == 1 and values.dtype.kind != "O"
