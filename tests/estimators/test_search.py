"""A smaller problem of labelled rows alone: which classes and rows it hides, and how it scores."""

import numpy as np
import pytest
import torch

from rpim import PIM, RPIM, InfoMaxObjective
from rpim.core.objective import Objective
from rpim.core.training import Schedule
from rpim.estimators import search
from rpim.estimators.search import HeldOutSplit, can_split, held_out_split, paper_trade_off


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def labelled(sizes):
    """Rows that say who they are: class and running number; the classes come mixed."""
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    order = torch.randperm(len(labels), generator=seeded(9))
    labels = labels[order]
    x = torch.stack([labels.float(), torch.arange(len(labels)).float()], dim=1)
    return x, labels


@pytest.mark.parametrize(("n_classes", "n_known"), [(4, 2), (6, 3), (7, 4)])
def test_half_of_the_classes_are_known(n_classes, n_known):
    split = held_out_split(*labelled([8] * n_classes), seeded())
    assert (split.n_known, split.n_classes) == (n_known, n_classes)
    assert set(split.labels.tolist()) == set(range(n_known))
    hidden = split.truth[len(split.labels) :]
    assert set(hidden.tolist()) == set(range(n_classes))


@pytest.mark.parametrize(("share", "n_new"), [(0.0, 1), (0.2, 2), (0.29, 2), (0.5, 5), (0.9, 8), (1.0, 8)])
def test_as_many_classes_are_hidden_as_the_problem_has_new_ones(share, n_new):
    split = held_out_split(*labelled([8] * 10), seeded(), share)
    assert (split.n_known, split.n_classes) == (10 - n_new, 10)


@pytest.mark.parametrize(("size", "n_hidden"), [(2, 1), (4, 1), (8, 2), (20, 5)])
def test_a_quarter_of_each_known_class_is_hidden(size, n_hidden):
    split = held_out_split(*labelled([size] * 4), seeded())
    hidden = torch.from_numpy(split.truth[len(split.labels) :])
    assert torch.bincount(hidden).tolist() == [n_hidden, n_hidden, size, size]
    assert torch.bincount(split.labels).tolist() == [size - n_hidden] * 2


def test_a_known_class_of_one_row_keeps_it():
    for seed in range(6):
        split = held_out_split(*labelled([1, 1, 1, 8]), seeded(seed))
        assert set(split.labels.tolist()) == {0, 1}
        assert len(split.truth) == 11


def test_every_row_is_there_once_under_one_code():
    x, labels = labelled([5, 6, 7, 8, 9])
    split = held_out_split(x, labels, seeded())
    assert sorted(split.x[:, 1].tolist()) == x[:, 1].tolist()
    pairs = set(zip(split.x[:, 0].tolist(), split.truth.tolist(), strict=True))
    assert len(pairs) == 5, "one code for each class, and one class for each code"
    assert {code for _, code in pairs} == set(range(5))
    assert split.labels.tolist() == split.truth[: len(split.labels)].tolist()


def test_divisions_are_drawn_from_the_generator():
    x, labels = labelled([6] * 6)
    first, again, other = (held_out_split(x, labels, seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(first.x, again.x)
    assert torch.equal(first.labels, again.labels)
    assert np.array_equal(first.truth, again.truth)
    assert not torch.equal(first.x, other.x)


def test_unlabelled_rows_are_never_looked_at():
    x, labels = labelled([6] * 4)
    with_rest = torch.cat([x, torch.full((10, 2), float("nan"))])
    split = held_out_split(with_rest, labels, seeded())
    assert torch.equal(split.x, held_out_split(x, labels, seeded()).x)
    assert torch.isfinite(split.x).all()


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0, 0, 1, 1, 2, 2, 3, 3], True),
        ([0, 0, 1, 1, 2, 2], False),  # three classes
        ([0, 0, 0, 1, 1, 2, 2, 3], True),  # a class of one row
        ([0, 0, 0, 1, 2, 3], False),  # hardly a row to hide
        ([0, 0, 1, 1, 3, 3, 4, 4], False),  # a code without rows
        ([], False),
    ],
)
def test_can_divide(labels, expected):
    assert can_split(torch.tensor(labels, dtype=torch.long)) is expected


def test_score_by_hand():
    # Two rows keep their label; of the five hidden ones 0-0 (1), 1-2 (2) match and two rows are wrong.
    split = HeldOutSplit(torch.zeros(7, 1), torch.tensor([0, 0]), np.array([0, 0, 0, 1, 1, 1, 1]), 1, 2)
    assert split.score(torch.tensor([0, 0, 0, 2, 2, 0, 3])) == 3 / 5


