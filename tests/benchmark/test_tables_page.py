"""The page and the figures of rpim benchmark: escaping, confusion by hand, outcomes that are kept, a whole command."""

from __future__ import annotations

import base64
import json
import re
import struct
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rpim import InputError
from rpim.benchmark import cell, tables
from rpim.benchmark.cell import Outcome, outcome_file, principal, read_outcome, sample_rows
from rpim.benchmark.cells import digest
from rpim.benchmark.entries import Method
from rpim.benchmark.figures import Figure, by_transform, compared, focus_classes, make_figures
from rpim.benchmark.results import Table
from rpim.benchmark.studies import Study
from rpim.benchmark.tables import bold, render
from rpim.metrics import gcd_accuracy
from rpim.runs.evaluation import confusion, most_confused, taken_by
from rpim.runs.maps import palette

FAST = {"max_iter": 10, "n_members": 1, "n_init": 1, "trade_off": 0.1, "weight_decay": 0.01}
TRUTH = np.repeat(np.arange(6), 20)


def record(method="pim", data_set="birds", seed=0, value=0.5, **more):
    facts = {
        "format": 1,
        "method": method,
        "estimator": method,
        "parameters": {},
        "set": data_set,
        "seed": seed,
        "n_classes": 6,
        "data": "d",
        "all": value,
        "known": value,
        "unknown": value,
        "unknown_in_known": value,
        "known_in_unknown": value,
        "seconds": 1.0,
        "peak_mb": 300.0,
        "n_classes_used": 6,
        "versions": {"rpim": "0.1.0", "torch": "2"},
    }
    return {**facts, **more}


def studies(records):
    """One study of all their methods."""
    methods = {one["method"]: Method(one["method"], one["estimator"], one["parameters"]) for one in records}
    return [Study("main", "Methods compared", tuple(methods.values()))]


# Confusion


def test_blocks_by_hand():
    """Classes 1 and 3 are known, 0 and 2 are not; found class 9 is matched with 0 and 8 with 2, 7 with none.

    3 of 4 rows of known classes stay there (one of class 3 goes to 9); of the 6 rows of unknown classes one ends in
    the known class 1, four in those matched with unknown ones, and one in the class that is matched with none.
    """
    truth = np.array([1, 1, 3, 3, 0, 0, 0, 2, 2, 2])
    found = np.array([1, 1, 3, 9, 9, 9, 1, 8, 8, 7])
    result = confusion(truth, found, known=np.array([1, 3]))
    assert result.classes.tolist() == [1, 3, 0, 2]
    assert result.n_known == 2
    assert result.counts.tolist() == [[2, 0, 0, 0, 0], [0, 1, 1, 0, 0], [1, 0, 2, 0, 0], [0, 0, 0, 2, 1]]
    np.testing.assert_allclose(result.blocks, [[3 / 4, 1 / 4], [1 / 6, 5 / 6]])
    np.testing.assert_allclose(result.shares[2], [1 / 3, 0, 2 / 3, 0, 0])


def test_blocks_where_a_method_finds_fewer_classes():
    result = confusion(np.array([0, 0, 1, 2]), np.array([0, 0, 0, 5]), known=np.array([0, 1]))
    assert result.counts.tolist() == [[2, 0, 0], [1, 0, 0], [0, 0, 1]]  # nothing is matched with class 1
    np.testing.assert_allclose(result.blocks, [[1, 0], [0, 1]])
    assert np.isnan(confusion(np.array([0, 0]), np.array([0, 0]), known=np.array([0])).blocks[1]).all()


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=40))
def test_the_diagonal_is_the_accuracy(rows):
    truth, found = np.array(rows).T
    result = confusion(truth, found, known=np.array([0, 1]))
    assert result.counts.sum() == len(rows)
    assert np.trace(result.counts) / len(rows) == pytest.approx(gcd_accuracy(truth, found, [0, 1]).all)


def test_the_most_confused_class_by_hand():
    """Of class 5 half the rows end in known classes, of 6 a third, of 7 none; 8 has one row, too few to count."""
    truth = np.repeat([0, 5, 6, 7, 8], [4, 10, 12, 10, 1])
    found = np.concatenate([[0] * 4, [0, 0, 1, 1, 1], [5] * 5, [0] * 4, [6] * 8, [7] * 10, [1]])
    known = np.array([0, 1])
    assert most_confused(truth, found, known, n=3) == [5, 6]
    assert taken_by(truth, found, known, 5) == 1
    assert taken_by(truth, found, known, 7) is None
    assert most_confused(truth[-1:], found[-1:], known) == [8]  # where there is no larger one
    assert most_confused(truth[:4], found[:4], known) == []
    outcome = Outcome(found, truth, np.arange(len(truth)), known, np.array(list("abcdefghi")))
    assert focus_classes(outcome) == [5, 1, 6, 0]


