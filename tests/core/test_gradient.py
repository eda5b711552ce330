"""The whole objective and its gradient, against a plain autograd reading of docs/method.md."""

from dataclasses import replace

import pytest
import torch

from rpim.core import row_blocks as memory
from rpim.core.gradient import gradient
from rpim.core.head import Head
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks

NAMES = ["none", "semantic-bias", "low-rank", "linear", "linear-bias", "semantic-scale-bias", "mlp"]
OBJECTIVE = Objective(trade_off=0.3, eta=0.4, beta=0.25)  # eta far above its default, so that L_R can be seen
OBJECTIVES = {
    "mixed": OBJECTIVE,
    "added": replace(OBJECTIVE, supervision="added"),
    "without pseudo-labels": replace(OBJECTIVE, pseudo_labels=False),
    "without mixed labels": replace(OBJECTIVE, mixed_labels=False),
    "PIM": replace(OBJECTIVE, pseudo_labels=False, mixed_labels=False),
    "TIM": replace(OBJECTIVE, pseudo_labels=False, mixed_labels=False, marginal_rows="unlabelled"),
    "marginal over U, the rest as RPIM": replace(OBJECTIVE, marginal_rows="unlabelled"),
    "without labels": replace(OBJECTIVE, labels=False),
    "class shares": replace(
        OBJECTIVE, class_shares=torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64), threshold=0.7
    ),
    # Run to its limit: with a few rounds the pseudo-labels still depend on how the rows of z^(1/epsilon) are scaled.
    # The higher threshold keeps T a true part of U, for a smaller epsilon makes more confident pseudo-labels.
    "epsilon 0.3": replace(OBJECTIVE, sinkhorn_epsilon=0.3, sinkhorn_iterations=500, threshold=0.9),
}
N_FEATURES, N_CLASSES, TEMPERATURE = 5, 4, 4.0


@pytest.fixture
def compare(plain_terms):
    """Value, terms and gradient are those of autograd. Gives the terms back for a closer look."""

    def compare(x, labels, prototypes, transform, h, objective):
        head = Head(prototypes.clone(), transform, TEMPERATURE)
        value, gradients = gradient(InMemoryBlocks(x, labels, N_CLASSES), head, objective)

        leaves = {name: p.clone().requires_grad_() for name, p in head.parameters.items()}
        total, terms, share = plain_terms(leaves, h, x, labels, objective, TEMPERATURE)
        total.backward()
        assert value["objective"] == pytest.approx(total.item(), rel=1e-10, abs=1e-12)
        assert value["confident"] == pytest.approx(share)
        for name, term in terms.items():
            assert value[name] == pytest.approx(float(term.detach()), rel=1e-10, abs=1e-12), name
        assert gradients.keys() == leaves.keys()
        for name, leaf in leaves.items():
            assert torch.isfinite(leaf.grad).all(), name
            torch.testing.assert_close(
                gradients[name], leaf.grad, rtol=1e-8, atol=1e-11, msg=lambda m, n=name: f"{n}: {m}"
            )
        return value

    return compare


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("which", list(OBJECTIVES))
def test_gradient_against_autograd(name, which, make_transform, plain_h, random_problem, compare):
    objective = OBJECTIVES[which]
    value = compare(*random_problem(), make_transform(name, N_FEATURES), plain_h[name], objective)
    # The example is one in which the switched-on terms are there, and T is a true part of U.
    assert (value["L_R"] > 0) == objective.pseudo_labels
    assert not objective.pseudo_labels or 0 < value["confident"] < 1
    assert (value["L_S"] > 0) == (objective.labels and objective.mixed_labels)
    wants_ce = objective.labels and (not objective.mixed_labels or objective.supervision == "added")
    assert (value["CE"] > 0) == wants_ce


def test_epsilon_just_off_one_is_next_to_epsilon_one(make_transform, random_problem):
    x, labels, prototypes = random_problem()
    values = []
    for epsilon in (1.0, 1.0 - 1e-9):
        head = Head(prototypes, make_transform("none", N_FEATURES), TEMPERATURE)
        objective = replace(OBJECTIVE, sinkhorn_epsilon=epsilon)
        values.append(gradient(InMemoryBlocks(x, labels, N_CLASSES), head, objective)[0])
    assert values[1]["L_S"] == pytest.approx(values[0]["L_S"], abs=1e-6)


DEGENERATE = {
    "no labelled rows": {"n_labelled": 0},
    "all rows labelled": {"n_labelled": 40},
    "one labelled row": {"n_labelled": 1},
    "one labelled class": {"n_known": 1},
    "a single row": {"n": 1, "n_labelled": 0},
    "fewer rows than classes": {"n": 3, "n_labelled": 1},
}


@pytest.mark.parametrize("which", ["mixed", "added", "PIM", "TIM", "epsilon 0.3"])
@pytest.mark.parametrize("case", list(DEGENERATE))
def test_gradient_of_degenerate_problems(case, which, make_transform, plain_h, random_problem, compare):
    x, labels, prototypes = random_problem(**DEGENERATE[case])
    compare(
        x, labels, prototypes, make_transform("semantic-bias", N_FEATURES), plain_h["semantic-bias"], OBJECTIVES[which]
    )


@pytest.mark.parametrize("which", ["mixed", "added", "epsilon 0.3"])
def test_gradient_of_identical_rows(which, make_transform, plain_h, random_problem, compare):
    x, labels, prototypes = random_problem()
    x = x[:1].expand(len(x), -1).contiguous()
    compare(
        x, labels, prototypes, make_transform("semantic-bias", N_FEATURES), plain_h["semantic-bias"], OBJECTIVES[which]
    )


