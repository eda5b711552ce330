"""Classes that need not be equally large: what is estimated, what it is worth, and when it is chosen."""

from functools import partial

import numpy as np
import pytest
import torch
from sklearn.utils._param_validation import InvalidParameterError

from rpim import PIM, RPIM, InfoMaxObjective, InputError, gcd_accuracy
from rpim._common.progress import Progress
from rpim.core.committee import size_trust
from rpim.core.kmeans import Start, estimated_shares, single_start
from rpim.core.objective import Objective
from rpim.estimators import RIM, TIM, committee
from rpim.estimators.committee import noise_among, sizes_at_start
from rpim.estimators.members import SCHEDULE, train_from_clusters
from rpim.estimators.problem import Problem

LONG_TAIL = [160, 120, 90, 60, 40, 25, 15, 10, 6, 4]


@pytest.fixture
def case(blobs):
    """Make problems: blobs of these sizes that overlap, every second class known by half of its rows."""

    def make(sizes, spread=0.25, seed=0):
        x, truth = blobs(sizes, n_features=16, spread=spread, seed=seed)
        X, truth = x.numpy(), truth.numpy()
        return X, np.where((truth % 2 == 0) & (np.arange(len(truth)) % 2 == 0), truth, -1), truth

    return make


def given(class_sizes):
    return InfoMaxObjective(trade_off=0.1, weight_decay=0.01, class_sizes=class_sizes)


def accuracy(model, y, truth):
    return gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=np.unique(y[y >= 0])).all


def test_shares_by_hand():
    start = Start(torch.zeros(4, 2), torch.tensor([3, 0, 0, 3, 0, 1]))
    # 3, 1, 0 and 2 rows, and one more of each: of ten 4, 2, 1 and 3.
    assert start.shares("estimated").tolist() == pytest.approx([0.4, 0.2, 0.1, 0.3])
    assert start.shares("equal") is None


def test_a_start_says_which_rows_its_classes_have(blobs):
    x, truth = blobs([30, 8, 20, 3], n_features=8)
    labelled = torch.tensor([0, 1, 30, 31])
    order = torch.cat([labelled, torch.tensor(sorted(set(range(len(x))) - set(labelled.tolist())))])
    x, labels, truth = x[order], truth[labelled], truth[order]
    generator = torch.Generator().manual_seed(0)
    problem = Problem(x, labels, 2, 4, generator, Progress())
    for start in (single_start(x, labels, 4, n_init=10, generator=generator), PIM()._initial_clusters(problem)):
        sizes = torch.bincount(start.labels, minlength=4).tolist()
        assert sizes[:2] == [30, 8]
        assert sorted(sizes[2:]) == [3, 20]


