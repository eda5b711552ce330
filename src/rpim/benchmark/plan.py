"""The plan of a benchmark: methods, feature sets and seeds, from a JSON config or the command line.

    {
      "methods": {"gcd": {}, "pim": {"max_iter": 200}, "pim as published": {"method": "pim", "preset": "paper"}},
      "sets": {"birds": "birds.npz", "cars": {"path": "cars/", "splits": "scars_osr_splits.pkl"}},
      "seeds": [0, 1, 2]
    }

Paths are relative to the file. ``methods`` may be a list of names. A set may also have ``labels``,
``label_column``, ``feature_column`` and ``split_column``, as ``FeatureSet.read`` takes them, and ``n_classes`` where
its truth does not give it. ``paper``, ``preset``, ``protocol``, ``splits``, ``known_share``, ``labelled_half``,
``n_classes`` ("given" or "estimate") and ``jobs`` are as on the command line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpim._common.errors import InputError, choose
from rpim._common.files import must_exist, reading
from rpim.benchmark.batches import must_be_extendable
from rpim.benchmark.entries import Set, checked_methods, checked_sets, is_number, is_whole, known_classes, nothing
from rpim.benchmark.protocol import HALVES, KNOWN_SHARE, NID_SEEDS, NID_SPLIT_COLUMN
from rpim.benchmark.studies import Study, studies_of, with_published
from rpim.data.formats.feature_files import column_names

if TYPE_CHECKING:
    from rpim.benchmark.raw_images import RawImages

DEFAULT_METHODS = ("rpim", "pim", "gcd")
DEFAULT_METHOD = ("rpim",)
"""Of the protocols other than gcd."""
DEFAULT_SEEDS = (0, 1, 2)
GIVEN, ESTIMATE = "given", "estimate"
GCD, NID, BATCHES = "gcd", "nid", "batches"

_OWN_SHARES = {NID: "0.25 to 0.75", BATCHES: "0.4"}
_KEYS = (
    "methods",
    "sets",
    "seeds",
    "paper",
    "preset",
    "protocol",
    "splits",
    "known_share",
    "labelled_half",
    "n_classes",
    "jobs",
)


@dataclass(frozen=True)
class Plan:
    """Everything that determines the cells."""

    studies: tuple[Study, ...]
    sets: tuple[Set, ...]
    seeds: tuple[int, ...]
    """Those of all studies."""
    protocol: str
    known_share: float
    labelled_half: str
    estimate: bool
    jobs: int


def cores() -> int:
    """Number of cores available to this process."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def make_plan(
    features: Sequence[str] = (),
    config: Path | None = None,
    *,
    methods: str | None = None,
    seeds: str | None = None,
    paper: str | None = None,
    preset: str | None = None,
    protocol: str | None = None,
    splits: Path | None = None,
    known_share: float | None = None,
    labelled_half: str | None = None,
    n_classes: str | None = None,
    jobs: int | None = None,
    images: Sequence[RawImages] = (),
) -> Plan:
    """Read the config file; the other arguments override it.

    Parameters
    ----------
    features : sequence of str
        Paths of feature sets, each as PATH or NAME=PATH.
    config : path, optional
    methods, seeds : str, optional
        Separated by commas.
    paper : str, optional
        The paper's tables in the place of methods, for `studies_of`.
    preset : {"default", "paper"}, optional
        "paper" runs the published procedure of each method that has one, beside the method as it is by default.
    protocol : {"gcd", "nid", "batches"}, optional
        Generalized category discovery, new-intent discovery (see `rpim.benchmark.protocol`), or new classes in later
        batches (see `rpim.benchmark.batches`).
    splits : path, optional
        The known classes, for `read_splits`; for the protocol "nid" its lists, as a file or the folder with them.
    known_share : float, optional
        The share of classes that are known, where no list gives them.
    labelled_half : {"per-class", "gcd"}, optional
        How the labelled half is drawn, for `make_case`.
    n_classes : {"given", "estimate"}, optional
        Whether the methods are given the number of classes.
    jobs : int, optional
        Cells at once.
    images : sequence of RawImages
        Data sets that will be embedded before the features are read; added to the other sets.
    """
    said = {} if config is None else _read_config(config)
    if features:
        said["sets"] = dict(_named(given) for given in _all_different(features))
    given = {
        "methods": None if methods is None else methods.split(","),
        "seeds": None if seeds is None else [_seed(part) for part in seeds.split(",")],
        "paper": paper,
        "preset": preset,
        "protocol": protocol,
        "splits": splits,
        "known_share": known_share,
        "labelled_half": labelled_half,
        "n_classes": n_classes,
        "jobs": jobs,
    }
    said |= {name: value for name, value in given.items() if value is not None}
    said = {name: value for name, value in said.items() if value is not None}
    if not said.get("sets") and not images:
        raise InputError('No feature set is given: name some, or list them under "sets" in the config.')
    protocol = choose("The protocol", str(said.get("protocol", GCD)), (GCD, NID, BATCHES))
    share, count = said.get("known_share", KNOWN_SHARE), said.get("n_classes", GIVEN)
    jobs = said.get("jobs", max(1, cores() // 2))
    if not is_number(share) or not 0 < share < 1:
        raise InputError(f"known_share is {share!r}: give a share of the classes between 0 and 1.")
    if count not in (GIVEN, ESTIMATE):
        raise InputError(f"n_classes is {count!r}: say {GIVEN} or {ESTIMATE}.")
    half = choose("labelled_half", str(said.get("labelled_half", HALVES[0])), HALVES)
    if protocol != GCD and "labelled_half" in said:
        raise InputError(f"labelled_half is given, but the protocol {protocol} draws rows its own way: leave it out.")
    if not is_whole(jobs) or jobs < 1:
        raise InputError(f"jobs is {jobs!r}: give a number of cells at once, from 1 on.")
    if protocol in _OWN_SHARES and "known_share" in said:
        own = _OWN_SHARES[protocol]
        raise InputError(f"known_share is given, but the protocol {protocol} has its own, {own}: leave it out.")
    sets = checked_sets(said.get("sets") or {}, said.get("splits"))
    if protocol == NID:
        sets = tuple(map(_with_nid_column, sets))
    if protocol == BATCHES:
        _must_be_free_to_draw(sets)
    sets += _of_images(images, sets, protocol, said.get("splits"))
    studies = _studies(said, protocol)
    return Plan(
        studies=studies,
        sets=sets,
        seeds=tuple(dict.fromkeys(seed for study in studies for seed in study.seeds or ())),
        protocol=protocol,
        known_share=float(share),
        labelled_half=half,
        estimate=count == ESTIMATE,
        jobs=jobs,
    )


def _studies(said: dict[str, Any], protocol: str) -> tuple[Study, ...]:
    """What is asked for, each study with its seeds: those that are given, its own, or the usual ones."""
    preset = choose("The preset", str(said.get("preset", "default")), ("default", "paper"))
    if preset == "paper" and protocol != GCD:
        raise InputError(f"The preset is 'paper', but the protocol {protocol} is not the paper's: leave one out.")
    if "paper" in said:
        for other in ("methods", "protocol"):
            if other in said:
                raise InputError(f"paper and {other} are given, but the paper's tables have their own: leave one out.")
        studies = studies_of(str(said["paper"]), preset)
    elif protocol == NID:
        methods = checked_methods(said.get("methods", DEFAULT_METHOD))
        studies = (Study("nid", "New-intent discovery", methods, NID_SEEDS, layout="nid"),)
    elif protocol == BATCHES:
        methods = must_be_extendable(checked_methods(said.get("methods", DEFAULT_METHOD)))
        studies = (Study("batches", "Classes that come later", methods, layout="batches"),)
    else:
        study = Study("comparison", "Methods compared", checked_methods(said.get("methods", DEFAULT_METHODS)))
        studies = (with_published(study) if preset == "paper" else study,)
    given = _seeds(said["seeds"]) if "seeds" in said else None
    return tuple(replace(study, seeds=given or study.seeds or DEFAULT_SEEDS) for study in studies)


def _of_images(
    images: Sequence[RawImages], others: Sequence[Set], protocol: str, splits: Path | None
) -> tuple[Set, ...]:
    """The sets that the images will be, with their known classes."""
    if images and protocol != GCD:
        raise InputError(
            f"--data is given with the protocol {protocol}, but makes sets for {GCD} alone: do that first, and then "
            f"give {images[0].features} for this one."
        )
    taken = {data.name for data in others}
    for one in images:
        if one.name in taken:
            raise InputError(f"--data and another set are both called {one.name!r}: name the other one, by NAME=PATH.")
    return tuple(Set(one.name, one.features, split=known_classes(one.name, splits)) for one in images)


def _with_nid_column(data: Set) -> Set:
    """Use the protocol's own split column, if the set has one."""
    own = data.split_column is None and NID_SPLIT_COLUMN in column_names(data.path)
    return replace(data, split_column=NID_SPLIT_COLUMN) if own else data


def _must_be_free_to_draw(sets: Sequence[Set]) -> None:
    """Raise if a set fixes what the protocol batches draws."""
    for data in sets:
        for what, given in (("a split list", data.splits), ("n_classes", data.n_classes)):
            if given is not None:
                raise InputError(
                    f"The set {data.name!r} has {what}, but the protocol {BATCHES} draws the classes of each stage "
                    "itself: leave it out."
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
    moved = {
        key: str(config.parent / entry[key]) for key in ("path", "labels", "splits") if isinstance(entry.get(key), str)
    }
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


def _seed(text: str) -> Any:
    return int(text) if text.strip().isdecimal() else text


def _seeds(said: Any) -> tuple[int, ...]:
    if not isinstance(said, list | tuple):
        raise InputError(f"seeds is {said!r}: give a list of whole numbers.")
    for seed in said:
        if not is_whole(seed) or not 0 <= seed < 2**32:
            raise InputError(f"The seed {seed!r} is no whole number from 0 to 2^32 - 1.")
    return tuple(dict.fromkeys(said)) or nothing("seed")
