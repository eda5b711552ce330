"""The bins of a column, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rpim import InputError
from rpim.runs.facets import N_DATES, N_VALUES, class_counts, date_bins, day, facet_of, number_bins, trends, value_bins


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


def test_which_classes_appear_grow_shrink_and_go():
    days = np.array(["2024-01-01"] * 100 + ["2024-02-01"] * 100, dtype=object)
    #                     old: 0 1 2 3                                            late: 0 1 2 4
    classes = np.repeat([0, 1, 2, 3, 0, 1, 2, 4], [40, 40, 10, 10, 42, 18, 30, 10])
    found = trends(facet_of(days), classes, 6, np.datetime64("2024-01-15"))
    assert {one.number: one.status for one in found.classes} == {0: "", 1: "shrinks", 2: "grows", 3: "gone", 4: "new"}
    assert [one.number for one in found.classes] == [2, 4, 0, 3, 1]
    assert found.classes[0].change == pytest.approx(0.2)
    assert found.classes[0].shares[0] == pytest.approx(0.1)
    assert np.isnan(found.classes[0].shares[1])  # no rows on that day


def test_by_default_the_latest_quarter_of_the_rows():
    days = (np.datetime64("2024-01-01") + np.arange(100)).astype(str).astype(object)
    found = trends(facet_of(days), np.zeros(100, dtype=int), 1)
    assert found.since == np.datetime64("2024-03-16")
    assert (found.classes[0].before, found.classes[0].since) == (75, 25)


def test_rows_without_a_class_or_a_date_are_left_out():
    facet = facet_of(np.array(["2024-01-01", "2024-01-02", ""], dtype=object))
    assert class_counts(facet, np.array([0, -1, 0]), 1).tolist() == [[1, 0]]
    with pytest.raises(InputError, match="No row with a class has a date"):
        trends(facet, np.array([-1, -1, 0]), 1)


def test_a_day_after_all_rows_compares_nothing():
    facet = facet_of(np.array(["2024-01-01", "2024-01-02"], dtype=object))
    found = trends(facet, np.array([0, 1]), 2, day("2030-01-01"))
    assert [one.status for one in found.classes] == ["", ""]
    assert np.isnan(found.classes[0].share_since)


def test_days():
    assert day(" 2024-01-31 ") == np.datetime64("2024-01-31")
    for text in ("", "31.1.2024", "2024-13-01"):
        with pytest.raises(InputError, match="is not a day: give one such as 2024-01-31"):
            day(text)
