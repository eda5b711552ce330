"""What is to be compared: methods, feature sets and seeds, from a short JSON file or from the command line.

    {
      "methods": {"gcd": {}, "pim": {"max_iter": 200}, "pim as published": {"method": "pim", "settings": "paper"}},
      "sets": {"birds": "birds.npz", "cars": {"path": "cars/", "splits": "scars_osr_splits.pkl"}},
      "seeds": [0, 1, 2]
    }

Paths are relative to the file. ``methods`` may be a plain list of names. A set may also say ``labels``,
``label_column`` and ``feature_column``, as ``FeatureSet.read`` takes them, and ``n_classes`` where its truth does not
give it. ``splits``, ``known_share``, ``n_classes`` ("given" or "estimate") and ``jobs`` are as on the command line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sklearn.utils._param_validation import InvalidParameterError

from rpim.benchmark.choices import choose, meant
from rpim.benchmark.protocol import KNOWN_SHARE
from rpim.errors import InputError
from rpim.features import FeatureSet
from rpim.files import must_exist, reading
from rpim.messages import first_line
from rpim.saved_model import METHODS

DEFAULT_METHODS = ("rpim", "pim", "gcd")
DEFAULT_SEEDS = (0, 1, 2)
GIVEN, ESTIMATE = "given", "estimate"

_KEYS = ("methods", "sets", "seeds", "splits", "known_share", "n_classes", "jobs")
_SET_KEYS = ("path", "labels", "label_column", "feature_column", "splits", "n_classes")
_DECIDED_HERE = ("n_classes", "random_state", "verbose")


@dataclass(frozen=True)
class Method:
    """A row of the table: a method with its parameters, under a name of its own."""

    name: str
    method: str
    parameters: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Set:
    """A column of the table: where a feature set is, and how to read it."""

    name: str
    path: Path
    splits: Path | None = None
    n_classes: int | None = None
    labels: Path | None = None
    label_column: str | None = None
    feature_column: str | None = None

    def read(self) -> FeatureSet:
        """The feature set."""
        return FeatureSet.read(
            self.path, self.labels, label_column=self.label_column, feature_column=self.feature_column
        )


@dataclass(frozen=True)
class Plan:
    """All that decides which cells there are."""

    methods: tuple[Method, ...]
    sets: tuple[Set, ...]
    seeds: tuple[int, ...]
    known_share: float
    estimate: bool
    jobs: int


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_plan(
    features: Sequence[str] = (),
    config: Path | None = None,
    *,
    methods: str | None = None,
    seeds: str | None = None,
    splits: Path | None = None,
    known_share: float | None = None,
    n_classes: str | None = None,
    jobs: int | None = None,
) -> Plan:
    """The plan of a config file, in which whatever else is given takes the place of what the file says.

    Parameters
    ----------
    features : sequence of str
        Paths of feature sets, each as PATH or NAME=PATH.
    config : path, optional
    methods, seeds : str, optional
        Separated by commas.
    splits : path, optional
        The known classes, for `read_splits`.
    known_share : float, optional
        The share of classes that are known, where no list gives them.
    n_classes : {"given", "estimate"}, optional
        Whether a method is told the number of classes.
    jobs : int, optional
        Cells at once.
    """
    said = {} if config is None else _read_config(config)
    if features:
        said["sets"] = dict(_named(given) for given in _all_different(features))
    given = {
        "methods": None if methods is None else methods.split(","),
        "seeds": None if seeds is None else [_seed(part) for part in seeds.split(",")],
        "splits": splits, "known_share": known_share, "n_classes": n_classes, "jobs": jobs,
    }  # fmt: skip
    said |= {name: value for name, value in given.items() if value is not None}
    said = {name: value for name, value in said.items() if value is not None}
    if not said.get("sets"):
        raise InputError('No feature set is given: name some, or list them under "sets" in the config.')
    share, count = said.get("known_share", KNOWN_SHARE), said.get("n_classes", GIVEN)
    jobs = said.get("jobs", max(1, cores() // 2))
    if not _is_number(share) or not 0 < share < 1:
        raise InputError(f"known_share is {share!r}: give a share of the classes between 0 and 1.")
    if count not in (GIVEN, ESTIMATE):
        raise InputError(f"n_classes is {count!r}: say {GIVEN} or {ESTIMATE}.")
    if not _is_whole(jobs) or jobs < 1:
        raise InputError(f"jobs is {jobs!r}: give a number of cells at once, from 1 on.")
    return Plan(
        methods=_methods(said.get("methods", DEFAULT_METHODS)),
        sets=_sets(said["sets"], said.get("splits")),
        seeds=_seeds(said.get("seeds", DEFAULT_SEEDS)),
        known_share=float(share),
        estimate=count == ESTIMATE,
        jobs=jobs,
    )


def _read_config(path: Path) -> dict[str, Any]:
    must_exist(path)
    with reading(path, "write it as JSON"):
        said = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(said, dict):
        raise InputError(f'{path} holds no JSON object: give {{"methods": [...], "sets": {{...}}, "seeds": [...]}}.')
    for key in said:
        choose(f"{path}: the entry", key, _KEYS)
    if isinstance(said.get("sets"), dict):
        said["sets"] = {name: _beside(path, entry) for name, entry in said["sets"].items()}
    if isinstance(said.get("splits"), str):
        said["splits"] = path.parent / said["splits"]
    return said


def _beside(config: Path, entry: Any) -> Any:
    """The entry of a set with its paths relative to the config's folder."""
    if isinstance(entry, str):
        return str(config.parent / entry)
    if not isinstance(entry, dict):
        return entry
    moved = {key: str(config.parent / entry[key]) for key in ("path", "labels", "splits")
             if isinstance(entry.get(key), str)}  # fmt: skip
    return {**entry, **moved}


