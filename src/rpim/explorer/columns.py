"""Columns that colour the map: numeric or categorical values per row, and their legend."""

from __future__ import annotations

import functools
import math
import numbers
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST = 30
"""Maximum number of categories with their own colour."""
WIDTH = 80
"""Maximum characters of a value or column name."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_OUTER = 0.02


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
    low, high = np.quantile(halves[is_there], [_OUTER, 1 - _OUTER])
    if not 0 < high - low < (largest - least) / 2:
        low, high = least, largest
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


def format_value(value: Any, digits: int = 5) -> str:
    """Format a value on one short line; "" if it is missing.

    >>> format_value(np.float64(2024.0)), format_value(0.123456789), format_value(123456.7), format_value(math.nan)
    ('2024', '0.12346', '123457', '')
    """
    if isinstance(value, numbers.Real) and not isinstance(value, numbers.Integral):
        number = float(value)
        is_short = abs(number) < 1e15 and (number.is_integer() or abs(number) >= 10**digits)
        return "" if math.isnan(number) else f"{number:.0f}" if is_short else f"{number:.{digits}g}"
    text = " ".join(str(value).split()).encode("utf-8", "replace").decode()  # lone surrogates cannot be sent
    return text if len(text) <= WIDTH else text[: WIDTH - 1] + "…"


def _days(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """Seconds since 1970, if all texts begin with a date and there are more than a few."""
    texts = set(values.tolist()) - {""}
    if len(texts) <= MOST or not all(_DAY.match(text) for text in texts):
        return None
    try:
        seconds = {text: np.datetime64(text[:19], "s").astype(np.float64) for text in texts}
    except ValueError:
        return None
    return np.array([seconds.get(text, np.nan) for text in values.tolist()], dtype=np.float64)


def _day(seconds: float) -> str:
    return str(np.datetime64(round(seconds), "s"))[:10]
