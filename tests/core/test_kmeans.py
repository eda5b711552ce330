"""Semi-supervised k-means: blobs, pinned rows, empty clusters, and what it may cost."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from torch.utils._python_dispatch import TorchDispatchMode

from rpim.core import kmeans as centroids
from rpim.core.kmeans import (
    GCD_RULE,
    PIM_RULE,
    Rule,
    _seeds,
    _ward,
    estimated_shares,
    kmeans,
    merged_clusters,
    merged_start,
    nearest_centroid,
    plus_plus,
    restarts,
    semi_supervised_kmeans,
    single_start,
)
from rpim.metrics import clustering_accuracy

NOBODY = torch.empty(0, dtype=torch.long)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def random_rows(n, d, seed=0, dtype=torch.float64):
    return torch.randn(n, d, generator=seeded(seed), dtype=dtype)


def naive_inertia(x, run):
    return sum(float(((row - run.centroids[label]) ** 2).sum()) for row, label in zip(x, run.labels, strict=True))


def test_by_hand():
    # Two pairs on a line: centroids at 1 and 11, every row one away from its own.
    x = torch.tensor([[0.0], [2.0], [10.0], [12.0]])
    run = kmeans(x, 2, generator=seeded())
    assert sorted(run.centroids.flatten().tolist()) == [1.0, 11.0]
    assert run.labels[0] == run.labels[1] != run.labels[2] == run.labels[3]
    assert run.inertia == pytest.approx(4.0)


def test_finds_three_blobs(blobs):
    x, truth = blobs([30, 20, 10], n_features=6)
    run = kmeans(x, 3, generator=seeded())
    for k in range(3):
        found = run.labels[truth == k]
        assert (found == found[0]).all()
        torch.testing.assert_close(run.centroids[found[0]], x[truth == k].mean(dim=0))
    assert len(run.labels.unique()) == 3


def test_a_known_cluster_is_its_class(blobs):
    x, truth = blobs([20, 20, 20, 20], n_features=6)
    order = torch.randperm(len(x), generator=seeded(1))
    x, truth = x[order], truth[order]
    known = torch.nonzero(truth < 2).flatten()[:10]
    rest = torch.tensor(sorted(set(range(len(x))) - set(known.tolist())))
    rows = torch.cat([known, rest])
    # Class 1 is given the code 0 and class 0 the code 1: it is the code that counts.
    run = semi_supervised_kmeans(x[rows], 1 - truth[known], 4, generator=seeded())
    truth = truth[rows]
    assert (run.labels[truth == 0] == 1).all()
    assert (run.labels[truth == 1] == 0).all()
    assert set(run.labels[truth >= 2].tolist()) == {2, 3}


def test_labelled_rows_stay_pinned():
    # The third row carries the label 0 but lies where class 1 is.
    x = torch.tensor([[0.0], [0.2], [10.0], [10.0], [10.2], [0.1], [10.1]])
    labels = torch.tensor([0, 0, 0, 1, 1])
    run = semi_supervised_kmeans(x, labels, 2, generator=seeded())
    assert run.labels.tolist() == [0, 0, 0, 1, 1, 0, 1]
    # It pulls its own centroid: (0 + 0.2 + 10 + 0.1) / 4
    assert run.centroids.flatten().tolist() == pytest.approx([2.575, 10.1])


@settings(deadline=None, max_examples=25)
@given(n=st.integers(3, 15), k=st.integers(1, 5), n_labelled=st.integers(0, 3), seed=st.integers(0, 999))
def test_inertia_is_the_sum_and_assignments_the_nearest(n, k, n_labelled, seed):
    x = random_rows(n, 3, seed)
    labels = torch.randint(k, (n_labelled,), generator=seeded(seed))
    run = semi_supervised_kmeans(x, labels, k, n_init=2, generator=seeded(seed))
    assert run.inertia == pytest.approx(naive_inertia(x, run), abs=1e-9)
    assert torch.equal(run.labels[:n_labelled], labels)
    distances = torch.cdist(x, run.centroids)
    own = distances.gather(1, run.labels[:, None]).squeeze(1)
    torch.testing.assert_close(own[n_labelled:], distances.amin(dim=1)[n_labelled:], rtol=0.0, atol=1e-6)


def test_the_best_restart_is_returned():
    x = random_rows(60, 2)
    runs = restarts(x, NOBODY, 8, n_init=6, generator=seeded())
    inertias = [run.inertia for run in runs]
    assert len(set(inertias)) > 1, "an example in which the start matters"
    assert kmeans(x, 8, n_init=6, generator=seeded()).inertia == min(inertias)


def test_inertia_never_rises_with_more_restarts():
    x = random_rows(60, 2)
    inertias = [kmeans(x, 8, n_init=n, generator=seeded()).inertia for n in (1, 2, 4, 8)]
    assert inertias == sorted(inertias, reverse=True)


def test_inertia_never_rises_with_more_iterations():
    x = random_rows(80, 2)
    rules = [Rule(max_iter=n, tol=0.0) for n in (1, 2, 3, 5, 8, 40)]
    inertias = [kmeans(x, 6, n_init=1, rule=rule, generator=seeded()).inertia for rule in rules]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(inertias))
    assert inertias[-1] < inertias[0]


def test_the_same_seed_gives_the_same_bits():
    x = random_rows(50, 4, dtype=torch.float32)
    labels = torch.tensor([0, 1, 1])
    runs = [semi_supervised_kmeans(x, labels, 7, n_init=3, generator=seeded(5)) for _ in range(2)]
    assert torch.equal(runs[0].centroids, runs[1].centroids)
    assert torch.equal(runs[0].labels, runs[1].labels)
    assert runs[0].inertia == runs[1].inertia


def test_blocks_of_rows_change_nothing(monkeypatch):
    x = random_rows(50, 4)
    whole = kmeans(x, 5, n_init=2, generator=seeded())
    monkeypatch.setattr(centroids, "_BLOCK_ELEMENTS", 35)  # seven rows at a time
    parts = kmeans(x, 5, n_init=2, generator=seeded())
    assert torch.equal(parts.labels, whole.labels)
    torch.testing.assert_close(parts.centroids, whole.centroids)


def test_nearest_centroid_by_hand():
    labels, scores = nearest_centroid(torch.tensor([[1.0, 0.0], [0.0, 3.0]]), torch.tensor([[0.0, 0.0], [0.0, 2.0]]))
    assert labels.tolist() == [0, 1]
    # squared distances 1 and 1, less |x|^2 = 1 and 9
    assert scores.tolist() == [0.0, -8.0]


# -- k-means++ ------------------------------------------------------------------------------------------------------


def test_plus_plus_keeps_away_from_known_centroids():
    # Fifty rows on the known centroid have no weight at all: whatever the seed, the one far row is drawn.
    x = torch.tensor([[1.0, 0.0]] * 50 + [[0.0, 1.0]])
    known = torch.tensor([[1.0, 0.0]])
    for seed in range(10):
        found = plus_plus(x, (x * x).sum(dim=1), known, 2, seeded(seed))
        assert found.tolist() == [[1.0, 0.0], [0.0, 1.0]]


def test_plus_plus_draws_each_far_group_once():
    # Four heaps of equal rows: once a heap has a centroid its rows weigh nothing.
    heaps = torch.tensor([[4.0, 0.0], [0.0, 4.0], [-4.0, 0.0], [0.0, -4.0]])
    x = heaps.repeat_interleave(torch.tensor([40, 5, 2, 1]), dim=0)
    for seed in range(10):
        found = plus_plus(x, (x * x).sum(dim=1), x.new_empty(0, 2), 4, seeded(seed))
        assert sorted(found.tolist()) == sorted(heaps.tolist())


def test_plus_plus_draws_rows():
    x = random_rows(20, 3)
    found = plus_plus(x, (x * x).sum(dim=1), x.new_empty(0, 3), 6, seeded())
    assert all(any(torch.equal(centroid, row) for row in x) for centroid in found)


# -- where there is too little --------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.5, 0.1])
@pytest.mark.parametrize("n_labelled", [0, 2])
def test_identical_rows(value, n_labelled):
    x = torch.full((9, 4), value)
    labels = torch.zeros(n_labelled, dtype=torch.long)
    run = semi_supervised_kmeans(x, labels, 3, n_init=2, generator=seeded())
    assert torch.isfinite(run.centroids).all()
    assert run.inertia == pytest.approx(0.0, abs=1e-5)
    assert ((run.labels >= 0) & (run.labels < 3)).all()


def test_more_clusters_than_distinct_rows():
    x = torch.tensor([[0.0, 0.0], [3.0, 4.0]]).repeat(5, 1)
    run = kmeans(x, 4, n_init=3, generator=seeded())
    assert torch.isfinite(run.centroids).all()
    assert run.inertia == pytest.approx(0.0, abs=1e-6)


def test_more_clusters_than_rows():
    run = kmeans(random_rows(3, 2), 5, n_init=2, generator=seeded())
    assert run.centroids.shape == (5, 2)
    assert torch.isfinite(run.centroids).all()
    assert run.inertia == pytest.approx(0.0, abs=1e-9)


def test_an_empty_cluster_moves_onto_the_farthest_row():
    # Both centroids start left of all rows, the second so far out that it gets none.
    x = torch.tensor([[0.0], [1.0], [2.0], [30.0]])
    run = centroids._lloyd(x, (x * x).sum(dim=1), NOBODY, torch.tensor([[0.0], [-100.0]]), max_iter=10, tol=0.0)
    assert run.labels.tolist() == [0, 0, 0, 1]
    assert run.centroids.flatten().tolist() == pytest.approx([1.0, 30.0])


def test_all_rows_labelled():
    x = random_rows(6, 3)
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    run = semi_supervised_kmeans(x, labels, 3, n_init=1, generator=seeded())
    assert torch.equal(run.labels, labels)
    torch.testing.assert_close(run.centroids, x.reshape(3, 2, 3).mean(dim=1))
    more = semi_supervised_kmeans(x, labels, 5, n_init=1, generator=seeded())
    assert torch.equal(more.labels, labels)
    assert more.centroids.shape == (5, 3)
    assert torch.isfinite(more.centroids).all()


def test_one_cluster_is_the_mean():
    x = random_rows(10, 3)
    run = kmeans(x, 1, n_init=1, generator=seeded())
    torch.testing.assert_close(run.centroids[0], x.mean(dim=0))


# -- what it costs --------------------------------------------------------------------------------------------------


class LargestTensor(TorchDispatchMode):
    """The bytes behind the largest tensor that any operation gave."""

    def __init__(self):
        super().__init__()
        self.nbytes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.nbytes = max(self.nbytes, tensor.untyped_storage().nbytes())
        return result


def test_no_rows_by_clusters_by_features_intermediate():
    n, k, d = 20_000, 200, 32
    x = random_rows(n, d, dtype=torch.float32)
    labels = torch.arange(500) % 190
    with LargestTensor() as largest:
        semi_supervised_kmeans(x, labels, k, n_init=1, rule=Rule(max_iter=2), generator=seeded())
    assert largest.nbytes >= 4 * n * d, "it has seen something of the size of the rows"
    # Not even (unlabelled rows) x clusters at once, a 32nd of what is not to be there.
    assert largest.nbytes < 4 * (n - len(labels)) * k


# -- too many clusters, then merged --------------------------------------------------------------------------------


def ward(points, sizes, n_known, n_clusters):
    points, sizes = torch.tensor(points, dtype=torch.float64)[:, None], torch.tensor(sizes, dtype=torch.float64)
    return _ward(points, sizes, n_known, n_clusters)[:, 0].numpy()


def test_ward_by_hand():
    assert ward([0, 1, 10, 11], [1, 1, 1, 1], 0, 2).tolist() == [0.5, 10.5]
    # 5 and 7 cost 2, then 1 and 6 cost 25 * 200 / 102 = 49.02, less than 0 and 1, which cost 50.
    assert ward([0, 1, 5, 7], [100, 100, 1, 1], 0, 2) == pytest.approx([0, 112 / 102])


def test_ward_keeps_known_classes_apart_and_in_their_place():
    # 10 and 12 cost 2; then only 0 or 1 with 11 is allowed, and 1 is nearer.
    assert ward([0, 1, 10, 12], [1, 1, 1, 1], 2, 2) == pytest.approx([0, 23 / 3])
    assert ward([12, 0, 1, 11], [1, 1, 1, 1], 1, 2) == pytest.approx([11.5, 0.5])


@pytest.mark.parametrize("seed", range(5))
def test_ward_without_known_classes_is_scipys(seed):
    points = np.random.RandomState(seed).randn(40, 3)
    found = _ward(torch.from_numpy(points), torch.ones(40, dtype=torch.float64), 0, 7).numpy()
    labels = fcluster(linkage(points, "ward"), 7, "maxclust")
    expected = np.stack([points[labels == k].mean(axis=0) for k in range(1, 8)])
    np.testing.assert_allclose(found[np.lexsort(found.T)], expected[np.lexsort(expected.T)])


def one_merge_at_a_time(points, sizes, n_known, n_clusters):
    """Ward's merging as in the textbook: always the cheapest pair."""
    clusters = [(c, s, i < n_known) for i, (c, s) in enumerate(zip(points, sizes, strict=True))]
    while len(clusters) > n_clusters:
        pairs = [(i, j) for j in range(len(clusters)) for i in range(j) if not (clusters[i][2] and clusters[j][2])]

        def cost(pair):
            (a, m, _), (b, n, _) = (clusters[i] for i in pair)
            return ((a - b) ** 2).sum() * m * n / (m + n)

        i, j = min(pairs, key=cost)
        (a, m, known), (b, n, _) = clusters[i], clusters.pop(j)
        clusters[i] = ((m * a + n * b) / (m + n), m + n, known)
    return torch.stack([c for c, _, _ in clusters])


