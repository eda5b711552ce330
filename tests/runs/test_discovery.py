"""The result and its run folder: the same bits back, whole or not at all, and one sentence where it is damaged."""

from __future__ import annotations

import copy
import csv
import dataclasses
import errno
import json
import os
import warnings

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import make_blobs

from rpim import PIM, RPIM, Discovery, FeatureSet, InputError
from rpim.core.head import Head
from rpim.core.transforms import Transform
from rpim.data.row_files import RowFiles
from rpim.estimators import KMeans
from rpim.estimators.committee import LabelIssue
from rpim.estimators.objective import nested_names
from rpim.runs.assignments import Assignments
from rpim.runs.class_summaries import LabelCounts, write_classes
from rpim.runs.evaluation import evaluate, read_truth
from rpim.runs.run_folder import check_target, new_folder

FAST = {
    "n_classes": 5,
    "trade_off": 0.1,
    "weight_decay": 0.01,
    "n_members": 1,
    "n_init": 1,
    "max_iter": 15,
    "random_state": 0,
}
X, TRUTH = make_blobs(120, n_features=6, centers=5, random_state=1)
HALF = np.arange(120) % 2 == 0
INTS = np.where((TRUTH < 3) & HALF, TRUTH * 10, -1)
NAMES = np.array(["ant", "bee", '[bold]cat, "x"', "", ""])
LABELS = {
    "int": INTS,
    "int32": INTS.astype(np.int32),
    "float": np.where(INTS < 0, np.nan, INTS).astype(float),
    "text": np.where((TRUTH < 3) & HALF, NAMES[TRUTH], ""),
}


FITTED = {}
"""The fits so far: tests get copies of them."""


def discovery_of(labels=INTS, method=RPIM, **parameters) -> Discovery:
    features = FeatureSet.from_arrays(
        X, labels=labels, ids=[f"row-{i}" for i in range(len(X))], texts=[f"text {i}" for i in range(len(X))]
    )
    key = repr((labels.dtype, labels.tolist(), method, parameters))
    if key not in FITTED:
        model = method().set_params(**nested_names(method, {**FAST, **parameters}))
        FITTED[key] = model.fit(features.rows(), features.labels)
    model = copy.deepcopy(FITTED[key])
    return Discovery.from_fit(model, features, source="blobs.npz", duration=1.5, command=["rpim", "discover"])


@pytest.fixture(scope="module")
def discovery() -> Discovery:
    return discovery_of()


@pytest.fixture
def run(discovery, tmp_path):
    discovery.save(tmp_path / "run")
    return tmp_path / "run"


def contents(folder) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("kind", LABELS)
def test_a_loaded_run_predicts_the_same_bits_in_the_users_label_type(kind, tmp_path):
    before = discovery_of(LABELS[kind])
    before.save(tmp_path / "run")
    after = Discovery.load(tmp_path / "run")
    new = make_blobs(50, n_features=6, centers=5, random_state=9)[0]
    assert after.model.predict_proba(new).tobytes() == before.model.predict_proba(new).tobytes()
    np.testing.assert_array_equal(after.predict(new), before.predict(new))
    assert after.predict(new).dtype == before.predict(new).dtype
    for name in ("labels_", "classes_", "known_classes_", "new_classes_"):
        kept, restored = getattr(before.model, name), getattr(after.model, name)
        np.testing.assert_array_equal(restored, kept)
        assert restored.dtype == kept.dtype
    np.testing.assert_array_equal(after.given, before.given)
    np.testing.assert_array_equal(after.ids, before.ids)
    np.testing.assert_array_equal(after.confidence, before.confidence)