def test_colours_are_many_and_stand_on_white():
    colours = palette(8)
    assert np.array_equal(colours, palette(30)[:8])
    assert palette(200).shape == (200, 3)
    assert ((palette(200) >= 0) & (palette(200) <= 1)).all()
    assert len(np.unique(palette(200).round(3), axis=0)) == 200
    assert (palette(200) @ [0.2126, 0.7152, 0.0722]).max() < 0.85


# Outcomes


def test_the_sample_is_that_of_the_seed():
    rows = np.arange(0, 10_000, 2)
    first = sample_rows(rows, 0)
    assert len(first) == len(set(first.tolist())) == 2000
    assert set(first.tolist()) <= set(rows.tolist())
    assert (np.diff(first) > 0).all()
    assert np.array_equal(first, sample_rows(rows, 0))
    assert not np.array_equal(first, sample_rows(rows, 1))
    assert sample_rows(rows[:7], 0).tolist() == rows[:7].tolist()


def test_principal_directions_keep_distances():
    """Rows that differ in three directions of seventy: three are kept, and distances are the same but for a scale."""
    random = np.random.RandomState(0)
    rows = random.randn(40, 3) @ random.randn(3, 70)
    kept = principal(rows).astype(np.float64)
    assert kept.shape == (40, 3)
    assert np.abs(kept).max() == 1
    before = np.linalg.norm(rows[:, None] - rows[None], axis=2)
    after = np.linalg.norm(kept[:, None] - kept[None], axis=2)
    np.testing.assert_allclose(after / after.max(), before / before.max(), atol=2e-3)
    assert principal(random.randn(80, 70)).shape == (80, 50)


def test_a_missing_or_damaged_outcome_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="run before outcomes were kept"):
        read_outcome(tmp_path, record())
    path = outcome_file(tmp_path, record())
    path.parent.mkdir()
    path.write_bytes(b"no archive")
    with pytest.raises(InputError, match=r"is not an \.npz file"):
        read_outcome(tmp_path, record())
    np.savez(path, predicted=np.array([{"a": 1}], dtype=object))
    with pytest.raises(InputError, match="pickled objects, which are never loaded"):
        read_outcome(tmp_path, record())
    np.savez(path, something=np.ones(3))
    with pytest.raises(InputError, match="is no outcome of this version"):
        read_outcome(tmp_path, record())


def test_a_cell_has_a_name_of_its_own():
    assert re.fullmatch("[0-9a-f]{16}", digest(record()))
    assert digest(record()) == digest(record(value=0.9))  # what was measured decides nothing
    assert len({digest(record()), digest(record(seed=1)), digest(record("rpim")), digest(record(data="e"))}) == 4


# Which figures there are


def test_pim_and_rpim_are_compared_or_else_the_first_two():
    gcd, pim, rpim = record("gcd"), record("pim"), record("rpim")
    ours = record("ours", estimator="rpim", parameters={"beta": 0.5})
    assert list(compared([gcd, ours, rpim, pim])) == ["pim", "rpim"]  # rpim is nearer to the default than ours
    assert list(compared([gcd, ours, rpim])) == ["gcd", "ours"]
    assert list(compared([gcd])) == ["gcd"]


def test_transformations_are_those_that_differ_in_nothing_else():
    rows = [record(h, estimator="rpim", parameters={"h": h}) for h in ("mlp", "linear")]
    plain, other = record("rpim"), record("other", estimator="rpim", parameters={"h": "linear-bias", "beta": 0.5})
    assert list(by_transform([*rows, plain, other])) == ["semantic-bias", "linear", "mlp"]
    assert list(by_transform([*rows, plain, record("pim")])) == ["none", "semantic-bias", "linear", "mlp"]
    assert by_transform([plain, other, record("pim")]) == {}


