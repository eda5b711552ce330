"""Methods and feature sets, as named in a config or on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sklearn.utils._param_validation import InvalidParameterError

from rpim._common.errors import InputError, choose, first_line, meant
from rpim.benchmark.splits import Split
from rpim.data.feature_set import FeatureSet
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.objective import nested_names
from rpim.runs.saved_model import METHODS

_SET_KEYS = ("path", "labels", "label_column", "feature_column", "split_column", "splits", "n_classes")
_DECIDED_HERE = ("n_classes", "random_state", "verbose")


@dataclass(frozen=True)
class Method:
    """A method with its parameters and display name: a row of the table."""

    name: str
    method: str
    parameters: dict[str, Any] = field(default_factory=dict)
    """Those of the objective without ``objective__``."""

    def estimator(self) -> DiscoveryEstimator:
        """The estimator with these parameters."""
        kind = METHODS[self.method]
        model: DiscoveryEstimator = kind().set_params(**nested_names(kind, self.parameters))
        return model


@dataclass(frozen=True)
class Set:
    """A feature set and how to read it: a column of the table."""

    name: str
    path: Path
    splits: Path | None = None
    n_classes: int | None = None
    labels: Path | None = None
    label_column: str | None = None
    feature_column: str | None = None
    split_column: str | None = None
    split: Split | None = None
    """The known classes, if not read from `splits`."""

    def read(self) -> FeatureSet:
        """The feature set."""
        return FeatureSet.read(
            self.path,
            self.labels,
            label_column=self.label_column,
            feature_column=self.feature_column,
            split_column=self.split_column,
        )


def checked_methods(said: Any) -> tuple[Method, ...]:
    """Check a list of method names, or a dict of names and parameters."""
    if isinstance(said, Mapping):
        return tuple(_method(name, entry) for name, entry in said.items()) or nothing("method")
    if not isinstance(said, Iterable) or isinstance(said, str):
        raise InputError(f"methods is {said!r}: give a list of names, or names with their parameters.")
    names = dict.fromkeys(str(name).strip() for name in said)
    return tuple(_method(name, {}) for name in names) or nothing("method")


def _method(name: str, entry: Any) -> Method:
    if not isinstance(entry, Mapping):
        raise InputError(f'The method {name!r} has {entry!r} for parameters: give {{"max_iter": 200}}, or {{}}.')
    parameters = {key: value for key, value in entry.items() if key != "method"}
    method = choose("The method", str(entry.get("method", name)), METHODS)
    model = METHODS[method]()
    for parameter in parameters:
        if parameter in _DECIDED_HERE:
            raise InputError(f"The method {name!r} sets {parameter}, which the benchmark sets itself: leave it out.")
        choose(f"The method {name!r}: the parameter", parameter, _parameter_names(model))
    parameters = {key.removeprefix("objective__"): value for key, value in parameters.items()}
    try:
        Method(name, method, parameters).estimator()._validate_params()
    except (InvalidParameterError, InputError) as error:
        raise InputError(f"The method {name!r}: {first_line(error)}.") from error
    return Method(name, method, parameters)


def _parameter_names(model: DiscoveryEstimator) -> list[str]:
    """What a config may set; parameters of the objective with and without ``objective__``."""
    names = [name for name in model.get_params() if name != "objective"]
    short = [name.removeprefix("objective__") for name in names]
    absent = model.absent_terms
    return [name for name in dict.fromkeys((*short, *names)) if name.removeprefix("objective__") not in absent]


def checked_sets(said: Any, splits: Any) -> tuple[Set, ...]:
    """Check a dict of names and paths or options; `splits` is the default for sets without their own."""
    if not isinstance(said, Mapping):
        raise InputError(f'sets is {said!r}: give names with paths, {{"birds": "birds.npz"}}.')
    return tuple(_set(str(name), entry, splits) for name, entry in said.items())


def _set(name: str, entry: Any, splits: Any) -> Set:
    facts = {"path": entry} if isinstance(entry, str) else entry
    if not isinstance(facts, Mapping) or not isinstance(facts.get("path"), str):
        raise InputError(f"The set {name!r} is {entry!r}: give its path.")
    for key, value in facts.items():
        choose(f"The set {name!r}: the entry", key, _SET_KEYS)
        if key != "n_classes" and not isinstance(value, str):
            raise InputError(f"The set {name!r}: {key} is {value!r}: give text.")
    n_classes: Any = facts.get("n_classes")
    if n_classes is not None and (not is_whole(n_classes) or n_classes < 2):
        raise InputError(f"The set {name!r}: n_classes is {n_classes!r}: give a number from 2 on, or leave it out.")
    path = Path(facts["path"])
    _must_be_there(name, path)
    own = facts.get("splits", splits)
    return Set(
        name=name,
        path=path,
        splits=None if own is None else Path(own),
        n_classes=n_classes,
        labels=Path(facts["labels"]) if "labels" in facts else None,
        label_column=facts.get("label_column"),
        feature_column=facts.get("feature_column"),
        split_column=facts.get("split_column"),
    )


def _must_be_there(name: str, path: Path) -> None:
    if path.exists():
        return
    try:
        beside = sorted(file.name for file in path.parent.iterdir())
    except OSError:
        beside = []
    raise InputError(f"The set {name!r}: {path} is not there: {meant(path.name, beside) or 'check the name.'}")


def nothing(what: str) -> Any:
    """Raise for an empty list."""
    raise InputError(f"No {what} is given: give one at least.")


def is_whole(value: Any) -> bool:
    """Whether it is an int (not a bool)."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """Whether it is a number (not a bool)."""
    return isinstance(value, int | float) and not isinstance(value, bool)
