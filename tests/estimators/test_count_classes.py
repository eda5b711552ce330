"""The number of classes: counted by neighbors, by Max-ACC, and as the estimators, the function and the command do."""

import dataclasses
import io
import json
import re
from functools import partial

import numpy as np
import pytest
import torch
from sklearn.datasets import make_blobs

from rpim import RPIM, InfoMaxObjective, InputError, estimate_n_classes
from rpim._common.progress import Progress
from rpim.estimators.count_classes import ESTIMATORS, Recapture, count_by_neighbors, count_classes
from rpim.estimators.problem import ClassCount
from rpim.estimators.search import max_acc


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def discovery(blobs, n_classes, n_known, size=24, seed=0, spread=0.05):
    """Blobs of which the first are known and half labelled, the labelled rows first."""
    x, truth = blobs([size] * n_classes, n_features=n_classes + 2, seed=seed, spread=spread)
    is_labelled = (truth < n_known) & (torch.arange(len(x)) % 2 == 0)
    rows = torch.cat([torch.nonzero(is_labelled).flatten(), torch.nonzero(~is_labelled).flatten()])
    return x[rows], truth[is_labelled]


# -- by neighbors --------------------------------------------------------------------------------------------------


def recapture(same, wrong, neighbors, marked, n_rows):
    return Recapture(*(np.asarray(values, dtype=float) for values in (same, wrong, neighbors, marked)), n_rows)


def test_clean_neighborhoods_by_hand():
    # Half of the neighbors carry the label, so a class of ten labelled rows has twenty; 100 rows are five classes.
    counted = recapture([15, 15, 15], [0, 0, 0], [30, 30, 30], [10, 10, 10], n_rows=100)
    assert counted.own_share == 1.0
    log_classes, error = counted.log_classes()
    assert np.exp(log_classes) == pytest.approx(5.0)
    assert error == pytest.approx(0.0, abs=1e-12)


def test_wrong_neighbors_are_taken_off_by_hand():
    # 30 of 100 rows are labelled, so 3 wrong labels are 10 wrong rows: of 30 neighbors 20 are of the class, of which
    # 10 are labelled: half of the class again, and five classes.
    counted = recapture([10, 10, 10], [3, 3, 3], [30, 30, 30], [10, 10, 10], n_rows=100)
    assert counted.own_share == pytest.approx(2 / 3)
    assert np.exp(counted.log_classes()[0]) == pytest.approx(5.0)


def test_the_error_says_how_much_classes_differ():
    alike = recapture([10, 10, 10, 10], [1, 1, 1, 1], [30] * 4, [10] * 4, n_rows=200)
    different = recapture([16, 4, 14, 6], [1, 1, 1, 1], [30] * 4, [10] * 4, n_rows=200)
    assert different.log_classes()[1] > 0.1 > 1e-9 > alike.log_classes()[1]


def test_two_known_classes_and_one_are_enough_to_answer():
    for n in (1, 2):
        log_classes, error = recapture([5] * n, [0] * n, [10] * n, [10] * n, n_rows=80).log_classes()
        assert np.isfinite(log_classes)
        assert error == pytest.approx(np.log(2.0)), "so few classes do not say how classes differ"


def test_nothing_in_common_still_gives_a_number():
    # No neighbor has the own label, and there are more wrong ones than neighbors.
    log_classes, _ = recapture([0, 0, 0], [9, 9, 9], [10, 10, 10], [10, 10, 10], n_rows=300).log_classes()
    assert np.isfinite(log_classes)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n_classes", "n_known"), [(10, 5), (12, 9), (20, 6)])
def test_neighbors_count_blobs(blobs, n_classes, n_known, seed):
    found = count_by_neighbors(*discovery(blobs, n_classes, n_known, size=40, seed=seed), generator=seeded())
    assert abs(found.n_classes / n_classes - 1) <= 0.15, found
    assert found.low <= found.n_classes <= found.high
    assert found.chosen in found.curve


