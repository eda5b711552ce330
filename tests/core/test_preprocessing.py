"""From the user's rows to the rows that a head takes."""

import numpy as np
import pytest
import torch

from rpim import PIM, RPIM, Discovery, FeatureSet, KMeans, RowFiles
from rpim.core.preprocessing import Preprocessing

CPU = torch.device("cpu")


def test_square_roots_keep_their_sign_and_are_scaled_to_unit_length():
    """sqrt(9) and sqrt(16) are 3 and 4: a right triangle with the hypotenuse 5."""
    prepare = Preprocessing("sqrt", None, CPU)
    x = prepare(np.array([[9.0, 16.0], [-9.0, 16.0], [0.0, 0.0], [0.09, 0.16]]))
    assert torch.allclose(x, torch.tensor([[0.6, 0.8], [-0.6, 0.8], [0.0, 0.0], [0.6, 0.8]]))


@pytest.mark.parametrize("kind", [KMeans, PIM, RPIM])
@pytest.mark.parametrize(("shift", "expected"), [(0.0, "sqrt"), (-0.5, True), (1.0, True)])
def test_auto_takes_square_roots_of_features_as_after_a_relu(kind, shift, expected):
    X, y = nonnegative_blobs()
    automatic = kind(n_classes=3, random_state=0).fit(X + shift, y)
    assert automatic.normalize_ == expected
    given = kind(n_classes=3, random_state=0, normalize=expected).fit(X + shift, y)
    assert np.array_equal(automatic.head_.prototypes, given.head_.prototypes)
    assert np.array_equal(automatic.predict(X + shift), given.predict(X + shift))


def test_the_published_procedure_takes_none():
    X, y = nonnegative_blobs()
    assert KMeans(n_classes=3, preset="paper").fit(X, y).normalize_ is True
    assert PIM(n_classes=3, preset="paper", n_init=1, max_iter=2).fit(X, y).normalize_ is True


def test_rows_on_disk_and_a_saved_run_take_the_same(tmp_path):
    X, y = nonnegative_blobs()
    np.save(tmp_path / "rows.npy", X.astype(np.float32))
    here = RPIM(n_classes=3, n_members=2, random_state=0).fit(X.astype(np.float32), y)
    streamed = RPIM(n_classes=3, n_members=2, random_state=0).fit(RowFiles(tmp_path / "rows.npy"), y)
    assert streamed.normalize_ == "sqrt"
    assert np.array_equal(here.predict_proba(X), streamed.predict_proba(X))
    Discovery.from_fit(here, FeatureSet.from_arrays(X, labels=y)).save(tmp_path / "run")
    loaded = Discovery.load(tmp_path / "run").model
    assert loaded.normalize_ == "sqrt"
    assert np.array_equal(loaded.predict_proba(X), here.predict_proba(X))


def nonnegative_blobs():
    """Three classes of rows without a negative value, two of them with labels."""
    random = np.random.RandomState(0)
    truth = np.repeat([0, 1, 2], 30)
    X = np.abs(random.normal(size=(90, 12)) * 0.2) + 3.0 * np.eye(12)[truth]
    return X, np.where((truth < 2) & (np.arange(90) % 2 == 0), truth, -1)
