"""RankStats+: its pieces worked out on paper, and the contract of every method."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from sklearn.base import clone

from rpim import InputError, gcd_accuracy
from rpim.estimators import rankstats
from rpim.estimators.rankstats import (
    RankStats,
    consistency_loss,
    label_loss,
    pair_loss,
    ramp_up,
    shared_top_features,
    telling_count,
)

QUICK = {"n_classes": 6, "n_epochs": 5, "random_state": 0}


@pytest.fixture
def problem(blobs):
    """Six separated groups turned so that no class is a single feature; two without a label, half labels for four."""
    X, truth = blobs([30] * 6, 24)
    turn = torch.linalg.qr(torch.randn(24, 24, generator=torch.Generator().manual_seed(1)))[0]
    truth = truth.numpy()
    y = np.where((truth < 4) & (np.arange(180) % 2 == 0), truth, -1)
    return (X @ turn).numpy(), y, truth


def accuracy(model, y, truth):
    return gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4))


def test_the_largest_features_that_two_rows_share_are_counted():
    rows = torch.tensor(
        [
            [0.9, 0.5, 0.1, 0.0, 0.0],  # {0, 1}
            [0.3, 0.8, 0.0, -0.9, 0.1],  # {1, 0}: another order; the negative one is the smallest
            [0.0, 0.6, 0.2, 0.7, 0.1],  # {3, 1}: one of each
            [0.1, 0.2, 0.0, 0.3, 0.9],  # {4, 3}: none of the first two
        ]
    )
    expected = [[2, 2, 1, 0], [2, 2, 1, 0], [1, 1, 2, 1], [0, 0, 1, 2]]
    assert shared_top_features(rows, n_top=2).int().tolist() == expected


def test_the_count_that_tells_pairs_of_one_class_best():
    """Of one class: pairs 01 (3 shared) and 23 (2); of two: 02 (2), the others 0 or 1.

    From 3 on: 1 of 1 right, F1 = 2 / (1 + 2). From 2 on: 2 of 3, F1 = 4 / (3 + 2), the best. From 1 on: 2 of 4, 4 / 6.
    """
    shared = torch.tensor([[9.0, 3, 2, 1], [3, 9, 0, 0], [2, 0, 9, 2], [1, 0, 2, 9]])
    labels = torch.tensor([0, 0, 1, 1])
    assert telling_count(shared, labels[:, None] == labels) == 2


def test_without_two_labelled_rows_of_a_class_only_the_most_alike_count():
    assert telling_count(torch.tensor([[5.0, 3], [3, 5]]), torch.eye(2, dtype=torch.bool)) == 5


def test_pair_loss_by_hand():
    p = torch.tensor([[0.8, 0.2], [0.3, 0.7]])
    p_other = torch.tensor([[0.6, 0.4], [0.1, 0.9]])
    same = torch.tensor([[True, False], [True, True]])
    # <p_0, p'_0> = 0.56, <p_0, p'_1> = 0.26, <p_1, p'_0> = 0.46, <p_1, p'_1> = 0.66
    expected = -(math.log(0.56) + math.log(1 - 0.26) + math.log(0.46) + math.log(0.66)) / 4
    assert pair_loss(p, p_other, same).item() == pytest.approx(expected, rel=1e-6)


def test_a_pair_that_is_surely_wrong_costs_a_finite_amount():
    sure = torch.tensor([[1.0, 0.0]], requires_grad=True)
    loss = pair_loss(sure, torch.tensor([[1.0, 0.0]]), torch.tensor([[False]]))
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-6), rel=0.01)
    assert sure.grad.isfinite().all()


def test_without_rows_there_is_no_loss():
    none = torch.zeros(0, 3)
    assert pair_loss(none, none, torch.zeros(0, 0, dtype=torch.bool)).item() == 0
    assert label_loss(none, torch.zeros(0, dtype=torch.long)).item() == 0


def test_consistency_loss_by_hand():
    p, p_other = torch.tensor([[0.8, 0.2], [0.5, 0.5]]), torch.tensor([[0.6, 0.4], [0.5, 0.5]])
    assert consistency_loss(p, p_other).item() == pytest.approx((0.04 + 0.04 + 0) / 2, rel=1e-5)


def test_ramp_up_at_start_middle_and_end():
    assert ramp_up(0, 20) == pytest.approx(math.exp(-5))
    assert ramp_up(10, 20) == pytest.approx(math.exp(-1.25))
    assert ramp_up(20, 20) == ramp_up(35, 20) == ramp_up(0, 0) == 1.0


@pytest.mark.parametrize("incremental", [False, True])
def test_each_term_of_the_first_step(incremental, blobs, monkeypatch):
    X, truth = blobs([4, 4, 4], 7, spread=0.3)
    view, _ = blobs([4, 4, 4], 7, spread=0.3, seed=1)
    known = torch.arange(12) < 6  # four rows of class 0, two of class 1; none of class 2
    prototypes = torch.eye(7)[:3] + 0.1
    monkeypatch.setattr(RankStats, "_starts", lambda self, problem, n_classes: [prototypes])
    settings = {"n_top": 2, "n_shared": 1, "n_epochs": 1, "ramp_up_epochs": 1, "consistency_weight": 2.0}
    model = RankStats(3, **settings, incremental=incremental, random_state=0)
    model.fit(X.numpy(), torch.where(known, truth, -1).numpy(), views=[view.numpy()])

    logits = 10 * X @ (prototypes / prototypes.norm(dim=1, keepdim=True)).T
    other = 10 * view @ (prototypes / prototypes.norm(dim=1, keepdim=True)).T
    p, p_other = logits.softmax(dim=1), other.softmax(dim=1)
    top = [set(row.argsort(descending=True)[:2].tolist()) for row in X[~known]]
    same = torch.tensor([[bool(a & b) for b in top] for a in top])
    assert 6 < same.sum() < 36, "neither all pairs nor only rows with themselves"
    agreement = p[~known] @ p_other[~known].T
    among_known = logits[known, :2].log_softmax(dim=1)  # the new class has no part in the labels
    expected = {
        "labels": -float(among_known[torch.arange(6), truth[known]].mean()),
        "pairs": -float(torch.where(same, agreement, 1 - agreement).log().mean()),
        "consistency": 2 * math.exp(-5) * float((p - p_other).square().sum(dim=1).mean()),
    }
    if incremental:  # the labels among all classes, and the first classifier's classes with the weight of the ramp
        surprise = -logits.log_softmax(dim=1)
        own = surprise[known, truth[known]].mean() + math.exp(-5) * surprise[~known].min(dim=1).values.mean()
        expected["incremental"] = float(own)
    assert model.history_[0] == pytest.approx({**expected, "objective": sum(expected.values())}, rel=1e-4)


def test_labels_do_not_push_new_prototypes_away(problem, monkeypatch):
    """All rows labelled, so that labels are all there is to learn from: the prototypes of new classes stay."""
    X, _, truth = problem
    start = torch.stack([torch.from_numpy(X[truth == k].mean(axis=0)) for k in range(6)])
    start = start / start.norm(dim=1, keepdim=True)
    monkeypatch.setattr(RankStats, "_starts", lambda self, problem, n_classes: [start])
    kept = truth < 4
    with pytest.warns(UserWarning, match="nothing to discover"):
        model = RankStats(**QUICK, consistency_weight=0.0).fit(X[kept], truth[kept])
    moved = (model.head_.prototypes - start).norm(dim=1)
    assert moved[4:].max() < 1e-6
    assert moved[:4].min() > 1e-3


def test_whole_rows_are_ranked_by_the_features_of_the_embedding(problem, monkeypatch):
    """Though views lack features, and training is in 8 principal directions: there the same few are always largest."""
    X, y, _ = problem
    ranked = []
    monkeypatch.setattr(
        rankstats, "shared_top_features", lambda rows, n_top: ranked.append(rows) or shared_top_features(rows, n_top)
    )
    model = RankStats(6, n_epochs=1, n_components=8, feature_dropout=0.5, random_state=0).fit(X, y)
    of_labelled, of_batch = ranked
    directions = model.components_.T  # (24, 8)
    projected = X @ directions / np.linalg.norm(X @ directions, axis=1, keepdims=True)
    for rows, kept in ((of_labelled, y >= 0), (of_batch, y < 0)):
        expected = projected[kept] @ directions.T
        assert np.allclose(np.sort(rows.numpy(), axis=0), np.sort(expected, axis=0), atol=1e-5)


@pytest.mark.parametrize("incremental", [False, True])
def test_every_separated_class_is_found(incremental, problem):
    X, y, truth = problem
    model = RankStats(n_classes=6, incremental=incremental, random_state=0).fit(X, y)
    found = accuracy(model, y, truth)
    assert min(found.all, found.known, found.unknown) > 0.98
    assert (model.predict(X)[truth < 4] == truth[truth < 4]).mean() > 0.98
    assert model.known_classes_.tolist() == [0, 1, 2, 3]
    assert model.new_classes_.tolist() == [4, 5]
    assert model.n_iter_ == len(model.history_) == 30


def test_pairs_part_new_classes_that_the_start_confuses(problem, monkeypatch):
    X, y, truth = problem

    def starts(self, problem, n_classes):
        centroids = torch.stack([torch.from_numpy(X[truth == k].mean(axis=0)) for k in range(6)])
        middle = centroids[4:].mean(dim=0) + 0.1 * torch.randn(2, 24, generator=problem.generator)
        return [torch.cat([centroids[:4], middle])]

    monkeypatch.setattr(RankStats, "_starts", starts)
    shared = {"n_classes": 6, "learning_rate": 0.01, "consistency_weight": 0.0, "random_state": 0}
    with_pairs = accuracy(RankStats(**shared).fit(X, y), y, truth).unknown
    monkeypatch.setattr(rankstats, "pair_loss", lambda p, p_other, same: 0.0 * p.sum())
    without = accuracy(RankStats(**shared).fit(X, y), y, truth).unknown
    assert with_pairs > 0.98
    assert without < 0.9


def test_labelled_rows_keep_their_label_even_where_the_model_disagrees(problem):
    X, y, truth = problem
    y = y.copy()
    wrong = np.flatnonzero(truth == 0)[0]
    y[wrong] = 3
    model = RankStats(**QUICK).fit(X, y)
    assert model.predict(X[[wrong]])[0] == 0
    assert model.labels_[wrong] == 3


def test_the_same_random_state_gives_the_same_bits(problem):
    X, y, _ = problem
    first, second, other = (RankStats(**{**QUICK, "random_state": s}).fit(X, y).predict_proba(X) for s in (5, 5, 6))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, other)


@pytest.mark.slow
def test_stored_views_take_the_place_of_dropped_features(problem):
    X, y, _ = problem
    view = X + 0.05 * np.random.RandomState(2).randn(*X.shape)
    fits = [RankStats(**QUICK, feature_dropout=share).fit(X, y, views=[view]) for share in (0.1, 0.5)]
    assert np.array_equal(fits[0].predict_proba(X), fits[1].predict_proba(X)), "nothing is dropped"
    assert fits[0].history_[0]["consistency"] > 0
    assert RankStats(**QUICK).fit(X, y, views=[X]).history_[0]["consistency"] == 0, "a view that is X differs nowhere"


def test_string_labels_come_back_as_strings(problem):
    X, y, truth = problem
    names = np.array(["ant", "bee", "cat", "dog"], dtype=object)
    model = RankStats(**QUICK).fit(X, np.array([names[c] if c >= 0 else "" for c in y], dtype=object))
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog", "new-1", "new-2"]
    assert set(model.labels_[truth == 1]) == {"bee"}
    assert set(model.labels_[truth == 4]) < {"new-1", "new-2"}


@pytest.mark.parametrize("batch_size", [pytest.param(2, marks=pytest.mark.slow), 512])
def test_one_unlabelled_row_and_batches_without_any_or_larger_than_the_data(batch_size, problem):
    X, _, truth = problem
    X, truth = X[truth < 4], truth[truth < 4]
    y = np.where(np.arange(len(X)) == 7, -1, truth)
    model = RankStats(4, n_epochs=2, batch_size=batch_size, random_state=0).fit(X, y)
    assert model.labels_[7] == truth[7]
    assert np.isfinite([list(terms.values()) for terms in model.history_]).all()
    assert np.isfinite(model.predict_proba(X)).all()
    assert model.history_[0]["pairs"] > 0, "the row with itself, in the other view"


def test_more_features_to_share_than_to_rank_is_one_clear_sentence(problem):
    X, y, _ = problem
    with pytest.raises(InputError, match="n_shared=6 is larger than n_top=5; give at most 5"):
        RankStats(**QUICK, n_top=5, n_shared=6).fit(X, y)


@pytest.mark.parametrize(
    ("parameters", "used"),
    [
        ({"n_top": 5, "n_shared": 3}, (5, 3)),
        ({"n_shared": 40}, (12, 12)),  # more than there are: half of the 24
        ({"n_components": 4, "n_shared": 5}, (12, 5)),  # of the features, not of the directions
    ],
)
def test_at_most_half_of_the_features_are_ranked(parameters, used, problem):
    X, y, _ = problem
    model = RankStats(**QUICK, **parameters).fit(X, y)
    assert (model.n_top_, model.n_shared_) == used
    assert np.isfinite(model.predict_proba(X)).all()


def test_labelled_rows_say_how_many_features_a_class_shares(problem):
    """Of separated groups the count is one that parts the labelled rows: mostly reached within a class alone."""
    X, y, _ = problem
    model = RankStats(**QUICK, n_top=8).fit(X, y)
    labelled = torch.from_numpy(X[y >= 0])
    shared = shared_top_features(labelled, 8) >= model.n_shared_
    same = torch.from_numpy(y[y >= 0][:, None] == y[y >= 0])
    assert shared[same].float().mean() > 0.8
    assert shared[~same].float().mean() < 0.2


def test_clone_keeps_every_parameter(problem):
    X, y, _ = problem
    model = RankStats(**QUICK, n_top=4, n_shared=2, consistency_weight=0.5, ramp_up_epochs=3, temperature=20.0)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert np.array_equal(copy.fit(X, y).predict_proba(X), model.fit(X, y).predict_proba(X))


@pytest.mark.slow
def test_check_estimator(check_estimator):
    check_estimator(RankStats(n_epochs=2))
