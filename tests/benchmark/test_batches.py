"""rpim benchmark --protocol batches: the stages, the judgement, the three ways, and the whole command."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpim import FeatureSet, InputError
from rpim.benchmark.batches import WAYS, BatchesDraw, Stages, draw, follow, judge
from rpim.benchmark.protocol import split_features

TRUTH = np.repeat(np.arange(10), 30)


# The stages


def test_the_stages_by_hand():
    """Of ten classes four are known, two nameless, and 2, 1 and 1 come later; of ten rows seven come at once."""
    truth = np.repeat(np.arange(10), 10)
    stages = draw(truth, 5)
    drawn = np.random.RandomState(5).permutation(10)
    assert stages.known.tolist() == sorted(drawn[:4])
    assert stages.of_class[drawn].tolist() == [0, 0, 0, 0, 0, 0, 1, 1, 2, 3]
    expected = {0: [7, 1, 1, 1], 1: [0, 7, 2, 1], 2: [0, 0, 7, 3], 3: [0, 0, 0, 10]}
    for c in range(10):
        counts = np.bincount(stages.of_row[truth == c], minlength=4).tolist()
        assert counts == expected[int(stages.of_class[c])]
        assert (stages.y == c).sum() == (3 if c in stages.known else 0)


def test_seven_tenths_are_not_lost_in_rounding():
    """0.7 * 90 is 62.99999999999999 in floating point."""
    truth = np.repeat(np.arange(6), 90)
    stages = draw(truth, 0)
    assert set(np.bincount(truth[stages.of_row == 0])) <= {0, 63}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 25), min_size=6, max_size=30), st.integers(0, 2**32 - 1))
def test_what_holds_of_all_stages(sizes, seed):
    truth = np.random.RandomState(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    stages = draw(truth, seed)
    assert set(stages.of_row.tolist()) <= {0, 1, 2, 3}
    for c, size in enumerate(sizes):
        of_class, first = stages.of_row[truth == c], stages.of_class[c]
        assert of_class.min() == first
        at_once = size if first == 3 else max(1, 7 * size // 10)
        assert (of_class == first).sum() == at_once
        later = np.bincount(of_class, minlength=4)[first + 1 :]
        assert first == 3 or later.max() - later.min() <= 1
    assert all((stages.of_class == batch).any() for batch in (1, 2, 3))
    assert (stages.of_class[stages.known] == 0).all()
    assert (stages.of_class == 0).sum() > len(stages.known) >= 2
    labelled = stages.y >= 0
    assert (stages.of_row[labelled] == 0).all()
    np.testing.assert_array_equal(stages.y[labelled], truth[labelled])
    assert np.unique(stages.y[labelled]).tolist() == stages.known.tolist()
    again = draw(truth, seed)
    for name in ("of_row", "of_class", "known", "y"):
        np.testing.assert_array_equal(getattr(stages, name), getattr(again, name))


def test_another_seed_is_another_draw():
    assert draw(TRUTH, 0).of_row.tolist() != draw(TRUTH, 1).of_row.tolist()


def test_five_classes_are_too_few():
    with pytest.raises(InputError, match="5 classes, too few for a first fit and 3 batches: give a set with 6"):
        draw(np.arange(5), 0)


def test_the_problem_of_a_set():
    """Classes of test rows alone do not count, and the first fit is told how many classes it has."""
    truth = np.append(TRUTH, [10, 10, 11])
    parts = np.where(np.arange(303) < 300, "train", "test")
    parts[299] = "dev"
    case = BatchesDraw("extend").case(split_features(FeatureSet.from_arrays(np.eye(303), labels=truth, split=parts)), 0)
    assert (len(case.y), case.n_classes, case.unused) == (299, 6, 4)
    assert len(case.stages.of_class) == 10
    np.testing.assert_array_equal(case.y, case.stages.y)


def test_whatever_changes_a_result_changes_the_fingerprint():
    parts = split_features(FeatureSet.from_arrays(np.eye(300), labels=TRUTH))
    found = {BatchesDraw(way).case(parts, seed).fingerprint("x") for way in WAYS for seed in (0, 1)}
    assert len(found) == 6
    case = BatchesDraw("extend").case(parts, 0)
    assert case.fingerprint("x") == BatchesDraw("extend").case(parts, 0).fingerprint("x")
    moved = case.stages.of_row.copy()
    moved[np.flatnonzero(moved == 3)[0]] = 2
    assert replace(case, stages=replace(case.stages, of_row=moved)).fingerprint("x") not in found


# The judgement: class 0 is known, 1 was there without a name, 2 comes with the batch

STAGES = Stages(
    of_row=np.array([0, 0, 0, 0, 1, 1, 1, 1]),
    of_class=np.array([0, 0, 1]),
    known=np.array([0]),
    y=np.array([0, -1, -1, -1, -1, -1, -1, -1]),
)
CLASSES = np.array([0, 0, 1, 1, 0, 1, 2, 2])


@pytest.mark.parametrize(
    ("found", "everything", "known", "earlier", "newest"),
    [
        ([0, 0, 5, 5, 0, 5, 6, 6], 1.0, 1.0, 1.0, 1.0),
        ([0, 0, 5, 5, 0, 7, 6, 6], 0.75, 1.0, 0.0, 1.0),  # class 1 has changed its name
        ([0, 0, 5, 5, 0, 5, 6, 7], 0.75, 1.0, 1.0, 0.5),  # two classes for one
        ([0, 0, 5, 5, 5, 5, 0, 0], 0.75, 0.0, 1.0, 1.0),  # class 2 has taken over what was found for 0
        ([0, 0, 5, 5, -1, 5, 6, -1], 0.5, 0.0, 1.0, 0.5),  # two rows are given no class
        ([9, 4, 5, 5, 4, 5, 6, 6], 1.0, 1.0, 1.0, 1.0),  # names do not count, nor do labelled rows
    ],
)
def test_the_judgement_by_hand(found, everything, known, earlier, newest):
    expected = {"all": everything, "known": known, "earlier": earlier, "newest": newest}
    assert judge(CLASSES, np.array(found), STAGES, 1) == expected


def test_a_group_without_rows_is_none():
    """Without rows 4 and 5 the batch is of class 2 alone."""
    stages = replace(STAGES, of_row=np.array([0, 0, 0, 0, 2, 2, 1, 1]))
    found = np.array([0, 0, 5, 5, -1, -1, 6, 6])
    assert judge(CLASSES, found, stages, 1) == {"all": 1.0, "known": None, "earlier": None, "newest": 1.0}


# The three ways


class Watched:
    """A method that writes down what it is shown. Every row's only feature is its number."""

    normalize = False

    def __init__(self):
        self.n_classes, self.seen = 6, []

    def set_params(self, n_classes):
        self.n_classes = n_classes
        return self

    def fit(self, X, y, **widths):
        return self._keep("fit", X, self.n_classes, y.tolist())

    def extend(self, X):
        return self._keep("extend", X)

    def predict(self, X):
        return self._keep("predict", X).labels_

    def _keep(self, verb, X, *more):
        self.seen.append((verb, X[:, 0].astype(int).tolist(), *more))
        self.labels_, self.n_classes_ = np.zeros(len(X), dtype=np.int64), len(self.seen)
        return self


