"""The bins of a column, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rpim.runs.facets import N_DATES, N_VALUES, date_bins, facet_of, number_bins, value_bins


def texts(*values):
    return np.array(values, dtype=object)


def test_many_numbers_have_bins_with_round_edges():
    found = number_bins(np.append(np.arange(0, 12, 0.1), np.nan))
    assert found.labels[:2] == ("0 to 0.5", "0.5 to 1")
    assert found.labels[-1] == "11.5 to 12"
    assert found.counts() == [5] * 24 + [1]
    assert found.codes[[0, 4, 5, 119]].tolist() == [0, 0, 1, 23]  # 0.5 is in the second, though it is 5 * 0.1


def test_outliers_are_in_the_outer_bins():
    found = number_bins(np.concatenate([[-1e9], np.linspace(10, 20, 98), [1e9]]))
    assert (found.labels[0], found.labels[-1]) == ("below 10.5", "19.5 or more")
    assert found.codes[[0, -1]].tolist() == [0, len(found.labels) - 1]


@pytest.mark.parametrize("values", [[-1.7e308, 1.7e308] * 20 + list(range(30)), [np.nan] * 3, [np.inf, 1.0], [5.0]])
def test_every_row_is_in_one_bin(values):
    found = number_bins(np.array(values))
    assert sum(found.counts()) == len(values)
    assert found.codes.min() >= 0
    assert found.codes.max() <= len(found.labels)


@pytest.mark.parametrize(
    ("days", "labels"),
    [
        (["2024-01-01 03:00", "2024-01-01T05:30:59.5Z"], ["2024-01-01 03:00", "2024-01-01 04:00", "2024-01-01 05:00"]),
        (["2024-01-01", "2024-01-03"], ["2024-01-01", "2024-01-02", "2024-01-03"]),
        (
            ["2024-02-28", "2024-04-30"],
            [f"week of 2024-{day}" for day in ("02-26", "03-04", "03-11", "03-18", "03-25")],
        ),
        (["2024-01", "2025-03"], ["2024-01", "2024-02", "2024-03"]),
        (["2016-02-01", "2025-03-07"], ["2016 Q1", "2016 Q2", "2016 Q3"]),
        (["1990-01-01", "2025-03-07"], ["1990", "1991"]),
    ],
)
def test_dates_have_the_finest_unit_that_fits(days, labels):
    found = facet_of(texts(*days, ""))
    assert found.kind == "dates"
    assert list(found.labels[: len(labels)]) == labels
    assert found.codes.tolist() == [0, len(found.labels) - 1, len(found.labels)]
    assert len(found.labels) <= N_DATES


def test_dates_of_all_centuries():
    found = facet_of(texts("0001-01-01", "9999-12-31"))
    assert len(found.labels) == N_DATES
    assert found.codes.tolist() == [0, N_DATES - 1]


def test_a_date_far_away_does_not_hide_the_others():
    days = (np.datetime64("2024-01-01") + np.arange(100)).astype(str)
    found = facet_of(texts("1900-01-01", *days))
    assert found.labels[0] == "until 2024-01-01"
    assert len(found.labels) < 20
    assert found.codes[0] == 0


def test_texts_that_are_not_all_dates_are_values():
    assert facet_of(texts("2024-01-01", "soon")).kind == "values"
    assert facet_of(texts("", "")).kind == "values"
    assert date_bins(np.array([0.0])).labels == ("1970-01-01",)


def test_the_most_frequent_values():
    found = value_bins(texts(*[f"v{k}" for k in range(20) for _ in range(30 - k)], ""))
    assert found.labels == (*(f"v{k}" for k in range(N_VALUES - 1)), "9 others")
    assert found.counts()[-2:] == [sum(30 - k for k in range(11, 20)), 1]