def kept_outcome(folder: Path, of: dict, lean=True, n_classes=4, **more) -> None:
    """An outcome of blobs, half of class 3 taken for class 0."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(n_classes), 15)
    predicted = truth.copy()
    predicted[-8:] = 0
    arrays = {
        "predicted": predicted,
        "truth": truth,
        "evaluated": np.arange(len(truth)),
        "known": np.array([0, 1]),
        "names": np.array(["$\\frac{a", "<b>", "日本", *map(str, range(3, n_classes))]),
        "sample": np.arange(len(truth)),
        "z": (np.eye(n_classes)[predicted] + 0.1 * random.randn(len(truth), n_classes)).astype(np.float16),
    }
    if lean:
        arrays["lean"] = np.where(predicted < 2, 3.0, -3.0) + 0.5 * random.randn(len(truth))
    path = outcome_file(folder, of)
    path.parent.mkdir(exist_ok=True)
    np.savez(path, **{**arrays, **more})


@pytest.mark.slow
def test_a_figure_that_cannot_be_made_costs_no_other(tmp_path):
    records = [
        record("pim"),
        record("rpim"),
        record("pim", "cars"),
        record("rpim", "cars", error="no luck"),
        record("pim", "../old/x y"),
        record("rpim", "../old/x y"),
    ]
    kept_outcome(tmp_path, records[0])
    kept_outcome(tmp_path, records[1], lean=False)
    kept_outcome(tmp_path, records[2])
    figures, missing = make_figures(tmp_path, studies(records), records)
    assert [figure.name for figure in figures] == ["map-birds.png", "confusion-birds.png"]
    reasons = [sentence.partition(" is left out: ")[::2] for sentence in missing]
    assert reasons[0][0] == "A confused class of birds"
    assert "kept no sample" in reasons[0][1]
    assert [what for what, _ in reasons[1:4]] == ["Map of cars", "Confusion on cars", "A confused class of cars"]
    assert {why for _, why in reasons[1:4]} == {"rpim failed on it."}
    assert all("run before outcomes were kept" in why for _, why in reasons[4:])
    assert len(reasons) == 7
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == ["confusion-birds.png", "map-birds.png"]


@pytest.mark.slow
def test_figures_are_the_same_bytes_again_and_their_names_are_safe(tmp_path):
    records = [record("a", "a b"), record("b", "a b"), record("a", "../a/b"), record("b", "../a/b")]
    for one in records:
        kept_outcome(tmp_path, one)
    figures, missing = make_figures(tmp_path, studies(records), records)
    assert missing == []
    assert [figure.name for figure in figures] == [
        "averages-main.svg",
        "map-a-b.png",
        "confusion-a-b.png",
        "histogram-a-b.svg",
        "map-a-b-2.png",
        "confusion-a-b-2.png",
        "histogram-a-b-2.svg",
    ]
    again = make_figures(tmp_path, studies(records), records)[0]
    assert [figure.image for figure in figures] == [figure.image for figure in again]
    for figure in figures:
        assert (tmp_path / "figures" / figure.name).read_bytes() == figure.image
    assert "of class 3 (15 rows), the unknown class that a takes most" in figures[3].caption


@pytest.mark.slow
def test_many_classes_have_a_second_row_for_those_that_are_confused(tmp_path):
    records = [record("pim"), record("rpim")]
    for one in records:
        kept_outcome(tmp_path, one, n_classes=24)
    figures = {figure.name: figure for figure in make_figures(tmp_path, studies(records), records)[0]}
    assert "Below, in colour: the unknown classes that pim takes most" in figures["map-birds.png"].caption
    width, height = struct.unpack(">II", figures["map-birds.png"].image[16:24])
    assert height > width  # two panels across, two down, and the legend


# The page


ROWS = [["<script>alert(1)</script>", "**50.0**/40.0"], ["x", "—"]]
TABLE = Table("Compared <here>", "A & b.", ["method", "bi<rds"], ROWS)


def test_the_page_shows_names_and_obeys_none():
    figure = Figure("map.png", 'of "<i>', "</figcaption><script>", b"\x89PNG")
    html = render([TABLE], [record("<script>")], [figure], ["<u>"], ["<s>"], "rpim benchmark '<x>'")
    assert "<script" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "<b>50.0</b>/40.0" in html
    assert "**" not in html
    for text in ("Compared &lt;here&gt;", "A &amp; b.", "bi&lt;rds", "&lt;u&gt;", "&lt;s&gt;", "benchmark &#39;&lt;x"):
        assert text in html
    assert '<td class="number">—</td>' in html
    assert f"data:image/png;base64,{base64.b64encode(figure.image).decode()}" in html
    assert "1 method, 1 data set and 1 seed" in html
    assert "rpim 0.1.0, torch 2" in html


def asks_for(html: str) -> list[str]:
    """Whatever a browser would fetch, or lead to, outside of the page."""
    attributes = r"""(?:src|href|action|srcset|poster)\s*=\s*["']?([^"'\s>]*)"""
    targets = ["".join(one) for one in re.findall(rf"{attributes}|url\(([^)]*)\)|@import([^;]*)", html)]
    return [target for target in targets if not target.startswith(("#", "data:image/"))]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("empty", ["of_known", "of_others"])
def test_a_histogram_without_rows_is_left_out(empty):
    pytest.importorskip("matplotlib")
    from rpim.benchmark.drawing import Leanings, draw_leanings

    values = {name: np.array([-1.0, 0.5, 2.0]) for name in ("of_class", "of_known", "of_others")}
    assert b"</svg>" in draw_leanings([Leanings("RPIM", **{**values, empty: np.empty(0)})], "a finch")


def test_bold_is_escaped_inside_and_out():
    assert str(bold("a<**b&**>**c**")) == "a&lt;<b>b&amp;</b>&gt;<b>c</b>"
    assert str(bold("2 ** 3")) == "2 ** 3"


@pytest.mark.slow
def test_without_the_extra_there_are_tables_and_one_line(benchmark, monkeypatch):
    monkeypatch.setattr(tables, "NEEDED", ("matplotlib", "no_such_package"))
    code, _, err = benchmark(save("b.npz"), "-o", "out", "--methods", "kmeans", "--seeds", "0")
    assert code == 0
    assert err == f"rpim: {tables.HOW_TO_GET_IT}\n"
    assert "pip install 'rpim[figures]'" in err
    assert Path("out/results.md").exists()
    assert not Path("out/index.html").exists()


# Whole commands


def save(name: str) -> str:
    X = np.eye(8)[TRUTH] + 0.45 * np.random.RandomState(0).randn(120, 8)
    np.savez(name, features=X.astype(np.float32), labels=np.array(list("fabcde"))[TRUTH])
    return name


@pytest.mark.slow
def test_a_whole_command_and_its_page_made_again(benchmark_with_figures):
    rpim = {"method": "rpim", **FAST, "beta": 0.1}
    methods = {"PIM <&>": {"method": "pim", **FAST}, "RPIM": rpim, "linear $x": {**rpim, "h": "linear"}}
    Path("config.json").write_text(json.dumps({"methods": methods, "seeds": [0, 1]}))
    arguments = (save("birds.npz"), "--config", "config.json", "-o", "out", "--jobs", 1)
    code, out, err = benchmark_with_figures(*arguments)
    assert (code, err) == (0, "")
    assert out == Path("out/results.md").read_text()
    html = Path("out/index.html").read_text()
    assert asks_for(html) == []
    assert "PIM &lt;&amp;&gt;" in html
    assert "<code>rpim benchmark birds.npz --output out --jobs 1 --config config.json</code>" in html
    assert [path.name for path in sorted(Path("out/figures").iterdir())] == [
        "averages-comparison.svg",
        "confusion-birds.png",
        "histogram-birds.svg",
        "map-birds.png",
        "transforms-birds.png",
    ]
    assert html.count("<img ") == 5
    for path in Path("out/figures").glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag.endswith("svg")

    lines = [json.loads(line) for line in Path("out/cells.jsonl").read_text().splitlines()]
    for line in lines:
        outcome = read_outcome(Path("out"), line)
        assert (outcome.sample is not None) == (line["seed"] == 0)
        assert outcome.names.tolist() == sorted("fabcde")
        rows = outcome.evaluated
        accuracy = gcd_accuracy(outcome.truth[rows], outcome.predicted[rows], outcome.known)
        assert (accuracy.all, accuracy.unknown) == (line["all"], line["unknown"])
        if outcome.lean is not None:
            assert np.array_equal(outcome.lean > 0, np.isin(outcome.predicted[rows], outcome.known))
            assert outcome.z.dtype == np.float16
            assert len(outcome.z) == len(outcome.refined) == len(outcome.sample) == len(rows)
    samples = [read_outcome(Path("out"), line).sample for line in lines if line["seed"] == 0]
    assert all(np.array_equal(sample, samples[0]) for sample in samples)
    assert len(list(Path("out", cell.FOLDER).iterdir())) == 6

    Path("out/index.html").unlink()
    before = Path("out/cells.jsonl").read_bytes()
    assert benchmark_with_figures(*arguments)[0] == 0
    assert Path("out/cells.jsonl").read_bytes() == before  # nothing was run
    assert Path("out/index.html").read_text() == html
    for path in Path("out/outcomes").iterdir():
        path.unlink()  # as an older version leaves its folder
    code, again, err = benchmark_with_figures(*arguments)
    assert (code, again, err) == (0, out, "")
    html = Path("out/index.html").read_text()
    assert html.count("<img ") == 1  # the averages need no outcome
    assert "Map of birds is left out: its cells were run before outcomes were kept" in html
