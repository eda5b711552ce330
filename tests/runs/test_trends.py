"""Classes over time, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rpim import InputError
from rpim.runs.facets import facet_of
from rpim.runs.trends import class_counts, day, trends


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
