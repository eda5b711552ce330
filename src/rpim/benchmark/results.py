"""Records of cells by method and set, and tables as data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
        method: [results.average(method, sets, part) for part in parts]
        for method in results.methods
        if all(results.whole(method, name, parts[0]) for name in sets)
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
