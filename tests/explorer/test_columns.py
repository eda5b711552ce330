"""The colours of a column: amounts and kinds by hand, and columns that mean no good."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rpim import FeatureSet
from rpim.explorer.columns import MOST, amounts, column_of, kinds
from rpim.explorer.workbench import Workbench
from rpim.runs.facets import WIDTH, format_value


def texts(*values):
    return np.array(values, dtype=object)


def test_a_few_numbers_far_away_do_not_make_the_others_look_alike():
    prices = np.append(np.linspace(10, 20, 99), 1e6)
    found = amounts(prices)
    assert found.ends == ("≤ 10.2", "≥ 19.9")
    assert found.values[-1] == 1
    assert 0.4 < found.values[49] < 0.6


@pytest.mark.parametrize(
    ("values", "shares", "ends"),
    [
        ([5, 5], [0.5, 0.5], ("5", "5")),
        ([-np.inf, 1, 3, np.inf, np.nan], [None, 0, 1, None, None], ("1", "3")),
        ([-1.7e308, 0, 1.7e308], [0, 0.5, 1], ("-1.7e+308", "1.7e+308")),
        ([np.nan, np.nan], [None, None], ("", "")),
        ([1.7e9, 1.7e9 + 1, 1.7e9 + 2], [0, 0.5, 1], ("1700000000", "1700000002")),  # float32 alone could not emit
    ],
)
def test_amounts(values, shares, ends):
    found = amounts(np.array(values, dtype=float))
    assert [None if np.isnan(share) else share for share in found.values.tolist()] == shares
    assert found.ends == ends


def test_the_most_frequent_kinds_have_colours():
    values = texts(*[f"k{k}" for k in range(MOST + 5) for _ in range(50 - k)], "")
    found = column_of(values)
    assert found.kinds == tuple(f"k{k}" for k in range(MOST))
    assert found.others == 5
    assert found.values[[0, -2]].tolist() == [0, MOST]
    assert np.isnan(found.values[-1])
    assert kinds(values, values == "").others == 0  # labels have one each


def test_days_are_amounts_where_they_are_many():
    days = np.datetime64("2024-01-01") + np.arange(41)
    found = column_of(texts(*days.astype(str), ""))
    assert found.ends == ("2024-01-01", "2024-02-10")
    assert found.values[20] == 0.5
    assert column_of(texts("2024-01-01", "2024-01-02")).kinds == ("2024-01-01", "2024-01-02")
    assert column_of(texts(*[f"2024-99-{k}" for k in range(10, 50)])).ends is None  # no days, though they look like it


def test_values_in_words():
    assert format_value(12345.6, digits=3) == "12346"
    assert format_value("a\nb\t c") == "a b c"
    assert format_value("x" * 1000) == "x" * (WIDTH - 1) + "…"
    assert format_value("\ud800") == "?"
    assert format_value(np.int64(2**62)) == str(2**62)


def test_columns_that_mean_no_good_do_none(animals):
    given = FeatureSet.read(animals.parent / "animals.npz")
    hostile = {
        "<script>alert(1)</script>": ["</script><img src=x onerror=alert(1)>"] * 120,
        "n" * 5000: [f"{k}" * 3000 for k in range(120)],
        "__proto__": ["constructor"] * 120,
        "nothing": [None] * 120,
        "empty": [""] * 120,
        "numbers": [np.nan, np.inf, -np.inf, 1e308] * 30,
        "half": ["\ud800"] * 120,
    }
    bad = FeatureSet.from_arrays(given.X, given.labels, given.ids, texts=given.texts, columns=hostile)
    bad.write(animals.parent / "bad.npz")
    bench = Workbench(animals, animals.parent / "bad.npz")
    try:
        names = list(bench.columns().values())[3:]
        assert names == ["<script>alert(1)</script>", "n" * (WIDTH - 1) + "…", "__proto__", "numbers", "half"]
        for key in bench.columns():
            column = bench.column(key)
            assert column.values.shape == (120,)
            assert all(len(kind) <= WIDTH for kind in column.kinds)
            json.dumps([column.kinds, column.ends]).encode()
        json.dumps(bench.item(0, bench.versions.state()), ensure_ascii=False).encode()
    finally:
        bench.versions.store.close()


def test_a_hundred_thousand_different_values():
    values = texts(*[f"customer {k}" for k in range(100_000)])
    found = column_of(values)
    assert (len(found.kinds), found.others) == (MOST, 100_000 - MOST)
