"""ORCA: each term worked out by hand, then the estimator on separated blobs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch.nn import functional

from rpim import InputError, gcd_accuracy
from rpim.estimators.orca import ORCA, margin_cross_entropy, mean_entropy_loss, pairwise_loss, partners, uncertainty


@pytest.fixture
def problem(blobs):
    """Six separated groups; the last two have no label, the others have half of theirs."""
    X, truth = (part.numpy() for part in blobs([30] * 6, 12, spread=0.15))
    y = np.where((truth < 4) & (np.arange(180) % 2 == 0), truth, -1)
    return X, y, truth


def test_without_a_margin_it_is_the_cross_entropy():
    cosines = torch.tensor([[0.6, 0.2, -0.1], [0.3, 0.5, 0.4]])
    labels = torch.tensor([0, 2])
    expected = functional.cross_entropy(10 * cosines, labels)
    assert torch.allclose(margin_cross_entropy(cosines, labels, margin=0.0, scale=10.0), expected)


def test_the_margin_raises_the_label_alone():
    cosines = torch.tensor([[0.6, 0.5], [0.2, 0.3]], dtype=torch.float64)
    labels = torch.tensor([0, 0])
    # The label leads the other class by 0.1 and by -0.1; a margin of 0.2 makes this 0.3 and 0.1, times 10 as logits.
    expected = (math.log(1 + math.exp(-3)) + math.log(1 + math.exp(-1))) / 2
    assert margin_cross_entropy(cosines, labels, margin=0.2, scale=10.0).item() == pytest.approx(expected)


def test_the_margin_shrinks_as_rows_get_sure():
    unsure = torch.tensor([[0.5, 0.5], [0.7, 0.3]])
    sure = torch.tensor([[0.9, 0.1], [0.2, 0.8]])
    assert uncertainty(unsure).tolist() == pytest.approx([0.5, 0.3])
    assert uncertainty(sure).tolist() == pytest.approx([0.1, 0.2])
    cosines, labels = torch.tensor([[0.4, 0.3]]), torch.tensor([0])
    early, late = (
        margin_cross_entropy(cosines, labels, uncertainty(p).mean().item(), 10.0).item() for p in (unsure, sure)
    )
    assert early == pytest.approx(math.log(1 + math.exp(-5)), rel=1e-4)  # 0.1 + 0.4
    assert late == pytest.approx(math.log(1 + math.exp(-2.5)), rel=1e-4)  # 0.1 + 0.15


def test_a_batch_without_labelled_rows_has_no_supervised_loss():
    cosines = torch.zeros(0, 3, requires_grad=True)
    loss = margin_cross_entropy(cosines, torch.zeros(0, dtype=torch.long), 0.1, 10.0)
    loss.backward()
    assert loss.item() == 0


def test_partners_of_five_rows():
    angles = torch.deg2rad(torch.tensor([0.0, 90.0, 180.0, 170.0, 140.0]))
    rows = torch.stack([angles.cos(), angles.sin()], dim=1)
    labels = torch.tensor([0, 0, 1, -1, -1])
    # Rows 0 and 1 share a class, far apart as they are; row 2 is alone in its own, near as row 3 is; row 3 has the
    # labelled row 2 at 10 degrees; row 4 has the unlabelled row 3 at 30, row 2 at 40 and row 1 at 50.
    assert partners(rows, labels).tolist() == [1, 0, 2, 2, 3]


def test_labelled_partners_go_round_their_class():
    assert partners(torch.eye(5), torch.tensor([0, 1, 0, 1, 0])).tolist() == [2, 3, 4, 1, 0]


def test_an_unlabelled_row_is_not_its_own_partner_even_when_the_others_are_opposite():
    assert partners(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([-1, -1])).tolist() == [1, 0]


def test_pairwise_loss_by_hand():
    p = torch.tensor([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]], dtype=torch.float64)
    p_partner = torch.tensor([[0.6, 0.2, 0.2], [0.0, 0.5, 0.5]], dtype=torch.float64)
    expected = -(math.log(0.5 * 0.6 + 0.5 * 0.2) + math.log(0.2 * 0.5 + 0.7 * 0.5)) / 2
    assert pairwise_loss(p, p_partner).item() == pytest.approx(expected)


def test_pairs_without_a_common_class_have_a_finite_loss_and_gradient():
    p = torch.tensor([[1.0, 0.0]], requires_grad=True)
    loss = pairwise_loss(p, torch.tensor([[0.0, 1.0]]))
    loss.backward()
    assert 80 < loss.item() < math.inf
    assert torch.isfinite(p.grad).all()


def test_mean_entropy_by_hand():
    p = torch.tensor([[0.8, 0.2, 0.0], [0.2, 0.3, 0.5]], dtype=torch.float64)  # mean 0.5, 0.25, 0.25
    assert mean_entropy_loss(p).item() == pytest.approx(-1.5 * math.log(2))
    assert mean_entropy_loss(torch.eye(4)).item() == pytest.approx(-math.log(4))  # as low as it gets: all used alike
    assert mean_entropy_loss(torch.eye(4)[[0, 0]]).item() == 0  # no NaN where a class is never used


def test_the_terms_of_the_first_epoch_by_hand(blobs):
    """A learning rate too small to move anything leaves the head at its start, from which all terms follow."""
    X, truth = (part.numpy() for part in blobs([8] * 4, 6, spread=0.3))
    y = np.where((truth < 3) & (np.arange(32) % 8 < 2), truth, -1)  # pairs: a labelled row has one possible partner
    model = ORCA(
        4,
        margin_weight=0.5,
        pairwise_weight=2.0,
        entropy_weight=3.0,
        temperature=5.0,
        feature_dropout=0.0,
        learning_rate=1e-12,
        n_epochs=1,
        random_state=0,
    ).fit(X, y)
    p = model.predict_proba(X)
    u = np.mean(1 - p[y < 0].max(axis=1))
    assert model.uncertainty_ == pytest.approx([u], rel=1e-4)

    logits = 5 * X[y >= 0] @ model.head_.prototypes.numpy().T
    own = np.arange(6), y[y >= 0]
    logits[own] += 5 * 0.5 * u
    supervised = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[own])

    similar = X @ X.T - 10 * np.eye(32)
    similar += 100 * ((y[:, None] == y) & (y >= 0) & ~np.eye(32, dtype=bool))
    pairwise = -np.log((p * p[similar.argmax(axis=1)]).sum(axis=1)).mean()

    entropy = (p.mean(axis=0) * np.log(p.mean(axis=0))).sum()
    expected = {"supervised": supervised, "pairwise": 2 * pairwise, "entropy": 3 * entropy}
    expected["objective"] = sum(expected.values())
    assert model.history_ == [pytest.approx(expected, rel=1e-4)]


def test_finds_every_class_of_separated_blobs(problem):
    X, y, truth = problem
    model = ORCA(6, random_state=0).fit(X, y)
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4)).all > 0.98
    assert model.known_classes_.tolist() == [0, 1, 2, 3]
    assert model.new_classes_.tolist() == [4, 5]
    assert model.n_iter_ == len(model.history_) == len(model.uncertainty_) == 30


def test_training_lowers_the_objective_and_the_uncertainty(problem):
    X, y, _ = problem
    model = ORCA(6, temperature=5.0, feature_dropout=0.0, n_epochs=20, random_state=0).fit(X, y)  # no noise
    assert np.all(np.diff([epoch["objective"] for epoch in model.history_]) < 0)
    assert np.all(np.diff(model.uncertainty_) < 0)
    after = np.mean(1 - model.predict_proba(X[y < 0]).max(axis=1))
    assert 0.8 * model.uncertainty_[-1] < after < model.uncertainty_[-1]


def test_labelled_rows_keep_their_label_even_where_the_model_disagrees(problem):
    X, y, truth = problem
    y = y.copy()
    wrong = np.flatnonzero(truth == 0)[0]
    y[wrong] = 3
    model = ORCA(6, n_epochs=5, random_state=0).fit(X, y)  # too short to learn this label by heart
    assert model.predict(X[[wrong]])[0] == 0
    assert np.array_equal(model.labels_[y >= 0], y[y >= 0])


def test_the_same_random_state_gives_the_same_bits(problem):
    X, y, _ = problem
    first, second, other = (
        ORCA(6, batch_size=64, n_epochs=5, random_state=seed).fit(X, y).predict_proba(X) for seed in (5, 5, 6)
    )
    assert np.array_equal(first, second)
    assert not np.array_equal(np.sort(first, axis=None), np.sort(other, axis=None))


def test_stored_views_take_the_place_of_dropped_features(problem):
    X, y, _ = problem
    near = X + np.float32(0.02)

    def fit(dropout, views):
        return ORCA(6, feature_dropout=dropout, n_epochs=5, random_state=0).fit(X, y, views=views)

    dropped, dropped_more = (fit(dropout, []).predict_proba(X) for dropout in (0.1, 0.5))
    stored, stored_more = (fit(dropout, [near]).predict_proba(X) for dropout in (0.1, 0.5))
    assert not np.array_equal(dropped, dropped_more)
    assert np.array_equal(stored, stored_more)
    # A view that shows every item as one of the next class makes pairs that do not agree.
    assert fit(0.1, [np.roll(X, 30, axis=0)]).history_[0]["pairwise"] > 2 + fit(0.1, [near]).history_[0]["pairwise"]


def test_string_labels_come_back_as_strings(problem):
    X, y, truth = problem
    names = np.array(["ant", "bee", "cat", "dog", ""], dtype=object)
    model = ORCA(6, n_epochs=5, random_state=0).fit(X, names[y])
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog", "new-1", "new-2"]
    assert set(model.labels_[truth == 1]) == {"bee"}
    assert {*model.predict(X[truth == 4]), *model.predict(X[truth == 5])} == {"new-1", "new-2"}


def test_one_unlabelled_row(problem):
    X, _, truth = problem
    y = truth.copy()
    y[7] = -1
    model = ORCA(6, n_epochs=3, random_state=0).fit(X, y)
    assert np.array_equal(model.labels_, truth)


def test_without_unlabelled_rows_there_is_no_margin(problem):
    X, _, truth = problem
    with pytest.warns(UserWarning, match="nothing to discover"):
        model = ORCA(6, n_epochs=2, random_state=0).fit(X, truth)
    assert model.uncertainty_ == [0.0, 0.0]
    assert np.array_equal(model.predict(X), truth)


@pytest.mark.parametrize("batch_size", [pytest.param(2, marks=pytest.mark.slow), 7, 10_000])
def test_any_size_of_batch(batch_size, problem):
    X, y, truth = problem  # batches of two are often without a labelled row, and pair rows of two classes: small steps
    model = ORCA(6, batch_size=batch_size, n_epochs=2, learning_rate=1e-3, random_state=0).fit(X, y)
    assert np.isfinite([list(epoch.values()) for epoch in model.history_]).all()
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4)).all > 0.98


def test_clone_keeps_every_parameter_and_fits_the_same(problem):
    X, y, _ = problem
    parameters = {
        "n_classes": 6,
        "margin_weight": 0.5,
        "pairwise_weight": 0.6,
        "entropy_weight": 0.7,
        "n_epochs": 2,
        "batch_size": 50,
        "learning_rate": 0.01,
        "weight_decay": 0.02,
        "feature_dropout": 0.03,
        "temperature": 8.0,
        "n_components": 8,
        "normalize": False,
        "device": "cpu",
        "random_state": 3,
        "verbose": 0,
    }
    model = ORCA(**parameters)
    copy = clone(model)
    assert copy is not model
    assert copy.get_params() == parameters
    assert np.array_equal(copy.fit(X, y).predict_proba(X), model.fit(X, y).predict_proba(X))
    assert model.transform(X[:3]).shape == (3, 8)


@pytest.mark.parametrize("name", ["margin_weight", "pairwise_weight", "entropy_weight"])
def test_negative_weights_are_refused(name, problem):
    X, y, _ = problem
    with pytest.raises(ValueError, match=f"'{name}' parameter of ORCA"):
        ORCA(6, **{name: -1.0}).fit(X, y)


def test_a_view_of_another_shape_is_refused(problem):
    X, y, _ = problem
    with pytest.raises(InputError, match=r"View 2 has shape \(179, 12\)"):
        ORCA(6).fit(X, y, views=[X[1:]])


@pytest.mark.slow
def test_check_estimator(check_estimator):
    check_estimator(ORCA(n_epochs=10))
