"""Lists of known classes: JSON files, GCD's pickles (no code in them is run), and those of the paper's data sets."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rpim._common.errors import InputError, first_line, meant, some
from rpim._common.files import must_exist, reading
from rpim.data.formats.pickles import load_pickle

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