def test_members_that_estimate_sizes_leave_them_more_as_they_are(case):
    X, y, truth = case(LONG_TAIL)
    order = np.argsort(y < 0, kind="stable")
    x, labels = torch.from_numpy(X[order]), torch.from_numpy(y[order][y[order] >= 0] // 2)
    spreads = {}
    for class_sizes in ("equal", "estimated"):
        head, _ = train_from_clusters(
            x, labels, 10, Objective(), RPIM()._new_head, class_sizes=class_sizes, seed=0, schedule=SCHEDULE
        )
        spreads[class_sizes] = float(estimated_shares(head.predict(x), head.prototypes).std())
    true = float(estimated_shares(torch.from_numpy(truth), torch.zeros(10, 1)).std())
    assert spreads["equal"] < spreads["estimated"]
    assert abs(spreads["estimated"] - true) < abs(spreads["equal"] - true)


@pytest.mark.parametrize(
    "make",
    [
        partial(RPIM, n_members=1),
        pytest.param(partial(RPIM, n_members=4), marks=pytest.mark.slow),
        PIM,
        partial(PIM, n_members=4),
    ],
    ids=["RPIM", "RPIM, 4 members", "PIM", "PIM, 4 members"],
)
def test_estimated_sizes_find_a_long_tail_better(make, case):
    gains = []
    for seed in range(3):
        X, y, truth = case(LONG_TAIL, seed=seed)
        equal, estimated = (
            accuracy(make(10, objective=given(sizes), max_iter=60, random_state=0).fit(X, y), y, truth)
            for sizes in ("equal", "estimated")
        )
        gains.append(estimated - equal)
    assert min(gains) > 0.0
    assert np.mean(gains) > 0.05


@pytest.mark.parametrize(("method", "n_members"), [(RPIM, 1), (RPIM, 2), (PIM, 1)])
def test_equal_sizes_are_the_default(method, n_members, case):
    X, y, _ = case([24] * 10)
    auto, equal = (
        method(10, objective=InfoMaxObjective(class_sizes=sizes), n_members=n_members, max_iter=20, random_state=0).fit(
            X, y
        )
        for sizes in ("auto", "equal")
    )
    assert auto.class_sizes_ == "equal"
    assert torch.equal(auto.head_.prototypes, equal.head_.prototypes)
    assert (auto.labels_ == equal.labels_).all()


@pytest.mark.parametrize("method", [RPIM, PIM])
@pytest.mark.slow
def test_a_committee_sees_a_long_tail(method, case):
    X, y, truth = case(LONG_TAIL)
    auto, equal = (
        method(10, objective=InfoMaxObjective(class_sizes=sizes), n_members=4, random_state=0).fit(X, y)
        for sizes in ("auto", "equal")
    )
    assert (auto.class_sizes_, equal.class_sizes_) == ("estimated", "equal")
    assert accuracy(auto, y, truth) > accuracy(equal, y, truth) + 0.05


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        (LONG_TAIL, ("estimated",)),
        ([70, 60, 52, 45, 38, 32, 27, 22, 18, 16], ("estimated",)),
        ([60, 55, 50, 45, 40, 36, 32, 28, 24, 20], ("equal", "estimated")),
        ([40] * 10, ("equal",)),
        ([45, 35] * 5, ("equal",)),
    ],
)
def test_sizes_at_the_start(sizes, expected, case):
    X, y, _ = case(sizes, spread=0.1)
    order = np.argsort(y < 0, kind="stable")
    x, labels = torch.from_numpy(X[order]), torch.from_numpy(y[order][y[order] >= 0] // 2)
    assert sizes_at_start(x, labels, 10, seed=0) == expected


@pytest.mark.slow
def test_classes_are_as_equal_as_the_members_find_them(case):
    """Sizes that fall by 3:1 hardly show at the start, and must not be made equal at the end."""
    sizes = [60, 55, 50, 45, 40, 36, 32, 28, 24, 20]
    X, y, truth = case(sizes, spread=0.2)
    auto, equal = (
        RPIM(10, objective=InfoMaxObjective(class_sizes=given), n_members=4, random_state=0).fit(X, y)
        for given in ("auto", "equal")
    )
    assert auto.class_sizes_ == "estimated"
    found = {c: (auto.labels_ == c).sum() for c in range(0, 10, 2)}  # the known ones
    assert [found[c] for c in range(0, 10, 2)] == pytest.approx(sizes[::2], rel=0.25)
    assert accuracy(auto, y, truth) > accuracy(equal, y, truth)


def test_few_classes_show_their_sizes(case):
    """Of six classes three are known, too few to tell the sizes by them alone."""
    sizes = [30, 90, 36, 70, 45, 55]
    X, y, truth = case(sizes, spread=0.2)
    auto, equal = (
        RPIM(6, objective=InfoMaxObjective(class_sizes=given), n_members=4, random_state=0).fit(X, y)
        for given in ("auto", "equal")
    )
    assert auto.class_sizes_ == "estimated"
    assert accuracy(auto, y, truth) > 0.97
    assert accuracy(auto, y, truth) > accuracy(equal, y, truth) + 0.05


def size_trust_of(shares, n_labels, n_rows=1000, asked_for=None):
    """The trust in the sizes of the classes, of which the first have so many labels."""
    labels = torch.repeat_interleave(torch.arange(len(n_labels)), torch.tensor(n_labels, dtype=torch.long))
    return committee._size_trust(torch.tensor(shares), labels, n_rows, asked_for)


def test_few_known_classes_say_little_of_the_sizes():
    shares = [0.3, 0.1, 0.15, 0.15, 0.15, 0.15]
    halves = [round(500 * share) for share in shares]
    of_all = size_trust(torch.tensor(shares), noise_among(6, committee.NOISE_OF_ALL))
    of_five = size_trust(torch.tensor(shares[:5]), committee.NOISE_OF_KNOWN)
    assert size_trust_of(shares, []) == pytest.approx(of_all)
    assert size_trust_of(shares, halves[:2]) == pytest.approx(of_all)
    assert size_trust_of(shares, halves[:5]) == pytest.approx(of_five)
    assert [size_trust_of(shares, halves[:5], asked_for=given) for given in ("equal", "estimated")] == [0.0, 1.0]


def test_classes_with_few_labels_say_little_of_the_sizes():
    """Five classes of 100 rows with 50 labels each, and five with two labels, whose sizes are hardly held by these."""
    shares = [0.1] * 5 + [0.02, 0.18, 0.04, 0.16, 0.1]
    assert size_trust_of(shares, [50] * 5 + [50] * 5) > 0.5
    assert size_trust_of(shares, [50] * 5 + [2] * 5) == 0.0
    assert size_trust_of(shares, [2] * 10) > 0.5, "few labels are the usual ones here"


def test_nothing_is_searched_where_lambda_is_given(case):
    X, y, _ = case(LONG_TAIL)
    model = RPIM(10, n_members=1, objective=given("auto"), max_iter=5, random_state=0).fit(X, y)
    assert model.class_sizes_ == "equal"
    assert model.search_ == {}


@pytest.mark.parametrize("method", [RIM, TIM])
def test_rim_and_tim_take_classes_to_be_equal(method, case):
    X, y, _ = case(LONG_TAIL)
    model = method(10, max_iter=5, random_state=0).fit(X, y)
    assert model.class_sizes_ == "equal"
    with pytest.raises(
        InputError, match=f"{method.__name__} has no class_sizes, but class_sizes='estimated' was given"
    ):
        method(10, objective=InfoMaxObjective(class_sizes="estimated")).fit(X, y)


def test_the_published_procedure_takes_classes_to_be_equal(case):
    X, y, _ = case([12] * 10)
    model = PIM(
        10, preset="paper", objective=InfoMaxObjective(weight_decay=0.01), max_iter=5, n_init=2, random_state=0
    ).fit(X, y)
    assert model.class_sizes_ == "equal"
    assert set(model.search_) == {"trade_off"}


@pytest.mark.parametrize("sizes", ["unequal", 0.5, None])
def test_other_words_are_refused(sizes, case):
    X, y, _ = case([12] * 10)
    with pytest.raises(InvalidParameterError, match=r"'class_sizes' parameter of InfoMaxObjective must be a str among"):
        RPIM(10, objective=given(sizes), random_state=0).fit(X, y)
