"""The features of a run are found again, or one sentence says what to do."""

import json

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from rpim import RPIM, Discovery, FeatureSet, InfoMaxObjective, InputError
from rpim.runs.run_folder import features_of

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
