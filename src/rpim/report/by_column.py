"""The report's section on a metadata column: the shares of the classes in each of its values, or over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, plural, short
from rpim.data.columns import read_dates
from rpim.data.feature_set import FeatureSet
from rpim.runs.assignments import class_codes
from rpim.runs.discovery import Discovery
from rpim.runs.facets import Facet, facet_of, format_value
from rpim.runs.trends import Trends, class_counts, day, trends

STEPS = 6
"""Shades of the cells."""


@dataclass(frozen=True, eq=False)
class ByColumn:
    """The classes by the values of a column.

    Attributes
    ----------
    column : str
    labels : tuple of str
        The values, or ranges of numbers.
    totals : list of int
        The rows of each.
    numbers : list of int
        The classes with rows, the largest first.
    shares : (K, B) array
        The share of each class in the rows of each value; NaN for a value without rows.
    n_missing : int
        Rows without a value.
    trends : Trends or None
        For dates: the classes over time.
    """

    column: str
    labels: tuple[str, ...]
    totals: list[int]
    numbers: list[int]
    shares: NDArray[np.float64]
    n_missing: int
    trends: Trends | None

    def shade(self, share: float) -> int:
        """The shade of a cell, 0 to `STEPS` - 1, from the largest share of the table."""
        most = float(np.nanmax(self.shares, initial=0.0)) or 1.0
        return 0 if np.isnan(share) else round((STEPS - 1) * share / most)

    @property
    def found(self) -> str:
        """How many classes appeared, grow, shrink and are gone."""
        assert self.trends is not None
        status = [one.status for one in self.trends.classes]
        said = {"new": "appeared", "grows": "grow", "shrinks": "shrink", "gone": "are gone"}
        parts = [f"{status.count(one):,} {word}" for one, word in said.items() if one in status]
        return ", ".join(parts) or "nothing changed clearly"

    def bars(self, number: int, width: float = 120, height: float = 24) -> list[tuple[str, str, str, str]]:
        """A small bar chart of a class over time: x, y, width and height of each bar."""
        assert self.trends is not None
        shares = next(np.nan_to_num(one.shares) for one in self.trends.classes if one.number == number)
        most = max(np.nan_to_num(one.shares).max() for one in self.trends.classes) or 1.0
        wide = width / len(shares)
        tall = height * shares / most
        return [
            (f"{k * wide:.2f}", f"{height - tall[k]:.2f}", f"{0.85 * wide:.2f}", f"{tall[k]:.2f}")
            for k in range(len(shares))
        ]


def by_column(discovery: Discovery, features: FeatureSet, column: str, since: str | None = None) -> ByColumn:
    """Count the classes by a metadata column.

    Parameters
    ----------
    discovery : Discovery
    features : FeatureSet
        Its rows, in order.
    column : str
        The name of a metadata column.
    since : str, optional
        For dates: the day from which on classes are compared with those before; by default that on which the latest
        quarter of the rows begins.

    Raises
    ------
    InputError
        If there is no such column, it holds dates and other values, or `since` is not a day.
    """
    if column not in features.columns:
        names = ", ".join(format_value(name) for name in features.columns)
        what = f"there are {names}" if names else "there are none"
        raise InputError(f"The features have no metadata column {short(column, 60)!r}: {what}.")
    values = features.columns[column]
    facet = facet_of(values)
    if facet.kind != "dates":
        _check_no_dates(column, values, since)
    if not facet.labels:
        raise InputError(f"The metadata column {short(column, 60)!r} has no values: choose another.")
    codes, n_classes = class_codes(discovery.labels, discovery.classes), len(discovery.classes)
    over_time = None
    if facet.kind == "dates":
        over_time = trends(facet, codes, n_classes, None if since is None else day(since))
    return _counted(column, facet, codes, n_classes, over_time)


def _counted(column: str, facet: Facet, codes: NDArray[np.int64], n_classes: int, over_time: Trends | None) -> ByColumn:
    counts = class_counts(facet, codes, n_classes)  # (K, B)
    with np.errstate(invalid="ignore"):
        shares = counts / counts.sum(axis=0)
    sizes = counts.sum(axis=1)
    numbers = [number for number in np.argsort(-sizes, kind="stable").tolist() if sizes[number]]
    n_missing = int(facet.is_missing.sum())
    return ByColumn(column, facet.labels, counts.sum(axis=0).tolist(), numbers, shares, n_missing, over_time)


def _check_no_dates(column: str, values: NDArray[np.generic], since: str | None) -> None:
    """Refuse a column that is meant to hold dates and does not."""
    name = short(column, 60)
    if values.dtype.kind == "O":
        seconds, others = read_dates(values)
        n_dates = int(np.isfinite(seconds).sum())
        if others and n_dates > len(values) / 2:
            raise InputError(
                f"The column {name!r} has dates and {plural(len(others), 'other value')}, such as "
                f"{short(others[0], 40)!r}: write them like 2024-01-31, or leave them empty."
            )
    if since is not None:
        first = next((format_value(value) for value in values.tolist() if value not in ("", None)), "")
        raise InputError(
            f"--since needs dates, but the column {name!r} holds values such as {first!r}: give --by a column of dates "
            "(2024-01-31), or leave --since out."
        )
