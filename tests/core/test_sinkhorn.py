"""Sinkhorn's pseudo-labels: one round on paper, then what every round must hold."""

import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpim.core import sinkhorn as module


def sinkhorn(q, iterations=3, all_reduce=lambda total: total, n_rows=None, block=4, shares=None):
    """Of a whole matrix, handed over in blocks of a few rows."""

    def parts():
        for start in range(0, len(q), block):
            yield slice(start, start + block), q[start : start + block]

    return module.sinkhorn(
        parts, all_reduce(q.sum(dim=0)), n_rows or len(q), len(q), iterations, all_reduce, shares=shares
    )


def pseudo_labels(q, iterations=3, shares=None):
    return sinkhorn(q, iterations, shares=shares).pseudo_labels(q, slice(None))


def scores(n, k, seed=0, sharpness=1.0):
    generator = torch.Generator().manual_seed(seed)
    return torch.softmax(sharpness * torch.randn(n, k, generator=generator, dtype=torch.float64), dim=1)


def test_one_round_by_hand():
    q = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.6, 0.4]], dtype=torch.float64)
    # The columns hold 2 and 1; each is to hold N/K = 3/2: factors 3/4 and 3/2.
    #   0.60 0.30         2/3 1/3
    #   0.45 0.60   ->    3/7 4/7     rows to one
    #   0.45 0.60         3/7 4/7
    scaling = sinkhorn(q, iterations=1)
    assert scaling.columns.tolist() == pytest.approx([0.75, 1.5])
    assert scaling.rows.tolist() == pytest.approx([1 / 0.9, 1 / 1.05, 1 / 1.05])
    expected = torch.tensor([[2 / 3, 1 / 3], [3 / 7, 4 / 7], [3 / 7, 4 / 7]], dtype=torch.float64)
    torch.testing.assert_close(scaling.pseudo_labels(q, slice(None)), expected)
    torch.testing.assert_close(scaling.pseudo_labels(q[1:], slice(1, 3)), expected[1:])
    assert scaling.largest.tolist() == pytest.approx([2 / 3, 4 / 7, 4 / 7])


def test_one_round_with_shares_by_hand():
    q = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.6, 0.4]], dtype=torch.float64)
    # The columns hold 2 and 1 and are to hold 1/3 and 2/3 of three rows: factors 1/2 and 2.
    #   0.4 0.4         1/2  1/2
    #   0.3 0.8   ->    3/11 8/11     rows to one
    #   0.3 0.8         3/11 8/11
    scaling = sinkhorn(q, iterations=1, shares=torch.tensor([1 / 3, 2 / 3], dtype=torch.float64))
    assert scaling.columns.tolist() == pytest.approx([0.5, 2.0])
    expected = torch.tensor([[1 / 2, 1 / 2], [3 / 11, 8 / 11], [3 / 11, 8 / 11]], dtype=torch.float64)
    torch.testing.assert_close(scaling.pseudo_labels(q, slice(None)), expected)


def test_two_by_two_limit():
    # The limit of [[a, b], [c, d]] has rows (p, 1-p) and (1-p, p) with the odds ratio kept: (p/(1-p))^2 = ad/bc.
    # Here ad/bc = 0.9 * 0.5 / (0.1 * 0.5) = 9, so p = 3/4.
    y = pseudo_labels(torch.tensor([[0.9, 0.1], [0.5, 0.5]], dtype=torch.float64), iterations=100)
    torch.testing.assert_close(y, torch.tensor([[0.75, 0.25], [0.25, 0.75]], dtype=torch.float64))


@settings(deadline=None, max_examples=30)
@given(n=st.integers(1, 12), k=st.integers(2, 5), seed=st.integers(0, 99), iterations=st.integers(1, 5))
def test_rows_sum_to_one(n, k, seed, iterations):
    y = pseudo_labels(scores(n, k, seed, sharpness=4.0), iterations)
    assert (y >= 0).all()
    torch.testing.assert_close(y.sum(dim=1), torch.ones(n, dtype=torch.float64))


def test_columns_converge_to_equal_mass():
    q = scores(20, 4, sharpness=2.0)
    off = [float((pseudo_labels(q, iterations).sum(dim=0) - 5.0).abs().max()) for iterations in (1, 3, 300)]
    assert off[0] > off[1] > off[2]
    assert off[2] < 1e-9


def test_columns_converge_to_their_shares():
    q = scores(20, 4, sharpness=2.0)
    shares = torch.tensor([0.5, 0.3, 0.15, 0.05], dtype=torch.float64)
    off = [float((pseudo_labels(q, n, shares).sum(dim=0) - 20 * shares).abs().max()) for n in (1, 3, 300)]
    assert off[0] > off[1] > off[2]
    assert off[2] < 1e-9


