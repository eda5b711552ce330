"""The map: where rows go, with UMAP and without."""

import numpy as np
import pytest

from rpim.runs import maps


@pytest.fixture
def three(blobs):
    rows, truth = blobs([40, 40, 40], 8)
    return rows.numpy(), truth.numpy()


def is_apart(on_map, truth):
    """Every row is nearer to the middle of its class than to another's."""
    middles = np.stack([on_map[truth == k].mean(axis=0) for k in range(3)])
    return (np.linalg.norm(on_map[:, None] - middles, axis=2).argmin(axis=1) == truth).all()


def test_without_umap_rows_are_in_their_two_principal_directions(three, monkeypatch, capsys):
    rows, truth = three
    monkeypatch.setattr(maps, "kind_of_map", lambda: maps.PRINCIPAL_MAP)
    on_map = maps.two_dimensional(rows, verbose=True)
    assert on_map.shape == (120, 2)
    assert on_map.dtype == np.float32
    centred = rows - rows.mean(axis=0)
    np.testing.assert_allclose((on_map**2).sum(), (np.linalg.svd(centred)[1][:2] ** 2).sum(), rtol=1e-4)
    assert is_apart(on_map, truth)
    assert "principal directions" in capsys.readouterr().err


def test_rows_of_one_feature_lie_on_a_line():
    on_map = maps.principal_map(np.array([[1.0], [-1.0], [3.0]]))
    assert on_map[:, 1].tolist() == [0, 0, 0]
    assert (np.diff(on_map[[1, 0, 2], 0]) > 0).all()


@pytest.mark.slow  # umap-learn compiles for most of the time
def test_with_umap_classes_are_apart_and_rows_that_were_not_fitted_go_to_theirs(three):
    pytest.importorskip("umap")
    rows, truth = three
    assert maps.kind_of_map() == maps.UMAP_MAP
    on_map = maps.two_dimensional(rows, max_fitted=60)
    assert is_apart(on_map, truth)
    np.testing.assert_array_equal(on_map, maps.two_dimensional(rows, max_fitted=60))


def test_a_row_goes_to_the_nearer_of_its_neighbors():
    rows = np.array([[1, 0], [0, 1], [0.9, 0.1]], dtype=np.float32)
    on_map = maps.interpolate_positions(rows, np.array([0, 1]), np.array([[0, 0], [10, 10]], dtype=np.float32))
    # Squared distances 0.02 and 1.62, so weights 2500 and 0.381.
    np.testing.assert_allclose(on_map[2], 10 * 0.381 / 2500.381, rtol=1e-3)


def test_a_far_class_does_not_squeeze_the_others():
    rng = np.random.RandomState(0)
    near, far = rng.rand(300, 2).astype(np.float32), 50 + rng.rand(20, 2).astype(np.float32)
    places = np.concatenate([near, far])
    closed = maps.close_gaps(places)
    assert np.ptp(closed, axis=0).max() < 3.5  # of 51 before
    for group in (slice(300), slice(300, None)):  # inside a group nothing moves
        moved = closed[group] - places[group]
        np.testing.assert_allclose(moved, np.broadcast_to(moved[:1], moved.shape), atol=1e-5)
    assert closed[300:].min() > closed[:300].max() + 0.5
    np.testing.assert_allclose(maps.close_gaps(near), near, atol=1e-6)
    np.testing.assert_array_equal(maps.close_gaps(np.ones((9, 2), dtype=np.float32)), 1)
