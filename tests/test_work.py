"""How much work a step does, counted rather than timed: a regression of speed shows here on any machine."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from rpim.engine import InMemory
from rpim.head import Head
from rpim.optimise import Objective, Schedule, gradient, optimise
from rpim.transforms import TRANSFORMS

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
    return InMemory(x, labels, K), Head(prototypes, TRANSFORMS[h].initial(prototypes))


def flops(h, objective):
    engine, head = problem(h)
    with FlopCounterMode(display=False) as counter:
        gradient(engine, head, objective)
    return counter.get_total_flops()


def test_a_step_of_pim_is_two_products():
    assert flops("none", PIM) <= 1.02 * 2 * (2 * N * K * D)


def test_a_step_of_rpim_is_two_products_with_the_prototypes_and_two_with_the_bias():
    small = 2 * (4 * K * D * D + 3 * D * D * D)  # products of parameters with each other
    sinkhorn = 2 * (6 * N * K + 2 * N * D)
    assert flops("semantic-bias", Objective()) <= 1.02 * (2 * (2 * N * K * D + 2 * N * D * D) + small + sinkhorn)


def test_no_step_records_a_graph():
    engine, head = problem("semantic-bias")
    _, gradients = gradient(engine, head, Objective())
    assert all(not g.requires_grad and g.grad_fn is None for g in gradients.values())


def test_no_step_allocates_more_than_a_block():
    engine, head = problem("semantic-bias", n=60_000)  # several blocks of 26,214 rows
    block = max(len(b.x) for b in engine.blocks())
    assert block < engine.n_rows / 2
    with LargestAllocation() as watch:
        gradient(engine, head, Objective())
    assert 0 < watch.largest <= block * max(K, D)


def test_the_number_of_steps_is_what_was_asked_for():
    engine, head = problem("none")
    assert len(optimise(engine, head, PIM, Schedule(max_iter=7))) == 7