def test_the_truth_scores_one_and_labelled_rows_do_not_count():
    split = held_out_split(*labelled([8] * 4), seeded())
    truth = torch.from_numpy(split.truth)
    assert split.score(truth) == 1.0
    assert split.score(torch.tensor([2, 3, 0, 1])[truth]) == 1.0, "names do not matter"
    wrong = truth.clone()
    wrong[: len(split.labels)] = 3
    assert split.score(wrong) == 1.0
    wrong[-1] = (wrong[-1] + 1) % 4
    assert split.score(wrong) == 1.0 - 1 / (len(truth) - len(split.labels))


def test_a_large_division_is_drawn_from_the_rows():
    split = held_out_split(*labelled([100, 10, 5, 5]), seeded(), max_rows=60)
    # Half of the rows, but at least four of each class; a quarter of each known class is hidden.
    assert np.sort(np.bincount(split.truth)).tolist() == [4, 4, 5, 50]
    assert len({tuple(row) for row in split.x.tolist()}) == 63


def test_the_papers_split_keeps_all_labelled_rows():
    split = held_out_split(*labelled([4000, 4000, 2000, 2000]), seeded())
    assert len(split.truth) == 12_000


# -- the paper's searches -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem():
    """Six blobs, four of them known: a search needs so many to hold two out."""
    random = np.random.default_rng(0)
    truth = np.arange(120) % 6
    X = 2.0 * random.normal(size=(6, 12))[truth] + random.normal(size=(120, 12))
    return X.astype(np.float32), np.where((truth < 4) & (np.arange(120) % 12 < 6), truth, -1)


def test_the_search_for_lambda_takes_the_entropy_over_the_unlabelled_rows():
    """One step of it, against autograd on the objective as PIM's code has it: M over all rows, C over U, no CE."""
    x = torch.randn(30, 5, generator=seeded(), dtype=torch.float64)
    labels = torch.arange(12) % 3
    started = []

    def one_step(rows, head, objective, schedule):
        from rpim.core.gradient import gradient

        started.append(head.prototypes.clone())
        found = gradient(rows, head, objective)[1]["prototypes"].clone()
        weights = head.prototypes.clone().requires_grad_()
        z = torch.softmax(head.temperature * x @ weights.T, dim=1)
        marginal = z.mean(dim=0)
        entropy = -(z[12:] * z[12:].log()).sum(dim=1).mean()
        ((marginal * marginal.log()).sum() + objective.trade_off * entropy).backward()
        assert torch.allclose(found, weights.grad, atol=1e-9)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "train", one_step)
        paper_trade_off(x, labels, 4, Objective(), Schedule(), temperature=5.0, generator=seeded())
    assert len(started) == 20
    assert all(torch.equal(one, started[0]) for one in started), "every lambda starts from the same k-means"


def test_a_lambda_that_is_given_leaves_the_rest_of_the_published_fit_as_it_was(problem):
    X, y = problem
    searched = RPIM(6, preset="paper", n_init=1, max_iter=3, random_state=0).fit(X, y)
    given = RPIM(6, preset="paper", n_init=1, max_iter=3, random_state=0)
    given.set_params(objective__trade_off=searched.trade_off_).fit(X, y)
    assert given.weight_decay_ == searched.weight_decay_
    assert torch.equal(given.head_.prototypes, searched.head_.prototypes)


def test_pim_as_published_has_weight_decay_one_hundredth_and_a_searched_lambda(problem):
    X, y = problem
    model = PIM(6, preset="paper", n_init=1, max_iter=2, random_state=0).fit(X, y)
    assert model.weight_decay_ == 0.01
    assert set(model.search_) == {"trade_off"}
    tuned = RPIM(
        6,
        preset="paper",
        objective=InfoMaxObjective(h="none", pseudo_labels=False, mixed_labels=False),
        n_init=1,
        max_iter=2,
        random_state=0,
    ).fit(X, y)
    assert set(tuned.search_) == {"trade_off", "weight_decay"}
    assert tuned.weight_decay_ in [value / 2 for value in search.WEIGHT_DECAYS]


@pytest.mark.parametrize("weight_decay", [0.001, 0.05])
def test_lambda_is_searched_with_pims_weight_decay(problem, monkeypatch, weight_decay):
    seen = []

    def watched(*arguments, **options):
        seen.append(arguments[4].weight_decay)
        return 0.1, {}

    monkeypatch.setattr(search, "paper_trade_off", watched)
    objective = InfoMaxObjective(weight_decay=weight_decay)
    RPIM(6, preset="paper", objective=objective, n_init=1, max_iter=2, random_state=0).fit(*problem)
    assert seen == [0.01]
