"""The start of a single training."""

import pytest
import torch

from rpim.core.initialization import estimated_shares, merged_start, single_start
from rpim.core.kmeans import merged_clusters
from rpim.metrics import clustering_accuracy


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.fixture
def problem(blobs):
    """Two known classes of five, half of each labelled, the labelled rows first."""
    x, truth = blobs([20, 20, 16, 12, 8], n_features=8)
    labelled = torch.cat([torch.arange(0, 10), torch.arange(20, 30)])
    rest = torch.tensor(sorted(set(range(len(x))) - set(labelled.tolist())))
    rows = torch.cat([labelled, rest])
    return x[rows], truth[labelled], truth[rows]


def test_single_start(problem):
    x, labels, truth = problem
    found = single_start(x, labels, 5, n_init=10, generator=seeded())
    nearest = torch.cdist(x, found.prototypes).argmin(dim=1)
    assert (nearest[truth < 2] == truth[truth < 2]).all(), "known classes keep their number"
    assert clustering_accuracy(truth.numpy(), nearest.numpy()) == 1.0
    assert nearest.equal(found.labels)
    for k in range(5):  # and each prototype is the mean of its blob
        torch.testing.assert_close(found.prototypes[nearest[truth == k][0]], x[truth == k].mean(dim=0))


def test_labelled_rows_stay_in_their_class(problem):
    x, labels, truth = problem
    x = x.clone()
    x[0] = torch.eye(8)[7]  # nothing like its class
    found = single_start(x, labels, 5, n_init=10, generator=seeded())
    assert found.labels[0] == 0
    for k in (0, 1):
        torch.testing.assert_close(found.prototypes[k], x[truth == k].mean(dim=0))


def test_the_same_seed_gives_the_same_start(problem):
    x, labels, _ = problem
    first, again = (single_start(x, labels, 5, n_init=2, generator=seeded()) for _ in range(2))
    assert torch.equal(first.prototypes, again.prototypes)
    assert torch.equal(first.labels, again.labels)


def test_merged_start(problem):
    x, labels, truth = problem
    found = merged_start(x, labels, 5, generator=seeded())
    assert torch.equal(found.prototypes, merged_clusters(x, labels, 5, generator=seeded()))
    assert torch.equal(found.labels, torch.cdist(x, found.prototypes).argmin(dim=1)), "each row with the nearest one"
    assert (found.labels[truth < 2] == truth[truth < 2]).all(), "known classes keep their number"
    assert clustering_accuracy(truth.numpy(), found.labels.numpy()) == 1.0
    assert found.shares("equal") is None
    assert torch.equal(found.shares("estimated"), estimated_shares(found.labels, found.prototypes))


def test_labelled_rows_are_pinned_in_a_merged_start(problem):
    x, labels, _ = problem
    x = x.clone()
    x[0] = x[-1]  # it lies in another class
    found = merged_start(x, labels, 5, generator=seeded())
    assert int(torch.cdist(x[:1], found.prototypes).argmin()) != 0
    assert torch.equal(found.labels[: len(labels)], labels)
