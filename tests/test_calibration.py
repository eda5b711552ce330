"""Probabilities that mean what they say: the error by hand, the factor where it is known, no class changed by it."""

import numpy as np
import pytest
import torch
from scipy.special import softmax

from rpim import PIM, RPIM, InputError
from rpim.calibration import Fold, HiddenRows, best_factor, calibrate, folds, negative_log_likelihood
from rpim.methods import RIM, TIM
from rpim.metrics import expected_calibration_error

QUICK = {"trade_off": 0.1, "weight_decay": 0.01, "n_starts": 2, "max_iter": 20, "random_state": 0}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_expected_calibration_error_by_hand():
    # Two bins: (0.2 + 0.4) said, 1 right of 2; (0.9 + 0.7 + 0.8) said, 3 right of 3.
    said, right = [0.2, 0.4, 0.9, 0.7, 0.8], [True, False, True, True, True]
    assert expected_calibration_error(said, right, n_bins=2) == pytest.approx((0.4 + 0.6) / 5)
    # In one bin the gaps of both cancel: 3.0 said, 4 right.
    assert expected_calibration_error(said, right, n_bins=1) == pytest.approx(1.0 / 5)
    # A row that counts twice is as good as two.
    assert expected_calibration_error(said, right, 2, weights=[2, 1, 1, 1, 1]) == pytest.approx(
        expected_calibration_error([0.2, *said], [True, *right], 2)
    )
    assert expected_calibration_error([1.0], [True]) == 0.0  # a probability of one has a bin
    with pytest.raises(InputError, match=r"shape \(2,\) and what is right \(1,\)"):
        expected_calibration_error([0.5, 0.5], [True])


def test_negative_log_likelihood_by_hand():
    logits = np.log(np.array([[0.5, 0.5], [0.2, 0.8]]))
    targets = np.array([0, 1])
    assert negative_log_likelihood(logits, targets, np.ones(2), 1.0) == pytest.approx(-np.log(0.5 * 0.8) / 2)
    # Twice the logits square the odds: 0.8 becomes 0.64 / 0.68.
    assert negative_log_likelihood(logits, targets, np.array([0.0, 3.0]), 2.0) == pytest.approx(-np.log(0.64 / 0.68))


@pytest.mark.parametrize("factor", [0.4, 1.0, 2.5])
def test_the_factor_that_made_the_classes_is_found(factor):
    random = np.random.RandomState(0)
    logits = random.randn(20_000, 5)
    cumulative = softmax(factor * logits, axis=1).cumsum(axis=1)
    targets = (random.rand(20_000, 1) > cumulative).sum(axis=1)
    found = best_factor(logits, targets, np.ones(len(targets)))
    assert found == pytest.approx(factor, rel=0.05)
    hidden = HiddenRows(logits, targets, np.zeros(len(targets), dtype=bool))
    result = calibrate([hidden], share_new=0.5)
    assert result.factor == pytest.approx(found)
    assert result.error_after < 0.02
    assert (result.error_before > 3 * result.error_after) == (factor != 1.0)


def test_rows_of_hidden_classes_count_as_often_as_new_classes_have_rows():
    # The only row of a hidden class is wrong, the three others are right: alone, each side wants an extreme.
    logits = np.array([[3.0, 0.0]] * 4)
    hidden = HiddenRows(logits, np.array([0, 0, 0, 1]), np.array([False, False, False, True]))
    for share in (0.2, 0.4):
        # The likelihood is largest where the probability of the first class is the share of right rows.
        expected = np.log((1 - share) / share) / 3.0
        assert calibrate([hidden], share).factor == pytest.approx(max(expected, 0.2), rel=1e-2)


def test_hidden_classes_are_matched_with_what_was_discovered():
    fold = Fold(torch.arange(9), torch.tensor([0, 1]), torch.tensor([0, 1, 2, 2, 2, 3, 3]), n_known=2)
    # The hidden classes 2 and 3 came out as 4 and 2; one row of 2 went to a known class, which cannot be its match.
    predicted = np.array([0, 0, 4, 4, 1, 2, 2])
    assert fold.targets(predicted).tolist() == [0, 1, 4, 4, 4, 2, 2]


