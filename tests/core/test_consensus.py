"""Members put together: matching by hand, permuted members, balance, stability, and votes as distances."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpim.core import consensus
from rpim.core.consensus import (
    average,
    balance,
    best_match,
    calibrated_power,
    class_stability,
    match,
    raised,
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


def together(*members, reference=None, n_known=0, **more):
    reference = members[0] if reference is None else reference
    return average(numbered(len(members[0])), [voter(z) for z in members], reference, n_known, **more)


FIRST = torch.tensor([[0.8, 0.1, 0.1], [0.0, 0.9, 0.1], [0.0, 0.1, 0.9], [0.0, 0.6, 0.4]]).double()
SECOND = torch.tensor([[0.6, 0.2, 0.2], [0.2, 0.0, 0.8], [0.0, 0.6, 0.4], [0.1, 0.9, 0.0]]).double()
THIRD = torch.tensor([[0.3, 0.4, 0.3], [0.0, 0.3, 0.7], [0.1, 0.8, 0.1], [0.0, 0.7, 0.3]]).double()


def test_matching_by_hand():
    # Of the new classes FIRST and SECOND share 0.1 * 0.2 + 0.9 * 0.0 + 0.1 * 0.6 + 0.6 * 0.9 = 0.62 straight for the
    # first and 0.46 for the second, crosswise 0.74 and 1.04: crosswise it is.
    assert match(numbered(4), voter(SECOND), FIRST, 1).tolist() == [0, 2, 1]
    assert match(numbered(4), voter(FIRST), FIRST, 1).tolist() == [0, 1, 2]


def test_the_mean_by_hand():
    # One known class, two new ones; the second and the third have the new ones the other way round.
    found = together(FIRST, SECOND, THIRD, n_known=1)
    assert found.orders.tolist() == [[0, 1, 2], [0, 2, 1], [0, 2, 1]]
    # Row 3: 0.6 + 0.0 + 0.3 for the first new class, 0.4 + 0.9 + 0.7 for the second.
    assert found.probabilities[3].tolist() == pytest.approx([0.1 / 3, 0.9 / 3, 2.0 / 3])
    assert found.probabilities.argmax(dim=1).tolist() == [0, 1, 2, 2]


@given(st.lists(st.permutations([2, 3, 4]), min_size=1, max_size=4), st.integers(0, 20))
@settings(max_examples=25, deadline=None)
def test_permuted_members_give_back_the_same_mean(orders, seed):
    z = probabilities(seed=seed)
    found = together(*(z[:, [0, 1, *order]] for order in orders), reference=z, n_known=2)
    torch.testing.assert_close(found.probabilities, z)
    for order, back in zip(orders, found.orders, strict=True):
        assert torch.tensor([0, 1, *order])[back].tolist() == [0, 1, 2, 3, 4]


def test_known_classes_are_never_matched():
    z = probabilities()
    swapped = 0.9 * z[:, [1, 0, 2, 3, 4]] + 0.02
    found = together(z, swapped, n_known=2)
    assert found.orders.tolist() == [[0, 1, 2, 3, 4]] * 2
    torch.testing.assert_close(found.probabilities, (z + swapped) / 2)


@pytest.mark.parametrize("n_known", [4, 5])
def test_one_new_class_or_none(n_known):
    z, other = probabilities(seed=0), probabilities(seed=1)
    torch.testing.assert_close(together(z, other, n_known=n_known).probabilities, (z + other) / 2)


def test_a_class_is_not_given_twice_however_much_it_shares():
    # The second class of the member shares most with both; the one that gains more gets it.
    assert best_match(torch.tensor([[1.0, 6.0], [4.0, 10.0]]), 0).tolist() == [0, 1]
    assert best_match(torch.tensor([[1.0, 9.0], [4.0, 6.0]]), 0).tolist() == [1, 0]


def test_a_member_that_lost_a_class():
    # It has nothing in its third class, and the rows of it in the second: the class is matched with the empty one.
    z = torch.eye(3).double().repeat_interleave(4, 0)
    lost = torch.eye(3).double()[[0] * 4 + [1] * 8]
    found = together(z, z[:, [0, 2, 1]], lost, n_known=1)
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
    whole = together(*members, n_known=2)
    monkeypatch.setattr(consensus, "_BLOCK_ROWS", 7)
    parts = together(*members, n_known=2)
    torch.testing.assert_close(parts.probabilities, whole.probabilities)
    assert torch.equal(parts.orders, whole.orders)


def test_no_matrix_of_rows_by_classes_is_held_for_a_member(monkeypatch):
    monkeypatch.setattr(consensus, "_BLOCK_ROWS", 10)
    asked = []
    z = probabilities(n=35)
    average(numbered(35), [lambda x: asked.append(len(x)) or voter(z)(x)], z, 2)
    assert max(asked) == 10


def test_members_are_matched_by_a_sample_of_the_rows(monkeypatch):
    z = probabilities(n=400)
    orders = [[0, 1, 4, 2, 3], [0, 1, 3, 4, 2]]
    members = [voter(z[:, order]) for order in orders]
    asked = []
    matched = consensus.match
    monkeypatch.setattr(consensus, "match", lambda x, *rest: asked.append(len(x)) or matched(x, *rest))
    monkeypatch.setattr(consensus, "_BLOCK_ROWS", 40)
    found = average(numbered(400), members, z, 2)
    assert set(asked) == {consensus.MATCHING_ROWS * 5}
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


# -- stability ------------------------------------------------------------------------------------------------------


def test_class_stability_by_hand():
    classes = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    as_it_is = torch.eye(4).double()[classes]
    other = torch.eye(4).double()[torch.tensor([3, 0, 1, 1, 1, 3, 3])]  # and calls the class 2 its class 3
    orders = torch.tensor([[0, 1, 2, 3], [0, 1, 3, 2]])
    found = class_stability(numbered(7), [voter(as_it_is), voter(other)], orders, classes, 1)
    # Row 0 is labelled. Of rows 1 to 6 the other has {1}, {2, 3, 4}, {5, 6}.
    assert found[0].tolist() == pytest.approx([1.0, 1.0, 1.0, np.nan], nan_ok=True)
    assert found[1].tolist() == pytest.approx([1 / 2, 2 / 3, 1.0, np.nan], nan_ok=True)


def test_a_class_that_a_member_lost_has_a_stability_of_zero():
    classes = torch.tensor([0, 0, 1, 1])
    found = class_stability(numbered(4), [voter(torch.eye(2).double()[[0] * 4])], torch.tensor([[0, 1]]), classes, 0)
    assert found[0].tolist() == [0.5, 0.0]


def test_without_unlabelled_rows_no_class_has_a_stability():
    z = torch.eye(2).double()
    found = class_stability(numbered(2), [voter(z)], torch.tensor([[0, 1]]), torch.tensor([0, 1]), 2)
    assert found.isnan().all()


# -- votes ----------------------------------------------------------------------------------------------------------


def test_votes_keep_hellinger_distances():
    members = [probabilities(n=30, k=6, seed=seed)[:, torch.randperm(6, generator=seeded(seed))] for seed in range(5)]
    votes = vote_embedding(numbered(30), [voter(z) for z in members], 6, 2000, seed=0)
    assert votes.shape == (30, 2000)
    # |sqrt(p) - sqrt(q)|^2 is twice the squared Hellinger distance; it adds up over the members.
    expected = sum(torch.cdist(z.sqrt(), z.sqrt()) ** 2 for z in members).sqrt()
    found = torch.cdist(votes, votes)
    apart = ~torch.eye(30, dtype=torch.bool)
    torch.testing.assert_close(found[apart], expected[apart], rtol=0.12, atol=0.0)


def test_votes_are_centred_and_drawn_from_the_seed(monkeypatch):
    members = [voter(probabilities(n=30, seed=seed)) for seed in range(3)]
    first, other = (vote_embedding(numbered(30), members, 5, 16, seed) for seed in (0, 1))
    torch.testing.assert_close(first.mean(dim=0), torch.zeros(16).double(), atol=1e-12, rtol=0)
    assert not torch.allclose(first, other)
    monkeypatch.setattr(consensus, "_BLOCK_ROWS", 7)
    torch.testing.assert_close(vote_embedding(numbered(30), members, 5, 16, 0), first)


def test_what_members_call_their_classes_does_not_change_distances_much():
    z = probabilities(n=20, k=6)
    votes = [
        vote_embedding(numbered(20), [voter(z), voter(z[:, order])], 6, 4000, seed=0)
        for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 4, 2])
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
    found = together(FIRST, SECOND, n_known=1)
    assert found.sizes.tolist() == [[1, 2, 1], [1, 2, 1]]
