"""The tables of a benchmark, from records written by hand."""

from __future__ import annotations

import csv

import pytest

from rpim.benchmark.entries import Method
from rpim.benchmark.results import PAPER_NOTE, Results, paper_results
from rpim.benchmark.studies import Study
from rpim.benchmark.tables import as_csv, markdown, notes, tables


def record(method, data_set, seed, value=None, **more):
    facts = {
        "method": method,
        "estimator": method,
        "parameters": {},
        "set": data_set,
        "seed": seed,
        "all": value,
        "known": value,
        "unknown": None if value is None else value / 2,
        "unknown_in_known": value,
        "known_in_unknown": value,
        "seconds": 1.25,
        "peak_mb": 300.0,
        "n_classes": 6,
        "n_classes_used": 6,
        "trained_parameters": 4800,
        "rows": 100,
        "versions": {"rpim": "0.1.0", "torch": "2"},
    }
    return {**facts, **more}


def comparison(*names, **options) -> list[Study]:
    return [Study("comparison", "Methods compared", tuple(Method(name, name) for name in names), **options)]


def test_the_tables():
    records = [
        record("gcd", "birds", 0, 0.5),
        record("gcd", "birds", 1, 0.7),
        record("pim", "birds", 0, 0.8),
        record("pim", "birds", 1, 0.8, known=0.2),
        record("gcd", "cubs", 0, 0.9),
        record("gcd", "cubs", 1, 0.9),
        record("pim", "cubs", 0, 0.90004),
        record("pim", "cubs", 1, 0.9),
    ]
    accuracy, costs = tables(comparison("gcd", "pim"), records)
    assert accuracy.header == ["method", "birds", "cubs", "average", "confusion"]
    assert accuracy.rows == [
        ["gcd", "60.0/**60.0**/30.0 ±10.0", "**90.0**/**90.0**/**45.0** ±0.0", "75.0/**75.0**/37.5", "75.0/75.0"],
        [
            "pim",
            "**80.0**/50.0/**40.0** ±0.0",
            "**90.0**/**90.0**/**45.0** ±0.0",
            "**85.0**/70.0/**42.5**",
            "85.0/85.0",
        ],
    ]
    assert "mean over 2 seeds" in accuracy.note
    assert costs.rows[0] == ["birds", "gcd", "60.0", "60.0", "6", "4,800", "1.2", "300"]
    assert [row[:2] for row in costs.rows] == [["birds", "gcd"], ["birds", "pim"], ["cubs", "gcd"], ["cubs", "pim"]]
    text = markdown(comparison("gcd", "pim"), records)
    assert "## Methods compared\n" in text
    assert "| gcd    | 60.0/**60.0**/30.0 ±10.0    | **90.0**/**90.0**/**45.0** ±0.0 |" in text
    rows_of_csv = list(csv.DictReader(as_csv(records).splitlines()))
    assert [row["all"] for row in rows_of_csv[:3]] == ["0.5", "0.7", "0.8"]
    assert "test_all" not in rows_of_csv[0]


def test_a_mean_over_fewer_seeds_says_so_and_wins_nothing():
    failed = {"method": "pim", "estimator": "pim", "parameters": {}, "set": "birds", "seed": 1, "error": "no luck"}
    records = [record("gcd", "birds", 0, 0.5), record("gcd", "birds", 1, 0.5), record("pim", "birds", 0, 0.9), failed]
    accuracy = tables(comparison("gcd", "pim"), records)[0]
    assert [row[1] for row in accuracy.rows] == [
        "**50.0**/**50.0**/**25.0** ±0.0",
        "90.0/90.0/45.0 (1 of 2 seeds)",
    ]
    assert [row[2] for row in accuracy.rows] == ["50.0/50.0", "—"]
    assert notes(Results(records)) == ["Failed: pim on birds, seed 1: no luck"]


def test_sets_without_truth_have_no_accuracy():
    records = [record("gcd", "birds", 0), record("gcd", "cubs", 0, 0.5)]
    accuracy, costs = tables(comparison("gcd"), records)
    assert accuracy.header == ["method", "cubs", "confusion"]
    assert costs.rows[0][:4] == ["birds", "gcd", "—", "—"]
    assert notes(Results(records)) == ["birds has no truth for its unlabelled rows, so its accuracy is left out."]
    (only_costs,) = tables(comparison("gcd"), records[:1])
    assert only_costs.title == costs.title
    assert "all" not in next(csv.reader(as_csv(records[:1]).splitlines()))


