"""rpim benchmark --protocol nid: the draw, lists of classes and rows, and the whole command with its resuming."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from rpim import FeatureSet, InputError
from rpim.benchmark.protocol import NidDraw, NidList, find_lists, read_lists, split_features

TRUTH = np.repeat(np.arange(8), 30)
SPLIT = np.where(np.arange(240) % 3 == 2, "test", np.where(np.arange(240) % 10 == 0, "dev", "train"))


def features(**changed) -> FeatureSet:
    noise = np.random.RandomState(0).randn(240, 8)
    return FeatureSet.from_arrays(**{"X": np.eye(8)[TRUTH] + 0.3 * noise, "labels": TRUTH, "split": SPLIT, **changed})


def save(name: str = "banking77.npz", **arrays) -> str:
    held = features()
    given = {"nid_split": SPLIT, "split": np.where(SPLIT == "test", "test", "train"), **arrays}
    np.savez(name, features=held.X, labels=TRUTH, **{k: v for k, v in given.items() if v is not None})
    return name


def lists(change=lambda one: one, seeds=(0, 1)) -> dict[str, object]:
    """For each share the first classes, and of each the first two training rows."""

    def one(share):
        known = list(range(round(share * 8)))
        labelled = [int(row) for c in known for row in np.flatnonzero((c == TRUTH) & (SPLIT == "train"))[:2]]
        return change({"known": known, "labelled": labelled})

    return {str(share): {f"seed{seed}": one(share) for seed in seeds} for share in (0.25, 0.5, 0.75)}


# The draw


def test_the_draw_by_hand():
    """RandomState(3) permutes 8 classes; a tenth of 18 or so training rows is 2, and dev rows are in no part."""
    case = NidDraw(0.5).case(split_features(features()), 3)
    expected = np.sort(np.random.RandomState(3).permutation(8)[:4])
    assert case.known.tolist() == expected.tolist()
    train = np.flatnonzero(SPLIT == "train")
    np.testing.assert_array_equal(case.truth, TRUTH[train])
    random = np.random.RandomState(3)
    for c in expected:
        rows = random.permutation(np.flatnonzero(TRUTH[train] == c))
        assert np.flatnonzero(case.y == c).tolist() == sorted(rows[: round(len(rows) / 10)])
    assert (case.y >= 0).sum() == 8
    assert case.n_classes == 8
    assert len(case.test.truth) == (SPLIT == "test").sum() == 80
    assert case.unused == (SPLIT == "dev").sum()


def test_a_class_of_few_rows_keeps_one_label():
    few = np.repeat(np.arange(4), 3)
    small = FeatureSet.from_arrays(np.eye(12), labels=few, split=["train", "train", "test"] * 4)
    case = NidDraw(0.5).case(split_features(small), 0)
    assert sorted(case.y[case.y >= 0]) == case.known.tolist()


def test_shares_of_known_classes():
    parts = split_features(features())
    assert [len(NidDraw(share).case(parts, 0).known) for share in (0.25, 0.5, 0.75)] == [2, 4, 6]


def test_lists_say_which_classes_and_rows_of_the_whole_set():
    rows = np.flatnonzero((TRUTH < 2) & (SPLIT == "train"))[[0, 5, 20, 30]]
    case = NidDraw(0.25, NidList((1, 0), tuple(rows.tolist()))).case(split_features(features()), 9)
    assert case.known.tolist() == [0, 1]
    labelled = np.flatnonzero(SPLIT == "train")[case.y >= 0]
    assert labelled.tolist() == rows.tolist()
    np.testing.assert_array_equal(case.y[case.y >= 0], TRUTH[rows])


FIRST = {c: int(np.flatnonzero((c == TRUTH) & (SPLIT == "train"))[0]) for c in range(8)}


@pytest.mark.parametrize(
    ("known", "labelled", "message"),
    [
        ((0, 1), (FIRST[0], FIRST[1], 2), r"labels 1 row \(2\) outside the training rows"),
        ((0, 1), (FIRST[0], FIRST[1], 999), r"labels 1 row \(999\) outside the training rows"),
        ((0, 1), (FIRST[0], FIRST[1], FIRST[5]), rf"labels 1 row \({FIRST[5]}\) of classes .* not call known"),
        ((0, 1, 4), (FIRST[0], FIRST[1]), "calls class 4 known but labels no row of it"),
        ((0, 77), (FIRST[0],), r"classes that the set has not \(77\)"),
        ((0,), (FIRST[0],), "1 of its 8 classes would be known"),
    ],
)
def test_lists_that_do_not_fit(known, labelled, message):
    with pytest.raises(InputError, match=message):
        NidDraw(0.25, NidList(known, labelled)).case(split_features(features()), 0)


def test_without_test_rows_there_is_nothing_to_measure():
    with pytest.raises(InputError, match="no row whose part is called test"):
        NidDraw(0.5).case(split_features(features(split=None)), 0)


def test_the_file_of_a_set_in_a_folder(tmp_path):
    for name in ("nid_splits_banking77.json", "nid_splits_clinc150.json", "mine.json"):
        (tmp_path / name).write_text(json.dumps(lists()))
    assert find_lists(tmp_path, "banking77_minilm").name == "nid_splits_banking77.json"
    assert find_lists(tmp_path, "CLINC").name == "nid_splits_clinc150.json"
    assert find_lists(tmp_path, "mine").name == "mine.json"
    assert find_lists(tmp_path / "mine.json", "banking77") == tmp_path / "mine.json"
    with pytest.raises(InputError, match=r"no list called nid_splits_atis.json for the set 'atis'"):
        find_lists(tmp_path, "atis")
    assert read_lists(tmp_path / "mine.json")[0.25, 1] == NidList((0, 1), tuple(lists()["0.25"]["seed1"]["labelled"]))


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '{"0.25": [1]}',
        '{"0.25": {"seed0": {"known": [1]}}}',
        '{"a": {"seed0": {"known": [1], "labelled": [1]}}}',
        '{"0.25": {"seed0": {"known": [1], "labelled": ["x"]}}}',
    ],
)
def test_bad_files_of_lists(tmp_path, content):
    (tmp_path / "s.json").write_text(content)
    with pytest.raises(InputError, match=r"s.json holds no lists of this protocol: give .*labelled"):
        read_lists(tmp_path / "s.json")


# Whole commands


def read_csv(folder: str) -> list[dict[str, str]]:
    with open(Path(folder) / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_the_whole_protocol_and_its_resuming(benchmark):
    """Two methods, one set, one seed at three shares; a second seed later runs what is new and nothing else."""
    Path("lists").mkdir()
    Path("lists/nid_splits_banking77.json").write_text(json.dumps(lists()))
    arguments = (save(), "--protocol", "nid", "--methods", "kmeans,gcd", "--splits", "lists", "-o", "out")
    code, out, err = benchmark(*arguments, "--seeds", "0")
    assert (code, err) == (0, "")
    assert "| method " in out
    assert "| banking77, 25% known |" in out
    assert "MTP-CLNN (MTP-CLNN paper)" in out
    assert "frozen sentence embeddings" in out
    table = read_csv("out")
    assert [(row["method"], row["known_share"], row["labelled"]) for row in table] == [
        ("kmeans", "0.25", "4"),
        ("gcd", "0.25", "4"),
        ("kmeans", "0.5", "8"),
        ("gcd", "0.5", "8"),
        ("kmeans", "0.75", "12"),
        ("gcd", "0.75", "12"),
    ]
    for row in table:
        assert (row["rows"], row["test_rows"]) == (str((SPLIT == "train").sum()), "80")
        assert float(row["test_all"]) > 0.6
    before = Path("out/cells.jsonl").read_text()
    code, again, err = benchmark(*arguments, "--seeds", "0")
    assert (code, again, err) == (0, out, "")
    assert Path("out/cells.jsonl").read_text() == before
    code, out, err = benchmark(*arguments, "--seeds", "0,1")
    assert (code, err) == (0, "")
    assert Path("out/cells.jsonl").read_text().startswith(before)
    assert len(Path("out/cells.jsonl").read_text().splitlines()) == 12
    assert "mean over 2 seeds" in out


@pytest.mark.slow
def test_without_lists_or_a_division_of_its_own_the_usual_one_serves(benchmark):
    code, out, err = benchmark(
        save("mine.npz", nid_split=None), "--protocol", "nid", "--methods", "kmeans", "--seeds", "0", "-o", "out"
    )
    assert (code, err) == (0, "")
    assert {row["rows"] for row in read_csv("out")} == {"160"}
    assert "TEXTOIR" not in out  # nobody has published figures of this set


def other_rows(one):
    return {**one, "labelled": [*one["labelled"], 2]}


def list_file(content: object) -> tuple[str, ...]:
    Path("s.json").write_text(json.dumps(content))
    return save(), "--splits", "s.json"


BAD_INPUT = {
    "no test rows": (lambda: (save(nid_split=np.full(240, "train")),), "no row whose part is called test"),
    "no parts": (lambda: (save(nid_split=None, split=None),), "no row whose part is called test"),
    "rows": (lambda: (*list_file(lists(other_rows)), "--seeds", "0"), "labels 1 row (2) outside the training rows"),
    "seed": (lambda: (*list_file(lists()), "--seeds", "5"), "nothing for a share of 0.25 and seed 5"),
    "GCD's lists": (lambda: list_file({"known": [1, 2]}), "holds no lists of this protocol"),
    "share": (lambda: (save(), "--known-share", "0.3"), "known_share is given, but the protocol nid has its own"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, benchmark_refused):
    make, message = BAD_INPUT[case]
    benchmark_refused(message, *make(), "--protocol", "nid")
