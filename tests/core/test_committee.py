"""The mathematics of a committee: the consensus of members, and propagation between neighbors."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from rpim.core import committee
from rpim.core.committee import (
    Votes,
    average,
    balance,
    best_match,
    between_equal_and,
    calibrated_power,
    class_stability,
    collect_votes,
    match,
    nearest_neighbors,
    neighbor_mean,
    propagate,
    raised,
    size_trust,
    vote_embedding,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def voter(z):
    """A member that gives each row these very probabilities: row i is the number i."""
    return lambda x: z[x[:, 0].long()]


def numbered(n):
    return torch.arange(n, dtype=torch.float64)[:, None]


def probabilities(n=12, k=5, seed=0):
    # Sharp, with every class in use, so that a column is most like itself.
    own = torch.arange(n) % k
    logits = torch.randn(n, k, generator=seeded(seed), dtype=torch.float64)
    return torch.softmax(logits + 5.0 * torch.eye(k, dtype=torch.float64)[own], dim=1)


def votes_of(*members):
    return collect_votes(numbered(len(members[0])), [voter(z) for z in members], members[0].shape[1])


def together(*members, reference=None, **more):
    reference = members[0] if reference is None else reference
    return average(votes_of(*members), reference, **more)


FIRST = torch.tensor([[0.8, 0.1, 0.1], [0.0, 0.9, 0.1], [0.0, 0.1, 0.9], [0.0, 0.6, 0.4]]).double()
SECOND = torch.tensor([[0.6, 0.2, 0.2], [0.2, 0.0, 0.8], [0.0, 0.6, 0.4], [0.1, 0.9, 0.0]]).double()
THIRD = torch.tensor([[0.3, 0.4, 0.3], [0.0, 0.3, 0.7], [0.1, 0.8, 0.1], [0.0, 0.7, 0.3]]).double()


def test_matching_by_hand():
    # Of their last two classes FIRST and SECOND share 0.1 * 0.2 + 0.9 * 0.0 + 0.1 * 0.6 + 0.6 * 0.9 = 0.62 straight for
    # the first and 0.46 for the second, crosswise 0.74 and 1.04: crosswise it is.
    assert match(Votes(numbered(4), voter(SECOND)), FIRST).tolist() == [0, 2, 1]
    assert match(Votes(numbered(4), voter(FIRST)), FIRST).tolist() == [0, 1, 2]


def test_the_mean_by_hand():
    # The second and the third member have the last two classes the other way round.
    found = together(FIRST, SECOND, THIRD)
    assert found.orders.tolist() == [[0, 1, 2], [0, 2, 1], [0, 2, 1]]
    # Row 3: 0.6 + 0.0 + 0.3 for the second class, 0.4 + 0.9 + 0.7 for the third.
    assert found.probabilities[3].tolist() == pytest.approx([0.1 / 3, 0.9 / 3, 2.0 / 3])
    assert found.probabilities.argmax(dim=1).tolist() == [0, 1, 2, 2]


@given(st.lists(st.permutations([2, 3, 4]), min_size=1, max_size=4), st.integers(0, 20))
@settings(max_examples=25, deadline=None)
def test_permuted_members_give_back_the_same_mean(orders, seed):
    z = probabilities(seed=seed)
    found = together(*(z[:, [0, 1, *order]] for order in orders), reference=z)
    torch.testing.assert_close(found.probabilities, z)
    for order, back in zip(orders, found.orders, strict=True):
        assert torch.tensor([0, 1, *order])[back].tolist() == [0, 1, 2, 3, 4]


def test_classes_that_a_member_exchanged_are_exchanged_back():
    # Known classes too: with one or two labels each, a member may take the rows of one for those of the other.
    z = probabilities()
    found = together(z, 0.9 * z[:, [1, 0, 2, 3, 4]] + 0.02)
    assert found.orders.tolist() == [[0, 1, 2, 3, 4], [1, 0, 2, 3, 4]]
    torch.testing.assert_close(found.probabilities, 0.95 * z + 0.01)


def test_a_single_class():
    z = torch.ones(4, 1).double()
    torch.testing.assert_close(together(z, z).probabilities, z)


def test_a_class_is_not_given_twice_however_much_it_shares():
    # The second class of the member shares most with both; the one that gains more gets it.
    assert best_match(torch.tensor([[1.0, 6.0], [4.0, 10.0]])).tolist() == [0, 1]
    assert best_match(torch.tensor([[1.0, 9.0], [4.0, 6.0]])).tolist() == [1, 0]


def test_a_member_that_lost_a_class():
    # It has nothing in its third class, and the rows of it in the second: the class is matched with the empty one.
    z = torch.eye(3).double().repeat_interleave(4, 0)
    lost = torch.eye(3).double()[[0] * 4 + [1] * 8]
    found = together(z, z[:, [0, 2, 1]], lost)
    assert found.orders.tolist() == [[0, 1, 2], [0, 2, 1], [0, 1, 2]]
    assert found.probabilities[-1].tolist() == pytest.approx([0.0, 1 / 3, 2 / 3])
    assert found.probabilities.sum(dim=1).tolist() == pytest.approx([1.0] * 12)


@pytest.mark.parametrize("seed", range(4))
def test_members_are_matched_with_their_mean_where_the_reference_leads_astray(seed):
    generator = seeded(seed)

    def noisy(sharp, noise):
        logits = noise * torch.randn(60, 4, generator=generator, dtype=torch.float64)
        return torch.softmax(logits + sharp * torch.eye(4, dtype=torch.float64)[torch.arange(60) % 4], dim=1)

    calls = [torch.randperm(4, generator=generator) for _ in range(6)]  # what each member calls the classes
    members = [noisy(2.0, 1.0)[:, order] for order in calls]
    reference = noisy(0.3, 2.0)

    def n_readings(max_rounds):
        found = together(*members, reference=reference, max_rounds=max_rounds)
        return len({tuple(call[order].tolist()) for call, order in zip(calls, found.orders, strict=True)})

    assert n_readings(1) > 1, "such a reference matches some of them wrongly"
    assert n_readings(5) == 1


def test_blocks_give_the_same(monkeypatch):
    members = [probabilities(n=40, seed=seed) for seed in range(4)]
    whole = together(*members)
    monkeypatch.setattr(committee, "_BLOCK_ROWS", 7)
    parts = together(*members)
    torch.testing.assert_close(parts.probabilities, whole.probabilities)
    assert torch.equal(parts.orders, whole.orders)


@pytest.mark.parametrize(
    ("limit", "passes"),
    [(35 * 5, 1), (35 * 5 - 1, 5)],  # for the embedding, two matches with a mean between them, and the last mean
)
def test_votes_are_kept_where_they_are_small_and_else_computed_again(monkeypatch, limit, passes):
    monkeypatch.setattr(committee, "_BLOCK_ROWS", 10)
    asked, z = [], probabilities(n=35)

    def together(members):
        votes = collect_votes(numbered(35), members, 5)
        vote_embedding(votes, 5, 3, seed=0)
        return average(votes, z)

    expected = together([voter(z)])
    monkeypatch.setattr(committee, "_KEPT_VALUES", limit)
    found = together([lambda x: asked.append(len(x)) or voter(z)(x)])
    assert asked == passes * [10, 10, 10, 5]
    assert torch.equal(found.probabilities, expected.probabilities)
    assert torch.equal(found.orders, expected.orders)


def test_members_are_matched_by_a_sample_of_the_rows(monkeypatch):
    z = probabilities(n=400)
    orders = [[0, 1, 4, 2, 3], [0, 1, 3, 4, 2]]
    members = [voter(z[:, order]) for order in orders]
    asked = []
    matched = committee.match
    monkeypatch.setattr(committee, "match", lambda votes, z, *rest: asked.append(len(z)) or matched(votes, z, *rest))
    monkeypatch.setattr(committee, "_BLOCK_ROWS", 40)
    found = average(collect_votes(numbered(400), members, 5), z)
    assert set(asked) == {committee.MATCHING_ROWS * 5}
    torch.testing.assert_close(found.probabilities, z)  # of all rows
    for order, back in zip(orders, found.orders, strict=True):
        assert [order[c] for c in back] == [0, 1, 2, 3, 4]
    assert found.sizes.sum(dim=1).tolist() == [400, 400]


# -- balance --------------------------------------------------------------------------------------------------------


def test_balance_by_hand():
    p = torch.tensor([[0.6, 0.4], [0.9, 0.1]]).double()
    # Columns hold 1.5 and 0.5 and are to hold 1 each: [0.4, 0.8], [0.6, 0.2], then rows are scaled to one.
    found = balance(p, torch.tensor([0.5, 0.5]).double(), rounds=1)
    torch.testing.assert_close(found, torch.tensor([[1 / 3, 2 / 3], [0.75, 0.25]]).double())


@given(st.integers(0, 50), st.integers(2, 6))
@settings(max_examples=25, deadline=None)
def test_the_marginals_are_those_that_were_asked_for(seed, k):
    z = torch.softmax(torch.randn(40, k, generator=seeded(seed), dtype=torch.float64), dim=1)
    shares = torch.softmax(torch.randn(k, generator=seeded(seed + 1), dtype=torch.float64), dim=0)
    found = balance(z, shares, rounds=500)
    torch.testing.assert_close(found.mean(dim=0), shares, atol=1e-4, rtol=0)
    torch.testing.assert_close(found.sum(dim=1), torch.ones(40).double())
    few = balance(z, shares, rounds=3)
    assert float((few.mean(dim=0) - shares).abs().sum()) < float((z.mean(dim=0) - shares).abs().sum()) + 1e-12
    torch.testing.assert_close(few.sum(dim=1), torch.ones(40).double())


def test_a_row_with_a_label_keeps_it_and_an_empty_class_stays_empty():
    z = torch.tensor([[1.0, 0.0, 0.0], [0.7, 0.3, 0.0], [0.8, 0.2, 0.0]]).double()
    found = balance(z, torch.full((3,), 1 / 3).double(), rounds=10)
    assert found[0].tolist() == [1.0, 0.0, 0.0]
    assert found[:, 2].tolist() == [0.0, 0.0, 0.0]
    assert found.isfinite().all()


def test_trust_in_sizes_by_hand():
    # Sizes 1, 2, 3: a mean of 2 and a standard deviation of 1. Half of that is noise, a quarter of the variance.
    assert size_trust(torch.tensor([1.0, 2.0, 3.0]), noise=0.25) == pytest.approx(0.75)
    assert size_trust(torch.tensor([1.0, 2.0, 3.0]), noise=0.5) == pytest.approx(0.0)
    assert size_trust(torch.tensor([2.0, 2.0]), noise=0.1) == 0.0
    assert size_trust(torch.tensor([2.0]), noise=0.1) == 0.0


def test_shares_between_equal_and_found():
    found = torch.tensor([0.8, 0.2, 0.0]).double()
    assert between_equal_and(found, 0.0).tolist() == [1 / 3] * 3
    torch.testing.assert_close(between_equal_and(found, 1.0), found)
    halfway = between_equal_and(found, 0.5)  # as the square roots, 2 : 1
    assert float(halfway[0] / halfway[1]) == pytest.approx(2.0)
    assert float(halfway.sum()) == pytest.approx(1.0)


# -- stability ------------------------------------------------------------------------------------------------------


def test_class_stability_by_hand():
    classes = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    as_it_is = torch.eye(4).double()[classes]
    other = torch.eye(4).double()[torch.tensor([3, 0, 1, 1, 1, 3, 3])]  # and calls the class 2 its class 3
    orders = torch.tensor([[0, 1, 2, 3], [0, 1, 3, 2]])
    found = class_stability(votes_of(as_it_is, other), orders, classes, 1)
    # Row 0 is labelled. Of rows 1 to 6 the other has {1}, {2, 3, 4}, {5, 6}.
    assert found[0].tolist() == pytest.approx([1.0, 1.0, 1.0, np.nan], nan_ok=True)
    assert found[1].tolist() == pytest.approx([1 / 2, 2 / 3, 1.0, np.nan], nan_ok=True)


def test_a_class_that_a_member_lost_has_a_stability_of_zero():
    classes = torch.tensor([0, 0, 1, 1])
    found = class_stability(votes_of(torch.eye(2).double()[[0] * 4]), torch.tensor([[0, 1]]), classes, 0)
    assert found[0].tolist() == [0.5, 0.0]


def test_without_unlabelled_rows_no_class_has_a_stability():
    z = torch.eye(2).double()
    found = class_stability(votes_of(z), torch.tensor([[0, 1]]), torch.tensor([0, 1]), 2)
    assert found.isnan().all()


# -- votes ----------------------------------------------------------------------------------------------------------


def test_votes_keep_hellinger_distances():
    members = [probabilities(n=30, k=6, seed=seed)[:, torch.randperm(6, generator=seeded(seed))] for seed in range(5)]
    votes = vote_embedding(votes_of(*members), 6, 2000, seed=0)
    assert votes.shape == (30, 2000)
    # |sqrt(p) - sqrt(q)|^2 is twice the squared Hellinger distance; it adds up over the members.
    expected = sum(torch.cdist(z.sqrt(), z.sqrt()) ** 2 for z in members).sqrt()
    found = torch.cdist(votes, votes)
    apart = ~torch.eye(30, dtype=torch.bool)
    torch.testing.assert_close(found[apart], expected[apart], rtol=0.12, atol=0.0)


def test_votes_are_centred_and_drawn_from_the_seed(monkeypatch):
    members = [probabilities(n=30, seed=seed) for seed in range(3)]
    first, other = (vote_embedding(votes_of(*members), 5, 16, seed) for seed in (0, 1))
    torch.testing.assert_close(first.mean(dim=0), torch.zeros(16).double(), atol=1e-12, rtol=0)
    assert not torch.allclose(first, other)
    monkeypatch.setattr(committee, "_BLOCK_ROWS", 7)
    torch.testing.assert_close(vote_embedding(votes_of(*members), 5, 16, 0), first)


def test_what_members_call_their_classes_does_not_change_distances_much():
    z = probabilities(n=20, k=6)
    votes = [
        vote_embedding(votes_of(z, z[:, order]), 6, 4000, seed=0) for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 4, 2])
    ]
    torch.testing.assert_close(torch.cdist(*[votes[0]] * 2), torch.cdist(*[votes[1]] * 2), rtol=0.12, atol=1e-3)


@pytest.mark.parametrize("true_power", [0.5, 1.0, 2.0])
def test_the_power_by_which_labels_were_drawn_is_found(true_power):
    p = torch.softmax(2.0 * torch.randn(4000, 6, generator=seeded(), dtype=torch.float64), dim=1)
    labels = torch.multinomial(raised(p, true_power), 1, generator=seeded(1))[:, 0]
    assert calibrated_power(p, labels) == pytest.approx(true_power, rel=0.1)


def test_few_labels_change_the_confidence_little():
    p = torch.tensor([[0.6, 0.4]]).double()
    assert calibrated_power(p[:0], torch.empty(0, dtype=torch.long)) == 1.0
    few, many = (calibrated_power(p.repeat(n, 1), torch.zeros(n, dtype=torch.long)) for n in (5, 500))
    assert 1.0 < few < 1.2 < many <= 4.0


def test_a_power_keeps_the_order_of_the_classes():
    p = probabilities()
    for power in (0.3, 1.0, 3.0):
        z = raised(p, power)
        torch.testing.assert_close(z.sum(dim=1), torch.ones(12, dtype=torch.float64))
        assert torch.equal(z.argsort(dim=1), p.argsort(dim=1))
    torch.testing.assert_close(raised(p, 1.0), p)


def test_the_sizes_are_of_the_members_own_classes():
    found = together(FIRST, SECOND)
    assert found.sizes.tolist() == [[1, 2, 1], [1, 2, 1]]


def unit_rows(n, d=6, seed=0):
    return normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


@given(st.integers(2, 40), st.integers(1, 8), st.integers(0, 20))
@settings(max_examples=25, deadline=None)
def test_the_nearest_by_brute_force(n, k, seed):
    x = unit_rows(n, seed=seed)
    found = nearest_neighbors(x, k)
    cosine = x.numpy() @ x.numpy().T
    np.fill_diagonal(cosine, -np.inf)
    k = min(k, n - 1)
    assert found.shape == (n, k)
    expected = np.sort(cosine, axis=1)[:, ::-1][:, :k]
    np.testing.assert_allclose(np.take_along_axis(cosine, found.numpy(), axis=1), expected, atol=1e-12)
    assert not (found == torch.arange(n)[:, None]).any(), "no row is its own neighbor"


def test_blocks_give_the_same_neighbors(monkeypatch):
    x = unit_rows(50)
    whole = nearest_neighbors(x, 4)
    monkeypatch.setattr(committee, "_BLOCK_VALUES", 50 * 7)
    assert torch.equal(nearest_neighbors(x, 4), whole)
    monkeypatch.setattr(committee, "_BLOCK_VALUES", 1)  # not even one row fits
    assert torch.equal(nearest_neighbors(x, 4), whole)


def test_a_row_that_is_there_twice_has_its_copy_for_a_neighbor():
    x = unit_rows(5).repeat(2, 1)
    assert nearest_neighbors(x, 1).flatten().tolist() == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]


def test_a_row_alone_has_no_neighbors_and_keeps_what_was_said_of_it():
    found = nearest_neighbors(unit_rows(1), 5)
    assert found.shape == (1, 0)
    p = torch.tensor([[0.3, 0.7]])
    assert torch.equal(propagate(p, found, torch.empty(0, dtype=torch.long)), p)


def test_the_mean_over_neighbors_by_hand():
    values = torch.tensor([[1.0], [2.0], [4.0]])
    assert neighbor_mean(values, torch.tensor([[1, 2], [0, 0], [0, 1]])).flatten().tolist() == [3.0, 1.0, 1.5]
    assert values.flatten().tolist() == [1.0, 2.0, 4.0], "which stay as they are"


def test_propagation_by_hand():
    # Row 0 is labelled; row 1 has it for a neighbor, row 2 has row 1.
    p = torch.tensor([[0.1, 0.9], [0.4, 0.6], [0.2, 0.8]])
    graph, labels = torch.tensor([[1], [0], [1]]), torch.tensor([0])
    once = propagate(p, graph, labels, alpha=0.25, rounds=1)
    # 0.75 * 0.4 + 0.25 * 1, 0.75 * 0.2 + 0.25 * 0.4
    assert once[:, 0].tolist() == pytest.approx([1.0, 0.55, 0.25])
    twice = propagate(p, graph, labels, alpha=0.25, rounds=2)
    # Row 2 takes from what row 1 became; its own half is what was said at first: 0.75 * 0.2 + 0.25 * 0.55
    assert twice[:, 0].tolist() == pytest.approx([1.0, 0.55, 0.2875])
    assert p[0].tolist() == pytest.approx([0.1, 0.9]), "what was given stays as it is"


def test_without_rounds_nothing_but_the_labels_is_changed():
    p = torch.tensor([[0.1, 0.9], [0.4, 0.6]])
    found = propagate(p, torch.tensor([[1], [0]]), torch.tensor([0]), rounds=0)
    assert torch.equal(found, torch.tensor([[1.0, 0.0], [0.4, 0.6]]))


@given(st.integers(3, 30), st.integers(0, 3), st.integers(0, 20))
@settings(max_examples=25, deadline=None)
def test_labelled_rows_keep_their_label_and_rows_sum_to_one(n, n_labelled, seed):
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(torch.randn(n, 4, generator=generator, dtype=torch.float64), dim=1)
    labels = torch.randint(4, (n_labelled,), generator=generator)
    found = propagate(p, nearest_neighbors(unit_rows(n, seed=seed), 5), labels)
    assert torch.equal(found[:n_labelled], torch.eye(4, dtype=torch.float64)[labels])
    torch.testing.assert_close(found.sum(dim=1), torch.ones(n).double())
    assert found.min() >= 0.0


def test_neighbors_come_closer_together(blobs):
    x, truth = blobs([20, 20, 20], 8)
    p = torch.softmax(torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    found = propagate(p, nearest_neighbors(x), torch.empty(0, dtype=torch.long))
    for c in range(3):
        assert float(found[truth == c].std(dim=0).sum()) < 0.8 * float(p[truth == c].std(dim=0).sum())