@pytest.mark.parametrize("way", WAYS)
def test_what_a_method_is_shown(way):
    """Each way sees what it may and is told nothing after the first fit."""
    parts = split_features(FeatureSet.from_arrays(np.arange(300.0)[:, None], labels=TRUTH))
    case = BatchesDraw(way).case(parts, 0)
    of_row, y = case.stages.of_row, case.y
    model = Watched()
    record = follow(model, case)
    stage = [np.flatnonzero(of_row == k).tolist() for k in range(4)]
    so_far = [np.flatnonzero(of_row <= k).tolist() for k in range(4)]
    assert model.seen[0] == ("fit", stage[0], 6, y[stage[0]].tolist())
    later = {
        "predict": [("predict", stage[k]) for k in (1, 2, 3)],
        "extend": [("extend", stage[k]) for k in (1, 2, 3)],
        "refit": [("fit", so_far[k], None, y[so_far[k]].tolist()) for k in (1, 2, 3)],
    }
    assert model.seen[1:] == later[way]
    assert [
        (one["batch"], one["n_classes_used"], one["n_classes_true"], one["evaluated"]) for one in record["batches"]
    ] == [(k, k + 1, 6 + n, len(stage[k])) for k, n in ((1, 2), (2, 3), (3, 4))]
    assert (record["rows"], record["labelled"]) == (300, (y >= 0).sum())


