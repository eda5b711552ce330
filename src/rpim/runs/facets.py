"""Metadata columns as bins, for charts and counts; and the classes over time: which grow, and which are new.

Numbers get a histogram, dates hours, days, weeks, months, quarters or years, and everything else its most frequent
values.
"""

from __future__ import annotations

import itertools
import math
import numbers
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, short
from rpim.data.columns import read_dates

IntArray = NDArray[np.int32]
Seconds = NDArray[np.float64]

N_BINS = 24
"""Maximum number of bins of a histogram."""
N_DATES = 40
"""Maximum number of bins of a time line."""
N_VALUES = 12
"""Maximum number of values with a bin of their own."""
WIDTH = 80
"""Maximum characters of a value or column name."""
OUTER = 0.02
"""Share of the rows at either end that are outliers if they are far away."""


@dataclass(frozen=True, eq=False)
class Facet:
    """The bins of a column.

    Attributes
    ----------
    kind : "numbers", "dates" or "values"
    codes : (N,) int32
        The bin of each row; ``len(labels)`` for rows without a value.
    labels : tuple of str
        One per bin, in order.
    others : int
        Number of values in the last bin, if it holds all values without a bin of their own; else 0.
    seconds : (N,) float64 or None
        Of dates: seconds since 1970, NaN for missing ones.
    """

    kind: str
    codes: IntArray
    labels: tuple[str, ...]
    others: int = 0
    seconds: Seconds | None = None

    @property
    def is_missing(self) -> NDArray[np.bool_]:
        """The rows without a value."""
        missing: NDArray[np.bool_] = self.codes == len(self.labels)
        return missing

    def counts(self, within: NDArray[np.bool_] | None = None) -> list[int]:
        """The number of rows in each bin, and of rows without a value."""
        codes = self.codes if within is None else self.codes[within]
        found: list[int] = np.bincount(codes, minlength=len(self.labels) + 1).tolist()
        return found


def facet_of(values: NDArray[Any]) -> Facet:
    """The bins of a metadata column: of numbers, of dates if all texts are dates, or of values."""
    if values.dtype.kind != "O":
        return number_bins(values)
    seconds, others = read_dates(values)
    if not others and np.isfinite(seconds).any():
        return date_bins(seconds)
    return value_bins(values)