@pytest.mark.parametrize(
    ("method", "parameters"),
    [
        (RPIM, {"n_components": 3}),
        (RPIM, {"rank": 2}),
        (RPIM, {"h": "none"}),
        (RPIM, {"h": "linear-bias", "normalize": False}),
        (RPIM, {"h": "mlp"}),
        (RPIM, {"h": "semantic-scale-bias", "temperature": 10.0}),
        (PIM, {}),
    ],
)
def test_every_method_and_transformation_comes_back(method, parameters, tmp_path):
    before = discovery_of(method=method, **parameters)
    before.save(tmp_path / "run")
    after = Discovery.load(tmp_path / "run")
    assert type(after.model) is method
    assert after.model.get_params() == before.model.get_params()
    assert after.model.predict_proba(X).tobytes() == before.model.predict_proba(X).tobytes()
    assert after.model.transform(X).tobytes() == before.model.transform(X).tobytes()
    assert after.model.history_ == before.model.history_
    assert after.model.n_iter_ == before.model.n_iter_
    clone(after.model).fit(X, INTS)


def test_what_was_searched_is_kept(tmp_path):
    before = discovery_of()
    model = before.model.set_params(objective__trade_off="auto", n_classes=None)  # as if it had been searched
    model.search_ = {"trade_off": {0.1: 0.75, 0.02: float("nan"), 1.0: 0.5}}
    model.n_classes_curve_ = {3: 0.5, 5: 1.0}
    before.save(tmp_path / "run")
    after = Discovery.load(tmp_path / "run").model
    assert list(after.search_["trade_off"]) == [0.1, 0.02, 1.0]
    np.testing.assert_array_equal(list(after.search_["trade_off"].values()), [0.75, np.nan, 0.5])
    assert after.n_classes_curve_ == {3: 0.5, 5: 1.0}
    assert (after.trade_off_, after.beta_, after.n_classes_) == (0.1, 0.2, 5)
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    assert facts["parameters"]["objective"]["trade_off"] == "auto"
    assert facts["resolved"]["trade_off"] == 0.1
    assert facts["resolved"]["n_classes"] == 5
    assert facts["resolved"]["learning_rate"] == model._resolved("learning_rate")


def test_class_sizes_that_were_searched_are_kept(tmp_path):
    before = discovery_of(class_sizes="estimated")
    before.model.set_params(objective__class_sizes="auto")  # as if they had been searched
    before.model.search_ = {"trade_off": {0.1: 0.75}, "class_sizes": {"equal": 0.5, "estimated": 0.75}}
    before.save(tmp_path / "run")
    after = Discovery.load(tmp_path / "run").model
    assert after.class_sizes_ == "estimated"
    assert after.search_ == before.model.search_
    assert json.loads((tmp_path / "run" / "run.json").read_text())["resolved"]["class_sizes"] == "estimated"


def test_calibration_outliers_and_what_the_committee_found_are_kept(tmp_path):
    model = discovery_of(abstain=0.1, n_members=8).model
    model.calibration_ = model.head_.calibration = 0.5  # as if the head had been trained on many rows
    features = FeatureSet.from_arrays(X, labels=INTS)
    before = Discovery.from_fit(model, features)
    before.save(tmp_path / "run")
    after = Discovery.load(tmp_path / "run")
    assert (after.model.calibration_, after.model.head_.calibration) == (0.5, 0.5)
    assert (after.model.n_members_, after.model.expected_accuracy_) == (8, model.expected_accuracy_)
    assert after.model.outlier_threshold_ == model.outlier_threshold_ < np.inf
    assert after.model.predict_proba(X).tobytes() == model.predict_proba(X).tobytes()
    assert after.model.outlier_scores(X).tobytes() == model.outlier_scores(X).tobytes()
    np.testing.assert_array_equal(after.assignments.outlier, before.assignments.outlier)
    np.testing.assert_array_equal(before.stability, model.stability_)
    np.testing.assert_array_equal(after.stability, before.stability)
    np.testing.assert_array_equal(after.model.stability_, before.stability)
    assert after.classes_table() == before.classes_table()


def test_a_model_that_was_a_committee_once_and_is_a_single_fit_now_has_no_stability():
    model = discovery_of(n_members=2).model
    features = FeatureSet.from_arrays(X, labels=INTS)
    again = Discovery.from_fit(model.set_params(n_members=1).fit(features.rows(), INTS), features)
    assert (again.stability, again.assignments.label_quality, again.label_issues()) == (None, None, [])


