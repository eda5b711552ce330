"""Each term of the objective: by hand for two classes, then against autograd, with and without mass in a class."""

from math import log

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpim.core import objective

CASES = {
    "random": (7, 4),
    "two classes": (5, 2),
    "one row": (1, 3),
    "identical rows": (6, 3),
    "a class without mass": (6, 4),
    "two classes, one without mass": (4, 2),
}


def logits_of(case, dtype=torch.float64):
    n, k = CASES[case]
    logits = 2.0 * torch.randn(n, k, generator=torch.Generator().manual_seed(3), dtype=dtype)
    if "identical" in case:
        logits[:] = logits[0].clone()
    if "without mass" in case:
        logits[:, 1] = -1e4  # exp underflows: z[:, 1] is exactly zero
    return logits


@pytest.fixture(params=list(CASES))
def logits(request):
    return logits_of(request.param)


def probabilities(logits):
    log_z = torch.log_softmax(logits, dim=1)
    return log_z.exp(), log_z


def by_autograd(logits, loss):
    leaf = logits.clone().requires_grad_()
    value = loss(torch.softmax(leaf, dim=1), torch.log_softmax(leaf, dim=1))
    value.backward()
    return value.detach(), leaf.grad


def check(gradient, total, logits, loss):
    value, expected = by_autograd(logits, loss)
    assert torch.isfinite(value)
    assert torch.isfinite(expected).all()
    torch.testing.assert_close(torch.as_tensor(total, dtype=value.dtype), value, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


def marginal_gradient(z, marginal, n_rows):
    """The gradient of M alone: no row's entropy has a weight."""
    slope = objective.log_marginal(marginal) / n_rows
    return objective.infomax_gradient(z, torch.zeros_like(z), slope, z.new_zeros(len(z), 1), z.new_zeros(len(z)))


def entropy_gradient(z, log_z, weight):
    """The gradient of sum_i w_i H(z_i) alone: the marginal has no slope."""
    entropies = objective.entropy(z, log_z)
    return objective.infomax_gradient(z, log_z, z.new_zeros(z.shape[1]), weight.reshape(-1, 1), entropies)


# -- by hand --------------------------------------------------------------------------------------------------------

# Two rows over two classes. With two classes the softmax's chain rule z * (c - <z, c>) is
# z0 z1 (c0 - c1) for class 0 and its negative for class 1; z0 z1 is 3/16 in the first row, 1/4 in the second.
Z = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=torch.float64)


def test_marginal_entropy_by_hand():
    marginal = Z.mean(dim=0)  # 5/8, 3/8
    value = objective.marginal_entropy(marginal, objective.log_marginal(marginal))
    assert value == pytest.approx(5 / 8 * log(5 / 8) + 3 / 8 * log(3 / 8), rel=1e-12)
    # dM/dz = (log pi + 1)/N, so c0 - c1 = log(5/3)/2
    slope = log(5 / 3) / 2
    expected = torch.tensor([[3 / 16 * slope, -3 / 16 * slope], [slope / 4, -slope / 4]], dtype=torch.float64)
    torch.testing.assert_close(marginal_gradient(Z, marginal, 2), expected, rtol=1e-12, atol=0.0)


def test_marginal_with_shares_by_hand():
    shares = torch.tensor([0.75, 0.25], dtype=torch.float64)
    log_pi = objective.log_marginal(Z.mean(dim=0), shares)
    # pi / (K q) = (5/8) / (3/2), (3/8) / (1/2)
    assert log_pi.tolist() == pytest.approx([log(5 / 12), log(3 / 4)], rel=1e-12)
    # At pi = q each is log(1/K), and M = -log K, the least that it can be.
    assert objective.log_marginal(shares, shares).tolist() == pytest.approx([-log(2), -log(2)], rel=1e-12)


