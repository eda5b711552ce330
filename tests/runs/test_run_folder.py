"""The features of a run are found again, or one sentence says what to do."""

import copy
import json
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.torch import load_file, save_file
from sklearn.datasets import make_blobs

from rpim import RPIM, Discovery, FeatureSet, InfoMaxObjective, InputError
from rpim.runs.decision_store import Store
from rpim.runs.decisions import Rename
from rpim.runs.run_folder import features_of
from rpim.runs.versions import Versions

X, TRUTH = make_blobs(60, n_features=4, centers=3, random_state=0)
LABELS = np.where((TRUTH < 2) & (np.arange(60) % 2 == 0), TRUTH, -1)


@pytest.fixture
def run(tmp_path):
    """A run whose labels came from a file of their own."""
    FeatureSet.from_arrays(X).write(tmp_path / "features.npz")
    features = FeatureSet.from_arrays(X, labels=LABELS)
    model = RPIM(
        3, objective=InfoMaxObjective(trade_off=0.1, weight_decay=0.01), n_members=1, max_iter=3, random_state=0
    )
    model.fit(features.rows(), features.labels)
    Discovery.from_fit(model, features, source=tmp_path / "features.npz").save(tmp_path / "run")
    return tmp_path / "run"


def test_features_come_from_where_the_run_read_them_with_its_labels(run):
    features = features_of(run)
    np.testing.assert_array_equal(features.X, X)
    np.testing.assert_array_equal(features.labels, LABELS)


def test_features_in_the_run_folder_come_first(run):
    (run.parent / "features.npz").unlink()
    FeatureSet.from_arrays(X).write(run / "features.parquet")
    np.testing.assert_array_equal(features_of(run).X, X)


def test_a_given_file_may_have_more_rows_in_another_order(run):
    (run.parent / "features.npz").unlink()
    more = FeatureSet.from_arrays(np.vstack([X[::-1], X[:1]]), ids=[*range(59, -1, -1), 77])
    more.write(run.parent / "more.npz")
    np.testing.assert_array_equal(features_of(run, run.parent / "more.npz").X, X)


def test_features_that_are_gone_changed_or_incomplete_are_one_sentence(run):
    place = run.parent / "features.npz"
    FeatureSet.from_arrays(X + 1).write(place, overwrite=True)
    with pytest.raises(InputError, match=r"has changed since .*run was fitted: give --features FILE\.$"):
        features_of(run)
    FeatureSet.from_arrays(X[:50]).write(place, overwrite=True)
    with pytest.raises(InputError, match="lacks 10 of the 60 rows"):
        features_of(run)
    place.unlink()
    with pytest.raises(InputError, match=r"are no longer at .*features\.npz: give --features FILE"):
        features_of(run)
    facts = json.loads((run / "run.json").read_text())
    facts["provenance"]["data"]["path"] = None
    (run / "run.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match="does not record the path of its features"):
        features_of(run)
    facts["format"] = 99
    (run / "run.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match="newer version of rpim"):
        features_of(run)


def set_at(facts, path, value):
    *above, last = path
    for name in above:
        facts = facts[name]
    facts[last] = value


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (["rows"], -1, "rows is missing or not what it should be"),
        (["rows"], 119, "it has 120 rows, not 119"),
        (["classes"], "abc", "classes is missing or not what it should be"),
        (["classes", 0], ["ant"], "classes is missing or not what it should be"),
        (["classes", 0], "bee", "or a class twice"),
        (["classes", 0], 5, "its classes are not of type str"),
        (["n_known"], -1, "n_known is missing or not what it should be"),
        (["n_known"], 1e308, "n_known is missing or not what it should be"),
        (["n_known"], 6, "it has 6 known classes among 5"),
        (["label_type"], "object", "label_type is missing or not what it should be"),
        (["label_type"], "../x", "data type '../x' not understood"),
        (["temperature"], None, "temperature is missing or not what it should be"),
        (["temperature"], float("nan"), "NaN is no JSON"),
        (["fitted", "expected_accuracy_"], "x", "fitted is missing or not what it should be"),
        (["fitted", "n_members_"], 0, "fitted is missing or not what it should be"),
        (["stability"], [1.0], "stability is of 1 classes, not of 5"),
        (["suggested_names"], [1] * 5, "suggested_names is missing or not what it should be"),
        (["provenance", "created"], 7, "provenance.created is missing or not what it should be"),
        (["provenance", "data", "path"], -1, "provenance.data is missing or not what it should be"),
        (["provenance", "data", "path"], "a\0b", "provenance.data is missing or not what it should be"),
        (["provenance", "data", "fingerprint"], None, "provenance.data is missing or not what it should be"),
        (["provenance", "refit"], {"version": "x"}, "provenance.refit is missing or not what it should be"),
        (["provenance", "extends"], {"data": 1}, "provenance.extends is not what it should be"),
    ],
)
def test_run_json(animals, refused, path, value, says):
    facts = json.loads((animals / "run.json").read_text())
    set_at(facts, path, value)
    (animals / "run.json").write_text(json.dumps(facts))
    err = refused(says, "classes", animals)
    assert "is truncated or damaged" in err
    assert err.endswith("run rpim discover again.\n")


