"""The report: its facts worked out by hand, what the page lets through and what not, and the commands that write it."""

from __future__ import annotations

import base64
import copy
import dataclasses
import hashlib
import importlib.util
import io
import json
import math
import re
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import make_blobs

import rpim.cli.report
import rpim.report.page
from rpim import (
    RPIM,
    Discovery,
    FeatureSet,
    InfoMaxObjective,
    InputError,
    class_sizes_figure,
    confidence_figure,
    confusion_figure,
    history_figure,
    map_figure,
    write_report,
)
from rpim._common.files import RUN_FILE
from rpim.estimators import GCD, KMeans, RankStats, SpreadLabels
from rpim.report import run_facts
from rpim.report.facts import _distinct, captions, class_facts, class_tree, label_issue_items, overview
from rpim.report.pictures import (
    CELL,
    MAP_FILE,
    SIZE,
    PageMap,
    Thumbnails,
    careful_map,
    kept_map,
    picture_sheet,
    png,
    quick_places,
    safe_json,
    sample_rows,
)
from rpim.report.run_facts import compare, mix_ups
from rpim.runs.assignments import Assignments
from rpim.runs.hierarchy import Hierarchy

X, CENTRE = make_blobs(60, n_features=4, centers=3, random_state=0)
TRUTH = np.array(["ant", "bee", "cow"])[CENTRE]
LABELS = np.where((CENTRE < 2) & (np.arange(60) % 2 == 0), TRUTH, "")
FAST = ("--n-classes", "3", "--trade-off", "0.1", "--weight-decay", "0.01", "--beta", "0.2", "--n-members", "1")
NASTY = '"><script>alert(1)</script><img src=x onerror=alert(2)>\u202e\u2028 https://evil.example/a.js'


def feature_set(**more):
    return FeatureSet.from_arrays(X, labels=LABELS, **more)


def fitted(features):
    model = RPIM(
        3,
        objective=InfoMaxObjective(trade_off=0.1, weight_decay=0.01),
        n_members=1,
        n_init=1,
        max_iter=12,
        random_state=0,
    )
    return Discovery.from_fit(model.fit(features.rows(), features.labels), features)


@pytest.fixture(scope="module")
def discovery():
    """ant and bee known, new-1 found; a fit whose rows the tests replace by their own."""
    return fitted(feature_set())


def by_hand(discovery, labels, given, confidence, **more):
    """The discovery with other rows: everything that the page says of rows is then known beforehand."""
    labels = np.array(labels)
    rows = Assignments(
        ids=np.arange(100, 100 + len(labels)),
        labels=labels,
        known=np.isin(labels, ["ant", "bee"]),
        confidence=np.array(confidence, dtype=np.float32),
        runner_up=labels,
        runner_up_confidence=np.zeros(len(labels), np.float32),
        outlier=np.zeros(len(labels), np.float32),
        given=np.array(given),
        **more,
    )
    return dataclasses.replace(discovery, assignments=rows)


@pytest.fixture
def seven(discovery):
    """Two labelled rows; of the other five one goes to ant, three to new-1, and one is left out."""
    return by_hand(
        discovery,
        ["ant", "bee", "ant", "new-1", "new-1", "new-1", ""],
        ["ant", "bee", "", "", "", "", ""],
        [1.0, 1.0, 0.9, 0.8, 0.6, 0.7, 0.0],
        texts=["an ant", "a bee", "six legs", "moo", "grass", "  ", "?"],
        paths=[*[""] * 5, "/far/cow/5.jpg", ""],
    )