@pytest.mark.parametrize("seed", range(3))
def test_neighbors_count_blobs_that_run_into_each_other(blobs, seed):
    x, labels = discovery(blobs, n_classes=20, n_known=10, size=60, seed=seed, spread=0.35)
    found = count_by_neighbors(x, labels, generator=seeded())
    own = (labels[_nearest(x, labels)] == labels).float().mean()
    assert own < 0.8, "otherwise there is nothing to correct"
    assert abs(found.n_classes / 20 - 1) <= 0.25, found


def _nearest(x, labels):
    similarity = x[: len(labels)] @ x[: len(labels)].T
    return similarity.fill_diagonal_(-1).argmax(dim=1)


def test_most_labelled_rows_are_looked_around_once(blobs, monkeypatch):
    from rpim.estimators import count_classes as module

    x, labels = discovery(blobs, n_classes=8, n_known=4, size=40)
    monkeypatch.setattr(module, "MAX_ROWS", 30)
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", 7 * len(x))  # seven rows at a time
    heard = []
    found = count_by_neighbors(x, labels, generator=seeded(), on_rows=heard.append)
    assert heard == [7, 7, 7, 7, 2]
    assert 5 <= found.n_classes <= 12


# -- Max-ACC --------------------------------------------------------------------------------------------------------


def crowded(seed):
    """Eight blobs in the plane: four known ones at the corners of a small square, four others far out."""
    corners = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, -1.0], [-1.0, 1.0]])
    truth = torch.arange(8).repeat_interleave(24)
    x = torch.cat([corners, 8.0 * corners])[truth] + 0.1 * torch.randn(len(truth), 2, generator=seeded(seed))
    is_labelled = (truth < 4) & (torch.arange(len(x)) % 2 == 0)
    rows = torch.cat([torch.nonzero(is_labelled).flatten(), torch.nonzero(~is_labelled).flatten()])
    return x[rows], truth[is_labelled]


@pytest.mark.parametrize("seed", range(5))
def test_max_acc_finds_the_number_of_blobs(seed):
    # With fewer than eight clusters the known ones merge with each other first, with more they split.
    found = max_acc(*crowded(seed), at_least=4, at_most=16, generator=seeded(seed))
    assert abs(found.n_classes - 8) <= 2, found
    assert found.curve[found.n_classes] == max(found.curve.values())
    assert list(found.curve) == sorted(found.curve)
    assert min(found.curve) == 4
    assert found.low <= found.n_classes <= found.high


def test_max_acc_over_pim_clusters_otherwise(blobs):
    x, labels = discovery(blobs, n_classes=6, n_known=4, spread=0.3)
    bounds = {"at_least": 4, "at_most": 10, "generator": seeded()}
    kmeans, pim = (max_acc(x, labels, clusterer=name, **bounds) for name in ("kmeans", "pim"))
    assert 4 <= pim.n_classes <= 10
    assert pim.curve != kmeans.curve


def test_max_acc_keeps_to_its_bounds(blobs):
    x, labels = discovery(blobs, n_classes=8, n_known=4)
    heard = []
    found = max_acc(x, labels, at_least=4, at_most=6, generator=seeded(), on_trial=lambda: heard.append(1))
    assert 4 <= found.n_classes <= 6
    assert set(found.curve) <= {4, 5, 6}
    assert len(heard) == len(found.curve), "no K is clustered twice"


def test_max_acc_is_deterministic(blobs):
    x, labels = discovery(blobs, n_classes=6, n_known=3)
    first, again = (max_acc(x, labels, at_least=3, at_most=12, generator=seeded(3)) for _ in range(2))
    assert first == again


# -- bounds ---------------------------------------------------------------------------------------------------------


def count(x, labels, **wanted):
    return count_classes(x, labels, generator=seeded(), progress=Progress(), **wanted)


