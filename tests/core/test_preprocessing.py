"""From the user's rows to the rows that a head takes: any scale gives the same classes, and what suits the features."""

import warnings

import numpy as np
import pytest
import torch

from rpim import PIM, RPIM, Discovery, FeatureSet, InputError, KMeans, RowFiles
from rpim.core.preprocessing import Preprocessing
from rpim.data.labels import unit_rows

CPU = torch.device("cpu")
SCALES = [1e-42, 1e-25, 1e-10, 1e10, 1e19, 1e37]


@pytest.fixture
def problem(blobs):
    x, truth = blobs([20] * 5, 8, spread=0.2)
    return x.numpy().astype(np.float64), np.where((truth.numpy() < 3) & (np.arange(100) % 2 == 0), truth.numpy(), -1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", SCALES)
def test_a_fit_and_a_prediction_do_not_depend_on_the_scale(problem, scale, dtype):
    x, y = problem
    plain, scaled = PIM(5, random_state=0).fit(x, y), (x * scale).astype(dtype)
    model = PIM(5, random_state=0).fit(scaled, y)
    np.testing.assert_array_equal(model.labels_, plain.labels_)
    rounding = 0.05 if scale < 1e-38 and dtype == np.float32 else 1e-4  # such numbers have few digits
    np.testing.assert_allclose(model.predict_proba(scaled), plain.predict_proba(x), atol=rounding)
    np.testing.assert_allclose(plain.predict_proba(scaled), plain.predict_proba(x), atol=rounding)


@pytest.mark.parametrize("scale", [1e-25, 1e19, 1e38, 1e300])
def test_without_normalization_such_rows_are_refused(problem, scale):
    x, y = problem
    with pytest.raises(InputError, match=r"The largest value of the rows is .*, beyond the range of single precision"):
        PIM(5, normalize=False).fit(x * scale, y)
    model = PIM(5, normalize=False, random_state=0).fit(x, y)
    if scale > 1:
        with pytest.raises(InputError, match="beyond the range of single precision"):
            model.predict(x * scale)


@pytest.mark.parametrize("scale", SCALES)
def test_features_and_fits_have_one_rule(problem, scale):
    x = (problem[0] * scale).astype(np.float32)
    prepared = Preprocessing(normalize=True, components=None, device=torch.device("cpu"))(x)
    np.testing.assert_allclose(prepared.numpy(), FeatureSet.from_arrays(x).rows(), atol=2e-7)
    np.testing.assert_allclose(np.linalg.norm(prepared.numpy(), axis=1), 1.0, atol=1e-6)


def test_a_row_does_not_depend_on_the_others(problem):
    x = problem[0].astype(np.float32)
    alone = unit_rows(x)
    mixed = unit_rows(np.concatenate([x, x * np.float32(1e30), np.zeros((1, 8), np.float32)]))
    np.testing.assert_array_equal(mixed[: len(x)], alone)
    np.testing.assert_array_equal(mixed[-1], 0.0)


def test_square_roots_keep_their_sign_and_are_scaled_to_unit_length():
    """sqrt(9) and sqrt(16) are 3 and 4: a right triangle with the hypotenuse 5."""
    prepare = Preprocessing("sqrt", None, CPU)
    x = prepare(np.array([[9.0, 16.0], [-9.0, 16.0], [0.0, 0.0], [0.09, 0.16]]))
    assert torch.allclose(x, torch.tensor([[0.6, 0.8], [-0.6, 0.8], [0.0, 0.0], [0.6, 0.8]]))


@pytest.mark.parametrize("kind", [PIM, RPIM])
@pytest.mark.parametrize(
    ("n_members", "shift", "expected"), [(2, 0.0, "sqrt"), (2, -0.5, True), (2, 1.0, True), (1, 0.0, True)]
)
def test_a_committee_takes_square_roots_of_features_as_after_a_relu(kind, n_members, shift, expected):
    X, y = nonnegative_blobs()
    automatic = kind(n_classes=3, n_members=n_members, random_state=0).fit(X + shift, y)
    assert automatic.normalize_ == expected
    given = kind(n_classes=3, n_members=n_members, random_state=0, normalize=expected).fit(X + shift, y)
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


@pytest.mark.parametrize("normalize", [True, False, "sqrt"])
def test_rows_in_half_precision_are_those_of_their_values(normalize):
    given = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float16)
    given[3], given[4] = 0.0, 6e-8  # a row without length, and one below the normal range
    given.flags.writeable = False  # as pyarrow hands it over
    preprocess = Preprocessing(normalize=normalize, components=None, device=CPU)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = preprocess(given)
    assert found.equal(preprocess(given.astype(np.float32)))
