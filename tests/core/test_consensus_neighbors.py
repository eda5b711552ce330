"""Nearest neighbors against every distance there is, and propagation by hand."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from rpim.core import consensus
from rpim.core.consensus import nearest_neighbors, neighbor_mean, propagate


def unit_rows(n, d=6, seed=0):
    return normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64))


@given(st.integers(2, 40), st.integers(1, 8), st.integers(0, 20))
@settings(max_examples=25, deadline=None)
def test_the_nearest_by_brute_force(n, k, seed):
    x = unit_rows(n, seed=seed)
    found = nearest_neighbors(x, k)
    cosine = x.numpy() @ x.numpy().T
    np.fill_diagonal(cosine, -np.inf)
    k = min(k, n - 1)
    assert found.shape == (n, k)
    expected = np.sort(cosine, axis=1)[:, ::-1][:, :k]
    np.testing.assert_allclose(np.take_along_axis(cosine, found.numpy(), axis=1), expected, atol=1e-12)
    assert not (found == torch.arange(n)[:, None]).any(), "no row is its own neighbor"


def test_blocks_give_the_same(monkeypatch):
    x = unit_rows(50)
    whole = nearest_neighbors(x, 4)
    monkeypatch.setattr(consensus, "_BLOCK_VALUES", 50 * 7)
    assert torch.equal(nearest_neighbors(x, 4), whole)
    monkeypatch.setattr(consensus, "_BLOCK_VALUES", 1)  # not even one row fits
    assert torch.equal(nearest_neighbors(x, 4), whole)


def test_a_row_that_is_there_twice_has_its_copy_for_a_neighbor():
    x = unit_rows(5).repeat(2, 1)
    assert nearest_neighbors(x, 1).flatten().tolist() == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]


def test_a_row_alone_has_no_neighbors_and_keeps_what_was_said_of_it():
    found = nearest_neighbors(unit_rows(1), 5)
    assert found.shape == (1, 0)
    p = torch.tensor([[0.3, 0.7]])
    assert torch.equal(propagate(p, found, torch.empty(0, dtype=torch.long)), p)


def test_the_mean_over_neighbors_by_hand():
    values = torch.tensor([[1.0], [2.0], [4.0]])
    assert neighbor_mean(values, torch.tensor([[1, 2], [0, 0], [0, 1]])).flatten().tolist() == [3.0, 1.0, 1.5]
    assert values.flatten().tolist() == [1.0, 2.0, 4.0], "which stay as they are"


def test_propagation_by_hand():
    # Row 0 is labelled; row 1 has it for a neighbor, row 2 has row 1.
    p = torch.tensor([[0.1, 0.9], [0.4, 0.6], [0.2, 0.8]])
    graph, labels = torch.tensor([[1], [0], [1]]), torch.tensor([0])
    once = propagate(p, graph, labels, alpha=0.25, rounds=1)
    # 0.75 * 0.4 + 0.25 * 1, 0.75 * 0.2 + 0.25 * 0.4
    assert once[:, 0].tolist() == pytest.approx([1.0, 0.55, 0.25])
    twice = propagate(p, graph, labels, alpha=0.25, rounds=2)
    # Row 2 takes from what row 1 became; its own half is what was said at first: 0.75 * 0.2 + 0.25 * 0.55
    assert twice[:, 0].tolist() == pytest.approx([1.0, 0.55, 0.2875])
    assert p[0].tolist() == pytest.approx([0.1, 0.9]), "what was given stays as it is"


def test_without_rounds_nothing_but_the_labels_is_changed():
    p = torch.tensor([[0.1, 0.9], [0.4, 0.6]])
    found = propagate(p, torch.tensor([[1], [0]]), torch.tensor([0]), rounds=0)
    assert torch.equal(found, torch.tensor([[1.0, 0.0], [0.4, 0.6]]))


@given(st.integers(3, 30), st.integers(0, 3), st.integers(0, 20))
@settings(max_examples=25, deadline=None)
def test_labelled_rows_keep_their_label_and_rows_sum_to_one(n, n_labelled, seed):
    generator = torch.Generator().manual_seed(seed)
    p = torch.softmax(torch.randn(n, 4, generator=generator, dtype=torch.float64), dim=1)
    labels = torch.randint(4, (n_labelled,), generator=generator)
    found = propagate(p, nearest_neighbors(unit_rows(n, seed=seed), 5), labels)
    assert torch.equal(found[:n_labelled], torch.eye(4, dtype=torch.float64)[labels])
    torch.testing.assert_close(found.sum(dim=1), torch.ones(n).double())
    assert found.min() >= 0.0


def test_neighbors_come_closer_together(blobs):
    x, truth = blobs([20, 20, 20], 8)
    p = torch.softmax(torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), dim=1)
    found = propagate(p, nearest_neighbors(x), torch.empty(0, dtype=torch.long))
    for c in range(3):
        assert float(found[truth == c].std(dim=0).sum()) < 0.8 * float(p[truth == c].std(dim=0).sum())
