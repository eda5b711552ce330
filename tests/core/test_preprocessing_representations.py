"""Representations of the rows: raw, centred and whitened."""

import pytest
import torch

from rpim.core.preprocessing import KINDS, Representation, Whitening, fit_representation


def unit(rows):
    return rows / rows.norm(dim=1, keepdim=True)


def two_classes(n=2000, across=0.3, along=0.1):
    """Rows around (2, 0) and (0, 2) that spread three times as much along the second axis, half of them labelled."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(2 * n, 2, generator=generator, dtype=torch.float64) * torch.tensor([along, across])
    x = torch.tensor([[2.0, 0.0], [0.0, 2.0]], dtype=torch.float64).repeat_interleave(n, 0) + noise
    return x, torch.arange(2).repeat_interleave(n)


def test_raw_rows_are_only_scaled():
    x = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    found = fit_representation("raw", x, torch.tensor([0]))
    torch.testing.assert_close(found(x), torch.tensor([[0.6, 0.8], [0.0, 1.0]]))


def test_centred_rows_by_hand():
    # The mean is (1, 1): the rows point left, right and up from there.
    x = torch.tensor([[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]])
    found = fit_representation("centred", x, torch.tensor([0]))
    expected = unit(torch.tensor([[-1.0, -1.0], [1.0, -1.0], [0.0, 2.0]]))
    torch.testing.assert_close(found(x), expected)


def test_the_within_class_covariance_by_hand():
    # Around their means the four labelled rows are (-1, 0), (1, 0), (0, -2), (0, 2): S is diag(2, 8), over its mean
    # diag(0.4, 1.6). With two degrees of freedom half of it is shrunk away: diag(0.7, 1.3).
    x = torch.tensor([[4.0, 5.0], [6.0, 5.0], [-5.0, -3.0], [-5.0, 1.0], [0.0, 2.0]])
    found = Whitening.of(x, torch.tensor([0, 0, 1, 1]))
    assert found.mean.tolist() == pytest.approx([0.0, 2.0])
    assert found.values.tolist() == pytest.approx([0.7, 1.3])
    torch.testing.assert_close(found.matrix(0.5), torch.diag(torch.tensor([0.7, 1.3], dtype=torch.float64) ** -0.5))
    torch.testing.assert_close(found.matrix(0.25) @ found.matrix(0.25), found.matrix(0.5))
    whitened = fit_representation("whitened", x, torch.tensor([0, 0, 1, 1]))
    torch.testing.assert_close(whitened(x[:4]), unit((x[:4] - found.mean) * torch.tensor([0.7, 1.3]) ** -0.5))


def test_few_labels_are_trusted_less():
    # With one degree of freedom of two features the isotropic share is 2 / 3: values 2/3 and 4/3.
    found = Whitening.of(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [5.0, 5.0]]), torch.tensor([0, 0]))
    assert sorted(found.values.tolist()) == pytest.approx([2 / 3, 4 / 3])


def test_whitening_shrinks_the_direction_in_which_rows_of_a_class_differ():
    x, labels = two_classes()
    spread = {}
    for kind in ("centred", "mildly whitened", "whitened"):
        rows = fit_representation(kind, x, labels)(x)
        spread[kind] = float((rows - torch.stack([rows[labels == c].mean(dim=0) for c in (0, 1)])[labels]).norm())
    assert spread["whitened"] < spread["mildly whitened"] < spread["centred"]


def test_a_known_covariance_is_found():
    x, labels = two_classes()
    # Variances 0.01 and 0.09, over their mean 0.2 and 1.8, half shrunk 0.6 and 1.4.
    assert Whitening.of(x, labels).values.tolist() == pytest.approx([0.6, 1.4], abs=0.02)


@pytest.mark.parametrize("labels", [[0, 1, 2], []], ids=["one row a class", "no labels"])
def test_without_two_rows_of_a_class_whitened_rows_are_centred_ones(labels):
    x = torch.randn(20, 4, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor(labels, dtype=torch.long)
    whitened, centred = (fit_representation(kind, x, labels) for kind in ("whitened", "centred"))
    torch.testing.assert_close(whitened.matrix, torch.eye(4))
    torch.testing.assert_close(whitened(x), centred(x))


def test_labelled_rows_that_are_all_the_same_say_nothing():
    x = torch.cat([torch.ones(6, 3), torch.randn(6, 3, generator=torch.Generator().manual_seed(0))])
    found = fit_representation("whitened", x, torch.zeros(6, dtype=torch.long))
    torch.testing.assert_close(found.matrix, torch.eye(3))


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_any_variance_stay_finite(kind):
    x = torch.ones(8, 3)
    rows = fit_representation(kind, x, torch.tensor([0, 0, 1, 1]), 2)(x)
    assert rows.shape == (8, 2)
    assert rows.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_directions", "expected"), [(None, 5), (2, 2), (5, 5), (9, 5)])
def test_the_number_of_directions(kind, n_directions, expected):
    x = torch.randn(30, 5, generator=torch.Generator().manual_seed(2))
    found = fit_representation(kind, x, torch.arange(3).repeat(4), n_directions)
    assert found.matrix.shape == (expected, 5)
    assert found(x).shape == (30, expected)
    torch.testing.assert_close(found(x).norm(dim=1), torch.ones(30))


def test_the_directions_that_are_kept_are_those_of_most_variance():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(500, 4, generator=generator) * torch.tensor([0.1, 3.0, 0.1, 2.0])
    found = fit_representation("centred", x, torch.tensor([0]), 2)
    assert float(found.matrix[:, [1, 3]].norm() ** 2) == pytest.approx(2.0, abs=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_new_rows_get_the_map_of_the_old_ones(kind):
    x = torch.randn(60, 6, generator=torch.Generator().manual_seed(4))
    found = fit_representation(kind, x, torch.arange(4).repeat(5), 3)
    torch.testing.assert_close(found(x[:1]), found(x)[:1])  # a row alone, without the mean of the others
    moved = found(x + 10.0)
    assert moved.shape == (60, 3)
    by_hand = unit((x + 10.0) @ found.matrix.T + found.shift)
    torch.testing.assert_close(moved, by_hand)


def test_a_whitening_that_is_known_is_not_estimated_again():
    x, labels = two_classes(50)
    known = Whitening(torch.ones(2, dtype=torch.float64), torch.tensor([4.0, 1.0]).double(), torch.eye(2).double())
    found = fit_representation("whitened", x, labels, whitening=known)
    torch.testing.assert_close(found.matrix, torch.diag(torch.tensor([0.5, 1.0]).double()))
    assert found.shift.tolist() == [-0.5, -1.0]


def test_unlabelled_rows_say_nothing_of_the_covariance():
    x, labels = two_classes(50)
    more = torch.cat([x, 100.0 * torch.randn(30, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)])
    torch.testing.assert_close(Whitening.of(x, labels).values, Whitening.of(more, labels).values)


def test_a_zero_row_stays_zero():
    found = Representation(torch.eye(2), torch.zeros(2))
    assert found(torch.zeros(1, 2)).tolist() == [[0.0, 0.0]]
