"""How much work a step does, counted rather than timed: a regression of speed shows here on any machine."""

import subprocess
import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import rpim.core.training as training_module
from rpim import RPIM
from rpim.core import kmeans as centroids
from rpim.core.gradient import gradient
from rpim.core.head import Head
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import SCHEDULE as DISTILLATION
from rpim.core.training import Schedule, train
from rpim.core.transforms import TRANSFORMS
from rpim.estimators import infomax, members

N, D, K, LABELLED = 2000, 64, 40, 400
PIM = Objective(pseudo_labels=False, mixed_labels=False)


class LargestAllocation(TorchDispatchMode):
    """The largest tensor that is made anew while it is active, in elements."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, tuple | list) else (result,)
        made = [r for r in results if isinstance(r, torch.Tensor)]
        given = {a.untyped_storage().data_ptr() for a in args if isinstance(a, torch.Tensor)}
        for tensor in made:
            if tensor.untyped_storage().data_ptr() not in given and "out" not in (kwargs or {}):
                self.largest = max(self.largest, tensor.numel())
        return result


def problem(h, n=N):
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(n, D, generator=generator), dim=1)
    labels = torch.randint(K // 2, (LABELLED,), generator=generator)
    prototypes = x[torch.randperm(n, generator=generator)[:K]].clone()
    return InMemoryBlocks(x, labels, K), Head(prototypes, TRANSFORMS[h].initial(prototypes))


def flops(h, objective):
    rows, head = problem(h)
    with FlopCounterMode(display=False) as counter:
        gradient(rows, head, objective)
    return counter.get_total_flops()


def test_a_step_of_pim_is_two_products():
    assert flops("none", PIM) <= 1.02 * 2 * (2 * N * K * D)


def test_a_step_of_rpim_is_two_products_with_the_prototypes_and_two_with_the_bias():
    small = 2 * (4 * K * D * D + 3 * D * D * D)  # products of parameters with each other
    sinkhorn = 2 * (6 * N * K + 2 * N * D)
    assert flops("semantic-bias", Objective()) <= 1.02 * (2 * (2 * N * K * D + 2 * N * D * D) + small + sinkhorn)


@pytest.mark.parametrize(("pipelined", "expected"), [(True, [5, 2, 2, 2]), (False, [5, 5, 5, 5])])
def test_a_pipelined_step_of_rpim_computes_the_logits_twice(pipelined, expected, monkeypatch):
    rows, head = problem("semantic-bias")
    rows = InMemoryBlocks(rows.x, rows.labels, K, cache=False)
    passes = [0]
    real = InMemoryBlocks.blocks

    def counted(self):
        passes[-1] += 1
        return real(self)

    monkeypatch.setattr(InMemoryBlocks, "blocks", counted)
    objective = Objective(pipelined=pipelined)
    train(rows, head, objective, Schedule(max_iter=4), lambda *_: passes.append(0))
    assert passes[:-1] == expected


def test_no_step_records_a_graph():
    rows, head = problem("semantic-bias")
    _, gradients = gradient(rows, head, Objective())
    assert all(not g.requires_grad and g.grad_fn is None for g in gradients.values())


def test_no_step_allocates_more_than_a_block():
    rows, head = problem("semantic-bias", n=60_000)  # several blocks of 26,214 rows
    block = max(len(b.x) for b in rows.blocks())
    assert block < rows.n_rows / 2
    with LargestAllocation() as watch:
        gradient(rows, head, Objective())
    assert 0 < watch.largest <= block * max(K, D)


def test_the_number_of_steps_is_what_was_asked_for():
    rows, head = problem("none")
    assert len(train(rows, head, PIM, Schedule(max_iter=7))) == 7


def test_training_ends_when_the_classes_of_the_rows_settle(blobs):
    x, truth = blobs([40] * 5, n_features=8)
    labels = truth[:40]
    means = torch.stack([x[truth == k].mean(dim=0) for k in range(5)])

    def steps(tol):
        rows, head = InMemoryBlocks(x, labels, 5), Head(means.clone(), TRANSFORMS["none"].initial(means))
        return len(train(rows, head, PIM, Schedule(max_iter=40, tol=tol)))

    assert steps(0.0) == 40
    assert steps(1e-3) == 11, "at the second look no row has moved"


def test_training_goes_on_while_rows_still_change_their_class():
    rows, head = problem("none")  # noise: rows keep moving
    assert len(train(rows, head, PIM, Schedule(learning_rate=0.05, max_iter=25, tol=1e-6))) == 25


def test_without_a_cache_there_is_no_matrix_of_rows_by_classes():
    x = torch.randn(50_000, 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(100)
    prototypes = x[:100].clone()
    with LargestAllocation() as watch:
        rows = InMemoryBlocks(x, labels, 100, cache=False)
        gradient(rows, Head(prototypes, TRANSFORMS["none"].initial(prototypes)), PIM)
    assert 0 < watch.largest < 50_000 * 100 / 4


def test_the_whole_fit_with_little_memory_gives_the_same_classes(blobs, monkeypatch):
    x, truth = blobs([30] * 6, n_features=8)
    y = truth.numpy().copy()
    y[(truth > 3) | (torch.arange(len(x)) % 2 == 0)] = -1
    cached = []
    real = members.InMemoryBlocks
    monkeypatch.setattr(members, "InMemoryBlocks", lambda *a, cache: cached.append(cache) or real(*a, cache=cache))
    first = RPIM(6, n_members=4, random_state=0).fit(x.numpy(), y)
    assert cached == [True] * 5, "four members, and one more that sees their votes"
    monkeypatch.setattr(infomax, "caches_probabilities", lambda *_: False)
    second = RPIM(6, n_members=4, random_state=0).fit(x.numpy(), y)
    assert cached[5:] == [False] * 5
    assert (first.labels_ == second.labels_).all()
    torch.testing.assert_close(first.head_.prototypes, second.head_.prototypes)


@pytest.mark.slow
def test_the_steps_of_a_whole_fit_are_counted(blobs, monkeypatch):
    # Sixteen members, and one more that sees their votes: forty steps each. More steps than this, and a fit has become
    # slower on every machine.
    steps = []
    real = training_module.gradient
    monkeypatch.setattr(training_module, "gradient", lambda *a: steps.append(len(a[0].x)) or real(*a))
    x, truth = blobs([30] * 8, n_features=10, spread=0.15)
    y = truth.numpy().copy()
    y[(truth > 4) | (torch.arange(len(x)) % 2 == 0)] = -1
    model = RPIM(8, random_state=0).fit(x.numpy(), y)
    assert steps == [len(x)] * (16 + 1) * 40
    assert model.n_iter_ == 40
    assert DISTILLATION.max_iter == 50
    steps.clear()
    single = RPIM(8, n_members=1, random_state=0).fit(x.numpy(), y)
    assert steps == [len(x)] * single.n_iter_, "a single fit searches nothing"
    assert single.n_iter_ <= 21, "and ends when the classes settle"


@pytest.mark.slow
def test_a_fit_does_not_load_the_compiler_of_torch(environment):
    # It takes seconds, in a process that may live for ten.
    code = (
        "import sys, numpy as np; from rpim import RPIM;"
        "X = np.random.default_rng(0).normal(size=(60, 4)); RPIM(6).fit(X, np.arange(60) % 5 - 1);"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_small_clusters_draw_their_seeds_from_some_rows(monkeypatch):
    seen = []
    real = centroids.plus_plus
    monkeypatch.setattr(centroids, "plus_plus", lambda x, *a: seen.append(len(x)) or real(x, *a))
    x = torch.randn(3000, 4, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    assert len(centroids.merged_clusters(x, torch.arange(3), 10, generator=generator)) == 10
    assert seen == [20 * 20], "twenty rows for each of the two times ten small clusters"
