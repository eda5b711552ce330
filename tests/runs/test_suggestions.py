"""What to label next: which rows by hand, the file, and the way back into a fit."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rpim import RPIM, Discovery, FeatureSet, InputError, KMeans, SpreadLabels
from rpim.runs import suggestions
from rpim.runs.decisions import Move
from rpim.runs.suggestions import choose_rows
from rpim.runs.versions import Versions

FAST = (
    "--n-classes",
    "5",
    "--n-members",
    "1",
    "--trade-off",
    "0.1",
    "--weight-decay",
    "0.01",
    "--quiet",
    "--no-report",
)


def sure(n: int) -> np.ndarray:
    return np.full(n, 0.9, dtype=np.float32)


def test_every_new_class_gets_a_row_before_any_gets_two():
    codes = np.array([0] * 50 + [1] * 2 + [2] * 30 + [3] * 5)
    confidence = np.where(codes == 0, 0.1, 0.9).astype(np.float32)
    chosen = choose_rows(codes, confidence, n_known=1, n=3)
    assert sorted(codes[chosen].tolist()) == [1, 2, 3]


def test_further_rows_go_where_errors_are_expected():
    codes = np.repeat([0, 1, 2, 3], 40)
    confidence = np.repeat([0.95, 0.2, 0.99, 0.3], 40).astype(np.float32)
    chosen = choose_rows(codes, confidence, n_known=2, n=30)
    counts = np.bincount(codes[chosen], minlength=4)
    assert counts[0] < counts[1] < counts[3]
    assert counts[2] < counts[3]
    assert counts.sum() == 30


def test_the_rows_of_a_class_are_the_centres_of_its_parts_the_largest_part_first():
    vectors = np.array([[0.0], [0.1], [0.2], [5.0], [5.3], [9.0]], dtype=np.float32)
    chosen = choose_rows(np.zeros(6, dtype=int), sure(6), 0, 3, vectors)
    assert chosen[0] == 1
    assert {3, 4} & set(chosen.tolist())
    assert 5 in chosen


def test_of_near_duplicates_one_is_chosen():
    vectors = np.repeat(np.eye(4, dtype=np.float32), 10, axis=0)
    vectors += np.linspace(0, 1e-4, 40, dtype=np.float32)[:, None]
    chosen = choose_rows(np.zeros(40, dtype=int), sure(40), 0, 4, vectors)
    assert sorted(row // 10 for row in chosen.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("vectors", [None, np.ones((12, 3), dtype=np.float32)])
def test_all_rows_can_be_chosen_each_once_even_if_they_are_the_same(vectors):
    codes = np.repeat([0, 1, 2], 4)
    assert sorted(choose_rows(codes, sure(12), 1, 12, vectors).tolist()) == list(range(12))


def test_without_vectors_rows_of_different_confidence_are_chosen_the_most_typical_first():
    confidence = np.array([0.2, 0.9, 0.5, 0.7], dtype=np.float32)
    assert choose_rows(np.zeros(4, dtype=int), confidence, 0, 2).tolist() == [1, 2]


def test_suggestions_are_unlabelled_rows_with_new_classes_first(animals):
    found = Discovery.load(animals)
    features = FeatureSet.read(animals.parent / "animals.npz")
    rows = found.suggest(6, features)
    assert len({one.row for one in rows}) == 6
    assert not found.assignments.labelled[[one.row for one in rows]].any()
    assert {one.predicted for one in rows[:2]} == {"new-1", "new-2"}
    first = rows[0]
    assert (first.id, first.predicted) == (found.ids[first.row], found.labels[first.row])
    assert (first.confidence, first.known) == (found.confidence[first.row], False)
    assert first.runner_up == found.assignments.runner_up[first.row]


def test_a_large_run_is_sampled_within_each_class(animals, monkeypatch):
    monkeypatch.setattr(suggestions, "MAX_ROWS", 1)
    rows = Discovery.load(animals).suggest(4, FeatureSet.read(animals.parent / "animals.npz"))
    assert {one.predicted for one in rows[:2]} == {"new-1", "new-2"}


def test_excluded_rows_are_not_suggested(animals):
    found = Discovery.load(animals)
    first = [one.id for one in found.suggest(5)]
    assert {one.id for one in found.suggest(5, exclude=first)}.isdisjoint(first)
    unlabelled = found.ids[~found.assignments.labelled]
    with pytest.raises(InputError, match="none to label"):
        found.suggest(1, exclude=unlabelled)


def test_what_a_person_has_decided_is_not_asked_again(animals, command):
    moved = Discovery.load(animals).suggest(3)
    versions = Versions(animals)
    with contextlib.closing(versions.store):
        rows = np.sort([one.row for one in moved]).astype(np.int32)
        versions.timeline.decide(0, lambda state: Move(rows, 0), "key")
    assert command("suggest", animals, "-n", 5, "-o", "rows.csv")[0] == 0
    with open("rows.csv") as file:
        assert {line["id"] for line in csv.DictReader(file)}.isdisjoint(one.id for one in moved)


def test_other_rows_than_those_of_the_run_are_refused(animals):
    found = Discovery.load(animals)
    with pytest.raises(InputError, match="not those of the discovery"):
        found.suggest(2, FeatureSet.from_arrays(np.ones((3, 6))))


def test_the_command_writes_a_table_to_fill_in_and_says_what_to_do_with_it(animals, command):
    code, out, err = command("suggest", animals, "-n", 5, "-o", "label me.csv")
    assert (code, err) == (0, "")
    assert out.startswith("5 rows to label, ")
    assert "--add-labels 'label me.csv'" in out
    with open("label me.csv") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0]) == ["id", "text", "predicted", "confidence", "runner_up", "runner_up_confidence", "label"]
    assert [line["label"] for line in lines] == [""] * 5
    assert lines[0]["text"].startswith("<b>")
    assert command("suggest", animals, "-n", 5, "-o", "label.parquet")[0] == 0
    table = pq.read_table("label.parquet")
    assert table.column("id").to_pylist() == [line["id"] for line in lines]
    assert table.column("label").null_count == 5


def test_without_its_features_a_run_still_gives_rows_and_says_what_is_missing(animals, command):
    Path("animals.npz").unlink()
    code, out, err = command("suggest", animals, "-n", 3, "-o", "rows.csv")
    assert (code, out[:6]) == (0, "3 rows")
    assert "near-duplicates cannot be avoided" in err


def test_bad_input_is_refused_and_nothing_is_written(animals, refused):
    refused("-n 0 is too few", "suggest", animals, "-n", 0, "-o", "rows.csv")
    refused("-n 500 is more than the", "suggest", animals, "-n", 500, "-o", "rows.csv")
    refused("give .csv or .parquet", "suggest", animals, "-o", "rows.xlsx")
    assert not Path("rows.csv").exists()


def test_a_run_without_unlabelled_rows_has_none_to_label(animals):
    found = Discovery.load(animals)
    found.assignments.given[:] = found.labels
    with pytest.raises(InputError, match="Every row of the run is labelled or rejected"):
        found.suggest(1)


def filled(path: str, label) -> None:
    with open(path) as file:
        lines = list(csv.DictReader(file))
    with open(path, "w") as file:
        table = csv.DictWriter(file, list(lines[0]))
        table.writeheader()
        table.writerows({**line, "label": label(line)} for line in lines)


def test_the_filled_table_names_a_new_class_in_the_next_fit(animals, command):
    assert command("suggest", animals, "-n", 6, "-o", "rows.csv")[0] == 0
    filled("rows.csv", lambda line: line["text"][3:6] if line["predicted"].startswith("new") else "")
    assert command("discover", "animals.npz", "--add-labels", "rows.csv", "-o", "run2", *FAST)[0] == 0
    found = Discovery.load("run2")
    assert found.model.known_classes_.tolist() == ["ant", "bee", "cat", "dog", "elk"]
    before = Discovery.load(animals)
    assert (found.given[before.assignments.labelled] == before.given[before.assignments.labelled]).all()


def test_a_table_that_is_not_filled_in_is_refused(animals, command, refused):
    assert command("suggest", animals, "-n", 6, "-o", "rows.csv")[0] == 0
    message = "rows.csv has no label yet: fill in its column label"
    refused(message, "discover", "animals.npz", "--add-labels", "rows.csv", "-o", "run2", *FAST)
    both = ("--add-labels", "rows.csv", "--no-labels")
    refused("give one of them", "discover", "animals.npz", *both, "-o", "run2", *FAST)
    assert not Path("run2").exists()


def labels_file(tmp_path: Path, text: str) -> Path:
    (tmp_path / "more.csv").write_text(text)
    return tmp_path / "more.csv"


@pytest.mark.parametrize(
    ("labels", "more", "after"),
    [
        (["a", "", "b"], "id,label\n1,c\n2,a\n", ["a", "c", "a"]),
        (["a", "", "b"], "id,label\n1,3\n2,\n", ["a", "3", "b"]),
        ([4, -1, 5], "id,label\n1,7\n", [4, 7, 5]),
        (np.array([True, False, True]), "id,label\n1,7\n", [1, 7, 1]),
        (None, "id,label\n1,c\n", ["", "c", ""]),
        ([-1, -1, -1], "id,label\n1,c\n", ["", "c", ""]),
        (["a", "", "b"], "label\n\nc\n\n", ["a", "c", "b"]),
    ],
)
def test_added_labels_keep_the_others(tmp_path, labels, more, after):
    features = FeatureSet.from_arrays(np.eye(3), labels=labels)
    assert features.with_labels(labels_file(tmp_path, more)).labels.tolist() == after


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("id,label\n1,wren\n", "has the label 'wren', but the other labels are numbers"),
        ("id,label\n9,4\n", "has 1 ids that the features have not"),
        ("id,label\n1,\n", "has no label yet"),
        ("id,class\n1,4\n", "has no column label, labels or y among id, class: call one of them label"),
        ("id,label,y\n1,4,5\n", r"several columns for labels \(label, y\): keep one\."),
    ],
)
def test_labels_that_do_not_fit_are_refused(tmp_path, more, message):
    features = FeatureSet.from_arrays(np.eye(3), labels=[4, -1, 5])
    with pytest.raises(InputError, match=message):
        features.with_labels(labels_file(tmp_path, more))


@pytest.mark.parametrize("method", [KMeans, SpreadLabels])
def test_other_methods_have_suggestions_and_a_tree_too(animals_features, method):
    model = method(n_classes=5, random_state=0).fit(animals_features.rows(), animals_features.labels)
    found = Discovery.from_fit(model, animals_features)
    assert {one.predicted for one in found.suggest(4, animals_features)[:2]} == {"new-1", "new-2"}
    assert sorted(name for group in found.hierarchy().cut(2) for name in group.classes) == sorted(found.classes)


def test_without_any_label_every_group_is_new(animals_features):
    features = dataclasses.replace(animals_features, labels=None)
    model = RPIM(5, n_members=1, n_init=1, max_iter=15, random_state=0).fit(features.rows())
    rows = Discovery.from_fit(model, features).suggest(5, features)
    assert sorted(one.predicted for one in rows) == [0, 1, 2, 3, 4]
