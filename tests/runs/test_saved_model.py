"""Whether rows can be of the encoder of a run: by hand, other domains of it, and shuffled or rotated columns."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rpim import RPIM, FeatureSet, InputError
from rpim.runs.saved_model import LEAST_ALIGNMENT, MIN_FITTED_ROWS, MIN_ROWS, EmbeddingSpace, describe, restore

D = 192


def domain(seed: int, n: int, shared: float = 0.5) -> np.ndarray:
    """Rows of one make-believe encoder: 40 directions that all domains use, 40 that are the domain's own, and noise."""
    used_by_all = np.random.default_rng(0).normal(size=(40, D))
    random = np.random.default_rng(seed)
    own = random.normal(size=(40, D))
    rows = shared * random.normal(size=(n, 40)) @ used_by_all + (1 - shared) * random.normal(size=(n, 40)) @ own
    return (rows + random.normal(size=(n, D))).astype(np.float32)


RUN = EmbeddingSpace.of(FeatureSet.from_arrays(domain(1, 2000)))


def alignment(rows: np.ndarray) -> float:
    value = RUN.alignment(FeatureSet.from_arrays(rows))
    assert value is not None
    return value


def test_alignment_by_hand():
    # One direction out of the three in which four features sum to zero: it holds a third of a row by chance, with a
    # variance of 2 * 1 * (3 - 1) / (3 * 3 * (3 + 2)) = 4 / 45.
    direction = np.array([[1, -1, 1, -1]]).T / 2
    space = EmbeddingSpace(None, direction.astype(np.float16))
    deviation = (4 / 45) ** 0.5

    def of(row):
        return space.alignment(FeatureSet.from_arrays(np.tile(np.array(row, dtype=float), (MIN_ROWS, 1))))

    assert of([3, -3, 3, -3]) == pytest.approx(2 / 3 / deviation)
    assert of([7, 1, 7, 1]) == pytest.approx(2 / 3 / deviation)  # what all columns share is taken off
    assert of([1, 1, -1, -1]) == pytest.approx(-1 / 3 / deviation)
    assert of([1, 0, 0, -1]) == pytest.approx(1 / 6 / deviation)


def test_single_rows_drawn_at_random_have_mean_0_and_deviation_1(monkeypatch):
    monkeypatch.setattr("rpim.runs.saved_model.MIN_ROWS", 1)
    values = [alignment(row[None]) for row in np.random.default_rng(99).normal(size=(2000, D))]
    assert np.mean(values) == pytest.approx(0, abs=0.1)
    assert np.std(values) == pytest.approx(1, abs=0.1)