@pytest.mark.parametrize("n_known", [0, 1, 6])
@pytest.mark.parametrize("seed", range(4))
def test_ward_merges_pairs_at_once_with_the_result_of_one_at_a_time(monkeypatch, seed, n_known):
    monkeypatch.setattr(centroids, "_BLOCK_ELEMENTS", 60)  # two or more rows of the costs in a block
    points = torch.randn(30, 2, generator=seeded(seed), dtype=torch.float64)
    sizes = torch.randint(1, 40, (30,), generator=seeded(seed)).double()
    for n_clusters in (6, 7, 15, 29, 30):
        expected = one_merge_at_a_time(points, sizes, n_known, n_clusters)
        torch.testing.assert_close(_ward(points, sizes, n_known, n_clusters), expected)


def test_many_seeds_are_drawn_in_proportion_to_the_rows_of_each_group(monkeypatch, blobs):
    monkeypatch.setattr(centroids, "_MANY_SEEDS", 8)
    x, truth = blobs([100, 300, 200, 400], n_features=8, seed=0)
    seeds = _seeds(x, 20, seeded())
    assert seeds.shape == (20, 8)
    assert len(seeds.unique(dim=0)) == 20
    is_row = (seeds[:, None] == x).all(dim=2)  # (20, N)
    assert is_row.any(dim=1).all()
    assert torch.bincount(truth[is_row.int().argmax(dim=1)]).tolist() == [2, 6, 4, 8]