# Whole commands


def save(name: str = "ten.npz", n_classes: int = 10, **arrays) -> str:
    """Blobs apart."""
    truth = TRUTH[: 30 * n_classes]
    X = np.eye(16)[truth] + 0.1 * np.random.RandomState(0).randn(len(truth), 16)
    np.savez(name, features=X, **{"labels": truth, **arrays})
    return name


def config(**said) -> tuple[str, str]:
    Path("c.json").write_text(json.dumps(said))
    return "--config", "c.json"


FIXED = {"trade_off": 0.1, "beta": 0.2, "weight_decay": 0.01, "max_iter": 60, "n_members": 1}
"""Of RPIM, so that nothing is searched and one member is trained."""


def read_csv(folder: str) -> list[dict[str, str]]:
    with open(Path(folder) / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_the_whole_protocol_and_its_resuming(benchmark_with_figures):
    """Three ways by three batches; the same command runs nothing again, and a second seed what is new."""
    arguments = (save(), "--protocol", "batches", *config(methods={"rpim": FIXED}), "--jobs", "1", "-o", "out")
    code, out, err = benchmark_with_figures(*arguments, "--seeds", "0")
    assert (code, err) == (0, "")
    assert "## Classes that come later" in out
    assert "| method        | batch | ten " in out
    table = read_csv("out")
    assert [(row["way"], row["batch"], row["n_classes_true"]) for row in table] == [
        (way, batch, true) for way in WAYS for batch, true in (("1", "8"), ("2", "9"), ("3", "10"))
    ]
    at = {(row["way"], row["batch"]): row for row in table}
    for batch in "123":
        assert at["predict", batch]["n_classes_used"] == "6"
        assert float(at["extend", batch]["all"]) > 0.95  # blobs apart
        assert float(at["extend", batch]["newest"]) > float(at["predict", batch]["newest"])
    assert {row["n_classes"] for row in table} == {"6"}
    page = Path("out/index.html").read_text()
    assert "rpim, extend" in page
    assert "left out" not in page
    assert "How to read this" not in page  # which is about known and unknown classes
    before = Path("out/cells.jsonl").read_text()
    assert len(before.splitlines()) == 3
    code, again, err = benchmark_with_figures(*arguments, "--seeds", "0")
    assert (code, again, err) == (0, out, "")
    assert Path("out/cells.jsonl").read_text() == before
    code, out, err = benchmark_with_figures(*arguments, "--seeds", "0,1")
    assert (code, err) == (0, "")
    assert Path("out/cells.jsonl").read_text().startswith(before)
    assert len(Path("out/cells.jsonl").read_text().splitlines()) == 6
    assert "Mean over 2 seeds" in out


def splits() -> str:
    Path("s.json").write_text("{}")
    return "s.json"


BAD_INPUT = {
    "classes": (lambda: (save(n_classes=5),), "The set 'ten': it has 5 classes, too few for a first fit and 3"),
    "no class": (
        lambda: (save(labels=np.where(np.arange(300) == 7, -1, TRUTH)),),
        "The set 'ten': it has no class for 1 row (7), but this protocol needs one for every row",
    ),
    "method": (
        lambda: (save(), "--methods", "rpim,gcd"),
        "The method 'gcd' cannot be extended, as the protocol batches requires: choose among pim, rim, rpim, tim.",
    ),
    "share": (lambda: (save(), "--known-share", "0.3"), "known_share is given, but the protocol batches has its own"),
    "splits": (lambda: (save(), "--splits", splits()), "The set 'ten' has a split list, but the protocol batches"),
    "number": (lambda: config(sets={"ten": {"path": save(), "n_classes": 10}}), "The set 'ten' has n_classes, but"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, benchmark_refused):
    make, message = BAD_INPUT[case]
    benchmark_refused(message, *make(), "--protocol", "batches")
