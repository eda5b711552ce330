"""UNO+: its targets worked out on paper, and the estimator on separated groups."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone

from rpim import gcd_accuracy
from rpim.estimators.uno import UNO, balanced_assignment, class_factors, swapped_targets

QUICK = {"n_classes": 6, "n_heads": 2, "n_epochs": 3, "batch_size": 64, "random_state": 0}


@pytest.fixture
def problem(blobs):
    """Six separated groups, shuffled; the last two have no label, the others have half of theirs."""
    x, truth = blobs([30] * 6, 12, spread=0.1)
    order = np.random.RandomState(0).permutation(180)
    X, truth = x.numpy()[order], truth.numpy()[order]
    return X, np.where((truth < 4) & (np.arange(180) % 2 == 0), truth, -1), truth


@pytest.fixture
def planted(monkeypatch):
    """Replaces the k-means starts by some that the test knows; the test sees which sizes were asked for."""
    asked = []

    def plant(*heads):
        def starts(self, problem, n_classes):
            asked.extend(n_classes)
            return [heads[k % len(heads)].clone() for k in range(len(n_classes))]

        monkeypatch.setattr(UNO, "_starts", starts)
        return asked

    return plant


def cosines_with_odds(*odds, epsilon):
    """Two classes, of which the first is so many times as likely as the second at that epsilon."""
    return torch.tensor([[epsilon * math.log(ratio), 0.0] for ratio in odds])


def test_each_view_is_to_predict_its_label_or_the_assignment_of_the_other_view():
    """Odds r become 3 r where class 0 has three times the factor of class 1, so 3 r / (1 + 3 r) and the rest."""
    first = cosines_with_odds(3, 1 / 3, 1e6, 1e6, epsilon=0.05)
    second = cosines_with_odds(1, 1 / 9, 1e6, 1e6, epsilon=0.05)
    labels = torch.tensor([-1, -1, 1, 0])
    for_first, for_second = swapped_targets(first, second, labels, torch.tensor([6.0, 2.0]), epsilon=0.05)
    torch.testing.assert_close(for_first, torch.tensor([[0.75, 0.25], [0.25, 0.75], [0.0, 1.0], [1.0, 0.0]]))
    torch.testing.assert_close(for_second, torch.tensor([[0.9, 0.1], [0.5, 0.5], [0.0, 1.0], [1.0, 0.0]]))


def test_the_factors_give_the_classes_equal_mass():
    """Odds 16 and 1: both rows keep the ratio 16 of their odds, and with equal mass these are 4 and 1/4."""
    cosines = cosines_with_odds(16, 1, epsilon=0.2)
    factors = class_factors(cosines, 0.2, iterations=50)
    assert float(factors[1] / factors[0]) == pytest.approx(4.0, rel=1e-4)
    torch.testing.assert_close(balanced_assignment(cosines, factors, 0.2), torch.tensor([[0.8, 0.2], [0.2, 0.8]]))
    after_three = balanced_assignment(cosines, class_factors(cosines, 0.2), 0.2)
    torch.testing.assert_close(after_three, torch.tensor([[0.8, 0.2], [0.2, 0.8]]), atol=0.02, rtol=0.0)


def test_a_batch_of_one_class_stays_in_it():
    """The balance is that of all rows: rows of a batch are not spread over classes that happen to be missing in it."""
    everything = cosines_with_odds(100, 100, 1 / 100, 1 / 100, epsilon=0.05)
    factors = class_factors(everything, 0.05)
    in_batch = balanced_assignment(everything[:2], factors, 0.05)
    torch.testing.assert_close(in_batch[:, 0], torch.full((2,), 100 / 101))


def test_a_hard_assignment_of_far_cosines_stays_finite():
    cosines = torch.tensor([[1.0, -1.0, -1.0], [1.0, -1.0, -1.0], [-1.0, 1.0, -1.0]])
    factors = class_factors(cosines, 0.001)
    assigned = balanced_assignment(cosines, factors, 0.001)
    torch.testing.assert_close(assigned.sum(dim=1), torch.ones(3))
    assert assigned.argmax(dim=1).tolist() == [0, 0, 1]


def test_targets_are_constants():
    cosines = cosines_with_odds(3, 2, 5, epsilon=0.05).requires_grad_()
    labels = torch.tensor([-1, -1, 0])
    targets = swapped_targets(cosines, 2.0 * cosines, labels, torch.ones(2), epsilon=0.05)
    assert not any(target.requires_grad for target in targets)


@pytest.mark.slow
def test_finds_the_separated_groups_by_default(problem):
    X, y, truth = problem
    model = UNO(n_classes=6, random_state=0).fit(X, y)
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4)).all == 1.0
    assert model.known_classes_.tolist() == [0, 1, 2, 3]
    assert model.new_classes_.tolist() == [4, 5]
    assert model.n_iter_ == len(model.history_) == 30


def test_the_objective_is_the_sum_of_the_heads_and_falls(problem):
    """Without dropped features: which ones are dropped changes the loss more than an epoch of training does."""
    X, y, _ = problem
    history = UNO(**{**QUICK, "n_epochs": 15}, feature_dropout=0.0, learning_rate=1e-2).fit(X, y).history_
    heads = ["head_0", "head_1", "overclustering_0", "overclustering_1"]
    for epoch in history:
        assert epoch["objective"] == pytest.approx(sum(epoch[name] for name in heads))
    assert history[-1]["objective"] < 0.9 * history[0]["objective"]


@pytest.mark.slow
def test_training_moves_wrong_prototypes_to_the_groups(problem, planted):
    """The new prototypes start half-way to each other and known ones, where they confuse the groups."""
    X, y, truth = problem
    start = torch.eye(6, 12)
    start[4] = torch.tensor([1.0, 1.0, 0.0, 0.0, 0.9, 0.8] + [0.0] * 6)
    start[5] = torch.tensor([0.0, 0.0, 1.0, 1.0, 0.8, 0.9] + [0.0] * 6)
    planted(start)
    before, after = (UNO(6, random_state=0, learning_rate=rate).fit(X, y) for rate in (1e-12, 1e-2))
    of_new = truth >= 4
    assert (before.labels_ == truth)[of_new].mean() < 0.8
    assert (after.labels_ == truth)[of_new].mean() > 0.95


@pytest.mark.parametrize("good", [0, 1])
def test_the_head_with_the_lowest_loss_predicts(good, problem, planted):
    X, y, truth = problem
    heads = [torch.eye(6, 12), torch.eye(6, 12)]
    heads[1 - good][5] = heads[1 - good][0]  # two prototypes for class 0, none for class 5
    planted(*heads)
    model = UNO(**QUICK, learning_rate=1e-6).fit(X, y)
    assert model.best_head_ == good
    np.testing.assert_allclose(model.head_.prototypes, torch.eye(6, 12), atol=1e-3)
    assert (model.labels_ == truth).all()


def test_overclustering_heads_have_more_clusters_but_never_more_than_rows(problem, planted):
    X, y, _ = problem
    asked = planted(torch.eye(6, 12))
    UNO(**QUICK).fit(X, y)
    UNO(**{**QUICK, "n_heads": 1}, overclustering=100).fit(X, y)
    assert asked == [6, 6, 18, 18, 6, 180]


def test_overclustering_heads_do_not_see_labelled_rows(planted):
    """Rows on their prototypes, with labels: -log(e / (e + 5)) for either head of six classes, a fourth of the loss."""
    planted(torch.eye(6))
    model = UNO(6, n_heads=2, n_epochs=1, feature_dropout=0.0, temperature=1.0, random_state=0)
    with pytest.warns(UserWarning, match="nothing to discover"):
        model.fit(np.eye(6).repeat(5, axis=0), np.arange(6).repeat(5))
    share = pytest.approx(math.log(1.0 + 5.0 / math.e) / 4, rel=1e-5)
    names = ["head_0", "head_1", "overclustering_0", "overclustering_1"]
    assert [model.history_[0][name] for name in names] == [share, share, 0.0, 0.0]


def test_labelled_rows_keep_their_label_even_where_the_model_disagrees(problem):
    X, y, truth = problem
    wrong = np.flatnonzero((truth == 0) & (y == 0))[0]
    y[wrong] = 3
    model = UNO(**QUICK).fit(X, y)
    assert model.predict(X[[wrong]])[0] == 0
    assert model.labels_[wrong] == 3


def test_the_same_random_state_gives_the_same_bits(problem):
    X, y, _ = problem
    first, second = (UNO(**QUICK).fit(X, y).predict_proba(X) for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, UNO(**{**QUICK, "random_state": 1}).fit(X, y).predict_proba(X))


@pytest.mark.slow
def test_stored_views_take_the_place_of_dropped_features(problem):
    X, y, _ = problem
    noisy = X + 0.1 * np.random.RandomState(1).randn(*X.shape).astype(np.float32)

    def fitted(dropout, *views):
        return UNO(**QUICK, feature_dropout=dropout).fit(X, y, views=views).predict_proba(X)

    assert not np.array_equal(fitted(0.0), fitted(0.5))
    assert np.array_equal(fitted(0.0, noisy), fitted(0.5, noisy)), "features are dropped from stored views"
    assert not np.array_equal(fitted(0.0, noisy), fitted(0.0, X)), "the stored view is not looked at"


def test_string_labels_come_back_as_strings(problem):
    X, y, truth = problem
    names = np.array(["ant", "bee", "cat", "dog"], dtype=object)
    model = UNO(**QUICK).fit(X, np.array([names[c] if c >= 0 else None for c in y], dtype=object))
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog", "new-1", "new-2"]
    assert set(model.labels_[truth == 1]) == {"bee"}
    assert {len(set(model.predict(X[truth == c]))) for c in (4, 5)} == {1}


# Two: most batches then have no unlabelled row.
@pytest.mark.parametrize("batch_size", [pytest.param(2, marks=pytest.mark.slow), 64, 10_000])
def test_one_unlabelled_row_and_batches_of_any_size(batch_size, problem):
    X, _, truth = problem
    y = np.where(truth < 5, truth, 0)
    y[np.flatnonzero(truth == 5)[0]] = -1
    model = UNO(**{**QUICK, "n_epochs": 1, "batch_size": batch_size}).fit(X, y)
    assert np.isfinite([list(epoch.values()) for epoch in model.history_]).all()
    assert np.isfinite(model.predict_proba(X)).all()
    assert model.history_[0]["overclustering_0"] > 0.0, "the unlabelled row is learned from"


def test_clone_has_the_same_parameters_and_gives_the_same_bits(problem):
    X, y, _ = problem
    model = UNO(**QUICK, overclustering=2, sinkhorn_epsilon=0.1, temperature=5.0).fit(X, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "head_")
    assert np.array_equal(copy.fit(X, y).predict_proba(X), model.predict_proba(X))


@pytest.mark.parametrize("name", ["n_heads", "overclustering", "sinkhorn_epsilon"])
def test_a_parameter_of_zero_is_refused_by_name(name, problem):
    X, y, _ = problem
    with pytest.raises(ValueError, match=f"The '{name}' parameter of UNO must be"):
        UNO(**{**QUICK, name: 0}).fit(X, y)


@pytest.mark.slow
def test_check_estimator(check_estimator):
    check_estimator(UNO(n_heads=1, n_epochs=2, random_state=0))