def test_the_html_representation_is_a_table_of_the_new_classes():
    found = discovery_of(LABELS["text"], n_members=8)
    shown = found._repr_html_()
    new = [row for row in found.classes_table() if not row.known and row.rows]
    assert shown.count("<tr>") == 1 + len(new) == 3
    for row in new:
        assert f"<td>{row.name}</td><td>{row.rows:,}</td><td>{row.mean_confidence:.0%}</td>" in shown
        assert f"<td>{row.stability:.0%}</td><td>{', '.join(row.keywords)}</td>" in shown
    assert "120 rows, 35 labelled" in shown
    expected = f"expected accuracy on known classes {found.model.expected_accuracy_:.0%}"
    assert f"A committee of 8 fits: {expected} (estimated on held-out labels)." in shown
    assert "<script" not in shown


def test_the_html_representation_escapes_names_and_of_a_single_fit_has_no_stability():
    found = discovery_of(LABELS["text"])
    found.model.classes_ = np.where(found.classes == "new-1", "<script>&", found.classes)
    rows = dataclasses.replace(found.assignments, labels=np.where(found.labels == "new-1", "<script>&", found.labels))
    shown = Discovery(rows, found.model, found.provenance)._repr_html_()
    assert "<td>&lt;script&gt;&amp;</td>" in shown
    assert "<script" not in shown
    assert "<td>—</td>" in shown
    assert "This is a single fit: its confidence is not calibrated" in shown


BAD = [int(np.flatnonzero((k == TRUTH) & HALF)[0]) for k in (0, 1)]


def with_issues(labels) -> Discovery:
    """A committee's run that finds the labels of the two rows of `BAD` wrong, and suggests those of each other.

    Which labels look wrong is for others to test; here they are given.
    """
    found = discovery_of(labels, n_members=8)
    model = found.model
    model.label_quality_[BAD] = [0.02, 0.01]
    pairs = zip(reversed(BAD), BAD, strict=True)  # the second is the more suspect
    model.label_issues_ = [
        LabelIssue(row, labels[row], labels[other], float(model.label_quality_[row]), 0.75) for row, other in pairs
    ]
    return Discovery.from_fit(model, FeatureSet.from_arrays(X, labels=labels, ids=found.ids))


@pytest.fixture(params=list(LABELS))
def mislabelled(request) -> Discovery:
    return with_issues(LABELS[request.param])


def test_label_issues_are_those_of_the_fit_also_after_loading(mislabelled, tmp_path):
    issues = mislabelled.label_issues()
    assert issues == mislabelled.model.label_issues_
    assert [issue.row for issue in issues] == BAD[::-1]
    mislabelled.save(tmp_path / "run")
    loaded = Discovery.load(tmp_path / "run")
    assert loaded.label_issues() == loaded.model.label_issues_ == issues
    for name in ("label_quality", "suggested", "suggested_confidence"):
        before, after = getattr(mislabelled.assignments, name), getattr(loaded.assignments, name)
        np.testing.assert_array_equal(after, before)
        assert after.dtype.kind == before.dtype.kind
    np.testing.assert_array_equal(loaded.model.label_quality_, mislabelled.model.label_quality_)
    table = pq.read_table(tmp_path / "run" / "assignments.parquet").to_pydict()
    rows = {issue.row for issue in issues}
    assert [value is not None for value in table["suggested"]] == [row in rows for row in range(120)]
    assert [value is not None for value in table["label_quality"]] == mislabelled.assignments.labelled.tolist()


