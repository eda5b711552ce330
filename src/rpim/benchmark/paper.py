"""The figures of the RPIM paper, to stand beside those of a study.

Tan, Zhang, Yang, Sun and Huang, "Revisiting Information Maximization for Generalized Category Discovery", 2024; the
figures are in paper_tables.csv.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from rpim.benchmark.published_results import carried, published_name
from rpim.benchmark.results import ACCURACY

SETS = {
    "cub": "CUB",
    "cub200": "CUB",
    "cub2002011": "CUB",
    "cars": "Stanford Cars",
    "scars": "Stanford Cars",
    "stanfordcars": "Stanford Cars",
    "cars196": "Stanford Cars",
    "herb": "Herbarium19",
    "herb19": "Herbarium19",
    "herbarium": "Herbarium19",
    "herbarium19": "Herbarium19",
    "cifar10": "CIFAR10",
    "cifar100": "CIFAR100",
    "imagenet100": "ImageNet-100",
}
"""What people call the paper's data sets, in small letters and figures alone."""

SYSTEMS = {
    "RankStats+": "RankStats+ (TPAMI-21)",
    "UNO+": "UNO+ (ICCV-21)",
    "ORCA": "ORCA - ViTB16",
    "GCD": "GCD (CVPR-22)",
    "RIM": "RIM (NeurIPS-10) (semi-sup.)",
    "TIM": "TIM (NeurIPS-20)",
    "PIM": "PIM (ICCV-23)",
}
"""What the paper's main table calls the systems; of its two rows of ORCA the one on the features of all others."""

NOTE = (
    "Columns called paper: the figures of Tan et al. (2024), from features of DINO ViT-B/16 tuned on each data set and "
    "by the paper's own search; they compare with ours only where the features are the same."
)


@cache
def settings(table: str) -> tuple[str, ...]:
    """The rows of one of the paper's tables."""
    return tuple(dict.fromkeys(line["setting"] for line in carried("paper_tables.csv") if line["table"] == table))


def figures(tables: Sequence[str], setting: str, data_set: str) -> tuple[float, ...] | None:
    """All, Known and Unknown in percent of a row in the first of the tables that has it; None where none does.

    Examples
    --------
    >>> figures(["main"], "RPIM", "cub200_dino")
    (66.8, 77.3, 61.5)
    >>> figures(["main"], "RPIM", "digits") is None
    True
    """
    known_as = published_name(data_set, SETS)
    found = (_figures().get((table, SYSTEMS.get(setting, setting), known_as or "")) for table in tables)
    return next((values for values in found if values is not None), None)


@cache
def _figures() -> dict[tuple[str, str, str], tuple[float, ...]]:
    parts: dict[tuple[str, str, str], dict[str, float]] = {}
    for line in carried("paper_tables.csv"):
        key = (line["table"], line["setting"], line["dataset"])
        parts.setdefault(key, {})[line["classes"]] = float(line["accuracy"])
    return {key: tuple(values[part] for part in ACCURACY) for key, values in parts.items()}
