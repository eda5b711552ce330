"""Rows of any scale: the same classes where they are normalized, and one sentence where they cannot be used."""

import numpy as np
import pytest
import torch

from rpim import PIM, FeatureSet, InputError
from rpim.core.preprocessing import Preprocessing
from rpim.data.labels import unit_rows

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