def test_label_checks_are_exported(tmp_path):
    with_issues(LABELS["text"]).export(tmp_path / "rows.csv")
    with open(tmp_path / "rows.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    first, second = (rows[row] for row in BAD)
    assert (first["label_quality"], first["suggested_confidence"]) == ("0.02", "0.75")
    assert first["suggested"] == second["given"] != ""
    assert (rows[1]["given"], rows[1]["label_quality"], rows[1]["suggested"]) == ("", "", "")


def test_issues_are_ranked_by_how_much_likelier_the_suggested_class_is():
    quality, confidence = np.float32([0.3, 0.0, np.nan, 0.2]), np.float32([0.9, 0.4, np.nan, np.nan])
    rows = Assignments(
        ids=np.arange(4),
        labels=np.array(["a", "a", "b", "b"]),
        known=np.ones(4, bool),
        confidence=quality,
        runner_up=np.array(["b"] * 4),
        runner_up_confidence=quality,
        outlier=quality,
        given=np.array(["a", "a", "", "b"]),
        label_quality=quality,
        suggested=np.array(["b", "c", "", ""]),
        suggested_confidence=confidence,
    )
    model = RPIM()
    assert [(issue.row, issue.suggested) for issue in Discovery(rows, model, {}).label_issues()] == [(0, "b"), (1, "c")]
    assert LabelCounts.of(rows) == LabelCounts(labels=3, checked=3, issues=2)
    refit = dataclasses.replace(rows, given=np.array(["a", "", "", ""]))  # the others are labelled by decisions
    assert LabelCounts.of(refit) == LabelCounts(labels=3, checked=3, issues=2)
    by_quality = dataclasses.replace(rows, suggested_confidence=None)
    assert [issue.row for issue in Discovery(by_quality, model, {}).label_issues()] == [1, 0]
    assert LabelCounts.of(dataclasses.replace(rows, label_quality=None)) is None


@pytest.mark.parametrize(
    ("counts", "sentence"),
    [
        ((2436, 2436, 30), "30 of 2,436 labels are probably wrong: rpim classes 'my run' --label-issues lists them."),
        (
            (12, 8, 1),
            "1 of 12 labels is probably wrong (8 were checked): rpim classes 'my run' --label-issues lists it.",
        ),
        ((12, 12, 0), "None of 12 labels is probably wrong."),
        ((4, 0, 0), "No label could be checked: a class needs at least two labelled rows."),
    ],
)
def test_label_checks_in_words(counts, sentence):
    assert LabelCounts(*counts).sentence("my run") == sentence


def test_extending_keeps_the_label_checks_of_the_rows_that_stay():
    labels = LABELS["text"]
    before = with_issues(labels)
    right = FeatureSet.from_arrays(
        np.concatenate([X[BAD[:1]], X[:5] + 0.01]),
        ids=[f"row-{BAD[0]}", *(f"later-{i}" for i in range(5))],
        labels=[labels[BAD[1]], *[""] * 5],
    )
    after = before.extended(right)
    # The first of the two has been given the label that was suggested.
    assert [after.ids[issue.row] for issue in after.label_issues()] == [f"row-{BAD[1]}"]
    assert np.isnan(after.assignments.label_quality[-6:]).all()
    assert (after.assignments.suggested[-6:] == "").all()
    assert after.stability is None
    assert (after.model.n_members_, after.model.label_issues_) == (1, [])
    assert not hasattr(after.model, "expected_accuracy_")
    assert before.model.n_members_ == 8, "the run that is extended stays as it is"
    single = discovery_of(LABELS["text"])
    assert single.extended(right).assignments.label_quality is None


def test_a_suggested_class_that_extending_renames_is_renamed():
    before = discovery_of(LABELS["text"], n_members=2)
    suggested = np.full(120, "", dtype="U9")
    suggested[0] = "new-1"
    before = dataclasses.replace(before, assignments=dataclasses.replace(before.assignments, suggested=suggested))
    of_class = X[(before.labels == "new-1").nonzero()[0][:8]] + 0.001
    after = before.extended(FeatureSet.from_arrays(of_class, ids=[f"n{i}" for i in range(8)], labels=["dog"] * 8))
    assert after.model.renamed_["new-1"] == "dog"
    assert after.assignments.suggested[0] == "dog"


def test_a_run_of_before_calibration_outliers_and_stability_loads(discovery, run):
    facts = json.loads((run / "run.json").read_text())
    del facts["stability"], facts["outlier_threshold"], facts["fitted"]["calibration_"], facts["fitted"]["n_members_"]
    del facts["parameters"]["n_members"], facts["parameters"]["abstain"]
    facts["parameters"] |= {"n_starts": "auto", "calibrate": True, "search": "held-out"}
    facts["fitted"]["agreement_"] = 0.9
    facts["tables"]["calibration_error_"] = {"before": 0.2, "after": 0.1}
    (run / "run.json").write_text(json.dumps(facts))
    table = pq.read_table(run / "assignments.parquet")
    pq.write_table(table.drop_columns(["outlier"]), run / "assignments.parquet")
    old = Discovery.load(run)
    assert (old.model.head_.calibration, old.model.outlier_threshold_, old.stability) == (1.0, np.inf, None)
    assert (old.model.search, old.label_issues(), old.assignments.label_quality) == ("auto", [], None)
    assert not hasattr(old.model, "agreement_")
    assert np.isnan(old.assignments.outlier).all()
    np.testing.assert_array_equal(old.predict(X), discovery.predict(X))
    tables = (
        [(row.name, row.rows, row.mean_confidence, row.doubtful[0]) for row in one.classes_table()]
        for one in (old, discovery)
    )
    assert next(tables) == next(tables)
    old.save(run, overwrite=True)
    assert len(Discovery.load(run)) == 120


def test_the_classes_as_a_file(discovery, tmp_path):
    summaries = discovery.classes_table()
    write_classes(summaries, tmp_path / "classes.json")
    stored = json.loads((tmp_path / "classes.json").read_text())
    assert [row["name"] for row in stored] == discovery.classes.tolist()
    assert stored[0]["typical"] == summaries[0].typical
    assert stored[0]["stability"] is None
    write_classes(summaries, tmp_path / "classes.csv")
    with open(tmp_path / "classes.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["known"] for row in rows] == ["true"] * 3 + ["false"] * 2
    assert rows[0]["typical"].split(" ") == summaries[0].typical
    assert (int(rows[0]["rows"]), rows[0]["stability"]) == (summaries[0].rows, "")
    with pytest.raises(InputError, match="exists already"):
        write_classes(summaries, tmp_path / "classes.csv")
    with pytest.raises(InputError, match=r"'\.txt', which cannot be written: give \.csv or \.json"):
        write_classes(summaries, tmp_path / "classes.txt")


def test_provenance_says_where_it_came_from(run):
    facts = json.loads((run / "run.json").read_text())
    assert facts["format"] == 1
    about = facts["provenance"]
    assert about["command"] == ["rpim", "discover"]
    assert (about["seed"], about["duration_seconds"]) == (0, 1.5)
    assert set(about["versions"]) == {"rpim", "python", "torch", "numpy", "scikit-learn"}
    assert about["created"].endswith("+00:00")
    data = about["data"]
    assert (data["path"], data["rows"], data["features"]) == ("blobs.npz", 120, 6)
    assert data["labelled"] == int((INTS >= 0).sum())
    assert len(data["fingerprint"]) == 64


def test_assignments_hold_the_class_its_probability_and_the_runner_up(discovery, run):
    table = pq.read_table(run / "assignments.parquet").to_pydict()
    assert list(table) == [
        "id",
        "label",
        "given",
        "known",
        "confidence",
        "runner_up",
        "runner_up_confidence",
        "outlier",
        "text",
    ]
    probabilities = discovery.model.predict_proba(FeatureSet.from_arrays(X).rows())
    place = {name: k for k, name in enumerate(discovery.classes.tolist())}
    for row in range(120):
        mine = place[table["label"][row]]
        assert table["confidence"][row] == probabilities[row, mine]
        others = np.delete(probabilities[row], mine)
        assert table["runner_up_confidence"][row] == others.max()
        assert probabilities[row, place[table["runner_up"][row]]] == others.max()
        assert table["given"][row] == (None if INTS[row] < 0 else INTS[row])
        assert table["known"][row] == (mine < 3)
    labelled = INTS >= 0
    np.testing.assert_array_equal(discovery.labels[labelled], INTS[labelled])


def test_classes_table_by_hand():
    model = RPIM()
    model.classes_, model.known_classes_ = np.array(["a", "b", "new-1", "new-2"]), np.array(["a", "b"])
    # new-1 points rather to b, whatever the lengths; new-2 away from both, and less so from a.
    model.head_ = Head(torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0], [-1.0, -2.0]]), Transform({}))
    rows = Assignments(
        ids=np.arange(4, 12),
        labels=np.array(["a", "a", "new-1", "b", "", "a", "a", "a"]),
        known=np.array([True, True, False, True, False, True, True, True]),
        confidence=np.array([1.0, 0.5, 0.95, 0.2, 0.0, 0.999, 0.998, 0.003], dtype=np.float32),
        runner_up=np.array(["b"] * 8),
        runner_up_confidence=np.zeros(8, dtype=np.float32),
        outlier=np.array([-1, 0, 0, 0, 9, -3, -2, 0], dtype=np.float32),
        given=np.array(["a", "", "", "b", "", "", "", ""]),
    )
    a, b, new_1, new_2 = Discovery(rows, model, {}, stability=np.array([0.9, np.nan, 0.25, np.nan])).classes_table()
    assert (a.name, a.known, a.rows, a.labelled, a.confident_share) == ("a", True, 5, 1, 0.6)
    assert a.mean_confidence == pytest.approx(0.7)
    # 4, 9 and 10 are equally sure to a percent, and fit in another order.
    assert (a.typical, a.doubtful) == ([9, 10, 4], [11, 5])  # no row is both
    assert (a.nearest_known, b.nearest_known, new_1.nearest_known, new_2.nearest_known) == ("b", "a", "b", "a")
    assert (a.stability, new_1.stability) == (0.9, 0.25)
    assert np.isnan(b.stability)
    assert (new_1.typical, new_1.doubtful, new_2.typical) == ([6], [], [])
    assert np.isnan(Discovery(rows, model, {}).classes_table()[0].stability)
    assert (b.rows, b.labelled, b.confident_share) == (1, 1, 0.0)
    assert (new_1.known, new_1.rows, new_1.labelled, new_1.confident_share) == (False, 1, 0, 1.0)
    assert new_2.rows == 0
    assert np.isnan(new_2.mean_confidence)


