"""One head that says what a committee says: the gradient, realisable targets, and the factor that takes it back."""

import math

import pytest
import torch

from rpim.core import row_blocks as engine_memory
from rpim.core.head import Head
from rpim.core.training import Schedule, distil, factor_rows, initial_head, matching_factor
from rpim.core.transforms import SemanticBias

N, D, K = 40, 5, 3


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def a_head(seed=0, temperature=4.0, scale=1.0):
    transform = SemanticBias({"B": 0.2 * randn(D, D, seed=seed), "b": 0.2 * randn(D, seed=seed + 1)})
    return Head(scale * randn(K, D, seed=seed + 2), transform, temperature)


def cross_entropy(head, x, targets):
    refined = x + x @ head.transform.parameters["B"].T + head.transform.parameters["b"]
    refined = refined / refined.norm(dim=1, keepdim=True)
    log_z = torch.log_softmax(head.temperature * refined @ head.prototypes.T, dim=1)
    return -(targets * log_z).sum(dim=1).mean()


@pytest.fixture
def rows():
    return torch.nn.functional.normalize(randn(N, D, seed=9)), torch.softmax(2.0 * randn(N, K, seed=10), dim=1)


def test_the_loss_is_the_cross_entropy_and_a_step_goes_against_its_gradient(rows):
    x, targets = rows
    head = a_head()
    before = {name: value.clone().requires_grad_() for name, value in head.parameters.items()}
    plain = Head(before["prototypes"], SemanticBias({"B": before["B"], "b": before["b"]}), head.temperature)
    loss = cross_entropy(plain, x, targets)
    loss.backward()
    found = distil(x, targets, head, Schedule(learning_rate=1e-3, weight_decay=0.0, max_iter=1))
    assert found == [pytest.approx(loss.item())]
    for name, value in head.parameters.items():
        # The first step of Adam is the learning rate against the sign of each number of the gradient.
        step = value - before[name].detach()
        slope = before[name].grad
        clear = slope.abs() > 1e-5
        torch.testing.assert_close(step[clear], -1e-3 * slope.sign()[clear], rtol=1e-2, atol=0.0)


def test_the_gradient_by_finite_differences(rows):
    """The derivative of the loss along a step is what autograd says; here without autograd."""
    x, targets = rows
    head = a_head(seed=3)
    slope = {}
    for name, value in head.parameters.items():
        grid = torch.zeros_like(value)
        for i in range(value.numel()):
            ends = []
            for move in (1e-5, -1e-5):
                value.view(-1)[i] += move
                ends.append(float(cross_entropy(head, x, targets)))
                value.view(-1)[i] -= move
            grid.view(-1)[i] = (ends[0] - ends[1]) / 2e-5
        slope[name] = grid
    before = {name: value.clone() for name, value in head.parameters.items()}
    distil(x, targets, head, Schedule(learning_rate=1e-3, weight_decay=0.0, max_iter=1))
    for name, value in head.parameters.items():
        clear = slope[name].abs() > 1e-4
        assert torch.equal((value - before[name])[clear].sign(), -slope[name][clear].sign())


@pytest.mark.slow
def test_the_loss_falls_to_the_entropy_of_targets_that_a_head_can_give(rows):
    x, _ = rows
    targets = a_head(seed=5).proba_and_score(x)[0]
    entropy = float(-(targets * targets.log()).sum(dim=1).mean())
    student = a_head(seed=20)
    losses = distil(x, targets, student, Schedule(learning_rate=2e-2, weight_decay=0.0, max_iter=600))
    assert losses[0] > entropy + 0.2
    assert losses[-1] == pytest.approx(entropy, abs=5e-3)
    assert min(losses) >= entropy - 1e-9
    torch.testing.assert_close(student.proba_and_score(x)[0], targets, atol=0.1, rtol=0.0)


def test_blocks_give_the_same_and_every_step_is_heard_of(rows, monkeypatch):
    x, targets = rows
    schedule = Schedule(learning_rate=1e-2, weight_decay=0.0, max_iter=7)
    heads = [a_head(), a_head()]
    heard = []
    whole = distil(x, targets, heads[0], schedule, on_step=lambda: heard.append(1))
    monkeypatch.setattr(engine_memory, "BLOCK_BYTES", 300)
    monkeypatch.setattr(engine_memory, "LEAST_ROWS", 8)
    parts = distil(x, targets, heads[1], schedule)
    assert len(heard) == 7
    assert parts == pytest.approx(whole)
    for name, value in heads[0].parameters.items():
        torch.testing.assert_close(value, heads[1].parameters[name])


def test_the_initial_head_by_hand():
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    targets = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    head = initial_head(x, targets, 25.0)
    # Means weighted by the targets: ((1, 0) + 0.5 (0, 1)) / 1.5 and (0.5 (0, 1) + (-1, 0)) / 1.5
    torch.testing.assert_close(head.prototypes, torch.tensor([[2 / 3, 1 / 3], [-2 / 3, 1 / 3]]))
    assert head.temperature == 25.0


def test_h_starts_as_the_identity(blobs):
    x, truth = blobs([20, 20, 20], 6, spread=0.3)
    head = initial_head(x, torch.eye(3)[truth], 25.0)
    torch.testing.assert_close(head.transform(x), x)


def test_rows_of_a_class_that_it_never_saw_fit_less(blobs):
    x, truth = blobs([40, 40, 40, 40, 40], 16, spread=0.1)
    seen = truth < 4
    targets = torch.eye(4)[truth[seen]]
    head = initial_head(x[seen], targets, 25.0)
    distil(x[seen], targets, head)
    scores = head.outlier_scores(x)
    assert float(scores[~seen].min()) > float(scores[seen].median())


def test_a_class_that_no_target_has_stays_finite(blobs):
    x, truth = blobs([10, 10], 4)
    targets = torch.eye(3)[truth]
    head = initial_head(x, targets, 25.0)
    distil(x, targets, head, Schedule(max_iter=20, weight_decay=0.0))
    assert all(value.isfinite().all() for value in head.parameters.values())
    assert head.predict(x).equal(truth)


@pytest.mark.parametrize("factor", [0.4, 1.0, 2.5])
def test_the_factor_between_two_heads_is_found(rows, factor):
    x, _ = rows
    teacher = a_head()
    head = Head(teacher.prototypes / factor, teacher.transform, teacher.temperature)  # less confident by the factor
    assert matching_factor(head, x, teacher.proba_and_score(x)[0]) == pytest.approx(factor, rel=5e-3)


def test_the_factor_has_bounds(rows):
    x, _ = rows
    teacher = a_head()
    sure = Head(1000.0 * teacher.prototypes, teacher.transform, teacher.temperature)
    said, said_surely = teacher.proba_and_score(x)[0], sure.proba_and_score(x)[0]
    assert matching_factor(sure, x, said) == pytest.approx(1 / 5, rel=1e-2)
    assert matching_factor(teacher, x, said_surely) <= 5.0 + 1e-9
    assert math.isfinite(matching_factor(sure, x, said_surely))


def test_the_rows_for_a_factor_are_spread_over_all():
    assert len(range(100)[factor_rows(100)]) == 100
    chosen = range(1_000_003)[factor_rows(1_000_003)]
    assert 5_000 <= len(chosen) <= 5_100
    assert chosen[-1] > 999_000