def number_bins(values: NDArray[Any]) -> Facet:
    """A bin per number if they are few, else a histogram, whose outer bins take the outliers.

    >>> found = number_bins(np.array([3.0, 1.0, np.nan, 3.0]))
    >>> found.labels, found.codes.tolist()
    (('1', '3'), [1, 0, 2, 1])
    """
    numbers_ = values.astype(np.float64)
    there = np.isfinite(numbers_)
    distinct = np.unique(numbers_[there])
    if len(distinct) <= N_BINS:
        codes = np.searchsorted(distinct, numbers_)
        return Facet("numbers", _filled(codes, there, len(distinct)), tuple(map(format_value, distinct)))
    low, high = clipped_ends(numbers_[there])
    step = _round_step(high / N_BINS - low / N_BINS)
    first, last = (math.floor(end / step + _SLACK) for end in (low, high))
    with np.errstate(invalid="ignore", over="ignore"):
        codes = np.clip(np.floor(numbers_ / step + _SLACK), first, last) - first
    edges = [format_value(float(f"{k * step:.12g}"), 6) for k in range(first, last + 2)]
    labels = [f"{a} to {b}" for a, b in itertools.pairwise(edges)]
    if low > distinct[0]:
        labels[0] = f"below {edges[1]}"
    if high < distinct[-1]:
        labels[-1] = f"{edges[-2]} or more"
    return Facet("numbers", _filled(codes, there, len(labels)), tuple(labels))


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, 20, … and 0.5, 0.2, 0.1, … that is not below this.

    >>> _round_step(0.3), _round_step(7), _round_step(1)
    (0.5, 10.0, 1.0)
    """
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * one for one in (1, 2, 5, 10) if power * one >= least * (1 - _SLACK))


def clipped_ends(values: NDArray[np.float64]) -> tuple[float, float]:
    """The smallest and the largest value, or quantiles where outliers are far away.

    >>> clipped_ends(np.arange(5.0))
    (0.0, 4.0)
    """
    least, largest = values.min(), values.max()
    low, high = np.quantile(values / 2, [OUTER, 1 - OUTER])  # halves, so that differences do not overflow
    if not 0 < high - low < (largest / 2 - least / 2) / 2:
        return float(least), float(largest)
    return float(2 * low), float(2 * high)


_DAY = 86400
_SLACK = 1e-9
"""For 0.3 / 0.1, which is a little less than 3."""


def _month(seconds: Seconds) -> NDArray[np.int64]:
    return seconds.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)


def _day_of(days: int) -> str:
    return str(np.datetime64(int(days), "D"))


def _month_of(months: int) -> str:
    return str(np.datetime64(int(months), "M"))


_UNITS: list[tuple[Callable[[Seconds], NDArray[np.int64]], Callable[[int], str]]] = [
    (lambda s: (s // 3600).astype(np.int64), lambda k: str(np.datetime64(k, "h")).replace("T", " ") + ":00"),
    (lambda s: (s // _DAY).astype(np.int64), _day_of),
    (lambda s: ((s // _DAY + 3) // 7).astype(np.int64), lambda k: f"week of {_day_of(7 * k - 3)}"),  # from Monday
    (_month, _month_of),
    (lambda s: _month(s) // 3, lambda k: f"{_month_of(3 * k)[:4]} Q{k % 4 + 1}"),
    (lambda s: _month(s) // 12, lambda k: _month_of(12 * k)[:4]),
]


def date_bins(seconds: Seconds) -> Facet:
    """A time line in the finest unit that needs no more than `N_DATES` bins; the outer bins take the outliers.

    >>> found = date_bins(np.array([0.0, np.nan, 90 * 86400.0]))
    >>> found.labels[0], len(found.labels), found.codes.tolist()
    ('week of 1969-12-29', 14, [0, 14, 13])
    """
    there = np.isfinite(seconds)
    low, high = clipped_ends(seconds[there])
    filled = np.where(there, seconds, low)
    step = 1
    for number_of, said in _UNITS[int((filled % _DAY == 0).all()) :]:  # no hours for days without a time
        first, last = (int(number_of(np.array([end]))[0]) for end in (low, high))
        label = said
        if last - first < N_DATES:
            break
    else:
        step = -(-(last - first + 1) // N_DATES)  # years, of many centuries
    codes = (np.clip(number_of(filled), first, last) - first) // step
    labels = [label(k) for k in range(first, last + 1, step)]
    if low > seconds[there].min():
        labels[0] = f"until {labels[0].removeprefix('week of ')}"
    if high < seconds[there].max() and len(labels) > 1:
        labels[-1] = f"from {labels[-1].removeprefix('week of ')}"
    return Facet("dates", _filled(codes, there, len(labels)), tuple(labels), seconds=seconds)


def value_bins(values: NDArray[Any], most: int = N_VALUES) -> Facet:
    """The most frequent values, and one bin for all others.

    >>> found = value_bins(np.array(["b", "a", "", "b", "c"], dtype=object), most=2)
    >>> found.labels, found.codes.tolist(), found.others
    (('b', '2 others'), [0, 1, 2, 0, 1], 2)
    """
    listed = values.tolist()
    counted = Counter(value for value in listed if value != "")
    order = sorted(counted, key=lambda value: (-counted[value], value))
    kept = order if len(order) <= most else order[: most - 1]
    others = len(order) - len(kept)
    place = {value: k for k, value in enumerate(kept)}
    n_bins = len(kept) + (others > 0)
    place[""] = n_bins
    codes = np.array([place.get(value, len(kept)) for value in listed], dtype=np.int32)
    labels = [format_value(value) for value in kept]
    if others:
        labels.append(f"{others:,} others")
    return Facet("values", codes, tuple(labels), others)


def _filled(codes: NDArray[Any], there: NDArray[np.bool_], n_bins: int) -> IntArray:
    return np.where(there, codes, n_bins).astype(np.int32)


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


CLEAR = 3.0
"""Standard errors by which the share of a class has to change before it grows or shrinks."""
_LATEST = 0.25


@dataclass(frozen=True)
class Trend:
    """One class before a day and since that day.

    Attributes
    ----------
    number : int
        The class.
    shares : tuple of float
        Its share of the rows of each bin; NaN for an empty bin.
    before, since : int
        Its rows.
    share_before, share_since : float
        Its shares of all rows; NaN if there are none.
    status : "new", "gone", "grows", "shrinks" or ""
        New and gone classes have no rows before, or since. Others grow or shrink if their share changes by more than
        three standard errors.
    """

    number: int
    shares: tuple[float, ...]
    before: int
    since: int
    share_before: float
    share_since: float
    status: str

    @property
    def change(self) -> float:
        """The change of the share."""
        return self.share_since - self.share_before


@dataclass(frozen=True, eq=False)
class Trends:
    """All classes over time, those that grow most first."""

    since: np.datetime64
    first: np.datetime64
    last: np.datetime64
    labels: tuple[str, ...]
    classes: list[Trend]


def class_counts(facet: Facet, class_of: NDArray[Any], n_classes: int) -> NDArray[np.int64]:
    """The rows of each class in each bin, rows without a class (-1) or a value left out. (K, B)

    >>> from rpim.runs.facets import number_bins
    >>> class_counts(number_bins(np.array([1.0, 2.0, 2.0, np.nan])), np.array([0, 0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    n_bins = len(facet.labels)
    counted = (class_of >= 0) & ~facet.is_missing
    cells = class_of[counted].astype(np.int64) * n_bins + facet.codes[counted]
    return np.bincount(cells, minlength=n_classes * n_bins).reshape(n_classes, n_bins)


def day(text: str) -> np.datetime64:
    """A day such as 2024-01-31.

    Raises
    ------
    InputError
        If it is none.
    """
    seconds, others = read_dates(np.array([text.strip()], dtype=object))
    if others or math.isnan(seconds[0]):
        raise InputError(f"{short(text, 40)!r} is not a day: give one such as 2024-01-31.")
    return np.datetime64(int(seconds[0] // _DAY), "D")


def trends(facet: Facet, class_of: NDArray[Any], n_classes: int, since: np.datetime64 | None = None) -> Trends:
    """Compare the classes before a day with those since; by default the day on which the latest quarter of rows begins.

    Parameters
    ----------
    facet : Facet
        The bins of dates.
    class_of : (N,) int
        The class of each row; -1 for none.
    n_classes : int
    since : datetime64, optional
    """
    assert facet.seconds is not None
    counted = np.isfinite(facet.seconds) & (class_of >= 0)
    if not counted.any():
        raise InputError("No row with a class has a date: choose another column.")
    days = (facet.seconds[counted] // _DAY).astype(np.int64)  # (n,)
    codes = class_of[counted]
    if since is None:
        since = np.datetime64(int(np.quantile(days, 1 - _LATEST, method="higher")), "D")
    is_late = days >= since.astype("datetime64[D]").astype(np.int64)
    late = np.bincount(codes[is_late], minlength=n_classes)
    early = np.bincount(codes[~is_late], minlength=n_classes)
    counts = class_counts(facet, class_of, n_classes)
    with np.errstate(invalid="ignore"):
        shares = counts / counts.sum(axis=0)  # (K, B)
    found = []
    for number in range(n_classes):
        a, b, n_early, n_late = (int(x) for x in (early[number], late[number], early.sum(), late.sum()))
        if a + b == 0:
            continue
        share_before, share_since = a / n_early if n_early else math.nan, b / n_late if n_late else math.nan
        status = _status(a, b, n_early, n_late)
        found.append(Trend(number, tuple(shares[number].tolist()), a, b, share_before, share_since, status))
    found.sort(key=lambda one: (-np.nan_to_num(one.change), -one.since, one.number))
    ends = [np.datetime64(int(end), "D") for end in (days.min(), days.max())]
    return Trends(since, ends[0], ends[1], facet.labels, found)


def _status(before: int, since: int, n_before: int, n_since: int) -> str:
    if n_before == 0 or n_since == 0:
        return ""
    if before == 0 or since == 0:
        return "new" if before == 0 else "gone"
    share = (before + since) / (n_before + n_since)
    error = math.sqrt(share * (1 - share) * (1 / n_before + 1 / n_since))
    change = since / n_since - before / n_before
    if abs(change) <= CLEAR * error:
        return ""
    return "grows" if change > 0 else "shrinks"