def test_the_directions_are_orthonormal_and_hold_as_much_as_any():
    rows = domain(1, 2000)
    space = EmbeddingSpace.of(FeatureSet.from_arrays(rows))
    directions = space.directions.astype(np.float64)
    assert directions.shape == (D, D // 3)
    np.testing.assert_allclose(directions.T @ directions, np.eye(D // 3), atol=2e-3)
    centred = rows - rows.mean(axis=1, keepdims=True)
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    best = np.linalg.eigvalsh(centred.T @ centred)[::-1][: D // 3].sum() / len(rows)
    assert np.square(centred @ directions).sum() / len(rows) == pytest.approx(best, rel=0.01)


def test_rows_of_the_run_and_of_other_domains_pass():
    own = alignment(domain(1, 500))
    for seed in range(2, 8):
        rows = domain(seed, 500)
        assert LEAST_ALIGNMENT < alignment(rows) < own
        RUN.check(FeatureSet.from_arrays(rows))


def test_whitened_rows_have_no_directions_to_tell_by():
    """All of them carry the same, so that new rows of the same encoder lie across some as if by chance."""
    rows = domain(1, 3000)
    spread, directions = np.linalg.eigh(np.cov(rows.T))
    white = (rows - rows.mean(axis=0)) @ directions / np.sqrt(spread)
    space = EmbeddingSpace.of(FeatureSet.from_arrays(white[:2000]))
    assert space.directions is None
    space.check(FeatureSet.from_arrays(white[2000:]))


@pytest.mark.parametrize("seed", range(5))
def test_shuffled_and_rotated_columns_are_refused(seed):
    random = np.random.default_rng(100 + seed)
    rows = domain(1, 500)
    rotation = np.linalg.qr(random.normal(size=(D, D)))[0]
    for other in (rows[:, random.permutation(D)], rows @ rotation, random.normal(size=(500, D))):
        assert abs(alignment(other)) < 1
        with pytest.raises(
            InputError,
            match=r"seem to come from another encoder: embed them with the same encoder, or "
            r"use --any-encoder \(any_encoder=True\) to skip this check\.$",
        ):
            RUN.check(FeatureSet.from_arrays(other))


def test_scales_and_types_do_not_matter():
    rows = domain(3, 200)
    scales = np.random.default_rng(0).uniform(0.1, 10, size=(200, 1))
    assert alignment(rows * scales) == pytest.approx(alignment(rows), abs=1e-3)
    assert alignment(rows.astype(np.float64) * 1e300) == pytest.approx(alignment(rows), abs=1e-3)
    assert alignment(rows.astype(np.float16)) == pytest.approx(alignment(rows), abs=0.05)


def test_nothing_is_said_of_a_few_rows_or_constant_ones():
    noise = np.random.default_rng(99).normal(size=(MIN_ROWS - 1, D))
    for rows in (noise[:1], noise[:5], noise[:20], noise, np.ones((100, D))):
        features = FeatureSet.from_arrays(rows)
        assert RUN.alignment(features) is None
        RUN.check(features)


def test_nothing_is_remembered_of_a_small_run():
    few, narrow = domain(1, MIN_FITTED_ROWS - 1), domain(1, 2000)[:, :100]
    for rows in (few, narrow):
        space = EmbeddingSpace.of(FeatureSet.from_arrays(rows, metadata={"encoder": "dino"}))
        assert (space.directions, space.encoder) == (None, "dino")
        space.check(FeatureSet.from_arrays(np.random.default_rng(99).normal(size=(500, rows.shape[1]))))


def test_names_of_encoders_go_first():
    rows = domain(1, 2000)
    space = EmbeddingSpace.of(FeatureSet.from_arrays(rows, metadata={"encoder": "dino"}))
    shuffled = rows[:, ::-1]
    space.check(FeatureSet.from_arrays(shuffled, metadata={"encoder": "dino"}))
    with pytest.raises(InputError, match="embedded by 'clip' but those of the run by 'dino': embed them with the same"):
        space.check(FeatureSet.from_arrays(rows, metadata={"encoder": "clip"}))
    with pytest.raises(InputError, match="seem to come from another encoder"):
        space.check(FeatureSet.from_arrays(shuffled))  # which does not say
    RUN.check(FeatureSet.from_arrays(rows, metadata={"encoder": "clip"}))  # nor does the run


def test_a_model_of_several_embeddings_comes_back_bit_by_bit():
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(4), 15)
    X = np.eye(4, 8)[truth] + 0.1 * random.randn(60, 8)
    parts = [X, np.maximum(X, 0.0) ** 4 + 1e-3]
    model = RPIM(4, n_members=4, n_components=5, random_state=0).fit(parts, np.where(truth < 2, truth, -1))
    facts, tensors = describe(model)
    again = restore(json.loads(json.dumps(facts)), tensors)
    assert (again.widths_, again.normalize_) == (model.widths_, model.normalize_) == ((8, 8), (True, "sqrt"))
    np.testing.assert_array_equal(again.predict_proba(parts), model.predict_proba(parts))
    for changed in ({"widths": [8, 7]}, {"widths": [16]}, {"widths": "16"}, {"n_features": 12}):
        with pytest.raises((ValueError, TypeError)):
            restore({**facts, **changed}, tensors)
