"""Columns that colour the map: numeric or categorical values per row, and their legend."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim.data.columns import read_dates
from rpim.runs.facets import clipped_ends, format_value

MOST = 30
"""Maximum number of categories with their own colour."""


@dataclass(frozen=True, eq=False)
class Column:
    """The values of a column, scaled for colouring.

    Attributes
    ----------
    values : (N,) float32
        Numeric: scaled to 0..1 between the ends. Categorical: the category number, with one more for all others.
        NaN for missing values.
    ends : pair of str, or None
        Labels of the smallest and largest value; None for categories.
    kinds : list of str
        The categories, most frequent first; empty for numbers.
    others : int
        Number of further categories.
    """

    values: NDArray[np.float32]
    ends: tuple[str, str] | None = None
    kinds: tuple[str, ...] = ()
    others: int = 0


def column_of(values: NDArray[Any]) -> Column:
    """Numbers and dates (more than a few) are numeric; other text is categorical."""
    if values.dtype.kind != "O":
        return amounts(values)
    days = _days(values)
    return kinds(values, values == "", MOST) if days is None else amounts(days, _day)


def amounts(values: NDArray[Any], say: Callable[[float], str] | None = None) -> Column:
    """Scale numbers to 0..1; outliers are clipped at quantiles.

    >>> found = amounts(np.array([2.0, 4.0, np.nan, 3.0]))
    >>> found.values.tolist(), found.ends
    ([0.0, 1.0, nan, 0.5], ('2', '4'))
    """
    say = say or functools.partial(format_value, digits=3)
    halves = values.astype(np.float64) / 2  # so that differences do not overflow
    is_there = np.isfinite(halves)
    if not is_there.any():
        return Column(np.full(len(values), np.nan, dtype=np.float32), ("", ""))
    least, largest = halves[is_there].min(), halves[is_there].max()
    low, high = clipped_ends(halves[is_there])
    marks = ("≤ " if low > least else "", "≥ " if high < largest else "")
    with np.errstate(invalid="ignore"):
        share = np.clip((halves - low) / (high - low), 0, 1) if high > low else np.full(len(values), 0.5)
    shares = np.where(is_there, share, np.nan).astype(np.float32)
    return Column(shares, (marks[0] + say(2 * low), marks[1] + say(2 * high)))


def kinds(values: NDArray[Any], missing: NDArray[np.bool_], most: int | None = None) -> Column:
    """Categories, most frequent first.

    >>> found = kinds(np.array(["b", "a", "", "b", "c"]), np.array([False, False, True, False, False]), most=2)
    >>> found.values.tolist(), found.kinds, found.others
    ([0.0, 1.0, nan, 0.0, 2.0], ('b', 'a'), 1)
    """
    listed = values.tolist()
    counted = Counter(value for value, gone in zip(listed, missing.tolist(), strict=True) if not gone)
    order = sorted(counted, key=lambda value: (-counted[value], value))
    place = {value: k for k, value in enumerate(order[:most])}
    codes = np.array([place.get(value, len(place)) for value in listed], dtype=np.float32)
    codes[missing] = np.nan
    return Column(codes, kinds=tuple(map(format_value, place)), others=len(order) - len(place))


def has_values(values: NDArray[Any]) -> bool:
    """Whether a column has any values."""
    return bool((values != "").any() if values.dtype.kind == "O" else np.isfinite(values).any())


def _days(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """Seconds since 1970, if all texts are dates and there are more than a few."""
    if len(set(values.tolist()) - {""}) <= MOST:
        return None
    seconds, others = read_dates(values)
    return None if others else seconds


def _day(seconds: float) -> str:
    return str(np.datetime64(round(seconds), "s"))[:10]