def test_rows_never_seen_have_a_table_of_their_own():
    seen = {"test_rows": 40, "unused_rows": 5}
    records = [
        record("gcd", "birds", 0, 0.5, test_all=0.25, test_known=0.5, test_unknown=None, **seen),
        record("pim", "birds", 0, 0.4, test_all=0.75, test_known=0.5, test_unknown=None, **seen),
        record("gcd", "cubs", 0, 0.5, test_all=None, test_rows=0, unused_rows=0),
        record("pim", "cubs", 0, 0.4, test_all=None, test_rows=0, unused_rows=0),
    ]
    _, test, _ = tables(comparison("gcd", "pim"), records)
    assert test.header == ["method", "birds"]
    assert test.rows == [["gcd", "25.0/**50.0**/—"], ["pim", "**75.0**/**50.0**/—"]]
    assert notes(Results(records)) == [
        "birds: methods saw its 100 rows called train alone; 40 called test were predicted afterwards, 5 were not used."
    ]
    assert [row["test_all"] for row in csv.DictReader(as_csv(records).splitlines())] == ["0.25", "0.75", "", ""]


def test_the_papers_figures_stand_beside_a_set_of_the_papers_name():
    study = Study("main", "Main", (Method("RPIM", "rpim"), Method("Spectral", "spectral")), paper=("main",))
    records = [record(name, data_set, 0, 0.5) for name in ("rpim", "spectral") for data_set in ("cub200_lite", "mine")]
    accuracy = tables([study], records)[0]
    average = "average of the paper's six sets"
    assert accuracy.header == ["method", "cub200_lite", "cub200_lite, paper", "mine", "average", average, "confusion"]
    assert [row[0] for row in accuracy.rows] == ["RPIM", "Spectral", "ORCA, its own encoder (the paper alone)"]
    assert [row[2] for row in accuracy.rows] == ["66.8/77.3/61.5", "—", "27.5/20.1/31.1"]
    assert PAPER_NOTE in accuracy.note
    without = tables([study], [r for r in records if r["set"] == "mine"])[0]
    assert PAPER_NOTE not in without.note


def test_a_row_for_each_seed():
    study = Study("seeds", "Seeds", (Method("RPIM", "rpim"), Method("PIM", "pim")), (0, 1), layout="seeds")
    records = [
        record("rpim", "birds", 0, 0.5),
        record("rpim", "birds", 1, 0.7),
        record("pim", "birds", 0, 0.4),
        record("pim", "birds", 2, 0.9),
    ]
    table = tables([study], records)[0]
    assert table.header == ["seed", "birds, RPIM", "birds, PIM"]
    assert table.rows == [
        ["0", "50.0/50.0/25.0", "40.0/40.0/20.0"],
        ["1", "70.0/70.0/35.0", "—"],
        ["mean", "60.0 ±10.0", "40.0"],
    ]


def test_studies_that_share_a_cell_and_the_names_they_have_for_it():
    """PIM is in both; `h` means another thing in each; the last tables have every cell once and tell the two apart."""
    fixed = {"weight_decay": 0.01}
    first = Study("fixed", "Fixed", (Method("PIM", "pim"), Method("h", "rpim", fixed)), (0,))
    second = Study("tuned", "Tuned", (Method("Baseline", "pim"), Method("h", "rpim")), (0, 1))
    records = [
        record("pim", "birds", 0, 0.5, trade_off=0.1, beta=0.0, weight_decay=0.005),
        record("rpim", "birds", 0, 0.6, parameters=fixed, trade_off=0.2, beta=0.4, weight_decay=0.01),
        record("rpim", "birds", 0, 0.7, trade_off=0.1, beta=0.2, weight_decay=0.02),
        record("pim", "birds", 1, 0.3, trade_off=0.5, beta=0.0, weight_decay=0.005),
        record("rpim", "birds", 1, 0.9, trade_off=0.1, beta=0.6, weight_decay=0.02),
    ]
    of_first, of_second, chosen, costs = tables([first, second], records)
    assert [row[:2] for row in of_first.rows] == [["PIM", "50.0/50.0/25.0"], ["h", "**60.0**/**60.0**/**30.0**"]]
    assert [row[:2] for row in of_second.rows] == [
        ["Baseline", "40.0/40.0/20.0 ±10.0"],
        ["h", "**80.0**/**80.0**/**40.0** ±10.0"],
    ]
    assert chosen.rows == [
        ["PIM", "0.1–0.5/0/0.005"],
        ["h (fixed)", "0.2/0.4/0.01"],
        ["h (tuned)", "0.1/0.2–0.6/0.02"],
    ]
    assert [row[1] for row in costs.rows] == ["PIM", "h (fixed)", "h (tuned)"]