def test_conditional_entropy_by_hand():
    entropies = objective.entropy(Z, Z.log())
    # H(3/4, 1/4) = log 4 - 3/4 log 3; H(1/2, 1/2) = log 2, at its maximum, where the gradient is zero
    assert entropies.tolist() == pytest.approx([log(4) - 0.75 * log(3), log(2)], rel=1e-12)
    # C is their mean over U
    assert objective.conditional_entropy(entropies, 2) == pytest.approx((log(8) - 0.75 * log(3)) / 2, rel=1e-12)
    gradient = entropy_gradient(Z, Z.log(), torch.tensor([1.0, 0.5], dtype=torch.float64))
    # dH/dz = -log z - 1, so c0 - c1 = -log 3 in the first row: more of class 0 makes the row more confident
    slope = 3 / 16 * log(3)
    assert gradient[0].tolist() == pytest.approx([-slope, slope], rel=1e-12)
    assert gradient[1].tolist() == pytest.approx([0.0, 0.0], abs=1e-15)


def test_the_confident_rows_by_hand():
    largest = torch.tensor([0.5, 0.51, 0.2, 1.0], dtype=torch.float64)
    assert objective.confident_rows(largest, 0.5).tolist() == [0.0, 1.0, 0.0, 1.0]


def test_pseudo_label_entropy_by_hand():
    # eta lambda / |T| = 0.5, T holds the last two of three rows
    in_t = torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64)
    entropies = torch.tensor([9.0, 0.25, 0.5], dtype=torch.float64)
    assert objective.pseudo_label_entropy(entropies, in_t, 0.5) == 0.375


@pytest.mark.parametrize(
    ("in_t", "expected"), [(None, [0.0, 2.0, 2.0]), ([0.0, 0.0, 1.0], [0.0, 2.0, 5.0])], ids=["without T", "with T"]
)
def test_entropy_weights_by_hand(in_t, expected):
    # One labelled row; lambda/|U| = 2, eta lambda/|T| = 3
    in_t = None if in_t is None else torch.tensor(in_t)
    assert objective.entropy_weights(torch.zeros(3), 1, 2.0, in_t, 3.0).tolist() == [[w] for w in expected]


def test_cross_entropy_by_hand():
    target = torch.tensor([[1.0, 0.0], [0.25, 0.75]], dtype=torch.float64)
    term = objective.cross_entropy(Z, Z.log(), target, weight=0.5)
    assert term.values.tolist() == pytest.approx([log(4 / 3), log(2)], rel=1e-12)
    # (z - target) / 2
    assert term.gradient.tolist() == [[-0.125, 0.125], [0.125, -0.125]]


def test_mixed_labels_by_hand():
    pseudo = torch.tensor([[0.6, 0.4], [0.1, 0.9]], dtype=torch.float64)
    mix = objective.mixed_labels(torch.tensor([0, 0]), pseudo, beta=0.2)
    # 0.8 onehot(0) + 0.2 Y^
    assert mix.tolist() == [pytest.approx([0.92, 0.08]), pytest.approx([0.82, 0.18])]


def test_the_supervised_terms_by_hand():
    labels, weight = torch.tensor([0, 1]), 1 / 4  # two more labelled rows are in another block
    ce = objective.supervised_cross_entropy(Z, Z.log(), labels, weight)
    assert ce.values.tolist() == pytest.approx([log(4 / 3), log(2)], rel=1e-12)
    assert ce.gradient.tolist() == [[-0.0625, 0.0625], [0.125, -0.125]]
    pseudo = torch.tensor([[0.5, 0.5], [0.5, 0.5]], dtype=torch.float64)
    l_s = objective.mixed_cross_entropy(Z, Z.log(), labels, pseudo, 0.5, weight)
    # mix is (3/4, 1/4) and (1/4, 3/4)
    assert l_s.values.tolist() == pytest.approx([0.75 * log(4 / 3) + 0.25 * log(4), log(2)], rel=1e-12)
    assert l_s.gradient.tolist() == [[0.0, 0.0], [0.0625, -0.0625]]


