"""Which classes come back: Jaccard by hand, resamples that keep what they must, and classes that do and do not."""

import numpy as np
import pytest

from rpim import PIM, RPIM
from rpim.methods import GCD
from rpim.stability import best_jaccard, resample, stability

QUICK = {"trade_off": 0.1, "weight_decay": 0.01, "n_starts": 2, "max_iter": 20, "random_state": 0}


def test_best_jaccard_by_hand():
    classes = np.array([0, 0, 0, 0, 1, 1, 2, 2])
    others = np.array([3, 3, 3, 0, 0, 0, 1, 4])
    # 0: three of {3} out of four; 1: two of the three in {0}; 2 is cut into halves; 3 has no row.
    best = best_jaccard(classes, others, 4, 5)
    np.testing.assert_allclose(best, [3 / 4, 2 / 3, 1 / 2, np.nan])


def test_a_resample_keeps_every_known_class():
    codes = np.array([0, 1, 2, *[-1] * 97])
    random = np.random.RandomState(0)
    for _ in range(20):
        rows = resample(codes, 5, random)
        assert len(rows) == len(set(rows.tolist())) == 80
        assert {0, 1, 2} <= set(rows.tolist())


def test_a_resample_of_many_rows_is_no_larger_than_it_needs_to_be():
    random = np.random.RandomState(0)
    assert len(resample(np.full(100_000, -1), 10, random)) == 20_000
    assert len(resample(np.full(100_000, -1), 1000, random)) == 40_000


@pytest.fixture(scope="module")
def problem():
    """Four known groups and one new one, far apart; and another new one, a cloud, which asks to be cut in two."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(6), 40)
    X = np.eye(6, 10)[truth] + 0.05 * random.randn(240, 10)
    cloud = truth == 5
    X[cloud] += 0.25 * random.randn(40, 10)
    return X, np.where((truth < 4) & (np.arange(240) % 2 == 0), truth, -1), truth


@pytest.mark.parametrize("model", [RPIM(7, **QUICK, beta=0.2), PIM(7, **QUICK), GCD(7, random_state=0)])
def test_a_class_that_always_comes_back_and_halves_that_do_not(model, problem):
    X, y, truth = problem
    model.fit(X, y)
    found = stability(model, X, y, n_resamples=4)
    assert found.shape == (7,)
    np.testing.assert_array_equal(found[:4], 1.0)
    of_group = np.unique(model.labels_[truth == 4])
    assert len(of_group) == 1, "the group is one class"
    assert found[model.classes_ == of_group[0]] == 1.0
    halves = np.isin(model.classes_, model.labels_[truth == 5])
    assert halves.sum() == 2
    assert (found[halves] < 0.9).all()


def test_the_same_seed_gives_the_same_stability_and_the_model_stays_as_it_was(problem):
    X, y, _ = problem
    model = RPIM(7, **QUICK, beta=0.2).fit(X, y)
    before = model.predict_proba(X)
    first, second = (stability(model, X, y, n_resamples=2, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_a_class_without_unlabelled_rows_has_no_stability(problem):
    X, y, truth = problem
    y = np.where(truth == 0, 0, y)  # all of it labelled
    model = GCD(6, random_state=0).fit(X, y)
    assert not (model.labels_[y < 0] == 0).any()
    found = stability(model, X, y, n_resamples=2)
    assert np.isnan(found[0])
    assert not np.isnan(found[1:]).any()


def test_a_repetition_searches_nothing_and_is_short(problem):
    X, y, _ = problem
    model = RPIM(6, **QUICK, beta=0.4, abstain=0.1, verbose=True).fit(X, y)
    short = model.parameters_of_a_repetition()
    assert (short["trade_off"], short["beta"], short["weight_decay"]) == (0.1, 0.4, 0.01)
    assert (short["calibrate"], short["abstain"], short["verbose"]) == (False, 0.0, False)
    assert short["max_iter"] < 100
    assert "beta" not in PIM(6, **QUICK).fit(X, y).parameters_of_a_repetition()