def test_no_value_of_run_json_is_a_failure(animals):
    """Whatever stands there: it is used or refused."""
    found = json.loads((animals / "run.json").read_text())
    refused = []
    places = [[name] for name in found] + [["provenance", name] for name in found["provenance"]]
    for path in places + [["provenance", "data", name] for name in found["provenance"]["data"]]:
        for value in (None, "x", -1, 10**30, [], {}, [[1]], True):
            facts = copy.deepcopy(found)
            set_at(facts, path, value)
            (animals / "run.json").write_text(json.dumps(facts))
            try:
                versions = Versions(animals)
                versions.state()
                versions.store.close()
            except InputError as error:
                refused.append(str(error))
    assert len(refused) > 100
    assert not any("\n" in message for message in refused)


@pytest.mark.parametrize(
    "history",
    ["3", "[1]", '[{"M": "x"}]', '[{"M": NaN}]', '{"M": 1}', "[" * 100_000],
    ids=["number", "no dict", "text", "NaN", "dict", "deep"],
)
def test_history(animals, refused, history):
    (animals / "history.json").write_text(history)
    refused("history.json is truncated or damaged", "classes", animals)


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("id", [[1, 2]] * 120, "its ids are not unique"),
        ("id", ["same"] * 120, "its ids are not unique"),
        ("label", ["nosuch"] * 120, "labels has classes that the run has not"),
        ("runner_up", [["ant"]] * 120, "is truncated or damaged"),
        ("runner_up", ["nosuch"] * 120, "runner_up has classes that the run has not"),
        ("confidence", ["x"] * 120, "confidence is not a probability"),
        ("confidence", [7.0] * 120, "confidence is not a probability"),
        ("confidence", [None] * 120, "confidence is not a probability"),
        ("runner_up_confidence", [float("nan")] * 120, "runner_up_confidence is not a probability"),
        ("outlier", [{"a": 1}] * 120, "outlier is not of numbers"),
        ("confidence", None, "confidence"),
    ],
)
def test_assignments(animals, refused, column, values, says):
    table = pq.read_table(animals / "assignments.parquet")
    place = table.column_names.index(column)
    changed = table.remove_column(place)
    if values is not None:
        changed = changed.add_column(place, column, pa.array(values))
    pq.write_table(changed, animals / "assignments.parquet")
    err = refused(says, "classes", animals)
    assert "assignments.parquet is truncated or damaged" in err


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("prototypes", lambda values: values * np.nan, "prototypes has values that are not finite"),
        ("prototypes", lambda values: values.long(), "its tensors do not fit together"),
        ("prototypes", lambda values: values[:, :1], "the prototypes have shape"),
        ("transform.B", lambda values: values[:0], "its tensors do not fit together"),
        ("transform.B", lambda values: None, "its tensors do not fit together"),
        ("transform.b", lambda values: values.double(), "its tensors do not fit together"),
    ],
)
def test_model(animals, refused, name, change, says):
    tensors = load_file(animals / "model.safetensors")
    changed = change(tensors.pop(name))
    if changed is not None:
        tensors[name] = changed.contiguous()
    save_file(tensors, animals / "model.safetensors")
    np.save("new.npy", np.ones((3, 6), np.float32))
    refused(says, "predict", animals, "new.npy")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE decisions SET before = 2 WHERE number = 1",  # a cycle
        "UPDATE decisions SET before = 2 WHERE number = 2",
        "UPDATE decisions SET version = 1 WHERE number = 1",
        "UPDATE pointers SET current = 99",
        "UPDATE decisions SET body = '{}'",
        f"UPDATE decisions SET body = '{'[' * 100_000}'",
        """UPDATE decisions SET body = '{"kind": "rename", "number": [1], "name": 3}'""",
        """UPDATE decisions SET body = '{"kind": "merge", "numbers": [-0.0, 3]}' WHERE number = 2""",
    ],
)
def test_decisions(animals, refused, statement):
    store = Store(animals)
    for number, name in enumerate(("wasp", "hornet")):
        store.add(0, Rename(0, name), f"key-{number:04}", number)
    store.close()
    database = sqlite3.connect(animals / "decisions.sqlite")
    with database:
        database.execute(statement)
    database.close()
    if "SET body" not in statement:  # first, as a walk along a cycle would never end
        with pytest.raises(InputError, match="its decisions are not in order"):
            Store(animals)
    refused("decisions.sqlite", "classes", animals)
    with pytest.raises(InputError, match=r"decisions\.sqlite"):
        Versions(animals).state()


def test_metadata_that_cannot_be_saved_is_refused_when_it_is_read(tmp_path):
    np.savez(tmp_path / "f.npz", X=np.eye(2), metadata_json='{"scale": NaN}')
    with pytest.raises(InputError, match=r"f\.npz: metadata is not JSON .*: use text, numbers, lists and dicts"):
        FeatureSet.read(tmp_path / "f.npz")


def test_assignments_that_grow_in_memory_are_refused(animals, refused, monkeypatch):
    monkeypatch.setattr("rpim._common.hardware.default_memory_budget", lambda: 1000)
    refused("assignments.parquet takes about 9KB of memory, and 1KB may be used: give fewer rows.", "classes", animals)


def test_arrow_reads_a_run_by_its_path(animals, monkeypatch):
    """Its threads would hold a file of Python's, and abort a process that ends before they do."""
    opened, real = [], pq.ParquetFile
    monkeypatch.setattr(pq, "ParquetFile", lambda source, **options: opened.append(source) or real(source, **options))
    Versions(animals).store.close()
    assert opened == [animals / "assignments.parquet"]