def test_folds_hide_rows_and_classes_and_keep_one_of_each():
    labels = torch.repeat_interleave(torch.arange(16), torch.tensor([1, 2, 4, 8] + [16] * 12))
    first, second = folds(labels, seeded())
    for fold in (first, second):
        assert sorted(fold.rows.tolist()) == list(range(len(labels)))
        assert fold.n_known == 12
        n_kept = len(fold.labels)
        kept, hidden = labels[fold.rows[:n_kept]], labels[fold.rows[n_kept:]]
        assert len(kept.unique()) == 12, "a class that stays keeps a row"
        gone = sorted(set(range(16)) - set(kept.tolist()))
        is_new = fold.truth >= 12
        assert sorted(hidden[is_new].unique().tolist()) == gone
        assert not is_new[: int((~is_new).sum())].any(), "rows of hidden classes come last"
        # A code stands for one class, the same among kept and hidden rows.
        pairs = set(zip(fold.labels.tolist() + fold.truth.tolist(), torch.cat([kept, hidden]).tolist(), strict=True))
        assert len(pairs) == 16
        for c in set(range(16)) - set(gone):
            size = int((labels == c).sum())
            assert int((hidden == c).sum()) in {1: (0,), 2: (0, 1)}.get(size, (size // 4,))
    hidden_rows = [set(fold.rows[len(fold.labels) :].tolist()) for fold in (first, second)]
    whole = [set(fold.rows[len(fold.labels) :][fold.truth >= 12].tolist()) for fold in (first, second)]
    assert whole[0].isdisjoint(whole[1]), "no class is hidden twice"
    assert hidden_rows[0] & hidden_rows[1] <= whole[0] | whole[1], "nor is any row for its own sake"


def test_no_class_is_hidden_where_there_is_none_to_discover():
    labels = torch.arange(8).repeat_interleave(20)
    assert all(fold.n_known == 8 for fold in folds(labels, seeded(), hide_classes=False))


@pytest.mark.parametrize("sizes", [[1] * 30, [10, 10], [2, 2, 2, 2]])
def test_too_few_labelled_rows_to_calibrate(sizes):
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    assert folds(labels, seeded(), hide_classes=False) == []


def test_too_few_known_classes_to_hide_some():
    assert folds(torch.arange(15).repeat_interleave(20), seeded()) == []
    assert len(folds(torch.arange(16).repeat_interleave(20), seeded())) == 2


@pytest.fixture(scope="module")
def overlapping():
    """Twenty groups that overlap, the last four without any label."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(20), 30)
    X = np.eye(20, 24)[truth] + 0.3 * random.randn(600, 24)
    return X, np.where((truth < 16) & (np.arange(600) % 2 == 0), truth, -1), truth


@pytest.mark.parametrize("method", [RPIM, PIM, RIM, TIM])
def test_calibration_changes_probabilities_and_no_class(method, overlapping):
    X, y, _ = overlapping
    settings = {**QUICK, "beta": 0.2} if method is RPIM else QUICK
    plain, calibrated = (method(20, **settings, calibrate=c).fit(X, y) for c in (False, True))
    assert torch.equal(plain.head_.prototypes, calibrated.head_.prototypes), "training knows nothing of it"
    assert (plain.calibration_, plain.head_.calibration) == (1.0, 1.0)
    assert calibrated.calibration_ == calibrated.head_.calibration != 1.0
    assert set(calibrated.calibration_error_) == {"before", "after"}
    np.testing.assert_array_equal(plain.labels_, calibrated.labels_)
    np.testing.assert_array_equal(plain.predict(X), calibrated.predict(X))
    np.testing.assert_array_equal(plain.outlier_scores(X), calibrated.outlier_scores(X))
    odds = np.log(plain.predict_proba(X)) * calibrated.calibration_
    np.testing.assert_allclose(calibrated.predict_proba(X), softmax(odds, axis=1), rtol=1e-3, atol=1e-6)


def test_calibration_is_nearer_the_truth(overlapping):
    X, y, truth = overlapping
    model = RPIM(20, **QUICK, beta=0.2).fit(X, y)
    rows = (y < 0) & (truth < 16)  # of known classes, so that no matching is needed
    right = model.labels_[rows] == truth[rows]
    error = expected_calibration_error(model.predict_proba(X)[rows].max(axis=1), right)
    model.head_.calibration = 1.0
    assert error < expected_calibration_error(model.predict_proba(X)[rows].max(axis=1), right)


def test_classes_with_a_single_label_are_left_uncalibrated(overlapping):
    X, y, truth = overlapping
    single = np.full_like(y, -1)
    single[[np.flatnonzero(truth == c)[0] for c in range(16)]] = range(16)
    model = RPIM(20, **QUICK, beta=0.2).fit(X, single)
    assert model.calibration_ == 1.0
    assert model.calibration_error_ == {}
