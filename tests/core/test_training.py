"""The training loop takes the steps of torch's Adam on the objective of docs/method.md."""

from dataclasses import replace

import pytest
import torch

from rpim.core import training
from rpim.core.head import Head
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import Schedule, train
from rpim.core.transforms import SemanticBias

OBJECTIVE = Objective(trade_off=0.3, eta=0.4, beta=0.25)  # eta far above its default, so that L_R can be seen
N_FEATURES, N_CLASSES, TEMPERATURE = 5, 4, 4.0


@pytest.mark.parametrize("name", ["none", "semantic-bias", "low-rank", "semantic-scale-bias"])
def test_training_takes_the_steps_of_adam(name, make_transform, plain_h, random_problem, plain_terms):
    x, labels, prototypes = random_problem()
    head = Head(prototypes.clone(), make_transform(name, N_FEATURES), TEMPERATURE)
    leaves = {key: p.clone().requires_grad_() for key, p in head.parameters.items()}
    start = {key: p.clone() for key, p in head.parameters.items()}

    schedule = Schedule(learning_rate=0.05, weight_decay=0.02, max_iter=5)
    seen = []
    history = train(InMemoryBlocks(x, labels, N_CLASSES), head, OBJECTIVE, schedule, lambda s, v: seen.append((s, v)))

    adam = torch.optim.Adam(leaves.values(), lr=0.05, weight_decay=0.02)
    totals = []
    for _ in range(5):
        adam.zero_grad()
        total, _, _ = plain_terms(leaves, plain_h[name], x, labels, OBJECTIVE, TEMPERATURE)
        total.backward()
        adam.step()
        totals.append(total.item())

    for key, leaf in leaves.items():
        assert not torch.allclose(head.parameters[key], start[key], atol=1e-3), "it has moved"
        torch.testing.assert_close(head.parameters[key], leaf.detach(), rtol=0.0, atol=1e-8)
    assert [value["objective"] for value in history] == pytest.approx(totals, abs=1e-7)
    assert seen == list(enumerate(history))


def test_training_lowers_the_objective(make_transform, random_problem):
    x, labels, prototypes = random_problem()
    head = Head(prototypes, make_transform("semantic-bias", N_FEATURES, move=0.0), TEMPERATURE)
    history = train(InMemoryBlocks(x, labels, N_CLASSES), head, OBJECTIVE, Schedule(max_iter=20))
    assert history[-1]["objective"] < history[0]["objective"] - 0.05


def overlapping(noise):
    """A hundred overlapping classes of 20 rows, half of them known with 10 labels each; a head of the class means."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(100).repeat_interleave(20)
    labelled = (truth < 50) & (torch.arange(2000) % 20 < 10)
    truth = truth[torch.argsort((~labelled).to(torch.int8), stable=True)]
    centres = torch.randn(100, 64, generator=generator)
    x = torch.nn.functional.normalize(centres[truth] + noise * torch.randn(2000, 64, generator=generator), dim=1)
    means = torch.zeros(100, 64).index_add_(0, truth, x) / 20
    return InMemoryBlocks(x, truth[: int(labelled.sum())], 100), Head(means, SemanticBias.initial(means)), truth


def n_used(head, rows):
    return len(head.predict(rows.x).unique())


@pytest.mark.parametrize(
    ("noise", "tol", "n_left"), [(2.0, 0.0, 51), (1.5, 1e-3, 64)], ids=["at the last step", "when it settles"]
)
def test_weight_decay_that_empties_classes_is_halved(noise, tol, n_left):
    rows, start, truth = overlapping(noise)
    schedule = Schedule(weight_decay=0.08, max_iter=100, tol=tol)
    emptied, kept = start.copy(), start.copy()
    train(rows, emptied, Objective(), schedule)
    assert n_used(start, rows) == 100
    assert n_used(emptied, rows) <= n_left
    history = train(rows, kept, Objective(), replace(schedule, keep_classes=True))
    assert {step["weight_decay"] for step in history} == {0.04}
    assert n_used(kept, rows) == 100
    right, wrong = ((head.predict(rows.x) == truth)[truth >= 50].float().mean() for head in (kept, emptied))
    assert right > wrong + 0.5, "of new classes"


def test_weight_decay_is_kept_where_no_class_is_emptied():
    rows, start, _ = overlapping(noise=1.5)
    heads = [start.copy() for _ in range(2)]
    schedule = Schedule(weight_decay=0.005, max_iter=40)
    histories = [
        train(rows, head, Objective(), replace(schedule, keep_classes=keep))
        for head, keep in zip(heads, (False, True), strict=True)
    ]
    assert histories[0] == histories[1]
    assert {step["weight_decay"] for step in histories[1]} == {0.005}
    assert heads[0].prototypes.equal(heads[1].prototypes)


def test_weight_decay_is_halved_four_times_at_most(monkeypatch):
    rows, head, _ = overlapping(noise=1.5)
    monkeypatch.setattr(training, "CLASSES_LOST", -0.1)  # as if classes had always lost their rows
    history = train(rows, head, Objective(), Schedule(weight_decay=0.16, max_iter=5, keep_classes=True))
    assert [step["weight_decay"] for step in history] == [0.01] * 5
