"""The members of a committee: what each varies, which labels it sees, and how it is stored."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpim.core.checkpoint import pack, unpack
from rpim.core.preprocessing import KINDS, fit_representation
from rpim.estimators import members
from rpim.estimators.members import N_FOLDS, SCHEDULE, Member, Trainer, label_folds, mean_history, plan_members

# -- who varies what ------------------------------------------------------------------------------------------------


def test_every_four_members_have_every_representation_and_every_eight_every_fold():
    plans = plan_members(16, 0, n_directions=128)
    for start in range(0, 16, 4):
        assert [plan.representation for plan in plans[start : start + 4]] == list(KINDS)
    for start in range(0, 16, N_FOLDS):
        assert sorted(plan.fold for plan in plans[start : start + N_FOLDS]) == list(range(N_FOLDS))
    assert len({plan.seed for plan in plans}) == 16
    assert {(plan.n_directions, plan.trade_off, plan.class_sizes) for plan in plans} == {(128, 0.1, "equal")}


def test_where_sizes_are_estimated_each_representation_meets_each_lambda():
    plans = plan_members(16, 0, n_directions=64, class_sizes=("estimated",))
    met = {(plan.representation, plan.trade_off) for plan in plans}
    assert met == {(kind, value) for kind in KINDS for value in (0.1, 0.2, 0.5, 1.0)}
    assert {plan.class_sizes for plan in plans} == {"estimated"}


def test_where_members_take_turns_each_representation_meets_both_assumptions():
    plans = plan_members(16, 0, n_directions=64, class_sizes=("equal", "estimated"))
    met = [(plan.representation, plan.class_sizes) for plan in plans]
    assert {met.count((kind, sizes)) for kind in KINDS for sizes in ("equal", "estimated")} == {2}
    assert {plan.class_sizes for plan in plans[:2]} == {"equal", "estimated"}
    lambdas = [plan.trade_off for plan in plans if plan.class_sizes == "estimated"]
    assert sorted(lambdas) == [0.1, 0.1, 0.2, 0.2, 0.5, 0.5, 1.0, 1.0]
    assert {plan.trade_off for plan in plans if plan.class_sizes == "equal"} == {0.1}


def test_a_lambda_that_is_given_is_that_of_every_member():
    plans = plan_members(8, 0, n_directions=64, class_sizes=("estimated",), trade_offs=(0.3,))
    assert {plan.trade_off for plan in plans} == {0.3}


def test_members_of_several_embeddings_take_turns():
    plans = plan_members(12, 0, n_directions=64, n_embeddings=3)
    assert {(plan.representation, plan.embedding) for plan in plans} == {(k, e) for k in KINDS for e in range(3)}


def test_the_seed_says_what_the_members_are_seeded_with_and_the_first_stay_the_same():
    first, again, other = (plan_members(8, seed, n_directions=64) for seed in (0, 0, 1))
    assert first == again
    assert {plan.seed for plan in first}.isdisjoint(plan.seed for plan in other)
    assert [plan.representation for plan in first] == [plan.representation for plan in other]


# -- hidden labels --------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 20))
@settings(max_examples=50, deadline=None)
def test_folds_are_even_and_leave_a_label_of_each_class(sizes, seed):
    order = torch.randperm(sum(sizes), generator=torch.Generator().manual_seed(seed))
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))[order]
    folds = label_folds(labels, seed)
    for c, size in enumerate(sizes):
        of_class = folds[labels == c]
        if size == 1:
            assert of_class.tolist() == [-1], "the one label of a class is never hidden"
            continue
        counts = torch.bincount(of_class, minlength=N_FOLDS)
        assert len(counts) == N_FOLDS
        assert counts.max() - counts.min() <= 1
        assert counts.max() < size, "every member sees a label of it"


def test_small_classes_do_not_all_hide_in_the_same_member():
    labels = torch.arange(80).repeat_interleave(3)
    counts = torch.bincount(label_folds(labels, 0), minlength=N_FOLDS)
    assert counts.tolist() == [30] * N_FOLDS


def test_folds_are_drawn_from_the_seed():
    labels = torch.arange(3).repeat(20)
    first, again, other = (label_folds(labels, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len(label_folds(labels[:0], 0)) == 0


# -- a member -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "parameters",
    [{"h": "none"}, {}, {"rank": 2}, {"h": "linear"}, {"h": "mlp"}],
    ids=["none", "semantic-bias", "low-rank", "linear", "mlp"],
)
def test_a_member_to_bytes_and_back_is_the_same_to_the_bit(trainer, parameters):
    train = trainer(**parameters)
    plan = plan_members(4, 0, n_directions=8)[3]
    member = train(plan)
    back = Member.from_bytes(member.to_bytes(), train.untrained(plan))
    assert back.plan == plan
    assert type(back.head.transform) is type(member.head.transform)
    assert back.history == member.history
    assert back.head.temperature == member.head.temperature
    for name, value in member.head.parameters.items():
        assert torch.equal(value, back.head.parameters[name])
    assert torch.equal(back(train.x), member(train.x))
    assert back.to_bytes() == member.to_bytes()


def test_a_member_is_trained_on_a_part_of_the_rows_without_labels(trainer, monkeypatch):
    train = trainer()  # 45 labels and 105 other rows
    first, second = plan_members(2, 0, n_directions=8)
    assert sorted(train._rows_of(first)[0].tolist()) == list(range(150)), "few rows per class: all of them"
    monkeypatch.setattr(members, "LEAST_ROWS", 1)
    rows, labels = train._rows_of(first)
    hidden = train.folds == first.fold
    assert torch.equal(labels, train.labels[~hidden])
    assert torch.equal(rows[: len(labels)], torch.nonzero(~hidden).flatten()), "every label that it sees"
    others = rows[len(labels) :].tolist()
    assert len(others) == len(set(others)) == round(0.5 * (105 + int(hidden.sum())))
    assert not set(others) & set(rows[: len(labels)].tolist())
    assert torch.equal(train._rows_of(first)[0], rows)
    assert set(train._rows_of(second)[0].tolist()) != set(rows.tolist())
    monkeypatch.setattr(members, "LEAST_ROWS", 15)
    assert len(train._rows_of(first)[0]) == len(labels) + 15 * 5


def test_damaged_bytes_are_refused(trainer):
    train, (plan, other) = trainer(h="none"), plan_members(2, 0, n_directions=8)
    data, like = train(plan).to_bytes(), train.untrained(plan)
    assert Member.from_bytes(data, train.untrained(other)) is None
    for broken in (data[:-3], b"", b"{}"):
        with pytest.raises(ValueError, match=r"not written by this program|Expecting value"):
            Member.from_bytes(broken, like)
    tensors, facts = unpack(data)
    history = facts["history"]
    for changed, said in [
        ({"shift": tensors["shift"][:3]}, r"shift has shape \(3,\) and not \(8,\)"),
        ({"matrix": tensors["matrix"].double()}, r"matrix has dtype torch.float64 and not torch.float32"),
        ({"head.prototypes": tensors["head.prototypes"] * torch.nan}, "head.prototypes is not finite"),
        ({"other": tensors["shift"].clone()}, "its tensors are .*, other, shift and not"),
    ]:
        with pytest.raises(ValueError, match=said):
            Member.from_bytes(pack({**tensors, **changed}, facts), like)
    for changed in (None, history[:-1], [*history[:-1], {}], [*history[:-1], dict.fromkeys(history[0], "x")]):
        with pytest.raises(ValueError, match="its history"):
            Member.from_bytes(pack(tensors, {**facts, "history": changed}), like)


def test_the_same_plan_gives_the_same_member_and_another_seed_another(trainer):
    train = trainer()
    plans = plan_members(2, 0, n_directions=8), plan_members(2, 1, n_directions=8)
    first, again, other = train(plans[0][0]), train(plans[0][0]), train(plans[1][0])
    assert first.to_bytes() == again.to_bytes()
    assert not torch.equal(first.head.prototypes, other.head.prototypes)


@pytest.mark.parametrize("number", range(4))
def test_a_member_knows_nothing_of_the_labels_that_it_is_not_to_see(trainer, number):
    """Other labels in its fold change no bit of it, in none of the representations."""
    train = trainer()
    plan = plan_members(4, 0, n_directions=8)[number]
    labels = train.labels.clone()
    hidden = train.folds == plan.fold
    assert hidden.any()
    labels[hidden] = (labels[hidden] + 1) % 3
    other = Trainer(train.x, labels, train.folds, 5, train.objective, train.schedule, train.new_head)
    assert train(plan).to_bytes() == other(plan).to_bytes()
    labels[~hidden] = (labels[~hidden] + 1) % 3
    assert train(plan).to_bytes() != other(plan).to_bytes()


def test_the_mean_history_by_hand(trainer):
    train = trainer(h="none")
    members = [train(plan) for plan in plan_members(2, 0, n_directions=8)]
    mean = mean_history(members)
    assert len(mean) == SCHEDULE.max_iter
    for step, one, other in zip(mean, members[0].history, members[1].history, strict=True):
        assert step["objective"] == pytest.approx((one["objective"] + other["objective"]) / 2)


def test_without_labels_neighbors_agree_and_clusters_whiten(trainer, monkeypatch):
    train = trainer()
    none = train.labels[:0]
    calls = []
    monkeypatch.setattr(members, "train_on_pairs", lambda x, labels, head, seed: calls.append((len(x), seed)))
    plans = plan_members(4, 0, n_directions=8)
    assert [plan.representation for plan in plans] == ["raw", "centred", "mildly whitened", "whitened"]
    train(plans[0])
    assert calls == [], "labels say more than neighbors"
    without = replace(train, labels=none, folds=none)
    without(plans[0])
    assert calls == [(len(without._rows_of(plans[0])[0]), plans[0].seed)]
    whitened, centred = without.fit_representation(plans[3]), without.fit_representation(plans[1])
    torch.testing.assert_close(whitened(train.x), centred(train.x))
    clusters = torch.arange(len(train.x)) % 5
    by_clusters = replace(without, clusters=clusters).fit_representation(plans[3])
    expected = fit_representation("whitened", train.x, clusters, 8)
    torch.testing.assert_close(by_clusters(train.x), expected(train.x))
    assert not torch.allclose(by_clusters(train.x), centred(train.x))


def test_few_labels_are_helped_by_neighbors_and_clusters(trainer, monkeypatch):
    train = trainer()
    calls = []
    monkeypatch.setattr(members, "train_on_pairs", lambda x, labels, head, seed: calls.append(labels.tolist()))
    whitened = plan_members(4, 0, n_directions=8)[3]
    n_known = int(train.labels.max()) + 1
    some = torch.cat([torch.nonzero(train.labels == c)[: members.FEW_LABELS, 0] for c in range(n_known)])
    few = replace(train, labels=train.labels[some], folds=train.folds[some])
    assert few.has_few_labels
    assert not train.has_few_labels
    assert few.n_steps > train.n_steps
    few(whitened)
    assert calls == [few._rows_of(whitened)[1].tolist()], "without those that the member is not to see"
    clusters = torch.arange(len(train.x)) % 5
    by_clusters = replace(few, clusters=clusters).fit_representation(whitened)
    expected = fit_representation("whitened", train.x, clusters, 8)
    torch.testing.assert_close(by_clusters(train.x), expected(train.x))
