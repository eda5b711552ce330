"""The known classes of the paper's data sets: by definition, or from the lists that GCD publishes."""

from __future__ import annotations

from pathlib import Path

from rpim._common.errors import InputError
from rpim.benchmark.splits import Split, read_splits

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
