"""Classes by the values of a metadata column, and over time: which grow, and which are new since a day."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, short
from rpim.data.columns import read_dates
from rpim.runs.facets import Facet

CLEAR = 3.0
"""Standard errors by which the share of a class has to change before it grows or shrinks."""
_LATEST = 0.25
_DAY = 86400


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