def test_predict_refuses_rows_of_another_width_or_with_nan(discovery):
    with pytest.raises(InputError, match="5 features but the model was fitted on rows of 6"):
        discovery.predict(X[:, :5])
    with pytest.raises(InputError, match=r"NaN, missing or infinite values in 1 row \(1\)"):
        discovery.predict([[1.0] * 6, [np.nan] * 6])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_export(suffix, tmp_path):
    discovery = discovery_of(LABELS["text"])
    path = tmp_path / f"out.{suffix}"
    discovery.export(path)
    if suffix == "csv":
        with open(path, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        assert [row["label"] for row in rows] == discovery.labels.tolist()
        assert [row["given"] for row in rows] == LABELS["text"].tolist()
        assert {row["known"] for row in rows} == {"true", "false"}
        np.testing.assert_allclose([float(row["confidence"]) for row in rows], discovery.confidence, rtol=1e-5)
    else:
        assert pq.read_table(path).column("label").to_pylist() == discovery.labels.tolist()
    kept = path.read_bytes()
    with pytest.raises(InputError, match="exists already"):
        discovery.export(path)
    assert path.read_bytes() == kept
    discovery.export(path, overwrite=True)
    with pytest.raises(InputError, match=r"'\.xlsx', which cannot be written: give \.csv or \.parquet"):
        discovery.export(tmp_path / "out.xlsx")
    assert os.listdir(tmp_path) == [path.name]


def test_an_existing_run_is_kept_unless_overwrite_is_said(discovery, run):
    before = contents(run)
    with pytest.raises(InputError, match="exists already: choose another name, or say --overwrite"):
        discovery.save(run)
    assert contents(run) == before
    (run / "left.txt").write_text("of the old one")
    discovery.save(run, overwrite=True)
    assert contents(run) == before
    assert os.listdir(run.parent) == ["run"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_or_file_that_is_no_run_is_never_replaced(discovery, tmp_path, overwrite):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.txt").write_text("years of work")
    (tmp_path / "file").write_text("a file")
    for name in ("thesis", "file"):
        with pytest.raises(InputError, match="is not a run folder"):
            discovery.save(tmp_path / name, overwrite=overwrite)
    assert contents(tmp_path) == {"thesis/chapter.txt": b"years of work", "file": b"a file"}


def test_nothing_can_be_written_in_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="is not a folder: create it first"):
        check_target(tmp_path / "a" / "b")
    with pytest.raises(InputError, match="is not a folder: create it first"), new_folder(tmp_path / "a" / "b"):
        pass
    assert os.listdir(tmp_path) == []


def fail_with(error):
    def fail(*args, **kwargs):
        raise error

    return fail


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    "place",
    ["rpim.runs.assignments.Assignments.write_parquet", "rpim.runs.discovery.write_json", "os.fsync", "os.rename"],
)
def test_a_full_disk_leaves_no_trace(discovery, tmp_path, monkeypatch, place, overwrite):
    target = tmp_path / "run"
    if overwrite:
        discovery.save(target)
    before = contents(tmp_path)
    monkeypatch.setattr(place, fail_with(OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(InputError, match="was not written, no space left on its disk: free some of it"):
        discovery.save(target, overwrite=overwrite)
    assert contents(tmp_path) == before
    assert os.listdir(tmp_path) == (["run"] if overwrite else [])


def test_the_old_run_comes_back_if_the_new_one_cannot_be_moved_in(discovery, tmp_path, monkeypatch):
    target = tmp_path / "run"
    discovery.save(target)
    before = contents(tmp_path)
    rename = os.rename

    def fails_for_the_new_one(source, destination):
        if ".partial" in str(source):
            raise OSError(errno.EIO, "Input/output error")
        rename(source, destination)

    monkeypatch.setattr("os.rename", fails_for_the_new_one)
    with pytest.raises(InputError, match=r"was not written \(Input/output error\)"):
        discovery.save(target, overwrite=True)
    assert contents(tmp_path) == before


def test_ctrl_c_while_saving_leaves_the_old_run(discovery, tmp_path, monkeypatch):
    target = tmp_path / "run"
    discovery.save(target)
    before = contents(tmp_path)
    monkeypatch.setattr("rpim.runs.discovery.write_json", fail_with(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        discovery.save(target, overwrite=True)
    assert contents(tmp_path) == before
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.slow
def test_text_that_is_not_unicode_is_one_sentence(tmp_path):
    features = FeatureSet.from_arrays(X, labels=INTS, texts=["\ud800"] * len(X))
    model = RPIM(5, max_iter=15, random_state=0).fit(features.rows(), INTS)
    with pytest.raises(InputError, match="not valid Unicode"):
        Discovery.from_fit(model, features).save(tmp_path / "run")
    assert os.listdir(tmp_path) == []


def test_a_run_of_the_future_is_refused(run):
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, "format": 2}))
    with pytest.raises(InputError, match=r"newer version of rpim \(format 2, and this one reads up to 1\)"):
        Discovery.load(run)


@pytest.mark.parametrize("name", ["model.safetensors", "assignments.parquet", "history.json", "run.json"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.99])
def test_a_truncated_file_is_one_sentence(run, name, share):
    file = run / name
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * share)])
    with pytest.raises(InputError, match=rf"{name} is truncated or damaged \(.*\): run rpim discover again\.$"):
        Discovery.load(run)


