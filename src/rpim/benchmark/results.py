"""Records of cells by method and set, tables as data, and published results to show beside our own.

The RPIM paper (Tan, Zhang, Yang, Sun and Huang, "Revisiting Information Maximization for Generalized Category
Discovery", 2024) is in paper_tables.csv, new-intent discovery in nid_published.csv: CSV files whose ``#`` lines name
the source.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from statistics import fmean, pstdev
from typing import Any

Record = dict[str, Any]

ACCURACY = ("all", "known", "unknown")
TEST_ACCURACY = ("test_all", "test_known", "test_unknown")
CONFUSION = ("unknown_in_known", "known_in_unknown")
NOTHING = "—"


@dataclass
class Table:
    """A table of text cells; text between two ** is bold."""

    title: str
    note: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)


class Results:
    """The records by method and set."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.done = [record for record in records if "error" not in record]
        self.failed = [record for record in records if "error" in record]
        self.methods = list(dict.fromkeys(record["method"] for record in records))
        self.sets = list(dict.fromkeys(record["set"] for record in records))
        self.seeds = sorted({record["seed"] for record in records})
        tried = [(record["set"], record) for record in self.done]
        without = {name for name, _ in tried} - {name for name, record in tried if record["all"] is not None}
        self.without_truth = [name for name in self.sets if name in without]
        self.measured = [name for name in self.sets if name not in without]
        tested = {name for name, record in tried if record.get("test_all") is not None}
        self.tested = [name for name in self.sets if name in tested]

    def values(self, method: str, data_set: str, name: str) -> list[float]:
        """What the cells of this method on this set say, seed by seed."""
        chosen = [record for record in self.done if (record["method"], record["set"]) == (method, data_set)]
        return [record[name] for record in chosen if record.get(name) is not None]

    def mean(self, method: str, data_set: str, name: str) -> float | None:
        """Over seeds."""
        values = self.values(method, data_set, name)
        return fmean(values) if values else None

    def whole(self, method: str, data_set: str, name: str = "all") -> bool:
        """Whether there is a cell for every seed, so that the mean may be compared with others."""
        return len(self.values(method, data_set, name)) == len(self.seeds)

    def complete(self, sets: Sequence[str], name: str = "all") -> list[str]:
        """The methods with a cell for every set and seed, so that their means over sets may be compared."""
        return [method for method in self.methods if all(self.whole(method, one, name) for one in sets)]

    def average(self, method: str, sets: Sequence[str], name: str) -> float | None:
        """The mean over sets, where every one of them has a value."""
        means = [self.mean(method, data_set, name) for data_set in sets]
        there = [value for value in means if value is not None]
        return fmean(there) if there and len(there) == len(means) else None


def accuracy_column(results: Results, data_set: str, parts: Sequence[str] = ACCURACY) -> dict[str, str]:
    """A text for each method, such as 70.1/80.2/65.0 ±1.2; the best of those with every seed in bold, part by part."""
    means = {method: [results.mean(method, data_set, part) for part in parts] for method in results.methods}
    compared = {method: means[method] for method in results.methods if results.whole(method, data_set, parts[0])}
    texts = in_bold(means, compared)
    for method in results.methods:
        values = results.values(method, data_set, parts[0])
        if not values:
            texts[method] = NOTHING
            continue
        texts[method] += spread(values)
        if method not in compared:
            texts[method] += f" ({len(values)} of {len(results.seeds)} seeds)"
    return texts


def average_column(results: Results, sets: Sequence[str], parts: Sequence[str] = ACCURACY) -> dict[str, str]:
    """The mean over sets, for the methods that have them all with every seed."""
    means = {
        method: [results.average(method, sets, part) for part in parts] for method in results.complete(sets, parts[0])
    }
    return {**dict.fromkeys(results.methods, NOTHING), **in_bold(means, means)}


def in_bold(
    means: Mapping[str, Sequence[float | None]], compared: Mapping[str, Sequence[float | None]]
) -> dict[str, str]:
    """The shares of each method as text; what the table cannot tell from the best is in bold as well.

    >>> in_bold({"a": [0.5, 0.1], "b": [0.50004, None]}, {"a": [0.5, 0.1], "b": [0.50004, None]})
    {'a': '**50.0**/**10.0**', 'b': '**50.0**/—'}
    """
    columns = zip(*compared.values(), strict=True) if compared else ()
    best = [_largest(percent(value) for value in column if value is not None) for column in columns]

    def text(method: str) -> str:
        shown = [percent(value) for value in means[method]]
        if method not in compared:
            return "/".join(shown)
        return "/".join(f"**{value}**" if value == top else value for value, top in zip(shown, best, strict=True))

    return {method: text(method) for method in means}


