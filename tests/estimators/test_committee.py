"""The committee: members together, whole fits, checked labels, and fits that are stopped."""

import copy
import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score
from sklearn.utils._param_validation import InvalidParameterError

from rpim import PIM, RPIM, InfoMaxObjective, InputError, gcd_accuracy
from rpim._common.progress import progress_listener
from rpim.core import checkpoint as checkpoint_module
from rpim.core.checkpoint import Checkpoint
from rpim.core.objective import Objective
from rpim.core.sampling import sample_rows
from rpim.core.training import matching_factor
from rpim.data.row_files import RowFiles
from rpim.engines import base as engine_base
from rpim.estimators import RIM, TIM, committee, infomax
from rpim.estimators.committee import LabelCheck
from rpim.estimators.members import SCHEDULE, Trainer, label_folds, plan_members
from rpim.estimators.objective import SCHEDULES

# -- members together ----------------------------------------------------------------------------------------------


def test_what_members_say_together(trainer):
    train = trainer(spread=0.1)
    members = [train(plan) for plan in plan_members(8, 0, n_directions=8)]
    found = committee.combine(train, members, seed=0)
    n_labelled = len(train.labels)
    assert torch.equal(found.probabilities[:n_labelled], torch.eye(5)[train.labels]), "labels are kept"
    torch.testing.assert_close(found.probabilities.sum(dim=1), torch.ones(150))
    assert found.stability.tolist() == pytest.approx([1.0] * 5, abs=0.05)
    assert found.supporters.tolist() == [8] * 5
    assert found.lost.tolist() == [0] * 8
    assert found.label_check.predicted.equal(train.labels)
    assert found.shares is None


@pytest.mark.slow
def test_members_of_another_embedding_see_its_columns_alone(trainer):
    one = trainer(spread=0.1)
    noise = torch.nn.functional.normalize(torch.randn(150, 6, generator=torch.Generator().manual_seed(0)))
    train = replace(one, x=torch.cat([one.x, noise], dim=1), embeddings=(slice(0, 8), slice(8, 14)))
    plans = plan_members(16, 0, n_directions=6, n_embeddings=2)
    members = [train(plan) for plan in plans]
    for member in members:
        changed = train.x.clone()
        changed[:, train.embeddings[1 - member.plan.embedding]] = 0.5
        assert torch.equal(member(changed), member(train.x))
        own = train.x[:, train.embeddings[member.plan.embedding]]
        alone = replace(one, x=own)(replace(member.plan, embedding=0))
        torch.testing.assert_close(alone(own), member(train.x))
    found = committee.combine(train, members, seed=0)
    assert found.probabilities.argmax(dim=1)[: len(train.labels)].equal(train.labels)


@pytest.mark.parametrize("class_sizes", ["equal", "estimated"])
def test_classes_are_brought_into_balance_where_they_are_taken_to_be_equal(blobs, class_sizes):
    x, truth = blobs([60, 30, 50, 10], 8, spread=0.3)
    order = torch.argsort((truth > 1) | (torch.arange(150) % 2 == 0), stable=True)
    x, truth = x[order], truth[order]
    labels = truth[:45]
    train = Trainer(x, labels, label_folds(labels, 0), 4, Objective(), SCHEDULE, RPIM()._new_head)
    members = [train(plan) for plan in plan_members(4, 0, n_directions=8, class_sizes=(class_sizes,))]
    found = committee.combine(train, members, seed=0, class_sizes=class_sizes)
    shares = found.probabilities.mean(dim=0)
    shares[2:] = shares[2:].sort(descending=True).values
    true = torch.bincount(truth) / 150
    if class_sizes == "estimated":
        torch.testing.assert_close(found.shares.sum(), torch.tensor(1.0))
        torch.testing.assert_close(shares, true, atol=0.04, rtol=0.0)
    else:
        assert found.shares is None
        assert float(shares.std()) < 0.75 * float(true.std())


