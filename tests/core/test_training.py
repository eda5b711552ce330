"""The training loop takes the steps of torch's Adam on the objective of docs/method.md."""

import pytest
import torch

from rpim.core.head import Head
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import Schedule, train

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
