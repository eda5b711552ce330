"""Metadata columns on the page: colours of the map with a legend, and charts that filter each other and the rows."""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim.data.columns import read_dates
from rpim.runs.facets import Facet, clipped_ends, day, facet_of, format_value, trends
from rpim.runs.versions import Versions

BoolArray = NDArray[np.bool_]
Filters = Mapping[str, frozenset[int]]
"""Of each column that filters, by its key, the bins whose rows pass."""
MOST = 30
"""Maximum number of categories with their own colour."""
_CONFIDENCE_BINS = 20


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


class Charts:
    """The charts of an open run.

    Parameters
    ----------
    versions : Versions
    columns : dict of key to (title, values)
        The metadata columns.
    """

    def __init__(self, versions: Versions, columns: Mapping[str, tuple[str, NDArray[Any]]]) -> None:
        self._versions, self._columns = versions, columns
        self._facets: dict[str, Facet] = {}

    def keys(self) -> list[str]:
        """The columns with a chart: not those in which every text is another."""
        return [*(key for key in self._columns if not _is_distinct(self.facet(key))), "confidence"]

    def facet(self, key: str) -> Facet:
        """The bins of a column."""
        if key == "confidence":
            return self._confidence()
        if key not in self._columns:
            raise InputError("The column does not exist: choose another.")
        if key not in self._facets:
            self._facets[key] = facet_of(self._columns[key][1])
        return self._facets[key]

    def _confidence(self) -> Facet:
        confidence = self._versions[self._versions.active].confidence
        scaled = np.nan_to_num(confidence * _CONFIDENCE_BINS, nan=_CONFIDENCE_BINS).astype(np.int32)
        codes = np.where(np.isnan(confidence), _CONFIDENCE_BINS, scaled.clip(0, _CONFIDENCE_BINS - 1)).astype(np.int32)
        step = 100 // _CONFIDENCE_BINS
        labels = tuple(f"{step * k} to {step * (k + 1)}%" for k in range(_CONFIDENCE_BINS))
        return Facet("numbers", codes, labels)

    def _passes(self, key: str, bins: frozenset[int]) -> BoolArray:
        facet = self.facet(key)
        wanted = np.zeros(len(facet.labels) + 1, dtype=bool)
        wanted[[k for k in bins if k < len(wanted)]] = True
        return wanted[facet.codes]

    def mask(self, filters: Filters) -> BoolArray | None:
        """The rows that pass all filters; None without filters."""
        if not filters:
            return None
        passes: BoolArray = np.logical_and.reduce([self._passes(key, bins) for key, bins in filters.items()])
        return passes

    def drawn(self, filters: Filters) -> list[dict[str, Any]]:
        """Each chart: the rows of its bins, in all and of those that pass the filters of the other charts."""
        n = len(self._versions.rows)
        passes = {key: self._passes(key, bins) for key, bins in filters.items()}
        n_passed = np.sum([*passes.values(), np.zeros(n, dtype=bool)], axis=0, dtype=np.int16)  # (N,)
        found = []
        for key in self.keys():
            facet = self.facet(key)
            others = len(passes) - (key in passes)
            within = n_passed - passes[key] == others if key in passes else n_passed == others
            title = "confidence" if key == "confidence" else self._columns[key][0]
            found.append(
                {
                    "key": key,
                    "title": title,
                    "kind": facet.kind,
                    "labels": facet.labels,
                    "all": facet.counts(),
                    "rows": facet.counts(within) if filters else facet.counts(),
                }
            )
        return found

    def over_time(self, key: str, since: str | None, filters: Filters) -> dict[str, Any]:
        """The classes of the rows that pass the filters, before a day and since."""
        facet = self.facet(key)
        if facet.kind != "dates":
            raise InputError("The column holds no dates: choose another.")
        state = self._versions.state()
        class_of = np.where(state.junk, -1, state.class_of)
        mask = self.mask({other: bins for other, bins in filters.items() if other != key})
        if mask is not None:
            class_of = np.where(mask, class_of, -1)
        found = trends(facet, class_of, state.next_class, day(since) if since else None)
        return {
            "since": str(found.since),
            "first": str(found.first),
            "last": str(found.last),
            "labels": found.labels,
            "classes": [
                {
                    "number": one.number,
                    "shares": [None if np.isnan(share) else round(share, 5) for share in one.shares],
                    "before": one.before,
                    "since": one.since,
                    "share_before": None if np.isnan(one.share_before) else one.share_before,
                    "share_since": None if np.isnan(one.share_since) else one.share_since,
                    "status": one.status,
                }
                for one in found.classes
            ],
        }


def _is_distinct(facet: Facet) -> bool:
    """Whether a column of texts has no value twice, as ids have."""
    return facet.kind == "values" and max(facet.counts()[: len(facet.labels) - (facet.others > 0)], default=0) < 2


def parse_filters(said: str) -> Filters:
    """Filters from JSON, such as ``{"own-0": [1, 2]}``.

    Raises
    ------
    InputError
        If it is something else.
    """
    try:
        found = json.loads(said or "{}")
        is_plain = isinstance(found, dict) and all(
            isinstance(bins, list) and all(type(one) is int and one >= 0 for one in bins) for bins in found.values()
        )
    except (ValueError, RecursionError):
        is_plain = False
    if not is_plain:
        raise InputError("The filters are not understood: clear them.")
    return {key: frozenset(bins) for key, bins in found.items()}
