"""UMAP with HDBSCAN, label spreading and self-training: what each decides, on rows worked out by hand."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from rpim import Discovery, FeatureSet, InputError, gcd_accuracy
from rpim._common.progress import Progress
from rpim.estimators import UMAPHDBSCAN, SelfTraining, SpreadLabels
from rpim.estimators.nearest_centroid import cluster_into_new
from rpim.estimators.problem import Problem
from rpim.estimators.semi_supervised import choose_threshold, distances_to_labelled, parting_threshold
from rpim.estimators.umap_hdbscan import Cut, cuts_towards, without_noise

needs_umap = pytest.mark.skipif(find_spec("umap") is None, reason="umap-learn, of the extra maps, is not installed")
EVERY = pytest.mark.parametrize(
    "method",
    [
        SelfTraining,
        SpreadLabels,
        pytest.param(UMAPHDBSCAN, marks=[needs_umap, pytest.mark.slow]),  # umap-learn compiles for most of the time
    ],
)


def groups(n_groups=6, n_each=30, n_known=4):
    """Separated groups; every second row of the first ones has its label."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(n_groups), n_each)
    X = np.eye(n_groups, 12)[truth] + 0.1 * random.randn(len(truth), 12)
    return X, np.where((truth < n_known) & (np.arange(len(truth)) % 2 == 0), truth, -1), truth


def problem_of(rows, labels, n_classes):
    x = torch.tensor(rows, dtype=torch.float32)[:, None]
    generator = torch.Generator().manual_seed(0)
    return Problem(x, torch.tensor(labels), max(labels) + 1, n_classes, generator, Progress())


# The parts, by hand.


def test_strange_rows_become_the_new_classes():
    problem = problem_of([0.0, 1.0, 0.5, 8.0, 8.1, 20.0], labels=[0, 1], n_classes=4)
    away = torch.tensor([0.5, 7.0, 7.1, 19.0])
    rows, classes = cluster_into_new(problem, away, away > 1.0, n_init=3, max_iter=10)
    assert rows.tolist() == [1, 2, 3]  # among the unlabelled ones
    assert classes[0] == classes[1] != classes[2]
    assert sorted(set(classes.tolist())) == [2, 3]


def test_with_fewer_strange_rows_than_new_classes_the_strangest_are_taken():
    problem = problem_of([0.0, 1.0, 0.5, 8.0, 8.1, 20.0], labels=[0, 1], n_classes=4)
    away = torch.tensor([0.5, 7.0, 7.1, 19.0])
    rows, classes = cluster_into_new(problem, away, away > 10.0, n_init=3, max_iter=10)
    assert sorted(rows.tolist()) == [2, 3]
    assert sorted(classes.tolist()) == [2, 3]


def test_without_new_classes_no_row_becomes_one():
    problem = problem_of([0.0, 1.0, 9.0], labels=[0, 1], n_classes=2)
    rows, classes = cluster_into_new(problem, torch.tensor([8.0]), torch.tensor([True]), n_init=1, max_iter=5)
    assert len(rows) == len(classes) == 0


def test_the_limit_of_far_is_a_share_of_the_labelled_rows():
    labelled = np.arange(11.0)[:, None] ** 2  # gaps 1, 3, ... 19; the nearest of row k is row k - 1, of row 0 row 1
    away, limit = distances_to_labelled(labelled, np.array([[103.0], [12.0]]), known_share=0.5)
    assert away.tolist() == [3.0, 3.0]
    assert limit == np.median([1, 1, 3, 5, 7, 9, 11, 13, 15, 17, 19])


def test_the_threshold_parts_known_from_hidden_classes_best():
    confidence = np.array([0.2, 0.3, 0.6, 0.65, 0.7, 0.8, 0.95])
    known = np.array([False, False, True, True, False, True, True])
    assert parting_threshold(known, confidence) == 0.3  # 4/4 - 1/3; at 0.7 it is 2/4 - 0
    assert parting_threshold(~known, confidence) == 0.65  # 1/3 - 2/4: the least harm that a threshold can do
    assert parting_threshold(known, np.full(7, 0.4)) == 0.75, "nothing to part by: scikit-learn's"


def test_a_threshold_for_classes_that_are_told_apart_lies_between_sure_and_unsure():
    X, y, _ = groups(8, 30, 8)
    x, labels = torch.tensor(X[y >= 0], dtype=torch.float32), torch.tensor(y[y >= 0])
    strength, threshold = choose_threshold(x, labels, 0.5, torch.Generator().manual_seed(0))
    assert strength >= 10
    assert 0.5 < threshold < 1.0
    assert choose_threshold(x[labels < 3], labels[labels < 3], 0.5, torch.Generator()) == (10.0, 0.75), "three classes"