def test_labels_are_checked_by_the_members_that_did_not_see_them(trainer):
    train = trainer()
    plans = plan_members(16, 0, n_directions=8)
    members = [train(plan) for plan in plans[:4]]
    found = committee.combine(train, members, seed=0)
    check = found.label_check
    assert torch.equal(~check.quality.isnan(), torch.isin(train.folds, torch.arange(4)))
    row = int(torch.nonzero(train.folds == 2).flatten()[0])
    expected = members[2](train.x[[row]])[0]
    torch.testing.assert_close(check.quality[row], expected[train.labels[row]])  # known classes are not matched
    torch.testing.assert_close(check.confidence[row], expected.max())


@pytest.fixture
def at_once(monkeypatch):
    monkeypatch.setattr(checkpoint_module, "SAVE_EVERY", 0.0)


# -- whole fits -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem():
    """Six groups, four known by half of their rows."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(6), 30)
    X = np.eye(6, 12)[truth] + 0.2 * random.randn(180, 12)
    return X, np.where((truth < 4) & (np.arange(180) % 2 == 0), truth, -1), truth


@pytest.fixture(scope="module")
def whole(problem):
    X, y, _ = problem
    return RPIM(6, n_members=8, random_state=0).fit(X, y)


def test_the_head_has_the_confidence_of_the_committee(problem, monkeypatch):
    """Weight decay shortens the prototypes in the distillation; they end with the length that fits best."""
    X, y, _ = problem
    noisy = X + 0.5 * np.random.RandomState(1).randn(*X.shape)
    kept = []
    real = infomax.combine
    monkeypatch.setattr(
        infomax, "combine", lambda trainer, *rest: kept.append((trainer.x, real(trainer, *rest))) or kept[-1][1]
    )
    model = RPIM(6, n_members=4, random_state=0).fit(noisy, y)
    [(x, combined)] = kept
    assert matching_factor(model.head_, x, combined.probabilities) == pytest.approx(1.0, abs=2e-3)


def test_what_a_fit_says(problem, whole):
    X, y, truth = problem
    assert whole.n_members_ == 8
    assert whole.n_iter_ == len(whole.history_) == 40
    assert whole.class_sizes_ == "equal"
    assert whole.calibration_ == 1.0
    assert whole.search_ == {}
    assert whole.stability_.shape == (6,)
    assert ((whole.stability_ > 0.7) & (whole.stability_ <= 1.0)).all()
    assert whole.label_quality_.shape == (180,)
    assert np.array_equal(~np.isnan(whole.label_quality_), y >= 0), "eight members check every label"
    assert gcd_accuracy(truth[y < 0], whole.labels_[y < 0], known=range(4)).all > 0.95
    probabilities = whole.predict_proba(X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    assert (probabilities >= 0).all()
    assert not [name for name in vars(whole) if name.startswith("_") and name != "_directions"], "nothing else is kept"


def test_the_expected_accuracy_is_that_of_the_labels(problem, whole):
    _, y, _ = problem
    right = [issue.row for issue in whole.label_issues_]
    assert 0.9 < whole.expected_accuracy_ <= 1.0
    assert whole.expected_accuracy_ <= 1.0 - len(right) / (y >= 0).sum()
    labels = whole.label_quality_[y >= 0]
    assert whole.expected_accuracy_ >= (labels > 0.5).mean(), "a label with more than a half is predicted"


@pytest.mark.slow
def test_members_do_not_depend_on_the_number_of_threads(problem, whole, tmp_path, at_once):
    """To the bit; what follows works on all rows at once, and differs by rounding."""
    X, y, _ = problem
    members = []
    for n_threads in (1, 2):
        checkpoint = Checkpoint(tmp_path / f"run-{n_threads}", {})
        torch.set_num_threads(n_threads)
        try:
            model = RPIM(6, n_members=8, random_state=0).fit(X, y, checkpoint=checkpoint)
        finally:
            torch.set_num_threads(1)
        members.append(checkpoint.members())
        np.testing.assert_allclose(model.predict_proba(X), whole.predict_proba(X), atol=1e-4)
        np.testing.assert_array_equal(model.labels_, whole.labels_)
    assert len(members[0]) == 8
    assert members[0] == members[1]


@pytest.mark.slow
def test_rows_of_unseen_classes_do_not_hang_on_rounding():
    """Two threads add up in another order; a step of Adam along a gradient of that size must not be a full one."""
    truth = np.repeat(np.arange(9), 60)
    X = (np.eye(9, 20)[truth] + 0.08 * np.random.RandomState(0).randn(540, 20)).astype(np.float32)
    seen, found = (truth < 6) & (np.arange(540) % 3 > 0), []
    y = np.where((truth < 4) & (np.arange(540) % 2 == 0), truth, -1)
    for n_threads in (1, 2):
        torch.set_num_threads(n_threads)
        found.append(RPIM(6, n_members=4, random_state=0).fit(X[seen], y[seen]).outlier_scores(X[truth > 5]))
    np.testing.assert_allclose(found[0], found[1], atol=0.5)


def test_another_random_state_is_another_committee(problem, whole):
    X, y, _ = problem
    other = RPIM(6, n_members=8, random_state=1).fit(X, y)
    assert other.predict_proba(X).tobytes() != whole.predict_proba(X).tobytes()


@pytest.mark.parametrize("method", [PIM, RIM, TIM])
def test_the_others_have_committees_too(method, problem):
    X, y, truth = problem
    model = method(6, n_members=4, random_state=0).fit(X, y)
    assert model.n_members_ == 4
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4)).all > 0.9
    assert model.stability_.shape == (6,)
    assert model.predict_proba(X).shape == (180, 6)
    assert method(6, random_state=0, max_iter=3).fit(X, y).n_members_ == 1, "if they are asked to"


@pytest.mark.parametrize("h", ["none", "linear", "mlp"])
def test_members_of_every_kind_become_one_linear_head(h, problem):
    X, y, truth = problem
    model = RPIM(6, objective=InfoMaxObjective(h=h), n_members=2, random_state=0).fit(X, y)
    assert set(model.head_.parameters) == {"prototypes", "B", "b"}
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4)).all > 0.9


def test_nothing_depends_on_the_rows_of_unlabelled_truth(problem, whole):
    """The labels are all that a fit is told: other names for them change names alone."""
    X, y, _ = problem
    names = np.where(y < 0, "", np.array(["a", "b", "c", "d"])[np.maximum(y, 0)])
    other = RPIM(6, n_members=8, random_state=0).fit(X, names)
    np.testing.assert_allclose(other.predict_proba(X), whole.predict_proba(X), atol=1e-5)
    np.testing.assert_array_equal(other.label_quality_, whole.label_quality_)


@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_rows_that_are_all_the_same_are_refused(scale, tmp_path):
    X, y = np.full((300, 4), scale), [0, 1] * 50 + [-1] * 200
    np.save(tmp_path / "rows.npy", X)
    for rows in (X, RowFiles(tmp_path / "rows.npy")):
        with pytest.raises(InputError, match="All 300 rows are the same"):
            RPIM(5).fit(rows, y)


@pytest.mark.parametrize("n_members", [0, -1, 1.5, "many", None])
def test_bad_numbers_of_members(n_members, problem):
    X, y, _ = problem
    with pytest.raises(InvalidParameterError, match=r"'n_members' parameter of RPIM must be a str among \{'auto'\}"):
        RPIM(6, n_members=n_members).fit(X, y)


def test_more_members_than_rows(problem):
    X, y, _ = problem
    few = [0, 2, 4, 30, 32, 60, 121, 151]
    with pytest.raises(InputError, match=r"n_members=9 is larger than the number of rows \(8\): give fewer"):
        RPIM(4, n_members=9).fit(X[few], y[few])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert RPIM(4, random_state=0).fit(X[few], y[few]).n_members_ == 8, "nobody asked for sixteen"


def test_everything_labelled_is_a_single_fit(problem):
    X, _, truth = problem
    with pytest.warns(UserWarning, match="nothing to discover"):
        model = RPIM(max_iter=5, random_state=0).fit(X, truth)
    assert model.n_members_ == 1
    assert model.label_issues_ == []


def test_a_single_fit_after_a_committee_leaves_nothing_of_it(problem, whole):
    X, y, _ = problem
    model = copy.deepcopy(whole).set_params(n_members=1, max_iter=3).fit(X, y)
    assert model.n_members_ == 1
    for name in ("stability_", "expected_accuracy_"):
        assert hasattr(whole, name)
        assert not hasattr(model, name)
    assert np.isnan(model.label_quality_).all()


def test_one_label_a_class(problem):
    X, y, truth = problem
    single = np.full_like(y, -1)
    single[[0, 30, 60, 90]] = [0, 1, 2, 3]
    with pytest.warns(UserWarning, match="No known class has more than one labelled row"):
        model = RPIM(6, n_members=4, random_state=0).fit(X, single)
    assert gcd_accuracy(truth[single < 0], model.labels_[single < 0], known=range(4)).all > 0.9
    assert np.isnan(model.expected_accuracy_), "no label was ever hidden"
    assert np.isnan(model.label_quality_).all()
    assert model.label_issues_ == []


# -- what is warned of ----------------------------------------------------------------------------------------------


def test_classes_that_end_empty_are_a_warning(problem):
    X, y, _ = problem
    few = np.concatenate([np.flatnonzero(y >= 0)[::4], np.flatnonzero(y < 0)[:3]])
    with pytest.warns(UserWarning, match=r"\d+ of 15 classes ended without a row: .* Give n_classes=\d+, or None"):
        model = RPIM(15, n_members=4, random_state=0).fit(X[few], y[few])
    assert len(np.unique(model.labels_)) < 15


def test_classes_that_one_member_alone_found_are_a_warning():
    """Nothing but noise without a label: no two members cut it alike."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(2), 20)
    X = np.concatenate([3 * np.eye(2, 30)[truth] + 0.1 * random.randn(40, 30), random.randn(80, 30)])
    y = np.append(truth, [-1] * 80)
    with pytest.warns(UserWarning, match="of 8 new classes were found by fewer than two members") as caught:
        model = RPIM(10, n_members=4, random_state=0).fit(X, y)
    assert np.nanmin(model.stability_[2:]) < 0.5
    assert any(warning.filename == __file__ for warning in caught), "it points at the call"