def test_new_intent_discovery_beside_what_is_published():
    def cell(share, seed, everything, known, novel):
        tested = {"test_all": everything, "test_known": known, "test_unknown": novel, "test_rows": 9, "unused_rows": 0}
        return record("rpim", "banking77_minilm", seed, 0.1, known_share=share, **tested)

    study = Study("nid", "New-intent discovery", (Method("rpim", "rpim"),), (0, 1), layout="nid")
    records = [
        cell(0.25, 0, 0.6, 0.7, 0.5),
        cell(0.25, 1, 0.8, 0.9, 0.7),
        cell(0.75, 0, 0.7, 0.8, 0.4),
        cell(0.75, 1, 0.7, 0.8, 0.4),
    ]
    everything, parts, costs = tables([study], records)
    assert [row[0] for row in costs.rows] == ["banking77_minilm, 25% known", "banking77_minilm, 75% known"]
    assert everything.header == ["method", "banking77_minilm, 25% known", "banking77_minilm, 75% known"]
    assert everything.rows[0] == ["rpim", "**70.0** ±10.0", "**70.0** ±0.0"]
    assert ["MTP-CLNN (MTP-CLNN paper)", "71.4", "79.7"] in everything.rows
    assert not any("LOOP" in row[0] for row in everything.rows)  # which published no All
    assert parts.rows[0] == ["rpim", "**80.0**/**60.0** ±10.0", "**80.0**/**40.0** ±0.0"]
    assert ["LOOP with GPT-3.5 (LOOP paper table 1)", "—", "84.0/67.1"] in parts.rows
    assert "frozen sentence embeddings" in everything.note
    shares = [row["known_share"] for row in csv.DictReader(as_csv(records).splitlines())]
    assert shares == ["0.25", "0.25", "0.75", "0.75"]


def test_batches_with_the_ways_beside_each_other():
    def cell(way, batch, data_set, seed, value, newest):
        more = {
            "way": way,
            "batch": batch,
            "earlier": None if batch == 1 else 0.5,
            "newest": newest,
            "unknown": None,
            "n_classes_used": 6 + seed,
            "n_classes_true": 7,
            "seconds": 2.0 * batch,
        }
        return record("rpim", data_set, seed, value, **more)

    study = Study("batches", "Classes that come later", (Method("rpim", "rpim"),), (0, 1), layout="batches")
    records = [
        cell(way, batch, name, seed, value + 0.2 * seed, 0.3)
        for seed in (0, 1)
        for name in ("birds", "cars")
        for way, value in (("predict", 0.4), ("extend", 0.6))
        for batch in (1, 2, 3)
    ]
    failed = {
        "method": "rpim",
        "estimator": "rpim",
        "parameters": {},
        "set": "cars",
        "seed": 0,
        "error": "no luck",
        "way": "refit",
    }
    found, costs = tables([study], [*records, failed])
    assert found.header == [
        "method",
        "batch",
        "birds",
        "birds, classes",
        "cars",
        "cars, classes",
        "average",
        "seconds",
    ]
    assert [row[:2] for row in found.rows[:4]] == [
        ["rpim, predict", "1"],
        ["rpim, extend", "1"],
        ["rpim, refit", "1"],
        ["rpim, predict", "2"],
    ]
    low, high = "50.0/50.0/—/**30.0** ±10.0", "**70.0**/**70.0**/—/**30.0** ±10.0"
    assert found.rows[0][2:] == [low, "6/7", low, "6/7", "50.0/50.0/—/**30.0**", "2.0"]
    assert found.rows[1][2:] == [high, "6/7", high, "6/7", "**70.0**/**70.0**/—/**30.0**", "2.0"]
    assert found.rows[2][2:] == ["—", "—/—", "—", "—/—", "—", "—"]
    assert found.rows[7][2] == "**70.0**/**70.0**/**50.0**/**30.0** ±10.0"
    assert found.rows[7][-1] == "6.0"
    assert "Mean over 2 seeds" in found.note
    assert costs.rows[1] == ["birds", "rpim, extend", "70.0", "70.0", "6, 7", "4,800", "4.0", "300"]
    assert "means over seeds and batches" in costs.note
    assert "seconds those of a batch" in costs.note
    assert notes(Results([*records, failed])) == ["Failed: rpim, refit on cars, seed 0: no luck"]
    line = list(csv.DictReader(as_csv(records).splitlines()))[4]
    shown = [line[name] for name in ("way", "batch", "all", "earlier", "newest", "n_classes_true", "n_classes_used")]
    assert shown == ["extend", "2", "0.6", "0.5", "0.3", "7", "6"]
    assert "unknown_in_known" not in line


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cub", (66.8, 77.3, 61.5)),
        ("CUB-200-2011", (66.8, 77.3, 61.5)),
        ("stanford-cars", (45.8, 67.5, 35.3)),
        ("herbarium_19", (43.0, 57.4, 35.2)),
        ("imagenet100-vitb", (83.2, 95.2, 77.2)),
        ("cifar1000", None),
        ("scar", None),
    ],
)
def test_names_of_the_papers_sets(name, expected):
    assert paper_results(["main"], "RPIM", name) == expected