def _largest(percents: Iterable[str]) -> str:
    return max(percents, key=float, default="")


def percent(value: float | None) -> str:
    """A share in percent."""
    return NOTHING if value is None else f"{100 * value:.1f}"


def spread(values: Sequence[float]) -> str:
    """The standard deviation of shares over seeds, behind their mean."""
    return f" ±{100 * pstdev(values):.1f}" if len(values) > 1 else ""


def shares(values: Iterable[float | None]) -> str:
    """Several shares in percent."""
    return "/".join(map(percent, values))


def formatted(value: float | None, form: str) -> str:
    """A number in this format."""
    return NOTHING if value is None else format(value, form)


def published_results(name: str) -> list[dict[str, str]]:
    """The lines of a file beside this one, by column."""
    text = resources.files("rpim.benchmark").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))


def published_name(name: str, aliases: Mapping[str, str]) -> str | None:
    """What the publications call a set of this name, by the longest run of its words that is an alias.

    >>> aliases = {"cub": "CUB", "cub200": "CUB", "stanfordcars": "Stanford Cars"}
    >>> [published_name(name, aliases) for name in ("CUB-200_dino", "vit_dino_cub_best", "stanford_cars", "cubs")]
    ['CUB', 'CUB', 'Stanford Cars', None]
    """
    words = re.findall(r"[a-z0-9]+", name.lower())
    lengths = range(len(words), 0, -1)
    runs = ("".join(words[start : start + n]) for n in lengths for start in range(len(words) - n + 1))
    return next((aliases[run] for run in runs if run in aliases), None)


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
    "ORCA, its own encoder": "ORCA (ICLR-22)",
    "ORCA": "ORCA - ViTB16",
    "GCD": "GCD (CVPR-22)",
    "RIM": "RIM (NeurIPS-10) (semi-sup.)",
    "TIM": "TIM (NeurIPS-20)",
    "PIM": "PIM (ICCV-23)",
}
"""What the paper's main table calls the systems; its first row of ORCA is on other features than all the others."""

PAPER_NOTE = (
    "Columns called paper: the figures of Tan et al. (2024), from features of DINO ViT-B/16 tuned on each data set and "
    "by the paper's own search; they compare with ours only where the features are the same. Its rows of k-means, "
    "RankStats+, UNO+, ORCA and GCD come from GCD's paper, those of RIM and TIM from PIM's."
)


@dataclass(frozen=True)
class Sizes:
    """A column of the paper's table of statistics, which gives rows in hundreds."""

    known: int  # |Y^L|
    classes: int  # |Y^U|: the unlabelled rows are of all classes
    labelled: int  # |D^L|
    unlabelled: int  # |D^U|


STATISTICS = {
    "CUB": Sizes(100, 200, 1_500, 4_500),
    "Stanford Cars": Sizes(98, 196, 2_000, 6_100),
    "Herbarium19": Sizes(341, 683, 8_900, 25_400),
    "CIFAR10": Sizes(5, 10, 12_500, 37_500),
    "CIFAR100": Sizes(80, 100, 20_000, 30_000),
    "ImageNet-100": Sizes(50, 100, 31_900, 95_300),
}
"""FGVC-Aircraft is not in the table."""

TUNED_WEIGHT_DECAYS = {
    "CUB": 0.01,
    "Stanford Cars": 0.01,
    "Herbarium19": 0.01,
    "CIFAR10": 0.025,
    "CIFAR100": 0.0025,
    "ImageNet-100": 0.0025,
}
"""The weight decays that the paper's search found, halved."""


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


def paper_average(tables: Sequence[str], setting: str) -> tuple[float, ...] | None:
    """The mean of a row over the paper's six sets.

    >>> [round(value, 1) for value in paper_average(["main"], "RPIM")]
    [69.5, 80.1, 63.4]
    """
    rows = [paper_results(tables, setting, name) for name in dict.fromkeys(PAPER_SETS.values())]
    there = [row for row in rows if row is not None]
    return tuple(map(fmean, zip(*there, strict=True))) if there and len(there) == len(rows) else None


@cache
def _paper_results() -> dict[tuple[str, str, str], tuple[float, ...]]:
    parts: dict[tuple[str, str, str], dict[str, float]] = {}
    for line in published_results("paper_tables.csv"):
        key = (line["table"], line["setting"], line["dataset"])
        parts.setdefault(key, {})[line["classes"]] = float(line["accuracy"])
    return {key: tuple(values[part] for part in ACCURACY) for key, values in parts.items()}