def test_clusters_get_the_class_of_most_of_their_labels():
    #                    labelled            | unlabelled
    clusters = np.array([0, 0, 0, 2, 2, -1, 1, 1, 2, 3, 3, 0])
    labels = np.array([1, 1, 0, 1, 1, 0])  # the noise row has no vote
    cut = Cut.named(2, clusters, labels, n_known=2)
    assert cut.names.tolist() == [1, 2, 1, 3]  # two clusters are class 1, two are new
    assert cut.n_classes == 4
    assert cut.n_noise == 1


def test_noise_goes_to_the_nearest_cluster_row_by_row():
    on_map = np.array([[0.0], [9.0], [10.0], [6.0]])  # 6 is nearer to 9 than to 0, and to no centre else
    assert without_noise(on_map, np.array([0, 1, 1, -1])).tolist() == [0, 1, 1, 1]


@pytest.mark.parametrize(
    ("wanted", "sizes"), [(20, [52, 28, 16, 10, 7, 5]), (4, [52, 28, 16, 22]), (1, [52]), (30, [52, 28, 16, 10, 7, 5])]
)
def test_the_size_of_clusters_is_sought_by_bisection(wanted, sizes):
    def cut(size):
        return Cut(size, np.zeros(9, dtype=int), np.zeros(1, dtype=int), 100 // size)

    assert [tried.size for tried in cuts_towards(wanted, cut, largest=100)] == sizes


def test_a_size_that_leaves_nothing_but_noise_is_too_large():
    def cut(size):  # from 20 on no clusters, so the two known classes alone
        return Cut(size, np.full(9, -1 if size >= 20 else 0), np.zeros(1, dtype=int), 2)

    assert [tried.size for tried in cuts_towards(2, cut, largest=100)] == [52, 28, 16]


# The methods.


def test_labels_spread_along_a_curve_where_the_nearest_mean_is_wrong():
    """Two half circles that reach into each other, every tenth row labelled."""
    angle = np.linspace(0, np.pi, 100)
    X = np.r_[np.c_[np.cos(angle), np.sin(angle)], np.c_[1 - np.cos(angle), 0.5 - np.sin(angle)]]
    truth = np.repeat([0, 1], 100)
    y = np.where(np.arange(200) % 10 == 0, truth, -1)
    model = SpreadLabels(n_classes=2, normalize=False).fit(X, y)
    assert (model.labels_ == truth).all()
    assert (model.predict(X) == truth).mean() < 0.95, "new rows go to the nearest class mean"


def test_a_part_of_the_graph_without_a_seed_takes_the_class_of_the_nearest_one():
    X = np.r_[np.linspace(0, 1, 5), np.linspace(10, 11, 5), np.linspace(30, 31, 5)][:, None]
    y = np.full(15, -1)
    y[[0, 5]] = [0, 1]
    model = SpreadLabels(n_classes=2, n_neighbors=3, normalize=False).fit(X, y)
    assert model.labels_.tolist() == [0] * 5 + [1] * 10


def test_self_training_reaches_rows_that_the_labels_alone_do_not():
    """Two classes along a half circle, labelled at its ends: what lies between is sure once its neighbors are."""
    angle = np.radians(np.r_[0:86:2, 96:182:2])
    X = np.c_[np.cos(angle), np.sin(angle)]
    truth = (angle > np.pi / 2).astype(int)
    y = np.where(np.abs(X[:, 0]) > np.cos(np.radians(21)), truth, -1)
    once, often = (SelfTraining(n_classes=2, n_rounds=n, random_state=0).fit(X, y) for n in (1, 10))
    assert once.history_[0]["threshold"] == 0.75, "two classes cannot be divided to find another"
    assert (once.n_iter_, often.n_iter_ > 2) == (1, True)
    assert often.history_[0]["rejected"] < once.history_[0]["rejected"]
    assert (often.labels_ == truth).all()


def test_what_self_training_rejects_gets_a_known_class_if_there_is_no_new_one():
    X, y, _ = groups()
    model = SelfTraining(n_classes=4, random_state=0).fit(X, y)
    assert model.history_[0]["rejected"] >= 50  # the sixty rows of two foreign groups, mostly
    assert set(model.labels_) == {0, 1, 2, 3}


def test_without_umap_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)  # as if it were not there
    X, y, _ = groups()
    with pytest.raises(InputError, match=r"needs umap-learn, which is not installed: pip install 'rpim\[maps\]'"):
        UMAPHDBSCAN(n_classes=6).fit(X, y)