def _named(given: str) -> tuple[str, str]:
    """The name and path in NAME=PATH, or a path and the name that it suggests."""
    name, equals, rest = given.partition("=")
    if equals and name and rest and not Path(given).exists():
        return name, rest
    path = Path(given)
    place = path.resolve()
    if place.is_dir():  # PIM's maps lie in a folder called train
        return (place.parent if place.name == "train" else place).name, given
    return path.stem, given


def _all_different(features: Sequence[str]) -> Sequence[str]:
    seen: dict[str, str] = {}
    for given in features:
        name = _named(given)[0]
        if name in seen:
            raise InputError(f"{seen[name]} and {given} would both be called {name!r}: name them, by NAME=PATH.")
        seen[name] = given
    return features


def _methods(said: Any) -> tuple[Method, ...]:
    if isinstance(said, Mapping):
        return tuple(_method(name, entry) for name, entry in said.items()) or _nothing("method")
    if not isinstance(said, Iterable) or isinstance(said, str):
        raise InputError(f"methods is {said!r}: give a list of names, or names with their parameters.")
    names = dict.fromkeys(str(name).strip() for name in said)
    return tuple(_method(name, {}) for name in names) or _nothing("method")


def _method(name: str, entry: Any) -> Method:
    if not isinstance(entry, Mapping):
        raise InputError(f'The method {name!r} has {entry!r} for parameters: give {{"max_iter": 200}}, or {{}}.')
    parameters = {key: value for key, value in entry.items() if key != "method"}
    method = choose("The method", str(entry.get("method", name)), METHODS)
    model = METHODS[method]()
    for parameter in parameters:
        if parameter in _DECIDED_HERE:
            raise InputError(f"The method {name!r} sets {parameter}, which the benchmark itself does: leave it out.")
        choose(f"The method {name!r}: the parameter", parameter, model.get_params())
    try:
        model.set_params(**parameters)._validate_params()
    except InvalidParameterError as error:
        raise InputError(f"The method {name!r}: {first_line(error)}.") from error
    return Method(name, method, parameters)


def _sets(said: Any, splits: Any) -> tuple[Set, ...]:
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
    if n_classes is not None and (not _is_whole(n_classes) or n_classes < 2):
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
    )


def _must_be_there(name: str, path: Path) -> None:
    if path.exists():
        return
    try:
        beside = sorted(file.name for file in path.parent.iterdir())
    except OSError:
        beside = []
    raise InputError(f"The set {name!r}: {path} is not there: {meant(path.name, beside) or 'check the name.'}")


def _seed(text: str) -> Any:
    return int(text) if text.strip().isdecimal() else text


def _seeds(said: Any) -> tuple[int, ...]:
    if not isinstance(said, list | tuple):
        raise InputError(f"seeds is {said!r}: give a list of whole numbers.")
    for seed in said:
        if not _is_whole(seed) or not 0 <= seed < 2**32:
            raise InputError(f"The seed {seed!r} is no whole number from 0 to 2^32 - 1.")
    return tuple(dict.fromkeys(said)) or _nothing("seed")


def _nothing(what: str) -> Any:
    raise InputError(f"No {what} is given: give one at least.")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