def test_many_seeds_among_hardly_more_rows(monkeypatch):
    monkeypatch.setattr(centroids, "_MANY_SEEDS", 8)
    x = torch.randn(23, 3, generator=seeded())
    assert len(_seeds(x, 23, seeded()).unique(dim=0)) == 23
    assert torch.isfinite(_seeds(torch.ones(40, 3), 30, seeded())).all()


@pytest.mark.parametrize("seed", range(5))
def test_merged_clusters_find_blobs(blobs, seed):
    x, truth = blobs([30] * 12, n_features=14, seed=seed)
    rows = torch.cat([torch.arange(0, 60, 2), torch.tensor([i for i in range(360) if i >= 60 or i % 2])])
    x, truth = x[rows], truth[rows]
    centroids = merged_clusters(x, truth[:30], 12, generator=seeded(seed))
    nearest = torch.cdist(x, centroids).argmin(dim=1)
    assert (nearest[truth < 2] == truth[truth < 2]).all()
    assert len({(int(a), int(b)) for a, b in zip(nearest, truth, strict=True)}) == 12


@pytest.mark.parametrize("n_free", [0, 1, 3])
def test_merged_clusters_with_hardly_any_unlabelled_row(n_free):
    x = torch.randn(4 + n_free, 3, generator=seeded())
    centroids = merged_clusters(x, torch.tensor([0, 0, 1, 1]), 4, generator=seeded())
    assert centroids.shape == (4, 3)
    assert torch.isfinite(centroids).all()


