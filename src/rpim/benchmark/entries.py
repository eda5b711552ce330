"""Methods, feature sets and lists of known classes, as named in a config or on the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sklearn.utils._param_validation import InvalidParameterError

from rpim._common.errors import InputError, choose, first_line, meant, some
from rpim._common.files import must_exist, reading
from rpim.data.feature_set import FeatureSet
from rpim.data.formats.arrays import load_pickle
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.objective import nested_names
from rpim.runs.saved_model import METHODS

KNOWN = ("known", "known_classes", "Old")
UNKNOWN = ("unknown", "unknown_classes", "New")
IMAGENET = "imagenet1k_classes"
MAX_CLASSES = 10**5


@dataclass(frozen=True)
class Split:
    """The classes of a data set that are known, and those that are not where the list has them too."""

    known: tuple[int | str, ...]
    unknown: tuple[int | str, ...] | None = None
    imagenet_classes: tuple[int, ...] | None = None
    """The classes of ImageNet that make up the set, where the list is for some of them."""


@dataclass(frozen=True)
class Splits:
    """What a file of splits holds: one for whatever it is used on, or one for each set by its name."""

    path: Path
    one: Split | None
    by_name: dict[str, Split]

    def of(self, name: str) -> Split:
        """The split of the set of this name."""
        if self.one is not None:
            return self.one
        if name not in self.by_name:
            hint = meant(name, self.by_name) or f"it has {some(self.by_name)}."
            raise InputError(f"{self.path} has no list for the set {name!r}: {hint} A set is named by NAME=PATH.")
        return self.by_name[name]


def read_splits(path: Path) -> Splits:
    """Read a .json file, or one of GCD's .pkl files.

    ``{"known": [0, 1]}`` is for any set and ``{"birds": {"known": [0, 1]}, ...}`` for sets by name. "unknown" may stand
    beside "known", and "imagenet1k_classes" where the set is a part of ImageNet. GCD's files say known_classes and
    unknown_classes, or Old and New.
    """
    must_exist(path)
    suffix = path.suffix.lower()
    if suffix == ".json":
        with reading(path):
            held = json.loads(path.read_text(encoding="utf-8-sig"))
    elif suffix in (".pkl", ".pickle"):
        held = load_pickle(path, "a list of classes", "give GCD's .pkl as published, or save the classes as .json")
    else:
        raise InputError(f"{path} has the suffix {suffix!r}, which is no list of classes: give .json or GCD's .pkl.")
    one = _split(path, held)
    if one is not None:
        return Splits(path, one, {})
    found = {str(name): _split(path, value) for name, value in held.items()} if isinstance(held, dict) else {}
    by_name = {name: split for name, split in found.items() if split is not None}
    if not by_name:
        raise InputError(f'{path} lists no known classes: give {{"known": [0, 1, 2]}}, or that for each set by name.')
    return Splits(path, None, by_name)


def _split(path: Path, held: Any) -> Split | None:
    """The split that a dict holds; None where it is none."""
    if not isinstance(held, Mapping):
        return None
    known, unknown = ([held[key] for key in keys if key in held][:1] for keys in (KNOWN, UNKNOWN))
    if not known:
        return None
    try:
        split = Split(_flat(known), _flat(unknown) if unknown else None, _numbers(held.get(IMAGENET)))
    except (TypeError, RecursionError) as error:
        what = first_line(error)
        raise InputError(f"{path} holds more than lists of classes ({what}): give names or numbers.") from error
    both = set(split.known) & set(split.unknown or ())
    if both:
        raise InputError(f"{path} calls class {min(both, key=str)!r} both known and unknown: mend it.")
    return split


def _flat(nested: Any) -> tuple[int | str, ...]:
    """The classes in lists of lists, or in dicts of lists such as {"Easy": [...], "Hard": [...]}, each once."""
    found: dict[int | str, None] = {}
    for count, value in enumerate(_leaves(nested)):
        if count == MAX_CLASSES:
            raise TypeError(f"more than {MAX_CLASSES:,} classes")
        found[value] = None
    return tuple(found)


def _numbers(nested: Any) -> tuple[int, ...] | None:
    numbers = () if nested is None else _flat(nested)
    if not all(isinstance(number, int) for number in numbers):
        raise TypeError(f"text among {IMAGENET}")
    return tuple(int(number) for number in numbers) or None


def _leaves(nested: Any) -> Iterator[int | str]:
    if isinstance(nested, Mapping):
        nested = list(nested.values())
    if isinstance(nested, list | tuple | set | frozenset):
        for part in nested:
            yield from _leaves(part)
    elif isinstance(nested, int | str) and not isinstance(nested, bool):
        yield nested
    else:
        raise TypeError(f"a value of type {type(nested).__name__}")


_OTHER_NAMES = {
    "cars": ("stanford_cars", "scars"),
    "aircraft": ("fgvc_aircraft",),
    "herbarium19": ("herbarium_19",),
    "imagenet100": ("imagenet_100",),
}
"""What lists for several sets call them, beside their own names."""

_GCDS_FILES = {
    "cub": "cub_osr_splits.pkl",
    "cars": "scars_osr_splits.pkl",
    "aircraft": "aircraft_osr_splits.pkl",
    "herbarium19": "herbarium_19_class_splits.pkl",
}

_BY_DEFINITION = {
    "cifar10": Split(tuple(range(5)), tuple(range(5, 10))),
    "cifar100": Split(tuple(range(80)), tuple(range(80, 100))),
    "imagenet100": Split(tuple(range(50)), tuple(range(50, 100))),
}
"""Known are the first classes; no list is published."""


def known_classes(name: str, splits: Path | None) -> Split:
    """The known classes of one of the paper's data sets.

    Parameters
    ----------
    name : str
        As `rpim.embedding.image_sets.READERS` has it.
    splits : path, optional
        A file for `read_splits`, or the folder in which GCD publishes its lists.

    Examples
    --------
    >>> known_classes("cifar10", None).known
    (0, 1, 2, 3, 4)
    """
    if splits is not None and splits.is_dir():
        splits = splits / _GCDS_FILES[name] if name in _GCDS_FILES else None
    if splits is None:
        if name in _BY_DEFINITION:
            return _BY_DEFINITION[name]
        raise InputError(
            f"The set {name!r} needs the list of its known classes: give --splits {_GCDS_FILES[name]} or its folder, "
            "data/ssb_splits of the GCD repository (github.com/sgvaze/generalized-category-discovery)."
        )
    lists = read_splits(splits)
    key = next((key for key in (name, *_OTHER_NAMES.get(name, ())) if key in lists.by_name), name)
    if lists.one is None and key not in lists.by_name and name in _BY_DEFINITION:
        return _BY_DEFINITION[name]
    return lists.of(key)


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
    if os.path.exists(path):  # False for a name that is too long, which Path.exists does not take
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