def test_separated_groups_warn_of_nothing(problem):
    X, y, _ = problem
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RPIM(6, n_members=4, random_state=0).fit(X, y)


# -- labels that are wrong ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def flipped():
    """Separated groups, of which four rows carry another label than their own: rows, labels, truth, those rows."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(6), 80)
    X = np.eye(6, 12)[truth] + 0.1 * random.randn(480, 12)
    y = np.where((truth < 4) & (np.arange(480) % 2 == 0), truth, -1)
    wrong = {4: 1, 84: 3, 162: 0, 248: 2}
    for row, label in wrong.items():
        assert y[row] == truth[row] != label
        y[row] = label
    return X, y, truth, wrong


@pytest.mark.parametrize("texts", [False, True], ids=["numbers", "texts"])
def test_flipped_labels_are_found_first_with_the_right_class(flipped, texts):
    X, y, truth, wrong = flipped
    names = np.array(["ant", "bee", "cat", "dog"])
    labels = np.where(y < 0, "", names[np.maximum(y, 0)]) if texts else y
    model = RPIM(6, n_members=8, random_state=0).fit(X, labels)
    first = model.label_issues_[: len(wrong)]
    assert {issue.row for issue in first} == set(wrong)
    for issue in first:
        given, right = wrong[issue.row], truth[issue.row]
        assert (issue.label, issue.suggested) == ((names[given], names[right]) if texts else (given, right))
        assert issue.label_quality < 0.2 < 0.5 < issue.confidence
        assert model.labels_[issue.row] == issue.label, "which stays as it was given"
        assert model.label_quality_[issue.row] == pytest.approx(issue.label_quality)
    margins = [round(issue.label_quality - issue.confidence, 6) for issue in model.label_issues_]
    assert margins == sorted(margins)
    assert len(model.label_issues_) <= len(wrong) + 1
    right = (y >= 0) & (y == truth)
    assert model.label_quality_[right].mean() > 0.9
    assert model.expected_accuracy_ == pytest.approx(1 - len(wrong) / (y >= 0).sum(), abs=0.03)


def test_a_single_flipped_label_is_found(flipped):
    X, y, truth, _ = flipped
    y = np.where(y >= 0, truth, -1)
    y[84] = 0
    model = RPIM(6, n_members=8, random_state=0).fit(X, y)
    assert [(issue.row, issue.label, issue.suggested) for issue in model.label_issues_] == [(84, 0, 1)]


def test_labels_that_are_right_are_no_issue(flipped):
    X, y, truth, _ = flipped
    assert RPIM(6, n_members=8, random_state=0).fit(X, np.where(y >= 0, truth, -1)).label_issues_ == []


def test_rows_in_any_order_have_the_same_issues(flipped):
    X, y, _, wrong = flipped
    order = np.random.RandomState(0).permutation(len(X))
    model = RPIM(6, n_members=8, random_state=0).fit(X[order], y[order])
    assert {int(order[issue.row]) for issue in model.label_issues_[: len(wrong)]} == set(wrong)


# -- more rows than a committee sees --------------------------------------------------------------------------------


@pytest.fixture
def small_committee(monkeypatch):
    """Members see a hundred rows a class at most, which here is a part."""
    monkeypatch.setattr(infomax, "COMMITTEE_ROWS", 0)


@pytest.fixture(scope="module")
def many():
    random = np.random.RandomState(1)
    truth = np.repeat(np.arange(6), 200)
    X = np.eye(6, 10)[truth] + 0.2 * random.randn(1200, 10)
    order = random.permutation(1200)
    X, truth = X[order], truth[order]
    return X, np.where((truth < 4) & (np.arange(1200) % 2 == 0), truth, -1), truth


def needs(monkeypatch, n_rows):
    """The memory that may be used is that of a committee whose members see so many rows."""
    memory = engine_base.bytes_of_committee((1200, 10), n_rows, 6)
    monkeypatch.setattr(engine_base, "default_memory_budget", lambda: memory)


@pytest.mark.parametrize(("n_rows", "seen"), [(600, 600), (599, 300), (300, 300), (299, 150), (150, 150)])
def test_members_see_fewer_rows_where_memory_is_short(many, small_committee, monkeypatch, n_rows, seen):
    X, y, _ = many
    needs(monkeypatch, n_rows)
    found = []
    monkeypatch.setattr(infomax, "sample_rows", lambda codes, n, seed: found.append(n) or sample_rows(codes, n, seed))
    model = RPIM(6, n_members=4, random_state=0).fit(X, y)
    assert set(found) == {seen}
    assert model.n_members_ == 4


def test_without_memory_for_a_committee_there_is_a_single_fit_and_a_warning(many, small_committee, monkeypatch):
    X, y, truth = many
    needs(monkeypatch, 149)
    with pytest.warns(UserWarning, match=r"committee of 6 classes needs \d+MB of memory, and \d+MB may be used: this"):
        model = RPIM(6, random_state=0).fit(X, y)
    assert model.n_members_ == 1
    assert not hasattr(model, "stability_")
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4)).all > 0.95
    with pytest.raises(InputError, match="may be used: give n_members=1, or a smaller n_classes"):
        RPIM(6, n_members=4).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RPIM(6, n_members=1, random_state=0).fit(X, y)  # as asked for
    with pytest.warns(UserWarning, match="nothing to discover") as seen:
        RPIM(6, random_state=0).fit(X, truth)  # all rows are labelled: there is no committee in any case
    assert not any("memory" in str(one.message) for one in seen)


def test_with_more_rows_than_members_see_all_rows_are_trained_on(many, small_committee, monkeypatch):
    X, y, truth = many
    seen = []
    real = Trainer.__call__
    monkeypatch.setattr(
        Trainer, "__call__", lambda self, plan, *fitted: seen.append(len(self.x)) or real(self, plan, *fitted)
    )
    model = RPIM(6, n_members=4, random_state=0).fit(X, y)
    assert seen == [seen[0]] * 4
    assert 600 <= seen[0] < 700
    assert len(model.labels_) == 1200
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4)).all > 0.95
    assert model.n_iter_ == len(model.history_)
    assert "L_R" in model.history_[-1]
    assert model.calibration_ == model.head_.calibration != 1.0
    checked = ~np.isnan(model.label_quality_)
    assert (y[checked] >= 0).all()
    assert 50 < checked.sum() < (y >= 0).sum() / 2
    right = np.array([model.predict_proba(X[[row]])[0, y[row]] for row in np.flatnonzero(checked)[:20]])
    assert (right > 0.5).mean() > 0.9, "what is said of a label is said of its row"
    assert np.array_equal(model.predict(X)[y < 0], model.labels_[y < 0])


def test_training_on_keeps_the_confidence_of_the_committee(many, small_committee):
    X, y, truth = many
    model = RPIM(6, n_members=4, random_state=0).fit(X, y)
    free = y < 0
    sure = model.predict_proba(X)[free].max(axis=1).mean()
    accuracy = gcd_accuracy(truth[free], model.labels_[free], known=range(4)).all
    assert abs(sure - accuracy) < 0.08


def test_a_sample_without_any_unlabelled_row(many, small_committee):
    X, _, truth = many
    y = truth.copy()
    y[7] = -1  # one row in twelve hundred; the members of this seed do not see it
    model = RPIM(6, n_members=2, random_state=0, max_iter=5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in range(6):
            model.set_params(random_state=seed).fit(X, y)
            if np.isnan(model.stability_).all():
                break
        else:
            pytest.fail("no seed leaves the row out")
    assert model.labels_[7] in range(6)


def test_a_long_tail_is_trained_on_with_its_own_shares(many, small_committee, monkeypatch):
    X, _, truth = many
    keep = np.concatenate([np.flatnonzero(truth == c)[: 200 - 30 * c] for c in range(6)])
    X, truth = X[keep], truth[keep]
    y = np.where((truth < 4) & (np.arange(len(X)) % 2 == 0), truth, -1)
    shares = []
    real = RPIM._training_objective
    monkeypatch.setattr(RPIM, "_training_objective", lambda self, *a: shares.append(a[1:]) or real(self, *a))
    RPIM(6, n_members=2, objective=InfoMaxObjective(class_sizes="estimated"), max_iter=3, random_state=0).fit(X, y)
    [last] = shares[-1]
    assert last.sum() == pytest.approx(1.0, abs=1e-5)
    np.testing.assert_allclose(last.numpy()[:4], np.bincount(truth)[:4] / len(truth), atol=0.04)


# -- stopped and resumed --------------------------------------------------------------------------------------------


class Stop(Exception):
    pass


def stopped_after(n_members, monkeypatch):
    """The fit is stopped once so many members are kept."""
    real = Checkpoint.save_member
    kept = []

    def save_member(self, number, data):
        if len(kept) == n_members:
            raise Stop
        kept.append(number)
        real(self, number, data)

    monkeypatch.setattr(Checkpoint, "save_member", save_member)


def counted(monkeypatch):
    """The plans of the members that are trained from now on."""
    trained = []
    real = Trainer.__call__
    monkeypatch.setattr(
        Trainer, "__call__", lambda self, plan, *fitted: trained.append(plan) or real(self, plan, *fitted)
    )
    return trained


@pytest.mark.parametrize("method", [RPIM, PIM])
def test_a_fit_that_is_stopped_does_not_train_its_members_again(problem, tmp_path, at_once, monkeypatch, method):
    X, y, _ = problem
    given = {"n_classes": 6, "n_members": 4, "random_state": 0}
    whole = method(**given).fit(X, y)
    with monkeypatch.context() as patched:
        stopped_after(3, patched)
        with pytest.raises(Stop):
            method(**given).fit(X, y, checkpoint=Checkpoint(tmp_path / "run", {}))
    checkpoint = Checkpoint(tmp_path / "run", {})
    assert sorted(checkpoint.members()) == [0, 1, 2]
    trained = counted(monkeypatch)
    resumed = method(**given).fit(X, y, checkpoint=checkpoint)
    assert [plan.representation for plan in trained] == ["whitened"], "the last alone"
    assert resumed.predict_proba(X).tobytes() == whole.predict_proba(X).tobytes()
    assert resumed.history_ == whole.history_
    assert resumed.label_issues_ == whole.label_issues_
    np.testing.assert_array_equal(resumed.stability_, whole.stability_)
    np.testing.assert_array_equal(resumed.label_quality_, whole.label_quality_)
    assert sorted(checkpoint.members()) == [0, 1, 2, 3]


def test_members_of_another_committee_are_trained_again(problem, tmp_path, at_once, monkeypatch):
    X, y, _ = problem
    RPIM(6, n_members=4, random_state=0).fit(X, y, checkpoint=Checkpoint(tmp_path / "run", {}))
    trained = counted(monkeypatch)
    found = RPIM(6, n_members=2, random_state=1).fit(X, y, checkpoint=Checkpoint(tmp_path / "run", {}))
    assert len(trained) == 2
    assert found.predict_proba(X).tobytes() == (
        RPIM(6, n_members=2, random_state=1).fit(X, y).predict_proba(X).tobytes()
    )


@pytest.mark.slow
def test_a_training_on_all_rows_that_is_stopped_ends_with_the_same_bits(
    many, small_committee, tmp_path, at_once, monkeypatch
):
    X, y, _ = many
    monkeypatch.setitem(SCHEDULES["default"], "tol", 0.0)  # or the classes settle before the stop
    given = {"n_classes": 6, "n_members": 2, "random_state": 0, "max_iter": 30}
    whole = RPIM(**given).fit(X, y)
    with monkeypatch.context() as patched:
        real = Checkpoint.save

        def save(self, state):
            real(self, state)
            if len(state.history) >= 20:
                raise Stop

        patched.setattr(Checkpoint, "save", save)
        with pytest.raises(Stop):
            RPIM(**given).fit(X, y, checkpoint=Checkpoint(tmp_path / "run", {}))
    trained = counted(monkeypatch)
    resumed = RPIM(**given).fit(X, y, checkpoint=Checkpoint(tmp_path / "run", {}))
    assert trained == []
    assert resumed.history_ == whole.history_
    assert (resumed.n_members_, resumed.calibration_) == (2, whole.calibration_)
    assert resumed.predict_proba(X).tobytes() == whole.predict_proba(X).tobytes()
    assert resumed.label_issues_ == whole.label_issues_
    assert resumed.expected_accuracy_ == whole.expected_accuracy_
    np.testing.assert_array_equal(resumed.stability_, whole.stability_)
    np.testing.assert_array_equal(resumed.label_quality_, whole.label_quality_)


NAN = [math.nan] * 3


def check(probabilities, labels):
    return LabelCheck.of(torch.tensor(probabilities), torch.tensor(labels))


def test_what_is_said_of_each_label():
    found = check([[0.9, 0.1, 0.0], [0.7, 0.3, 0.0], [0.8, 0.15, 0.05], [0.1, 0.2, 0.7]], [0, 1, 1, 1])
    assert found.quality.tolist() == pytest.approx([0.9, 0.3, 0.15, 0.2])
    assert found.predicted.tolist() == [0, 0, 0, 2]
    assert found.confidence.tolist() == pytest.approx([0.9, 0.7, 0.8, 0.7])
    assert found.accuracy == 0.25


def test_labels_that_are_contradicted_as_often_as_the_probabilities_say_are_not_suspect():
    # Of ten rows that are class 0 by 0.8 two are expected to be class 1.
    assert not check([[0.8, 0.2]] * 10, [0] * 8 + [1] * 2).suspect.any()
    found = check([[0.99, 0.01]] * 10 + [[0.01, 0.99]] * 10, [0] * 8 + [1] * 12)
    assert found.suspect.tolist() == [False] * 8 + [True] * 2 + [False] * 10


def test_one_wrong_label_among_sure_ones_is_found():
    found = check([[0.999, 0.001]] * 50 + [[0.001, 0.999]] * 50, [0] * 49 + [1] * 51)
    assert torch.nonzero(found.suspect).flatten().tolist() == [49]
    assert found.predicted[49] == 0


def test_a_label_that_is_the_likeliest_class_is_never_suspect():
    found = check([[0.5, 0.4, 0.1], [0.1, 0.2, 0.7], [0.3, 0.6, 0.1]], [0, 2, 1])
    assert not found.suspect.any()
    assert found.accuracy == 1.0


def test_a_new_class_may_be_suggested():
    found = check([[0.99, 0.01, 0.0]] * 20 + [[0.0, 0.01, 0.99]] + [[0.01, 0.99, 0.0]] * 20, [0] * 20 + [1] * 21)
    assert found.ranked() == [20]
    assert found.predicted[20] == 2


def test_labels_that_every_member_saw_are_not_checked():
    found = check([[0.9, 0.1, 0.0], NAN, [0.1, 0.9, 0.0], NAN], [0, 0, 1, 1])
    assert found.quality.isnan().tolist() == [False, True, False, True]
    assert found.suspect.tolist() == [False] * 4
    assert found.accuracy == 1.0


def test_where_no_label_was_hidden_nothing_is_said():
    found = check([NAN, NAN], [0, 1])
    assert math.isnan(found.accuracy)
    assert found.quality.isnan().all()
    assert not found.suspect.any()
    assert found.ranked() == []


def test_the_most_suspect_come_first():
    # Margins -0.8, -0.5, -0.9; the label's own probability alone would not tell the first from the second.
    found = check([[0.9, 0.1, 0.0], [0.6, 0.1, 0.3], [0.95, 0.05, 0.0], [0.3, 0.7, 0.0]], [1, 1, 1, 0])
    found = LabelCheck(found.quality, found.predicted, found.confidence, torch.tensor([True, True, True, False]), 0.0)
    assert found.ranked() == [2, 0, 1]


def test_of_equal_rows_the_first_comes_first():
    found = check([[0.99, 0.01]] * 300 + [[0.01, 0.99]] * 100, [1] * 40 + [0] * 260 + [1] * 100)
    assert 30 < len(found.ranked()) <= 40
    assert found.ranked() == list(range(len(found.ranked())))


@given(st.integers(0, 40), st.integers(0, 10))
@settings(max_examples=20, deadline=None)
def test_about_as_many_are_suspect_as_are_wrong(n_wrong, seed):
    """Labels drawn from the probabilities, and some more of them drawn from the other classes."""
    random = np.random.RandomState(seed)
    p = random.dirichlet([0.2] * 4, 400)
    labels = (random.rand(400, 1) > p.cumsum(axis=1)).sum(axis=1).clip(max=3)
    labels[:n_wrong] = (labels[:n_wrong] + random.randint(1, 4, n_wrong)) % 4
    found = LabelCheck.of(torch.from_numpy(p), torch.from_numpy(labels))
    assert int(found.suspect.sum()) <= int((found.predicted != torch.from_numpy(labels)).sum())
    assert abs(int(found.suspect.sum()) - n_wrong) <= 25


def test_a_check_to_tensors_and_back():
    found = check([[0.99, 0.01, 0.0]] * 10 + [NAN, [0.98, 0.02, 0.0]], [0] * 11 + [1])
    assert found.suspect.any()
    back = LabelCheck.from_tensors(found.tensors())
    for name in ("quality", "predicted", "confidence", "suspect"):
        assert torch.equal(getattr(back, name).nan_to_num(9.0), getattr(found, name).nan_to_num(9.0))
    assert back.accuracy == found.accuracy


def test_without_labels_a_first_committee_finds_classes_to_whiten_by(problem, monkeypatch):
    X, _, truth = problem
    kept = []
    real = infomax.combine
    monkeypatch.setattr(
        infomax,
        "combine",
        lambda trainer, members, *rest: kept.append((trainer, len(members))) or real(trainer, members, *rest),
    )
    model = RPIM(6, n_members=6, random_state=0).fit(X)
    assert [count for _, count in kept] == [4, 6]
    first, second = (trainer.clusters for trainer, _ in kept)
    assert first is None
    assert adjusted_rand_score(truth, second) > 0.8
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    assert np.array_equal(model.labels_, RPIM(6, n_members=6, random_state=0).fit(X).labels_)


@pytest.mark.parametrize("labelled", [True, False])
def test_the_share_of_the_work_that_is_done_never_falls(labelled, problem):
    X, y, _ = problem
    shares = []
    with progress_listener(lambda _, share: shares.append(share)):
        RPIM(6, n_members=5, random_state=0).fit(X, y if labelled else None)
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(1.0)