def test_gradient_without_a_confident_row(make_transform, plain_h, random_problem, compare):
    none_confident = replace(OBJECTIVE, threshold=1.1)
    transform, h = make_transform("semantic-bias", N_FEATURES), plain_h["semantic-bias"]
    value = compare(*random_problem(), transform, h, none_confident)
    assert value["confident"] == 0.0
    assert value["L_R"] == 0.0


def test_gradient_with_every_row_confident(make_transform, plain_h, random_problem, compare):
    all_confident = replace(OBJECTIVE, threshold=0.0)
    transform, h = make_transform("semantic-bias", N_FEATURES), plain_h["semantic-bias"]
    value = compare(*random_problem(), transform, h, all_confident)
    assert value["confident"] == 1.0
    # T = U, so L_R is eta lambda C
    assert value["L_R"] == pytest.approx(all_confident.eta * all_confident.trade_off * value["C"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("epsilon", [1.0, 0.05])
def test_a_class_no_row_chooses_stays_finite(dtype, epsilon, make_transform, random_problem):
    x, labels, prototypes = random_problem()
    x[:, 0] = x[:, 0].abs() + 0.5
    prototypes[-1] = 0.0
    prototypes[-1, 0] = -1e4  # z of the last class underflows to zero in every row
    head = Head(prototypes.to(dtype), make_transform("semantic-bias", N_FEATURES, move=0.0), 25.0)
    head.transform.parameters = {k: v.to(dtype) for k, v in head.transform.parameters.items()}
    rows = InMemoryBlocks(x.to(dtype), labels, N_CLASSES)
    value, gradients = gradient(rows, head, replace(OBJECTIVE, sinkhorn_epsilon=epsilon))
    assert (rows.z[:, -1] == 0).all()
    assert all(torch.isfinite(torch.tensor(v)) for v in value.values())
    assert all(torch.isfinite(g).all() for g in gradients.values())


@pytest.mark.parametrize("name", ["none", "semantic-bias", "low-rank"])
@pytest.mark.parametrize("which", ["mixed", "added", "epsilon 0.3"])
def test_many_blocks_give_what_one_gives(name, which, make_transform, monkeypatch, random_problem):
    # Labelled rows end inside the second of three blocks: a full one, a mixed one and one without labels.
    x, labels, prototypes = random_problem(n=700, n_labelled=300)
    results = []
    for limit, n_blocks in ((1 << 30, 1), (256 * 4 * max(N_CLASSES, N_FEATURES), 3)):
        monkeypatch.setattr(memory, "BLOCK_BYTES", limit)
        rows = InMemoryBlocks(x, labels, N_CLASSES)
        assert len(list(rows.blocks())) == n_blocks
        head = Head(prototypes.clone(), make_transform(name, N_FEATURES), TEMPERATURE)
        results.append(gradient(rows, head, OBJECTIVES[which]))
    (one, one_gradients), (many, many_gradients) = results
    assert many == pytest.approx(one, rel=1e-10)
    for key, expected in one_gradients.items():
        torch.testing.assert_close(many_gradients[key], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["none", "semantic-bias", "low-rank", "mlp"])
@pytest.mark.parametrize("which", ["mixed", "added", "epsilon 0.3"])
def test_probabilities_computed_again_are_the_same(name, which, make_transform, monkeypatch, random_problem):
    monkeypatch.setattr(memory, "BLOCK_BYTES", 1)
    x, labels, prototypes = random_problem(n=700, n_labelled=300)
    results = []
    for cache in (True, False):
        head = Head(prototypes.clone(), make_transform(name, N_FEATURES), TEMPERATURE)
        rows = InMemoryBlocks(x, labels, N_CLASSES, cache=cache)
        results.append(gradient(rows, head, OBJECTIVES[which]))
    assert rows.z.numel() + rows.log_z.numel() <= 2 * 256 * N_CLASSES, "memory for a block, not for all rows"
    (kept, kept_gradients), (again, again_gradients) = results
    assert again == kept
    assert all(torch.equal(again_gradients[key], value) for key, value in kept_gradients.items())


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("which", list(OBJECTIVES))
def test_pipelined_sinkhorn_gives_the_same_gradient_once_the_head_rests(
    which, cache, make_transform, monkeypatch, random_problem
):
    monkeypatch.setattr(memory, "BLOCK_BYTES", 1)
    x, labels, prototypes = random_problem(n=700, n_labelled=300)
    objective = replace(OBJECTIVES[which], sinkhorn_iterations=3)
    rows = InMemoryBlocks(x, labels, N_CLASSES, cache=cache)
    factors = x.new_zeros(3, N_CLASSES)
    head = Head(prototypes.clone(), make_transform("semantic-bias", N_FEATURES), TEMPERATURE)
    first, _ = gradient(rows, head, objective, factors=factors)
    assert first == gradient(rows, head, objective)[0], "the first step has all passes"
    head.prototypes.mul_(0.7)
    for _ in range(4):
        value, gradients = gradient(rows, head, objective, factors=factors)
    expected, slopes = gradient(rows, head, objective)
    assert value == pytest.approx(expected, rel=1e-10)
    for key, slope in slopes.items():
        torch.testing.assert_close(gradients[key], slope, rtol=1e-8, atol=1e-11)


def test_blocks_hold_every_row_once_and_its_label(monkeypatch, random_problem):
    monkeypatch.setattr(memory, "BLOCK_BYTES", 1)
    x, labels, _ = random_problem(n=700, n_labelled=300)
    blocks = list(InMemoryBlocks(x, labels, N_CLASSES).blocks())
    assert torch.equal(torch.cat([block.x for block in blocks]), x)
    assert torch.equal(torch.cat([block.labels for block in blocks]), labels)
    assert all(torch.equal(x[block.rows], block.x) for block in blocks)