@pytest.mark.parametrize(("beta", "expected"), [(0.0, [0.0, 1.0, 0.0]), (1.0, [0.2, 0.3, 0.5])])
def test_mixed_labels_go_from_the_label_to_the_pseudo_label(beta, expected):
    pseudo = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64)
    assert objective.mixed_labels(torch.tensor([1]), pseudo, beta)[0].tolist() == pytest.approx(expected)


def test_one_hot():
    assert objective.one_hot(torch.tensor([2, 0]), 3, torch.float32).tolist() == [[0, 0, 1], [1, 0, 0]]


# -- against autograd -----------------------------------------------------------------------------------------------


def plain_marginal_entropy(z, log_z):
    pi = z.mean(dim=0)
    return (pi[pi > 0] * pi[pi > 0].log()).sum()


def test_marginal_entropy_against_autograd(logits):
    z, _ = probabilities(logits)
    pi = z.mean(dim=0)
    value = objective.marginal_entropy(pi, objective.log_marginal(pi))
    check(marginal_gradient(z, pi, len(z)), value, logits, plain_marginal_entropy)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 999), k=st.integers(2, 6))
def test_marginal_with_shares_is_least_at_the_shares(seed, k):
    generator = torch.Generator().manual_seed(seed)
    shares, pi = torch.softmax(torch.randn(2, k, generator=generator, dtype=torch.float64), dim=1)
    excess = float((pi * objective.log_marginal(pi, shares)).sum()) + log(k)
    # By Pinsker's inequality, as M + log K is the divergence of pi from the shares.
    assert excess >= 0.5 * float((pi - shares).abs().sum()) ** 2 > 0.0


def test_marginal_with_shares_against_autograd(logits):
    z, _ = probabilities(logits)
    n, k = z.shape
    shares = torch.arange(1, k + 1, dtype=torch.float64) / (k * (k + 1) / 2)
    slope = objective.log_marginal(z.mean(dim=0), shares) / n
    gradient = objective.infomax_gradient(z, torch.zeros_like(z), slope, z.new_zeros(n, 1), z.new_zeros(n))

    def divergence(z, log_z):
        pi = z.mean(dim=0)
        there = pi > 0
        return (pi[there] * (pi[there] / (k * shares[there])).log()).sum()

    torch.testing.assert_close(gradient, by_autograd(logits, divergence)[1], rtol=1e-9, atol=1e-12)


def test_equal_shares_change_nothing_in_the_marginal(logits):
    pi = probabilities(logits)[0].mean(dim=0)
    equal = torch.full_like(pi, 1 / len(pi))
    torch.testing.assert_close(objective.log_marginal(pi, equal), objective.log_marginal(pi), rtol=0.0, atol=1e-15)


def test_marginal_entropy_of_parts_is_that_of_the_whole(logits):
    z, _ = probabilities(logits)
    marginal = z.mean(dim=0)
    parts = [marginal_gradient(part, marginal, len(z)) for part in z.split(2)]
    torch.testing.assert_close(torch.cat(parts), by_autograd(logits, plain_marginal_entropy)[1], rtol=1e-9, atol=1e-12)


def test_conditional_entropy_against_autograd(logits):
    z, log_z = probabilities(logits)
    kept = log_z.clone()
    weight = torch.linspace(0.0, 2.0, len(z), dtype=torch.float64)
    total = objective.pseudo_label_entropy(objective.entropy(z, log_z), weight, 1.0)
    gradient = entropy_gradient(z, log_z, weight)
    check(gradient, total, logits, lambda z, log_z: -(weight[:, None] * z * log_z).sum())
    assert torch.equal(log_z, kept), "the caller's log z is left as it was"


def test_conditional_entropy_of_an_empty_t(logits):
    z, log_z = probabilities(logits)
    in_t = torch.zeros(len(z), dtype=torch.float64)
    assert (entropy_gradient(z, log_z, in_t) == 0).all()
    assert torch.isfinite(objective.entropy(z, log_z)).all()
    assert objective.pseudo_label_entropy(objective.entropy(z, log_z), in_t, 1.0) == 0.0


