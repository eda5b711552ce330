"""The transformations h: identity at the start, the formula of the table, and its derivative."""

import pytest
import torch

from rpim.core.transforms import TRANSFORMS, LowRankSemanticBias

NAMES = ["none", "semantic-bias", "low-rank", "linear", "linear-bias", "semantic-scale-bias", "mlp"]
N_FEATURES = 5


def rows(n=7, seed=0, n_features=N_FEATURES):
    x = torch.randn(n, n_features, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return x / x.norm(dim=1, keepdim=True)


def test_every_transformation_is_listed_under_its_name():
    assert set(TRANSFORMS) == set(NAMES) - {"low-rank"}


@pytest.mark.parametrize("name", NAMES)
def test_starts_as_the_identity_on_unit_rows(name, make_transform):
    transform = make_transform(name, N_FEATURES, move=0.0)
    x = rows()
    torch.testing.assert_close(transform(x), x, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", NAMES)
def test_forward_is_the_formula(name, make_transform, plain_h):
    transform = make_transform(name, N_FEATURES)
    x = rows()
    before = x.clone()
    x_new = transform(x)
    torch.testing.assert_close(x_new, plain_h[name](transform.parameters, x), rtol=1e-12, atol=1e-14)
    assert torch.equal(x, before), "the rows themselves are left as they were"
    if name != "none":
        assert not torch.allclose(x_new, x)


# "none" has no parameters, and the gradients of the full semantic bias are those of the fused pass: see test_fused.py.
@pytest.mark.parametrize("name", sorted(set(NAMES) - {"none", "semantic-bias"}))
def test_backward_against_autograd_and_adding_up(name, make_transform, plain_h):
    transform = make_transform(name, N_FEATURES)
    x = rows()
    upstream = torch.randn(len(x), N_FEATURES, generator=torch.Generator().manual_seed(2), dtype=torch.float64)

    leaves = {key: value.clone().requires_grad_() for key, value in transform.parameters.items()}
    (plain_h[name](leaves, x) * upstream).sum().backward()

    gradients = {key: torch.zeros_like(value) for key, value in transform.parameters.items()}
    for part in (slice(0, 3), slice(3, None)):  # in two blocks: they add up
        x_new, saved = transform.forward(x[part])
        transform.backward(x[part], x_new, saved, upstream[part].clone(), gradients)
    assert gradients.keys() == leaves.keys()
    for key, leaf in leaves.items():
        assert leaf.grad.abs().max() > 1e-3, "a gradient worth comparing"
        torch.testing.assert_close(gradients[key], leaf.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["semantic-bias", "low-rank", "semantic-scale-bias"])
def test_normalized_ones_give_unit_rows(name, make_transform):
    x_new = make_transform(name, N_FEATURES, move=2.0)(rows())
    torch.testing.assert_close(x_new.norm(dim=1), torch.ones(7, dtype=torch.float64))


def test_a_transformation_without_a_backward_pass_says_so():
    x = rows()
    for name in ("none", "semantic-bias"):
        with pytest.raises(NotImplementedError, match="has no backward pass of its own"):
            TRANSFORMS[name].initial(x).backward(x, x, None, x, {})


@pytest.mark.parametrize("rank", [None, 1])
def test_a_row_shifted_onto_the_origin_stays_finite(rank):
    transform = TRANSFORMS["semantic-bias"].initial(torch.empty(2, dtype=torch.float64), rank)
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    transform.parameters["b"] -= x[0]  # x + b = 0 has no direction
    x_new, saved = transform.forward(x)
    gradients = {key: torch.zeros_like(value) for key, value in transform.parameters.items()}
    if rank is not None:
        transform.backward(x, x_new, saved, torch.ones_like(x), gradients)
    assert torch.isfinite(x_new).all()
    assert all(torch.isfinite(g).all() for g in gradients.values())


def n_parameters(transform):
    return sum(value.numel() for value in transform.parameters.values())


def test_numbers_of_parameters():
    d = 8
    sizes = {name: n_parameters(kind.initial(torch.empty(d))) for name, kind in TRANSFORMS.items()}
    assert sizes == {
        "none": 0,
        "semantic-bias": d * d + d,
        "linear": d * d,
        "linear-bias": d * d + d,
        "semantic-scale-bias": 2 * (d * d + d),
        "mlp": 2 * (d * d + d),
    }


def test_rank_makes_the_semantic_bias_smaller():
    transform = TRANSFORMS["semantic-bias"].initial(torch.empty(8), rank=3)
    assert isinstance(transform, LowRankSemanticBias)
    assert n_parameters(transform) == 2 * 3 * 8 + 8
    # B = UV has the rank asked for, once U has left zero
    u = torch.randn(8, 3, generator=torch.Generator().manual_seed(0))
    assert torch.linalg.matrix_rank(u @ transform.parameters["V"]) == 3


def test_rank_is_drawn_from_the_generator():
    def draw(seed):
        generator = torch.Generator().manual_seed(seed)
        return TRANSFORMS["semantic-bias"].initial(torch.empty(8), rank=3, generator=generator).parameters["V"]

    assert torch.equal(draw(0), draw(0))
    assert not torch.equal(draw(0), draw(1))


@pytest.mark.parametrize("name", sorted(TRANSFORMS))
def test_in_the_precision_asked_for(name):
    for dtype in (torch.float32, torch.float64):
        transform = TRANSFORMS[name].initial(torch.empty(4, dtype=dtype))
        assert {value.dtype for value in transform.parameters.values()} <= {dtype}
        assert transform(torch.eye(4, dtype=dtype)).dtype == dtype