@pytest.mark.parametrize("method", ESTIMATORS)
def test_every_method_keeps_to_the_bounds(blobs, method):
    x, labels = discovery(blobs, n_classes=8, n_known=4)
    for at_least, at_most in ((4, 5), (12, 14), (6, 6)):
        found = count(x, labels, method=method, at_least=at_least, at_most=at_most)
        assert at_least <= found.low <= found.n_classes <= found.high <= at_most


@pytest.mark.parametrize("method", ESTIMATORS)
def test_without_unlabelled_rows_there_are_the_known_classes(method):
    labels = torch.arange(3).repeat_interleave(5)
    assert count(torch.eye(3)[labels], labels, method=method) == ClassCount(3, 3, 3, {}, 3)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"at_least": 9, "at_most": 6}, "No number of classes is at least 9 and at most 6"),
        ({"at_most": 3}, "No number of classes is at least 4 and at most 3"),
        ({"at_least": 3}, "At least 3 classes are asked for, but 4 are known already"),
        ({"at_least": 500}, "can make no more than 148"),
    ],
)
def test_bounds_that_leave_nothing(blobs, bounds, message):
    x, labels = discovery(blobs, n_classes=8, n_known=4)
    with pytest.raises(InputError, match=message):
        count(x, labels, **bounds)


# -- for the user ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem():
    X, truth = make_blobs(1200, n_features=16, centers=12, cluster_std=0.5, random_state=0)
    return X, np.where((truth < 8) & (np.arange(len(X)) % 2 == 0), truth, -1)


def test_fit_takes_the_same_number_and_keeps_what_it_rests_on(problem):
    X, y = problem
    found = estimate_n_classes(X, y, random_state=0)
    model = RPIM(
        n_members=1, objective=InfoMaxObjective(trade_off=0.1, weight_decay=0.01), max_iter=20, random_state=0
    ).fit(X, y)
    assert (model.n_classes_, model.n_classes_low_, model.n_classes_high_) == (found.n_classes, found.low, found.high)
    assert model.n_classes_curve_ == found.curve
    assert found.low <= 12 <= found.high


def test_the_summary_says_that_the_number_is_an_estimate(problem):
    from rich.console import Console

    from rpim import Discovery, FeatureSet
    from rpim.cli.summary import print_summary

    X, y = problem
    said = {}
    for n_classes in (None, 12):
        model = RPIM(
            n_classes,
            n_members=1,
            objective=InfoMaxObjective(trade_off=0.1, weight_decay=0.01),
            max_iter=5,
            random_state=0,
        )
        console = Console(record=True, width=200, file=io.StringIO())
        print_summary(console, Discovery.from_fit(model.fit(X, y), FeatureSet.from_arrays(X, labels=y)))
        said[n_classes] = console.export_text()
    assert re.search(r"The number of classes was estimated: 12 classes \((the )?95 % interval ", said[None])
    assert "12 to 12" not in said[None]
    assert "estimated" not in said[12]


def test_rows_in_any_order_and_names_for_classes(problem):
    X, y = problem
    named = np.array([f"class {c}" if c >= 0 else "" for c in y])
    shuffled = np.random.RandomState(0).permutation(len(X))
    assert estimate_n_classes(X, y, random_state=0) == estimate_n_classes(X, named, random_state=0)
    again = estimate_n_classes(X[shuffled], y[shuffled], random_state=0)
    assert abs(again.n_classes - 12) <= 1


def test_an_unknown_method_is_refused(problem):
    with pytest.raises(InputError, match="did you mean neighbors"):
        estimate_n_classes(*problem, method="neighbours")


def test_a_count_is_brought_into_bounds():
    found = ClassCount(40, 30, 50, {2: 40.0}, 2)
    assert dataclasses.astuple(found.within(35, 45))[:3] == (40, 35, 45)
    assert dataclasses.astuple(found.within(60, 70))[:3] == (60, 60, 60)


@pytest.fixture
def estimate(command, problem):
    """Run ``rpim estimate`` on the problem with these arguments."""
    X, y = problem
    np.savez("data.npz", features=X.astype(np.float32), labels=y)
    return partial(command, "estimate", "data.npz")