class Page(HTMLParser):
    """What a browser would make of a page: its elements, scripts and text."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts, self.styles, self.text = [], [], [], ""
        self._inside = None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else self._inside

    def handle_endtag(self, tag):
        self._inside = None if tag == self._inside else self._inside

    def handle_data(self, data):
        kept = {"script": self.scripts, "style": self.styles}.get(self._inside)
        if kept is None:
            self.text += data
        else:
            kept.append(data)

    def named(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def words(self):
        return " ".join(self.text.split())


def page_of(discovery, tmp_path, **more):
    return Page(write_report(discovery, tmp_path / "page.html", **more).read_text(encoding="utf-8"))


# Facts


def test_what_was_asked_and_found_by_hand(seven):
    found = overview(seven, class_facts(seven))
    assert found.asked == (
        "Of 7 rows, 2 are labelled with 2 known classes. The other 5 rows belong to known or new classes."
    )
    assert found.found == "1 were assigned to known classes and 3 to 1 new class."
    assert found.notes == ["Rows rejected as outliers: 1."]
    values = {counted: value for value, counted in found.numbers}
    assert values["rows"] == "7"
    assert values["of the unlabelled rows are in new classes"] == "60%"
    assert values["mean confidence of the unlabelled rows"] == "75%"  # of 0.9, 0.8, 0.6 and 0.7


def test_what_has_to_be_said_beside(seven):
    unstable = dataclasses.replace(seven, stability=np.array([1.0, 1.0, 0.4]))
    assert (
        overview(unstable, class_facts(unstable))
        .notes[-1]
        .startswith("1 of 1 new class is unstable: the members of the committee disagree about their rows.")
    )
    labels = ["ant", "bee", "ant", "ant", "ant", "ant", "bee"]
    empty = by_hand(seven, labels, labels[:2] + [""] * 5, [0.5] * 7)
    found = overview(empty, class_facts(empty))
    assert found.found == "5 were assigned to known classes and 0 to 0 new classes."
    assert found.notes == [
        "1 new class ended without rows, so there may be fewer classes: refit with --n-classes 2, or without it to "
        "estimate the number."
    ]


def of_committee(discovery, accuracy, **more):
    """As if the members of a committee of four had predicted the labels that they did not see so well."""
    model = copy.copy(discovery.model)
    model.n_members_, model.expected_accuracy_ = 4, accuracy
    return dataclasses.replace(discovery, model=model, assignments=dataclasses.replace(discovery.assignments, **more))


def with_issue(seven):
    """A committee of which the members think that the bee is of new-1."""
    nan = np.nan
    return of_committee(
        seven,
        0.5,
        label_quality=np.float32([0.9, 0.02, *[nan] * 5]),
        suggested=np.array(["", "new-1", *[""] * 5]),
        suggested_confidence=np.float32([nan, 0.8, *[nan] * 5]),
    )


def test_how_far_to_trust_a_single_fit_and_a_committee(seven):
    assert overview(seven, class_facts(seven)).trust == [
        "This is a single fit: its confidence is not calibrated, and usually too high."
    ]
    found = overview(with_issue(seven), class_facts(seven))
    assert ("50%", "expected accuracy on known classes") in found.numbers
    assert found.trust == [
        "A committee of 4 fits: expected accuracy on known classes 50% (estimated on held-out labels).",
        "Expect about that accuracy on unlabelled rows of known classes, and usually less on new classes.",
        "1 of 2 labels is probably wrong.",
    ]
    unknown = of_committee(seven, math.nan, label_quality=np.full(7, np.nan, np.float32))
    found = overview(unknown, class_facts(unknown))
    assert found.trust == ["A committee of 4 fits; its expected accuracy could not be estimated."]
    assert not [counted for _, counted in found.numbers if "accuracy" in counted]
    assert "nan" not in str(found).lower()


def test_label_issues_by_hand(seven):
    (found,) = label_issue_items(with_issue(seven))
    assert (found.item.row, found.item.caption, found.label, found.suggested) == (1, "a bee", "bee", 2)
    assert found.quality == pytest.approx(0.02)
    assert label_issue_items(seven) == []
    assert label_issue_items(with_issue(seven), 0) == []


def test_curves_of_a_committee_are_means_unless_it_was_trained_on_many_rows(seven, monkeypatch):
    assert not run_facts.averages_members(seven)
    committee = with_issue(seven)
    assert run_facts.averages_members(committee)
    committee.model.calibration_ = 1.2
    assert not run_facts.averages_members(committee)


def test_the_estimate_is_in_the_second_sentence(seven):
    model = fitted(feature_set()).model
    model.n_classes, model.n_classes_low_, model.n_classes_high_ = None, 2, 5
    model.n_classes_curve_ = {4: 3.5, 2: 3.0}
    estimated = dataclasses.replace(seven, model=model)
    assert overview(estimated, class_facts(estimated)).found.endswith(
        ". The number of classes was estimated: 3 classes (95 % interval 2 to 5)."
    )
    assert run_facts.count(model) == run_facts.Count(3, 2, 5, [(2.0, 3.0), (4.0, 3.5)])
    model.n_classes_low_ = model.n_classes_high_ = 3
    assert overview(estimated, class_facts(estimated)).found.endswith(
        ". The number of classes was estimated: 3 classes (the 95 % interval holds no other number)."
    )
    assert run_facts.count(model).within == "the 95 % interval holds no other number"
    assert run_facts.count(seven.model) is None


def test_rows_to_look_at_by_hand(seven):
    ant, bee, cow = class_facts(seven, np.array(["ant", "bee", "bee", "cow", "cow", "ant", ""]))
    assert [(item.row, item.caption) for item in cow.typical] == [(3, "moo"), (5, "cow/5.jpg"), (4, "grass")]
    assert cow.doubtful == []  # all three are typical, and are not shown twice
    assert (cow.mostly, cow.share) == ("cow", pytest.approx(2 / 3))
    assert (ant.mostly, ant.share) == ("ant", 0.5)
    assert (bee.mostly, bee.share) == ("bee", 1.0)
    assert cow.title == cow.summary.suggested_name != cow.name == "new-1"


def test_captions_are_texts_then_files_then_ids(seven):
    assert captions(seven, [3, 5, 6]) == ["moo", "cow/5.jpg", "?"]
    plain = dataclasses.replace(seven, assignments=dataclasses.replace(seven.assignments, texts=None, paths=None))
    assert captions(plain, [3]) == ["row 103"]
    long = dataclasses.replace(seven, assignments=dataclasses.replace(seven.assignments, texts=["x" * 999] * 7))
    assert captions(long, [0], 20) == ["x" * 19 + "…"]


def test_the_course_of_training(discovery):
    found = {one.name: one for one in run_facts.curves(discovery)}
    assert "CE" not in found  # L_S stands in its place, and it is zero throughout
    assert found["objective"].values == [step["objective"] for step in discovery.model.history_]
    assert [step for step, _ in found["confident"].points] == list(range(1, len(discovery.model.history_) + 1))
    assert found["confident"].is_share


def test_long_courses_are_thinned_but_keep_their_end(discovery):
    model = fitted(feature_set()).model
    model.history_ = [{"M": float(-k), "other": 2.0, "bad": math.nan} for k in range(1, 1002)]
    long = run_facts.curves(dataclasses.replace(discovery, model=model))
    assert [one.name for one in long] == ["M", "other"]
    assert len(long[0].points) <= run_facts.MAX_POINTS + 1
    assert (long[0].points[0], long[0].points[-1]) == ((1, -1.0), (1001, -1001.0))
    model.history_ = model.history_[:1]
    assert run_facts.curves(dataclasses.replace(discovery, model=model)) == []


def test_parameters_say_where_they_come_from(discovery):
    model = fitted(feature_set()).model
    model.search_ = {"trade_off": {0.2: 0.5, 0.1: 0.75}, "class_sizes": {"equal": 0.5, "estimated": 0.25}}
    found = {one.name: one for one in run_facts.parameters(model)}
    assert (found["trade_off"].value, found["trade_off"].origin) == ("0.1", "searched")
    assert (found["n_classes"].value, found["n_classes"].origin) == ("3", "given")
    assert (found["eta"].value, found["eta"].origin) == ("0.03", "default")
    assert "verbose" not in found
    assert run_facts.searches(model)["trade_off"] == [
        run_facts.Trial("0.1", 0.75, True),
        run_facts.Trial("0.2", 0.5, False),
    ]
    assert [trial.value for trial in run_facts.searches(model)["class_sizes"]] == ["equal", "estimated"]


# The truth


def test_mix_ups_by_hand():
    """cat is matched with 4 and dog with 5; one of three cats is in 5, and both cows in 6, which is theirs."""
    true, found = np.array([0, 0, 0, 1, 1, 2, 2]), np.array([4, 4, 5, 5, 5, 6, 6])
    assert [(one.true, one.found, one.rows) for one in mix_ups(true, found, ["cat", "dog", "cow"])] == [("cat", 5, 1)]
    both = mix_ups(np.repeat([0, 1], 5), np.array([0, 0, 0, 1, 1, 1, 1, 1, 1, 0]), ["a", "b"])
    assert [(one.true, one.found, one.rows, one.share) for one in both] == [("a", 1, 2, 0.4), ("b", 0, 1, 0.2)]
    assert len(mix_ups(np.repeat([0, 1], 5), np.array([0, 0, 0, 1, 1, 1, 1, 1, 1, 0]), ["a", "b"], n=1)) == 1


def test_comparison_looks_at_unlabelled_rows_with_class_and_truth(seven):
    found = compare(seven, np.array(["bee", "ant", "ant", "cow", "cow", "ant", "cow"]))
    assert (found.evaluation.rows, found.evaluation.left_out) == (4, 1)
    assert found.evaluation.all == 0.75
    assert found.names == ["ant", "cow"]
    assert [(one.true, one.found, one.rows, one.share) for one in found.mix_ups] == [("ant", 2, 1, 0.5)]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(found.picture().split(",")[1]))))
    assert pixels[..., 3].tolist() == [[180, 180], [0, 255]]  # 255 times the root of a half, of a half, of 0 and of 1


# The map


@given(st.lists(st.integers(-1, 6), min_size=1, max_size=300), st.integers(40, 120))
def test_a_sample_keeps_every_class(codes, at_most):
    codes = np.array(codes)
    rows = sample_rows(codes, at_most)
    assert len(rows) == min(at_most, len(codes))
    assert (np.diff(rows) > 0).all()
    for code, size in zip(*np.unique(codes, return_counts=True), strict=True):
        assert (codes[rows] == code).sum() >= min(size, 5)


def test_a_sample_keeps_the_shares():
    codes = np.repeat([0, 1, 2], [6_000, 3_000, 1_000])
    taken = np.bincount(codes[sample_rows(codes, 1_000)])
    assert abs(taken - [600, 300, 100]).max() <= 5
    assert np.array_equal(sample_rows(codes, 1_000), sample_rows(codes, 1_000))
    assert not np.array_equal(sample_rows(codes, 1_000), sample_rows(codes, 1_000, seed=1))


@pytest.mark.slow
def test_the_quick_map_puts_like_beside_like():
    random = np.random.RandomState(0)
    group = np.repeat([0, 1], 400)  # 800 rows, of which t-SNE sees 600
    rows = (np.eye(6)[group] + 0.05 * random.randn(800, 6)).astype(np.float32)
    places = quick_places(rows)
    middles = np.stack([places[group == k].mean(axis=0) for k in (0, 1)])
    nearest = np.linalg.norm(places[:, None] - middles, axis=2).argmin(axis=1)
    assert np.array_equal(nearest, group)
    assert np.array_equal(places, quick_places(rows))


@pytest.mark.parametrize("n_rows", [2, 3, 5])
def test_the_quick_map_of_few_rows(n_rows):
    assert np.isfinite(quick_places(np.eye(5, dtype=np.float32)[:n_rows])).all()


def test_a_kept_map_has_to_be_of_the_rows(tmp_path):
    assert kept_map(tmp_path, 3) is None
    np.save(tmp_path / MAP_FILE, np.ones((3, 2)))
    assert kept_map(tmp_path, 3).tolist() == [[1, 1]] * 3
    assert kept_map(tmp_path, 4) is None
    np.save(tmp_path / MAP_FILE, np.full((3, 2), np.nan))
    assert kept_map(tmp_path, 3) is None
    (tmp_path / MAP_FILE).write_bytes(b"no map")
    assert kept_map(tmp_path, 3) is None


# Pictures


@pytest.mark.parametrize("shape", [(5, 3), (2, 7, 3), (4, 4, 4)])
def test_a_png_has_the_pixels_it_was_made_of(shape):
    pixels = np.random.RandomState(0).randint(256, size=shape).astype(np.uint8)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png(pixels)))), pixels)


def opened(address):
    return Image.open(io.BytesIO(base64.b64decode(address.partition(",")[2])))


def test_thumbnails_are_small_and_say_what_is_missing(tmp_path):
    Image.new("RGB", (400, 200), "red").save(tmp_path / "red.jpg")
    (tmp_path / "text.jpg").write_text("no picture")
    paths = [str(tmp_path / name) for name in ("red.jpg", "gone.jpg", "text.jpg")]
    made = Thumbnails([*paths, ""])
    assert opened(made.of(0)).size == (SIZE, SIZE // 2)
    assert opened(made.of(0)).convert("RGB").getpixel((9, 9))[0] > 240
    assert [made.of(row) for row in (1, 2, 3)] == [None, None, None]
    assert [row in made for row in range(4)] == [True, True, True, False]
    assert made.of(1) is None  # asked again, counted once
    assert made.notes() == [
        "2 images could not be opened at their recorded path and are shown by name: give their folder with rpim report "
        "RUN --images FOLDER."
    ]
    assert Thumbnails(None).of(0) is None
    assert Thumbnails(None).notes() == []


def test_thumbnails_keep_to_their_budget():
    noise = [np.random.RandomState(k).randint(256, size=(50, 50, 3)).astype(np.uint8) for k in range(6)]
    one = len(Thumbnails(noise).of(0))
    made = Thumbnails(noise, budget=2 * one + one // 2)
    shown = [made.of(row) for row in range(6)]
    assert [address is not None for address in shown] == [True] * 3 + [False] * 3
    assert made.notes() == ["3 images are omitted to keep the page small."]


def test_a_sheet_has_a_square_for_each_picture_that_can_be_had(tmp_path):
    colours = {"red": (255, 0, 0), "lime": (0, 255, 0), "blue": (0, 0, 255)}
    for name, (width, height) in zip(colours, ((400, 200), (30, 90), (5, 5)), strict=True):
        Image.new("RGB", (width, height), name).save(tmp_path / f"{name}.png")
    (tmp_path / "text.jpg").write_text("no picture")
    contents = [str(tmp_path / f"{name}.png") for name in colours]
    contents += [str(tmp_path / "gone.jpg"), str(tmp_path / "text.jpg"), "", None, np.full((8, 8), 200, np.uint8)]
    made = picture_sheet(contents, range(8))
    assert sorted(made.rows) == [0, 1, 2, 7]
    sheet = opened(made.address)
    assert sheet.size == (4 * CELL, CELL)
    wanted = [*colours.values(), None, None, None, None, (200, 200, 200)]
    for place, row in enumerate(made.rows):
        seen = sheet.getpixel((CELL * place + CELL // 2, CELL // 2))
        assert max(abs(a - b) for a, b in zip(seen, wanted[row], strict=True)) < 12
    assert picture_sheet(contents, [3, 4, 5]) is None
    assert picture_sheet(None, [0]) is None
    assert picture_sheet(contents, range(8), seconds=-1) is None  # no time is no pictures, and no error


@pytest.mark.slow
def test_a_sheet_stays_small(monkeypatch):
    noise = list(np.random.RandomState(0).randint(256, size=(2100, CELL, CELL, 3)).astype(np.uint8))
    made = picture_sheet(noise, range(2100), seconds=60)
    assert len(set(made.rows)) == 2000
    assert opened(made.address).size == (40 * CELL, 50 * CELL)
    assert len(made.address) < 4_000_000
    without(monkeypatch, "PIL")
    assert picture_sheet(noise, range(2100)) is None


def test_without_pillow_images_stand_by_name(tmp_path, monkeypatch):
    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    without(monkeypatch, "PIL")
    made = Thumbnails([str(tmp_path / "a.png"), np.zeros((8, 8), np.uint8)])
    assert made.of(0) is None
    assert made.of(1).startswith("data:image/png")  # pixels need no library
    assert "pip install 'rpim[report]'" in made.notes()[0]


def without(monkeypatch, library):
    """As if it were not installed."""
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == library else find(name, *more))


# The page


def test_the_page_says_what_there_is(seven, tmp_path):
    found = page_of(seven, tmp_path, truth=["ant", "bee", "ant", "cow", "cow", "ant", "cow"])
    for part in (
        "1 were assigned to known classes and 3 to 1 new class.",
        "moo",
        "an ant",
        "Training",
        "accuracy on all rows (All)75.0%",
        "Parameters at their defaults",
        "InfoMax",
        "There is no map, because the features are not available",
    ):
        assert part in found.words
    assert not found.named("canvas")


def test_the_page_of_a_committee_lists_labels_that_look_wrong(seven, tmp_path):
    found = page_of(with_issue(seven), tmp_path)
    assert "Label issues Each label was held out from some members of the committee." in found.words
    assert "a bee bee" in found.words
    assert "use rpim explore RUN or rpim classes RUN --accept ID." in found.words
    assert "2.0%" in found.words
    assert "#class-2" in [attrs.get("href") for attrs in found.named("a")]
    for part in (
        "It is calibrated by the committee",
        "the mean over the 4 members",
        "Expected accuracyThe accuracy of members",
    ):
        assert part in found.words
    assert "nan" not in found.words.split()
    pages = {}
    for n in (20, 21):
        long = by_hand(
            with_issue(seven),
            ["ant"] * n,
            ["ant"] * n,
            [1.0] * n,
            label_quality=np.zeros(n, np.float32),
            suggested=np.array(["bee"] * n),
            suggested_confidence=np.ones(n, np.float32),
        )
        pages[n] = page_of(long, tmp_path, overwrite=True).words
    assert "Showing 20 of 21; rpim classes RUN --label-issues lists all." in pages[21]
    assert "Showing" not in pages[20]


def test_the_page_of_a_single_fit_says_that_its_confidence_is_not_calibrated(seven, tmp_path):
    found = page_of(seven, tmp_path)
    assert "This is a single fit: its confidence is not calibrated, and usually too high." in found.words
    assert "A single fit is not calibrated: its accuracy is usually lower than its confidence." in found.words
    for part in ("Label issues", "Expected accuracy", "calibrated by the committee"):
        assert part not in found.words


def test_nothing_a_user_wrote_is_obeyed(tmp_path):
    names = np.array([NASTY, "b'ee", "cow"])[CENTRE]
    labels = np.where(LABELS == "", "", names)
    features = FeatureSet.from_arrays(
        X,
        labels=labels,
        ids=[f"{NASTY}{i}" for i in range(60)],
        texts=[f"{NASTY} {i} \udc00" for i in range(60)],
        truth=names,
        metadata={"encoder": NASTY},
    )
    nasty = fitted(features)
    nasty.provenance["data"]["path"] = f"/tmp/{NASTY}"
    nasty.provenance["command"] = ["rpim", NASTY]
    found = page_of(nasty, tmp_path, features=features)
    assert len(found.named("script")) == 2  # the map's data and the page's own
    assert not [attrs for _, attrs in found.elements if any(name.startswith("on") or name == "style" for name in attrs)]
    assert found.text.count("<script>alert(1)</script>") > 10  # it is there to be read
    assert json.loads(found.scripts[0])["names"][0] == NASTY
    assert "</" not in found.scripts[0]


def test_the_page_asks_for_nothing(seven, tmp_path):
    features = feature_set(texts=["see https://evil.example/x.js"] * 60, truth=TRUTH)
    found = page_of(fitted(features), tmp_path, features=features, pictures=[np.zeros((3, 3), np.uint8)] * 60)
    assert found.named("img")
    for tag, attrs in found.elements:
        assert tag not in ("link", "iframe", "object", "embed", "audio", "video", "form", "base", "use")
        assert attrs.get("src", "data:").startswith("data:")
        assert attrs.get("href", "#").startswith("#")
        assert not {"srcset", "action", "poster", "background"} & set(attrs)
    own = found.scripts[1] + found.styles[0]
    assert not re.search(r"https?://|url\(|@import|fetch\(|XMLHttpRequest|WebSocket|import\(", own)


def test_the_policy_lets_its_own_style_and_script_through_and_no_other(discovery, tmp_path):
    found = page_of(discovery, tmp_path, features=feature_set())
    policy = next(attrs["content"] for attrs in found.named("meta") if attrs.get("http-equiv"))
    for kind, source in (("style-src", found.styles[0]), ("script-src", found.scripts[1])):
        digest = base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert "unsafe" not in policy


def test_the_map_in_the_page_is_that_of_the_rows(discovery, tmp_path):
    places = np.array([[0.0, 0.0], [4.0, 2.0], [2.0, 1.0]], dtype=np.float32)
    found = page_of(discovery, tmp_path, on_map=PageMap("UMAP", np.array([3, 7, 59]), places))
    assert "by UMAP" in found.words
    assert "It shows a stratified sample of 3 of the 60 rows" in found.words
    data = json.loads(found.scripts[0])
    within = np.frombuffer(base64.b64decode(data["places"]), "<u2").reshape(3, 2)
    assert within.tolist() == [[0, 16384], [65535, 49151], [32768, 32768]]
    codes = np.frombuffer(base64.b64decode(data["classes"]), "<u2")
    assert [data["names"][code] for code in codes] == discovery.labels[[3, 7, 59]].tolist()
    assert data["rows"] == [3, 7, 59]
    confidence = np.frombuffer(base64.b64decode(data["confidence"]), "u1")
    assert confidence.tolist() == (100 * discovery.confidence[[3, 7, 59]]).round().tolist()


@given(st.text())
def test_json_in_a_page_comes_back_and_ends_no_script(text):
    made = safe_json({text: [text]})
    assert not set(made) & set("<>&\u2028\u2029")
    assert json.loads(made) == {text: [text]}


def test_every_row_is_on_a_small_map_and_nothing_is_said_of_a_sample(discovery, tmp_path):
    found = page_of(discovery, tmp_path, features=feature_set())
    assert len(json.loads(found.scripts[0])["rows"]) == 60
    assert "It shows" not in found.words


def test_images_that_have_moved_are_shown_from_where_they_are_now(command, tmp_path):
    paths = [str(tmp_path / "before" / "birds" / f"{i}.jpg") for i in range(60)]
    fitted(feature_set(paths=paths)).save("run")
    (tmp_path / "now" / "birds").mkdir(parents=True)
    for i in range(60):
        Image.new("RGB", (20, 20), (i, 0, 0)).save(tmp_path / "now" / "birds" / f"{i}.jpg")
    assert command("report", "run", "-o", "before.html")[0] == 0
    assert "could not be opened" in Path("before.html").read_text()
    assert command("report", "run", "-o", "now.html", "--images", "now")[0] == 0
    assert "could not be opened" not in Path("now.html").read_text()
    assert Path("now.html").read_text().count("data:image/jpeg") >= 6
    code, _, err = command("report", "run", "-o", "no.html", "--images", "nowhere")
    assert (code, err) == (2, "rpim: --images nowhere is not a folder: give the folder of the images.\n")


def test_moved_images_are_counted_and_stand_by_name(tmp_path):
    paths = [str(tmp_path / "gone" / f"{i}.jpg") for i in range(60)]
    features = feature_set(paths=paths)
    found = page_of(fitted(features), tmp_path)
    assert not found.named("img")
    shown = sum(attrs.get("class") == "gone" for attrs in found.named("div"))
    assert shown == 6  # three typical, three doubtful
    assert "8 images could not be opened" in found.words  # and one for each of the two known classes
    assert "gone/" in found.words


@pytest.mark.parametrize("method", [KMeans, GCD, RankStats, SpreadLabels])
def test_every_family_of_methods_has_a_page(method, tmp_path):
    model = method(3, random_state=0).fit(feature_set().rows(), LABELS)
    found = page_of(Discovery.from_fit(model, feature_set()), tmp_path, features=feature_set())
    assert ("Training" in found.words) == (len(model.history_) > 1)
    assert "InfoMax" not in found.words  # which it was not trained by


def test_the_search_of_the_paper_is_told_as_such(tmp_path):
    discovery = fitted(feature_set())
    discovery.model.search_ = {"weight_decay": {0.02: 0.5, 0.01: 0.25}}
    assert "the labels of some known classes are hidden" in page_of(discovery, tmp_path).words
    discovery.model.search = "paper"
    assert "Searched as in the paper" in page_of(discovery, tmp_path, overwrite=True).words


def test_a_map_that_cannot_be_kept_is_shown_all_the_same(discovery, tmp_path, monkeypatch):
    monkeypatch.setattr("rpim.report.pictures.kind_of_map", lambda: "UMAP")
    monkeypatch.setattr("rpim.report.pictures.two_dimensional", lambda rows, **_: rows[:, :2].copy())
    found = careful_map(discovery, feature_set(), tmp_path / "not there")
    assert found.places.shape == (60, 2)
    assert careful_map(discovery, None, tmp_path) is None


def test_integer_classes(tmp_path):
    features = FeatureSet.from_arrays(X, labels=np.where(LABELS == "", -1, CENTRE))
    found = page_of(fitted(features), tmp_path, features=features, truth=CENTRE)
    assert "Evaluation against the true classes" in found.words


def test_a_truth_that_came_with_the_features_and_does_not_fit_is_left_out(discovery, tmp_path):
    found = page_of(discovery, tmp_path, features=feature_set(truth=CENTRE))  # numbers, and the labels are text
    assert "Evaluation against the true classes" not in found.words


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("page.txt", {}, "page.txt has the suffix '.txt', but the report is an HTML page: give a name with .html."),
        ("there.html", {}, "exists already: choose another name"),
        ("no/page.html", {}, "is not a folder: create it first."),
        ("page.html", {"features": FeatureSet.from_arrays(X[:5])}, "The features have 5 rows but the discovery has 60"),
        ("page.html", {"features": FeatureSet.from_arrays(X, ids=range(1, 61))}, "The features have other ids"),
        ("page.html", {"truth": TRUTH[:5]}, "The truth has shape (5,) but the run has 60 rows"),
        ("page.html", {"truth": CENTRE}, "The truth holds numbers but the labels of the run are text"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_sentence(discovery, tmp_path, name, more, message):
    (tmp_path / "there.html").write_text("mine")
    with pytest.raises(InputError, match=re.escape(message)):
        write_report(discovery, tmp_path / name, **more)
    assert [file.name for file in tmp_path.iterdir()] == ["there.html"]
    assert (tmp_path / "there.html").read_text() == "mine"


def test_overwriting_and_jinja_missing(discovery, tmp_path, monkeypatch):
    (tmp_path / "page.html").write_text("old")
    write_report(discovery, tmp_path / "page.html", overwrite=True)
    assert "Known classes" in (tmp_path / "page.html").read_text()
    without(monkeypatch, "jinja2")
    with pytest.raises(InputError, match=re.escape("needs jinja2, which is not installed: pip install 'rpim[report]'")):
        write_report(discovery, tmp_path / "other.html")


# Figures


def test_figures_hold_the_numbers(discovery):
    features = feature_set(texts=[f"<b>{i}" for i in range(60)])
    figure = map_figure(fitted(features), features)
    assert sum(len(trace.x) for trace in figure.data) == 60
    assert [trace.marker.symbol for trace in figure.data] == ["circle", "circle", "circle-open"]
    assert "&lt;b&gt;0" in {text for trace in figure.data for text in trace.hovertext}
    history = {trace.name: trace.y for trace in history_figure(discovery).data}
    assert list(history["objective"]) == [step["objective"] for step in discovery.model.history_]
    heat = confusion_figure(discovery, TRUTH).data[0]
    assert list(heat.y) == ["ant", "bee", "cow"]
    np.testing.assert_allclose(heat.z, compare(discovery, TRUTH).confusion.shares)


def test_figures_of_sizes_and_confidence_hold_the_counts(discovery):
    rows = by_hand(
        discovery,
        ["new-1", "new-1", "new-1", "ant", "ant", "bee", ""],
        ["", "", "", "ant", "", "", ""],
        [0.12, 0.98, 1.0, 0.3, 0.98, 0.0, 0.0],
    )
    known, new = class_sizes_figure(rows).data
    assert (list(known.y), list(known.x)) == (["ant", "bee"], [2, 1])
    assert (list(new.y), list(new.x)) == (["new-1"], [3])
    assert list(known.customdata[0]) == [1, "64%"]
    known, new = confidence_figure(rows).data  # of unlabelled rows with a class
    assert {f"{x:.3f}": y for x, y in zip(known.x, known.y, strict=True) if y} == {"0.025": 1, "0.975": 1}
    assert {f"{x:.3f}": y for x, y in zip(new.x, new.y, strict=True) if y} == {"0.125": 1, "0.975": 2}
    assert "5 unlabelled rows" in confidence_figure(rows).layout.title.text


def test_only_the_largest_of_many_classes_are_drawn(discovery, monkeypatch):
    monkeypatch.setattr("rpim.report.figures.MAX_BARS", 2)
    figure = class_sizes_figure(discovery)
    assert sum(len(trace.y) for trace in figure.data) == 2
    assert figure.layout.title.text == "The 2 largest of 3 classes"


def test_the_map_finds_the_features_of_a_discovery(discovery, tmp_path):
    assert sum(len(trace.x) for trace in map_figure(discovery).data) == 60
    without = dataclasses.replace(discovery, features=None, folder=None)
    with pytest.raises(InputError, match="holds no features and was not saved: give features="):
        map_figure(without)


def test_figures_that_cannot_be_drawn(discovery, monkeypatch):
    single = fitted(feature_set())
    single.model.history_ = [{"inertia": 1.0}]
    with pytest.raises(InputError, match="no training history"):
        history_figure(single)
    monkeypatch.setitem(__import__("sys").modules, "plotly.graph_objects", None)
    with pytest.raises(InputError, match=re.escape("pip install 'rpim[notebook]'")):
        map_figure(discovery, feature_set())


# Commands


@pytest.fixture
def run(command, tmp_path):
    """A run of the command in the folder, without a report; its map is there, so that none waits for UMAP."""
    feature_set(ids=[f"r{i}" for i in range(60)], texts=[f"text {i}" for i in range(60)]).write(tmp_path / "a.npz")
    code, _, err = command("discover", "a.npz", "-o", "run", *FAST, "--no-report", "--quiet")
    assert (code, err) == (0, "")
    assert not (tmp_path / "run/report.html").exists()
    np.save(tmp_path / "run" / MAP_FILE, np.random.RandomState(0).rand(60, 2))
    return tmp_path / "run"


def test_report_of_a_run(run, command):
    code, out, err = command("report", "run")
    assert (code, out, err) == (0, "The report is run/report.html.\n", "")
    found = Page((run / "report.html").read_text())
    assert "Classes in a.npz" in found.words
    assert "by UMAP" in found.words
    assert "Evaluation against the true classes" not in found.words
    Path("truth.csv").write_text("id,truth\n" + "".join(f"r{i},{name}\n" for i, name in enumerate(TRUTH)))
    assert command("report", "run", "--truth", "truth.csv")[0] == 0  # the page of the run is made anew
    assert "Evaluation against the true classes" in Page((run / "report.html").read_text()).words
    assert command("report", "run", "-o", "mine.html")[0] == 0
    code, _, err = command("report", "run", "-o", "mine.html")
    assert code == 2
    assert "mine.html exists already" in err
    assert command("report", "run", "-o", "mine.html", "--overwrite")[0] == 0


def test_report_draws_its_map_once(run, command, monkeypatch):
    (run / MAP_FILE).unlink()
    drawn = []
    monkeypatch.setattr("rpim.report.pictures.kind_of_map", lambda: "UMAP")
    monkeypatch.setattr(
        "rpim.report.pictures.two_dimensional", lambda rows, **_: drawn.append(len(rows)) or rows[:, :2].copy()
    )
    for _ in range(2):
        assert command("report", "run")[0] == 0
    assert drawn == [60]
    assert np.load(run / MAP_FILE).shape == (60, 2)


def test_features_that_are_gone_leave_the_page_without_map(run, command):
    (run / MAP_FILE).unlink()
    Path("a.npz").rename("b.npz")
    assert command("report", "run")[0] == 0
    found = Page((run / "report.html").read_text())
    assert re.search(r"There is no map\. The features of run are no longer at .*a\.npz: give --features", found.words)
    assert not (run / MAP_FILE).exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--features", "no.npz"), "no.npz"),
        (("--truth", "no.csv"), "no.csv"),
        (("--truth", "bad.csv"), "bad.csv"),
        (("-o", "page.pdf"), "page.pdf has the suffix '.pdf'"),
    ],
)
def test_bad_options_are_refused(run, refused, options, message):
    Path("bad.csv").write_bytes(b"\xff\x00\xfe")
    refused(message, "report", "run", *options)
    assert not (run / "report.html").exists()


def test_bad_runs_are_refused(run, refused):
    (run / "history.json").rename("history.json")
    refused("history.json is missing, so the run folder is incomplete", "report", "run")
    facts = json.loads((run / RUN_FILE).read_text())
    (run / RUN_FILE).write_text(json.dumps({**facts, "format": 99}))
    refused("was written by a newer version of rpim (format 99", "report", "run")
    (run / RUN_FILE).unlink()
    refused("run is not a run folder (it has no run.json)", "report", "run")


def test_discover_leaves_a_report_and_says_where(run, command):
    code, out, err = command("discover", "a.npz", "-o", "second", *FAST)
    assert (code, err) == (0, "")
    assert "Open second/report.html in a browser to see the report." in " ".join(out.split())
    assert "by t-SNE" in Page(Path("second/report.html").read_text()).words
    assert command("discover", "a.npz", "-o", "third", *FAST, "--quiet") == (0, "", "")
    assert Path("third/report.html").is_file()


def test_a_report_that_fails_costs_no_run(run, command, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("a fault\nof the page")

    monkeypatch.setattr(rpim.report.page, "write_report", broken)
    code, out, err = command("discover", "a.npz", "-o", "second", *FAST)
    assert code == 0
    assert err == "rpim: the run is complete, but its report could not be written (a fault).\n"
    assert "report.html" not in out
    assert len(Discovery.load("second")) == 60


def test_without_jinja_one_line_says_how_to_get_a_report(run, command, monkeypatch):
    without(monkeypatch, "jinja2")
    code, _, err = command("discover", "a.npz", "-o", "second", *FAST)
    assert code == 0
    assert err == f"rpim: {rpim.report.page.HOW_TO_GET_IT}\n"
    assert not Path("second/report.html").exists()


def test_extend_leaves_a_report_with_all_rows(run, command):
    FeatureSet.from_arrays(X[:10] + 0.01, ids=[f"n{i}" for i in range(10)]).write("new.npz")
    code, out, _ = command("extend", "run", "new.npz", "-o", "longer")
    assert code == 0
    assert "longer/report.html" in out
    found = Page(Path("longer/report.html").read_text())
    assert len(json.loads(found.scripts[0])["rows"]) == 70
    Path("a.npz").unlink()
    assert command("extend", "run", "new.npz", "-o", "longer", "--overwrite")[0] == 0
    assert "There is no map" in Page(Path("longer/report.html").read_text()).words


def many_classes(names):
    """A discovery of these known classes, each around a direction of its own."""
    n = len(names)
    X = np.repeat(np.eye(n), 6, axis=0) + 0.01 * np.random.RandomState(0).randn(6 * n, n)
    labels = np.repeat(names, 6)
    labels[::3] = ""
    features = FeatureSet.from_arrays(X, labels=labels)
    model = RPIM(n, n_members=1, n_init=1, max_iter=5, random_state=0)
    return Discovery.from_fit(model.fit(features.rows(), features.labels), features)


def test_the_tree_has_every_class_once_in_groups_that_add_up():
    found = many_classes([f"class-{k}" for k in range(27)])
    tree = class_tree(found)
    assert len(tree) == 3
    groups = [below for one in tree for below in one.children]
    assert len(groups) == 9
    leaves = [leaf for one in groups for leaf in (one.children or [one])]
    assert sorted(leaf.number for leaf in leaves) == list(range(27))
    assert all(leaf.name == str(found.classes[leaf.number]) for leaf in leaves)
    assert sum(one.rows for one in tree) == len(found)
    assert sum(one.n_classes for one in tree) == 27


def test_the_tree_on_the_page_opens_without_a_script_and_links_to_the_classes(tmp_path):
    found = many_classes([*(f"class-{k}" for k in range(8)), NASTY])
    page = write_report(found, tmp_path / "page.html").read_text(encoding="utf-8")
    section = re.search(r'<section aria-labelledby="tree">.*?</section>', page, re.DOTALL)[0]
    assert section.count("<details") == section.count("<summary>") == 3
    assert section.count('class="leaf"') == 9
    assert sorted(map(int, re.findall(r'href="#class-(\d+)"', section))) == list(range(9))
    assert "<script" not in section
    assert "onerror=alert(2)&gt;" in section


def test_a_group_that_is_called_like_the_one_around_it_also_names_its_classes():
    tree = Hierarchy(
        ["a", "b", "c"], [True] * 3, [1, 3, 2], [(0, 1), (2, 3)], [1.0, 2.0], ["a", "b", "c", "card", "card"]
    )
    assert _distinct(tree, 3, Counter(["card", "card", "c"])) == "card: b, a"
    assert _distinct(tree, 3, Counter(["", "card", "c"])) == "card"
    assert _distinct(tree, 2, Counter(["c", "c"])) == "c"


def test_one_class_makes_no_tree_and_the_page_says_so(discovery, tmp_path):
    alone = by_hand(discovery, ["ant"] * 4, ["ant", "", "", ""], [0.9] * 4)
    assert class_tree(alone) == []
    page = write_report(alone, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "There is no tree, because fewer than two classes have rows." in page


def test_a_tree_of_many_classes_is_for_a_file(monkeypatch, tmp_path):
    monkeypatch.setattr("rpim.report.facts.MAX_LEAVES", 8)
    monkeypatch.setattr("rpim.report.page.MAX_LEAVES", 8)
    found = many_classes([f"class-{k}" for k in range(9)])
    page = write_report(found, tmp_path / "page.html").read_text(encoding="utf-8")
    assert "because it would have more than 8 classes: <code>rpim export --hierarchy</code> writes it" in page
    assert 'class="leaf"' not in page