@pytest.mark.parametrize("name", ["model.safetensors", "assignments.parquet", "history.json"])
def test_a_missing_file_is_one_sentence(run, name):
    (run / name).unlink()
    with pytest.raises(InputError, match=f"{name} is missing, so the run folder is incomplete"):
        Discovery.load(run)


def test_what_is_no_run_folder(tmp_path):
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match=r"is not a run folder \(it has no run.json\)"):
            Discovery.load(path)


@pytest.mark.parametrize(
    "change",
    [
        {"method": "os.system"},
        {"transform": "eval"},
        {"classes": [1, 2]},
        {"rows": 119},
        {"label_type": "object_"},
        {"parameters": {"no_such": 1}},
        {"format": "1"},
        {"provenance": 3},
        {"n_features": "many"},
        {"stability": [0.5]},
    ],
)
def test_facts_that_do_not_fit_are_one_sentence(run, change):
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**facts, **change}))
    with pytest.raises(InputError, match="is truncated or damaged"):
        Discovery.load(run)


def test_evaluate_counts_the_unlabelled_rows_with_a_truth(discovery):
    truth = np.where(TRUTH < 3, TRUTH * 10, TRUTH + 50)
    result = evaluate(discovery, truth)
    assert result.rows == int((INTS < 0).sum())
    assert 0 <= result.all <= 1
    some = np.where(np.arange(120) < 60, truth, -1)
    assert evaluate(discovery, some).rows == int((INTS[:60] < 0).sum())
    with pytest.raises(InputError, match="The truth holds text but the labels of the run are numbers"):
        evaluate(discovery, truth.astype(str))
    with pytest.raises(InputError, match=r"shape \(3,\) but the run has 120 rows"):
        evaluate(discovery, [1, 2, 3])
    with pytest.raises(InputError, match="nothing to evaluate"):
        evaluate(discovery, np.full(120, -1))