def test_the_command_in_words_as_json_and_as_a_picture(estimate, tmp_path):
    code, out, err = estimate("--plot", "curve.png")
    assert (code, err) == (0, "")
    code, as_json, _ = estimate("--json", "--plot", "curve.svg")
    facts = json.loads(as_json)
    assert out.startswith(f"{facts['n_classes']} classes (95 % interval {facts['low']} to {facts['high']}): 8 known,")
    assert out.count("<- chosen") == 1
    assert len(out.splitlines()) == 3 + len(facts["curve"])
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "curve.svg").read_bytes()


@pytest.mark.parametrize("method", ["max-acc", "max-acc-pim"])
def test_the_command_with_a_published_estimator(estimate, method):
    code, out, _ = estimate("--method", method, "--at-most", "14", "--plot", "curve.svg")
    assert code == 0
    assert "accuracy on the labelled rows" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "maxacc"), "--method 'maxacc' is unknown: did you mean max-acc?"),
        (("--at-least", "9", "--at-most", "8"), "No number of classes is at least 9 and at most 8"),
        (("--plot", "curve.gif"), "give .png or .svg"),
        (("--plot", "nowhere/curve.png"), "nowhere is not a folder"),
        (("--plot", "data.npz"), "which is not a plot format"),
        (("--labels", "missing.csv"), "missing.csv is not there"),
    ],
)
def test_bad_input_to_the_command(estimate, refused, tmp_path, arguments, message):
    refused(message, *estimate.args, *arguments)
    assert [file.name for file in tmp_path.iterdir()] == ["data.npz"]


def test_a_picture_is_not_overwritten_unless_asked(estimate, tmp_path):
    (tmp_path / "curve.svg").write_text("mine")
    assert estimate("--plot", "curve.svg")[0] == 2
    assert (tmp_path / "curve.svg").read_text() == "mine"
    assert estimate("--plot", "curve.svg", "--overwrite")[0] == 0
    assert "<svg" in (tmp_path / "curve.svg").read_text()


def test_no_more_classes_are_tried_than_rows_could_make(blobs):
    x, labels = discovery(blobs, n_classes=4, n_known=2, size=8)
    n_most = 2 + len(x) - len(labels)
    found = count_classes(
        x, labels, method="max-acc", at_most=10**6, generator=seeded(), progress=Progress(False, "counting")
    )
    assert max(found.curve) <= n_most


@pytest.mark.parametrize("method", ["max-acc", "max-acc-pim"])
def test_max_acc_has_a_shortened_and_the_published_budget(blobs, monkeypatch, method):
    x, labels = discovery(blobs, n_classes=4, n_known=2, size=8)
    asked = []

    def watched(x, n_clusters, clusterer, budget, generator):
        asked.append(budget)
        return torch.arange(len(x)) % n_clusters

    monkeypatch.setattr("rpim.estimators.search._cluster", watched)
    progress = Progress(False, "counting")
    for preset in ("default", "paper"):
        count_classes(x, labels, method=method, preset=preset, generator=seeded(), progress=progress)
    shortened, published = asked[0], asked[-1]
    assert (shortened.n_init, shortened.rule.max_iter, shortened.objective.trade_off) == (2, 20, 0.1)
    assert (published.n_init, published.rule.max_iter, published.objective.trade_off) == (10, 300, 1.0)
    assert (published.schedule.max_iter, published.schedule.learning_rate) == (1000, 1e-3)


def test_the_published_budget_is_for_max_acc(refused, blobs):
    with pytest.raises(InputError, match="preset='paper' is for Max-ACC"):
        estimate_n_classes(np.eye(8), [0, 1, 0, 1, -1, -1, -1, -1], preset="paper")
    np.savez("rows.npz", features=np.random.default_rng(0).normal(size=(8, 4)), labels=[0, 1, 0, 1, -1, -1, -1, -1])
    refused("--preset paper is for Max-ACC: give --method max-acc", "estimate", "rows.npz", "--preset", "paper")