def test_cross_entropy_against_autograd(logits):
    z, log_z = probabilities(logits)
    n, k = z.shape
    classes = 2 * torch.arange(n) % k  # with "a class without mass" these are 0, 2: never the class at -1e4
    target = objective.one_hot(classes, k, torch.float64)
    term = objective.cross_entropy(z, log_z, target, 1 / n)
    check(term.gradient, term.values.mean(), logits, lambda z, log_z: torch.nn.functional.nll_loss(log_z, classes))


def test_cross_entropy_towards_a_class_without_mass():
    logits = logits_of("a class without mass")
    z, log_z = probabilities(logits)
    classes = torch.ones(len(z), dtype=torch.long)
    term = objective.cross_entropy(z, log_z, objective.one_hot(classes, z.shape[1], torch.float64), 1.0)
    check(term.gradient, term.values.sum(), logits, lambda z, log_z: -log_z[:, 1].sum())
    assert (term.gradient[:, 1] == -1).all(), "the pull towards its label is at its strongest"


def test_one_labelled_class(logits):
    z, log_z = probabilities(logits)
    classes = torch.zeros(len(z), dtype=torch.long)
    term = objective.cross_entropy(z, log_z, objective.one_hot(classes, z.shape[1], torch.float64), 1.0)
    check(term.gradient, term.values.sum(), logits, lambda z, log_z: -log_z[:, 0].sum())


def test_no_labelled_rows():
    z = torch.empty(0, 3, dtype=torch.float64)
    target = objective.one_hot(torch.empty(0, dtype=torch.long), 3, torch.float64)
    term = objective.cross_entropy(z, z, target, 1.0)
    assert term.values.shape == (0,)
    assert term.gradient.shape == (0, 3)


def test_mixed_labels_against_autograd(logits):
    z, log_z = probabilities(logits)
    n, k = z.shape
    classes = torch.arange(n) % k
    other = torch.softmax(torch.randn(n, k, generator=torch.Generator().manual_seed(5), dtype=torch.float64), dim=1)
    onehot = torch.nn.functional.one_hot(classes, k).double()
    plain = 0.7 * onehot + 0.3 * other
    mix = objective.mixed_labels(classes, other.clone(), 0.3)
    torch.testing.assert_close(mix, plain, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(mix.sum(dim=1), torch.ones(n, dtype=torch.float64))
    term = objective.cross_entropy(z, log_z, mix, 1 / n)
    check(term.gradient, term.values.mean(), logits, lambda z, log_z: -(plain * log_z).sum() / n)


def test_infomax_gradient_is_that_of_the_sum(logits):
    z, log_z = probabilities(logits)
    weight = torch.linspace(0.5, 1.5, len(z), dtype=torch.float64)
    slope = objective.log_marginal(z.mean(dim=0)) / len(z)
    gradient = objective.infomax_gradient(z, log_z, slope, weight[:, None], objective.entropy(z, log_z))
    _, expected = by_autograd(
        logits, lambda z, log_z: plain_marginal_entropy(z, log_z) - (weight[:, None] * z * log_z).sum()
    )
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("case", list(CASES))
def test_finite_in_single_precision(case):
    z, log_z = probabilities(logits_of(case, torch.float32))
    target = objective.one_hot(torch.zeros(len(z), dtype=torch.long), z.shape[1], z.dtype)
    pi, entropies, ce = z.mean(dim=0), objective.entropy(z, log_z), objective.cross_entropy(z, log_z, target, 1.0)
    for values, gradient in (
        (torch.tensor(objective.marginal_entropy(pi, objective.log_marginal(pi))), marginal_gradient(z, pi, len(z))),
        (entropies, entropy_gradient(z, log_z, torch.ones(len(z)))),
        (ce.values, ce.gradient),
    ):
        assert torch.isfinite(values).all()
        assert torch.isfinite(gradient).all()
        assert gradient.dtype == torch.float32