def test_the_truth_of_every_kind_of_file(tmp_path):
    ids, truth = np.array(["a", "b", "c"]), [7, 8, 9]
    (tmp_path / "t.txt").write_text("7\n8\n9\n")
    (tmp_path / "t.json").write_text("[7, 8, 9]")
    (tmp_path / "ids.csv").write_text("id,truth\nc,9\na,7\nb,8\n")
    (tmp_path / "named.csv").write_text("id,species\nc,9\na,7\nb,8\n")
    np.save(tmp_path / "t.npy", truth)
    np.savez(tmp_path / "t.npz", truth=truth)
    np.savez(tmp_path / "ids.npz", truth=[9, 7, 8], ids=["c", "a", "b"])
    FeatureSet.from_arrays(np.eye(3), ids=["a", "b", "c"], truth=truth).write(tmp_path / "t.parquet")
    for file in ("t.txt", "t.json", "ids.csv", "t.npy", "t.npz", "ids.npz", "t.parquet"):
        assert read_truth(tmp_path / file, ids).tolist() == truth, file
    assert read_truth(tmp_path / "named.csv", ids, "species").tolist() == truth
    np.savez(tmp_path / "none.npz", other=truth)
    with pytest.raises(InputError, match="no array called truth among other"):
        read_truth(tmp_path / "none.npz", ids)
    (tmp_path / "wrong.npz").write_bytes((tmp_path / "t.npy").read_bytes())
    with pytest.raises(InputError, match=r"wrong\.npz is not an \.npz file"):
        read_truth(tmp_path / "wrong.npz", ids)
    with pytest.raises(InputError, match=r"t\.txt: truth has 3 values but the run has 2 rows"):
        read_truth(tmp_path / "t.txt", ids[:2])


