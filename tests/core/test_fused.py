"""The fused pass of the full semantic bias, against the plain formulas."""

import pytest
import torch

from rpim.core.fused import FusedPass
from rpim.core.head import Head
from rpim.core.transforms import TRANSFORMS

N_FEATURES, N_CLASSES, TEMPERATURE = 5, 4, 3.0


def plain_backward(x, upstream, parameters):
    """The gradients of B and b, given d(objective)/d(x'): u = x + Bx + b, x' = u / |u|, one row after the other.

    d(x')/du projects onto what is orthogonal to x', and divides by |u|.
    """
    d_b_matrix, d_b = torch.zeros_like(parameters["B"]), torch.zeros_like(parameters["b"])
    for row, above in zip(x, upstream, strict=True):
        u = row + parameters["B"] @ row + parameters["b"]
        x_new = u / u.norm()
        du = (above - (above @ x_new) * x_new) / u.norm()
        d_b_matrix += torch.outer(du, row)
        d_b += du
    return {"B": d_b_matrix, "b": d_b}


@pytest.fixture(params=[128, 2], ids=["one panel", "three panels"])
def problem(request, monkeypatch, make_transform):
    monkeypatch.setattr("rpim.core.fused.PANEL", request.param)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(7, N_FEATURES, generator=generator, dtype=torch.float64)
    prototypes = torch.randn(N_CLASSES, N_FEATURES, generator=generator, dtype=torch.float64)
    return x / x.norm(dim=1, keepdim=True), Head(prototypes, make_transform("semantic-bias", N_FEATURES), TEMPERATURE)


def gradient_of_logits(n, seed=1):
    """Rows that sum to zero, as those of any loss on softmax(logits) do."""
    gradient = torch.randn(n, N_CLASSES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return gradient - gradient.mean(dim=1, keepdim=True)


def test_the_semantic_bias_has_the_fused_pass(problem, make_transform):
    _, head = problem
    assert type(head.new_pass()) is FusedPass
    assert type(Head(head.prototypes, make_transform("low-rank", N_FEATURES)).new_pass()) is not FusedPass


def test_logits_are_those_of_the_transformed_rows(problem):
    x, head = problem
    expected = TEMPERATURE * head.transform(x) @ head.prototypes.T
    torch.testing.assert_close(head.new_pass().logits(x, 0), expected, rtol=1e-12, atol=1e-13)


def test_gradients_of_two_blocks_are_those_of_the_plain_formula_and_of_autograd(problem, plain_h):
    x, head = problem
    upstream = gradient_of_logits(len(x))
    fused = head.new_pass()
    for number, block in enumerate((slice(0, 3), slice(3, None))):
        log_z = torch.log_softmax(fused.logits(x[block], number), dim=1)
        fused.backward(x[block], number, log_z, upstream[block].clone())
    gradients = fused.gradients()

    d_x_new = TEMPERATURE * upstream @ head.prototypes
    plain = plain_backward(x, d_x_new, head.transform.parameters)
    plain["prototypes"] = TEMPERATURE * upstream.T @ head.transform(x)
    leaves = {name: value.clone().requires_grad_() for name, value in head.parameters.items()}
    logits = TEMPERATURE * plain_h["semantic-bias"](leaves, x) @ leaves["prototypes"].T
    (logits * upstream).sum().backward()
    assert gradients.keys() == plain.keys() == leaves.keys()
    for name, leaf in leaves.items():
        assert leaf.grad.abs().max() > 1e-3, "a gradient worth comparing"
        torch.testing.assert_close(gradients[name], plain[name], rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(gradients[name], leaf.grad, rtol=1e-9, atol=1e-12)


def test_a_row_shifted_onto_the_origin_stays_finite():
    prototypes = torch.eye(2, dtype=torch.float64)
    transform = TRANSFORMS["semantic-bias"].initial(prototypes)
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    transform.parameters["b"] -= x[0]  # x + b = 0 has no direction
    fused = Head(prototypes, transform).new_pass()
    log_z = torch.log_softmax(fused.logits(x, 0), dim=1)
    fused.backward(x, 0, log_z, torch.tensor([[1.0, -1.0]], dtype=torch.float64))
    assert torch.isfinite(log_z).all()
    assert all(torch.isfinite(gradient).all() for gradient in fused.gradients().values())