def test_merged_clusters_of_identical_rows():
    centroids = merged_clusters(torch.ones(40, 3), torch.tensor([0, 1]), 5, generator=seeded())
    assert centroids.shape == (5, 3)
    assert torch.equal(centroids, torch.ones(5, 3))


# -- the published rules --------------------------------------------------------------------------------------------


def test_pims_inertia_is_the_sum_of_distances_to_the_nearest_centroid():
    # The labelled rows 0 and 4 are pinned to one class with the mean 2; the other cluster is at 5, nearer to the row 4.
    x = torch.tensor([[0.0], [4.0], [5.0]], dtype=torch.float64)
    run = semi_supervised_kmeans(x, torch.tensor([0, 0]), 2, n_init=1, rule=PIM_RULE, generator=seeded())
    assert run.centroids.flatten().tolist() == [2.0, 5.0]
    assert run.inertia == pytest.approx(2.0 + 1.0 + 0.0)
    squared = semi_supervised_kmeans(x, torch.tensor([0, 0]), 2, n_init=1, rule=GCD_RULE, generator=seeded())
    assert squared.inertia == pytest.approx(4.0 + 4.0 + 0.0), "GCD's: squared, of labelled rows to their own class"


@pytest.mark.parametrize(("rule", "rounds"), [(GCD_RULE, 200), (PIM_RULE, 100)])
def test_the_published_rules_draw_one_row_for_a_seed_and_end_when_nothing_moves(monkeypatch, rule, rounds):
    asked = []

    def watched(*arguments):
        asked.append(arguments[-1])
        return plus_plus(*arguments)

    monkeypatch.setattr(centroids, "plus_plus", watched)
    x = torch.randn(200, 4, generator=seeded())
    run = kmeans(x, 5, n_init=2, rule=rule, generator=seeded())
    assert asked == [1, 1]
    assert run.n_iter < rounds == rule.max_iter
    again = nearest_centroid(x, run.centroids)[0]
    means = torch.stack([x[again == k].mean(dim=0) for k in range(5)])
    assert torch.allclose(means, run.centroids, atol=1e-6), "a fixed point of Lloyd's rounds"


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