@pytest.mark.parametrize("method", [PIM, KMeans])
@pytest.mark.parametrize("scale", [np.ones((120, 1)), np.arange(1.0, 121.0)[:, None]])
def test_rows_that_are_all_the_same_are_refused(method, scale):
    with pytest.raises(InputError, match=r"All 120 rows are the same, so no class can be told from another: check how"):
        method(5).fit(scale * X[0], INTS)


def test_rows_of_one_feature_or_one_direction_may_differ_in_length():
    PIM(5, max_iter=2, normalize=False).fit(np.arange(1.0, 121.0)[:, None] * X[0], INTS)
    PIM(5, max_iter=2).fit(np.arange(1.0, 121.0)[:, None], INTS)


def test_fewer_different_rows_than_classes_are_warned_of():
    few = np.eye(6)[np.arange(120) % 4]
    with pytest.warns(UserWarning, match=r"Only 4 of 120 rows are different, fewer than there are classes \(5\)"):
        PIM(5, max_iter=2, random_state=0).fit(few, INTS)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="Only")
        PIM(4, max_iter=2, random_state=0).fit(few, INTS)


def test_rows_on_disk_that_are_all_the_same_are_refused(tmp_path):
    np.save(tmp_path / "rows.npy", np.ones((120, 6), dtype=np.float32))
    with pytest.raises(InputError, match="All 120 rows are the same"):
        PIM(5).fit(RowFiles(tmp_path / "rows.npy"), INTS)