@needs_umap
@pytest.mark.slow
def test_umap_hdbscan_finds_its_own_number_of_classes_if_none_is_given_and_says_so_if_it_cannot_reach_it():
    X, y, truth = groups()
    own = UMAPHDBSCAN(random_state=0).fit(X, y)
    assert own.n_classes_ == 6
    assert gcd_accuracy(truth[y < 0], own.labels_[y < 0], known=range(4)).all == 1.0
    with pytest.warns(UserWarning, match=r"HDBSCAN found \d+ classes and not n_classes=40"):
        far = UMAPHDBSCAN(n_classes=40, random_state=0).fit(X, y)
    assert far.n_classes_ == len(far.classes_) == len(far.head_.prototypes) < 40
    assert far.predict_proba(X).shape == (180, far.n_classes_)


@EVERY
def test_the_same_random_state_gives_the_same_bits(method):
    X, y, _ = groups()
    first, second = (method(n_classes=6, random_state=3).fit(X, y) for _ in range(2))
    assert (first.labels_ == second.labels_).all()
    assert first.predict_proba(X).tobytes() == second.predict_proba(X).tobytes()
    assert first.history_ == second.history_


@EVERY
def test_one_new_class_and_none(method):
    X, y, truth = groups(5)
    model = method(n_classes=5, random_state=0).fit(X, y)
    assert model.new_classes_.tolist() == [4]
    assert (model.labels_[truth == 4] == 4).all()
    only_known = truth < 4
    model = method(n_classes=4, random_state=0).fit(X[only_known], y[only_known])
    assert (model.labels_ == truth[only_known]).all()


@EVERY
@pytest.mark.filterwarnings("ignore:HDBSCAN found")
@pytest.mark.parametrize(
    ("X", "y", "n_classes"),
    [
        (np.eye(5), [0, 1, -1, -1, -1], 4),  # fewer rows than neighbors
        (np.eye(3), [0, 1, -1], 3),
        (np.eye(3)[[0, 1] * 20], [0, 1] * 5 + [-1] * 30, 5),  # more classes than different rows
        (np.repeat(np.eye(4), 20, axis=0), ([0] * 10 + [-1] * 10) + ([1] * 10 + [-1] * 10) + [-1] * 40, 4),
    ],
    ids=["five rows", "three rows", "two rows twenty times", "four rows twenty times"],
)
@pytest.mark.filterwarnings("ignore:Only 2 of 40 rows are different", "ignore:. of 5 classes ended without a row")
def test_small_and_duplicated_rows(method, X, y, n_classes):
    y = np.array(y)
    model = method(n_classes=n_classes, random_state=0).fit(X, y)
    assert (model.labels_[y >= 0] == y[y >= 0]).all()
    assert set(model.labels_) <= set(model.classes_)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-5)


@EVERY
@pytest.mark.parametrize("X", [np.ones((40, 3)), np.zeros((40, 3)), np.arange(1, 41)[:, None] * np.ones(3)])
@pytest.mark.parametrize("n_classes", [5, None])
def test_rows_that_are_all_the_same_are_refused(method, X, n_classes):
    with pytest.raises(InputError, match="All 40 rows are the same, so no class can be told from another"):
        method(n_classes=n_classes).fit(X, [0, 1] * 5 + [-1] * 30)


@EVERY
@pytest.mark.filterwarnings("ignore:HDBSCAN found", "ignore:. of 5 classes ended without a row")
def test_fewer_different_rows_than_classes_are_a_warning(method):
    with pytest.warns(UserWarning, match=r"Only 2 of 40 rows are different, fewer than there are classes \(5\)"):
        method(n_classes=5, random_state=0).fit(np.eye(3)[[0, 1] * 20], [0, 1] * 5 + [-1] * 30)


@EVERY
@pytest.mark.filterwarnings("ignore:2 of 5 classes ended without a row")
def test_a_class_without_a_row_is_never_predicted(method):
    X, _, truth = groups(3)
    with pytest.warns(UserWarning, match="nothing to discover"):
        model = method(n_classes=5).fit(X, truth)
    assert model.classes_.tolist() == [0, 1, 2, 3, 4]
    assert set(model.predict(X)) == {0, 1, 2}
    assert (model.predict_proba(X)[:, 3:] == 0).all()


@EVERY
def test_a_saved_run_comes_back(method, tmp_path):
    X, y, _ = groups()
    features = FeatureSet.from_arrays(X, labels=y)
    model = method(n_classes=6, random_state=0).fit(features.rows(), features.labels)
    Discovery.from_fit(model, features).save(tmp_path / "run")
    after = Discovery.load(tmp_path / "run")
    assert type(after.model) is method
    assert after.model.get_params() == model.get_params()
    assert (after.labels == model.labels_).all()
    new = groups()[0][::7] + 0.01
    assert after.model.predict_proba(new).tobytes() == model.predict_proba(new).tobytes()
    assert after.model.transform(new).tobytes() == model.transform(new).tobytes()
    assert after.model.history_ == model.history_
