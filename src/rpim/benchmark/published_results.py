"""Published results, to show beside our own: CSV files with ``#`` comment lines that name the source.

The RPIM paper (Tan, Zhang, Yang, Sun and Huang, "Revisiting Information Maximization for Generalized Category
Discovery", 2024) is in paper_tables.csv, new-intent discovery in nid_published.csv.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from rpim.benchmark.results import ACCURACY


def published_results(name: str) -> list[dict[str, str]]:
    """The lines of a file beside this one, by column."""
    text = resources.files("rpim.benchmark").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def published_name(name: str, aliases: Mapping[str, str]) -> str | None:
    """What the publications call a set of this name, by the whole of it or by its first words.

    >>> aliases = {"cub200": "CUB", "stanfordcars": "Stanford Cars"}
    >>> [published_name(name, aliases) for name in ("CUB-200_dino", "stanford_cars", "cubs")]
    ['CUB', 'Stanford Cars', None]
    """
    words = re.findall(r"[a-z0-9]+", name.lower())
    starts = ("".join(words[:n]) for n in range(len(words), 0, -1))
    return next((aliases[start] for start in starts if start in aliases), None)


PAPER_SETS = {
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

PAPER_SYSTEMS = {
    "RankStats+": "RankStats+ (TPAMI-21)",
    "UNO+": "UNO+ (ICCV-21)",
    "ORCA": "ORCA - ViTB16",
    "GCD": "GCD (CVPR-22)",
    "RIM": "RIM (NeurIPS-10) (semi-sup.)",
    "TIM": "TIM (NeurIPS-20)",
    "PIM": "PIM (ICCV-23)",
}
"""What the paper's main table calls the systems; of its two rows of ORCA the one on the features of all others."""

PAPER_NOTE = (
    "Columns called paper: the figures of Tan et al. (2024), from features of DINO ViT-B/16 tuned on each data set and "
    "by the paper's own search; they compare with ours only where the features are the same."
)


@cache
def paper_rows(table: str) -> tuple[str, ...]:
    """The rows of one of the paper's tables."""
    return tuple(
        dict.fromkeys(line["setting"] for line in published_results("paper_tables.csv") if line["table"] == table)
    )


def paper_results(tables: Sequence[str], setting: str, data_set: str) -> tuple[float, ...] | None:
    """All, Known and Unknown in percent of a row in the first of the tables that has it; None where none does.

    Examples
    --------
    >>> paper_results(["main"], "RPIM", "cub200_dino")
    (66.8, 77.3, 61.5)
    >>> paper_results(["main"], "RPIM", "digits") is None
    True
    """
    known_as = published_name(data_set, PAPER_SETS)
    found = (_paper_results().get((table, PAPER_SYSTEMS.get(setting, setting), known_as or "")) for table in tables)
    return next((values for values in found if values is not None), None)


@cache
def _paper_results() -> dict[tuple[str, str, str], tuple[float, ...]]:
    parts: dict[tuple[str, str, str], dict[str, float]] = {}
    for line in published_results("paper_tables.csv"):
        key = (line["table"], line["setting"], line["dataset"])
        parts.setdefault(key, {})[line["classes"]] = float(line["accuracy"])
    return {key: tuple(values[part] for part in ACCURACY) for key, values in parts.items()}
