"""The contrastive losses: terms worked out by hand, and what must hold for any projections."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpim.embedding.tuning import self_supervised_terms, supervised_terms

E1, E2 = [1.0, 0.0], [0.0, 1.0]


def test_self_supervised_by_hand():
    # Two items at right angles, both views of each the same: every view meets its like at cosine 1 and two others at 0.
    views = torch.tensor([E1, E2])
    terms = self_supervised_terms(views, views, torch.tensor([0, 1]), temperature=1.0)
    torch.testing.assert_close(terms, torch.full((4,), -math.log(math.e / (math.e + 2))))


def test_the_temperature_divides_the_cosines():
    views = torch.tensor([E1, E2])
    terms = self_supervised_terms(views, views, torch.tensor([0, 1]), temperature=0.5)
    torch.testing.assert_close(terms, torch.full((4,), -math.log(math.exp(2) / (math.exp(2) + 2))))


def test_supervised_by_hand():
    # Items a and b are of one class, at right angles, and c of another, opposite to a. Cosines at temperature 1:
    # a meets a' 1, b b' 0, c c' -1. Its likes are a', b, b'.
    first = torch.tensor([E1, E2, [-1.0, 0.0]])
    terms = supervised_terms(first, first, torch.tensor([5, 5, 7]), temperature=1.0)
    of_a = math.log(math.e + 2 + 2 / math.e) - (1 + 0 + 0) / 3
    of_b = math.log(math.e + 4) - (1 + 0 + 0) / 3
    of_c = math.log(math.e + 2 + 2 / math.e) - 1
    torch.testing.assert_close(terms, torch.tensor([of_a, of_b, of_c] * 2))


def test_the_first_views_come_before_the_second():
    # Item 0's views differ, item 1's are the same: the terms of item 0 are those at 0 and 2.
    first, second = torch.tensor([E1, E2]), torch.tensor([[-1.0, 0.0], E2])
    terms = self_supervised_terms(first, second, torch.tensor([0, 1]), temperature=1.0)
    of_0 = math.log(1 / math.e + 2) + 1
    of_1 = math.log(math.e + 2) - 1
    torch.testing.assert_close(terms, torch.tensor([of_0, of_1, of_0, of_1]))


def test_an_item_that_is_twice_in_the_batch_is_not_told_from_itself():
    views = torch.tensor([E1, E1, E2])
    terms = self_supervised_terms(views, views, torch.tensor([4, 4, 9]), temperature=1.0)
    of_4 = math.log(3 * math.e + 2) - 1  # three likes at cosine 1, two others at 0
    torch.testing.assert_close(terms[[0, 1, 3, 4]], torch.full((4,), of_4))


def test_one_class_alone_leaves_the_number_of_views():
    # All views the same and of one class: a share of one third each.
    views = torch.ones(2, 3)
    torch.testing.assert_close(supervised_terms(views, views, torch.tensor([1, 1])), torch.full((4,), math.log(3)))


projections = st.integers(0, 10_000).map(
    lambda seed: torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
)


@settings(max_examples=25, deadline=None)
@given(projections, st.floats(0.05, 2.0))
def test_terms_are_positive_and_do_not_depend_on_lengths_or_the_order_of_views(views, temperature):
    classes = torch.tensor([0, 0, 1, 2, 1])
    terms = supervised_terms(*views, classes, temperature)
    assert (terms > 0).all()
    stretched = supervised_terms(views[0] * 7, views[1] / 3, classes, temperature)
    torch.testing.assert_close(stretched, terms, rtol=1e-4, atol=1e-4)
    exchanged = supervised_terms(views[1], views[0], classes, temperature)
    torch.testing.assert_close(exchanged, terms.roll(5), rtol=1e-4, atol=1e-4)


@settings(max_examples=10, deadline=None)
@given(projections)
def test_a_step_down_the_gradient_brings_views_of_a_class_together(views):
    classes = torch.tensor([0, 0, 1, 2, 1])
    moving = views.clone().requires_grad_()
    before = supervised_terms(*moving, classes, 0.5).mean()
    before.backward()
    assert torch.isfinite(moving.grad).all()
    after = supervised_terms(*(views - 0.01 * moving.grad), classes, 0.5).mean()
    assert after < before


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_the_sums_are_made_in_float32(precision):
    views = torch.eye(4)[:, :4]
    exact = supervised_terms(views, views, torch.arange(4))
    assert supervised_terms(views.to(precision), views.to(precision), torch.arange(4)).dtype == torch.float32
    torch.testing.assert_close(supervised_terms(views.to(precision), views.to(precision), torch.arange(4)), exact)