def test_equal_shares_are_no_shares():
    q = scores(9, 4, sharpness=2.0)
    equal = torch.full((4,), 0.25, dtype=torch.float64)
    torch.testing.assert_close(pseudo_labels(q, shares=equal), pseudo_labels(q), rtol=1e-14, atol=0.0)


@pytest.mark.slow
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 99), powers=st.lists(st.integers(-6, 6), min_size=6, max_size=6))
def test_scaling_a_row_of_q_changes_nothing_in_the_limit(seed, powers):
    # Any factor of a row is undone by the first scaling of the rows; in the limit it leaves no trace.
    q = scores(6, 3, seed)
    factors = 2.0 ** torch.tensor(powers, dtype=torch.float64)
    torch.testing.assert_close(pseudo_labels(factors[:, None] * q, 400), pseudo_labels(q, 400), rtol=1e-6, atol=1e-8)


def test_scaling_all_of_q_changes_nothing():
    q = scores(6, 3)
    torch.testing.assert_close(pseudo_labels(1000.0 * q), pseudo_labels(q))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_class_without_mass_stays_finite(dtype):
    q = scores(6, 3).to(dtype)
    q[:, 1] = 0.0
    scaling = sinkhorn(q)
    y = scaling.pseudo_labels(q, slice(None))
    assert torch.isfinite(scaling.rows).all()
    assert torch.isfinite(scaling.columns).all()
    assert (y[:, 1] == 0).all()
    torch.testing.assert_close(y.sum(dim=1), torch.ones(6, dtype=dtype))


def test_a_class_with_next_to_no_mass_stays_finite():
    q = scores(6, 3).float()
    q[:, 1] = 1e-38
    y = pseudo_labels(q)
    assert torch.isfinite(y).all()
    torch.testing.assert_close(y.sum(dim=1), torch.ones(6))


def test_identical_rows_become_uniform():
    q = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).expand(5, 3)
    torch.testing.assert_close(pseudo_labels(q), torch.full((5, 3), 1 / 3, dtype=torch.float64))


class Meeting:
    """``all_reduce`` for workers in lockstep: everybody brings a tensor and takes the total away."""

    def __init__(self, n_workers):
        self.barrier = threading.Barrier(n_workers, timeout=60)
        self.brought = {}

    def all_reduce(self, worker):
        def total(tensor):
            self.brought[worker] = tensor.clone()
            self.barrier.wait()
            result = sum(self.brought[w] for w in sorted(self.brought))
            self.barrier.wait()
            return result

        return total


@pytest.mark.slow
def test_rows_spread_over_two_workers():
    q = scores(11, 3, sharpness=2.0)
    parts = [q[:4], q[4:]]
    meeting, found = Meeting(2), {}

    def work(worker):
        scaling = sinkhorn(parts[worker], 3, meeting.all_reduce(worker), n_rows=11)
        found[worker] = scaling.pseudo_labels(parts[worker], slice(None))

    threads = [threading.Thread(target=work, args=(w,)) for w in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(torch.cat([found[0], found[1]]), pseudo_labels(q), rtol=1e-12, atol=1e-14)


def pipelined(q, factors, shares=None):
    return module.pipelined_sinkhorn(lambda: [(slice(0, len(q)), q)], factors, len(q), len(q), shares=shares)


@pytest.mark.parametrize("shares", [None, torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)])
def test_pipelined_iterations_of_scores_at_rest_are_those_of_sinkhorn(shares):
    q, expected = scores(11, 3, sharpness=2.0), sinkhorn(scores(11, 3, sharpness=2.0), shares=shares)
    factors = sinkhorn(scores(11, 3, seed=1), shares=shares).factors  # of other scores, a step before
    for _ in range(3):  # each pass brings one more of the three iterations up to date
        scaling, factors = pipelined(q, factors, shares)
        assert not torch.allclose(scaling.largest, expected.largest, rtol=1e-6)
    scaling, factors = pipelined(q, factors, shares)
    torch.testing.assert_close(factors, expected.factors)
    torch.testing.assert_close(scaling.rows, expected.rows)
    torch.testing.assert_close(scaling.largest, expected.largest)


def test_a_pipelined_class_without_mass_stays_finite():
    q = torch.cat([scores(6, 2), torch.zeros(6, 1, dtype=torch.float64)], dim=1)
    scaling, factors = pipelined(q, sinkhorn(q).factors)
    assert factors.isfinite().all()
    assert (scaling.pseudo_labels(q, slice(None)).sum(dim=1) - 1.0).abs().max() < 1e-12
