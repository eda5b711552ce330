"""A 2-D map of the rows, for visualization only, and colours for its classes.

UMAP: McInnes, Healy and Melville, "UMAP: Uniform Manifold Approximation and Projection for Dimension Reduction", 2018.

Colours are as far apart as they can be for people with any colour vision. The first are those of M. Okabe and K. Ito
(2008) that stand out on white. Further ones are chosen one by one, each the farthest from those before it, in OKLab
(B. Ottosson, 2020), where distance is about what the eye sees. The distance counted is the mean of two: as seen by most
people, and the smaller of those seen without the red or without the green cones (simulated as by Machado, Oliveira and
Fernandes, 2009).
"""

from __future__ import annotations

import importlib.util
import sys
import warnings

import numpy as np
from numpy.typing import NDArray

from rpim._common.hardware import row_blocks

FloatArray = NDArray[np.float32]

UMAP_MAP, PRINCIPAL_MAP = "UMAP", "principal directions"
N_DIRECTIONS = 50
"""Number of principal directions given to UMAP: more are slower and did not change the maps we inspected."""
N_NEIGHBORS = 15
_MAX_GAPS = 3
"""Maximum number of gaps that are shortened along each direction."""
_N_ANCHORS = 5
"""Number of nearest fitted rows that determine the position of another row."""


def kind_of_map() -> str:
    """The map that `two_dimensional` computes: "UMAP", or "principal directions" without umap-learn."""
    return PRINCIPAL_MAP if importlib.util.find_spec("umap") is None else UMAP_MAP


def two_dimensional(
    rows: NDArray[np.floating], *, random_state: int = 0, max_fitted: int = 20_000, verbose: bool = False
) -> FloatArray:
    """The 2-D position of each row. (N, 2)

    Use the refined rows of a model (``model.transform``), so that the map shows the space the model classifies in.

    Parameters
    ----------
    rows : array of shape (N, D)
        Rows of unit length.
    random_state : int
        Seed of UMAP and of the sample of fitted rows.
    max_fitted : int
        Maximum number of rows that UMAP is fitted to; the others are placed near their nearest fitted rows.
    verbose : bool
        Print the kind of map to stderr.
    """
    kind = kind_of_map()
    if verbose:
        why = "" if kind == UMAP_MAP else " (pip install 'rpim[maps]' for a map by UMAP)"
        print(f"rpim: map of {len(rows):,} rows by {kind}{why}", file=sys.stderr)
    if kind == PRINCIPAL_MAP or len(rows) < N_NEIGHBORS:
        return principal_map(rows)
    reduced = leading(rows, N_DIRECTIONS)  # (N, 50)
    if len(rows) <= max_fitted:
        return _umap(reduced, random_state)
    fitted = np.sort(np.random.RandomState(random_state).permutation(len(rows))[:max_fitted])
    return interpolate_positions(reduced, fitted, _umap(reduced[fitted], random_state))


def principal_map(rows: NDArray[np.floating]) -> FloatArray:
    """The rows projected on their first two principal components. (N, 2)

    >>> principal_map(np.array([[0.0, 3.0], [0.0, -3.0], [1.0, 0.0], [-1.0, 0.0]])).round(6).tolist()[0]
    [3.0, 0.0]
    """
    two = leading(rows, 2, centred=True)
    return np.pad(two, ((0, 0), (0, 2 - two.shape[1])))


def leading(rows: NDArray[np.floating], n_directions: int, *, centred: bool = False) -> FloatArray:
    """The rows projected on their leading principal directions, with a fixed sign. (N, n_directions) or fewer"""
    n_rows, n_features = rows.shape
    middle = rows.mean(axis=0, dtype=np.float64) if centred else np.zeros(n_features)  # (D,)
    if not centred and n_features <= n_directions:
        return np.asarray(rows, dtype=np.float32)
    gram = np.zeros((n_features, n_features))
    for block in row_blocks(n_rows, n_features):
        part = rows[block] - middle
        gram += part.T @ part
    directions = np.linalg.eigh(gram)[1][:, ::-1][:, :n_directions]  # (D, n_directions)
    directions = directions * np.sign(directions[np.abs(directions).argmax(axis=0), np.arange(directions.shape[1])])
    reduced = np.empty((n_rows, directions.shape[1]), dtype=np.float32)
    for block in row_blocks(n_rows, n_features):
        reduced[block] = (rows[block] - middle) @ directions
    return reduced


def close_gaps(places: FloatArray) -> FloatArray:
    """Shorten wide empty gaps, so that a class far from all others does not squeeze them. (N, 2)

    Along each direction, a gap wider than a third of the extent of everything else is shortened to that. The distance
    of groups that UMAP or t-SNE places far apart has no meaning; positions within a group do not change.

    >>> near, far = np.arange(4, dtype=np.float32), np.arange(90, 94, dtype=np.float32)
    >>> close_gaps(np.stack([np.r_[near, far], np.r_[near, near]], axis=1))[:, 0].tolist()
    [0.0, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0]
    """
    closed = np.empty_like(places)
    for axis, along in enumerate(places.T.astype(np.float64)):
        order = np.argsort(along, kind="stable")
        gaps = np.diff(along[order], prepend=along[order[:1]])
        extent = gaps.sum()
        for place in np.argsort(-gaps, kind="stable")[:_MAX_GAPS]:
            others = extent - gaps[place]
            if gaps[place] <= others / 3 or others <= 0:
                break
            extent = others
        limit = extent / 3
        closed[order, axis] = along[order[:1]] + np.minimum(gaps, limit).cumsum() if extent > 0 else along[order]
    return closed


def interpolate_positions(rows: FloatArray, fitted: NDArray[np.int64], on_map: FloatArray) -> FloatArray:
    """Positions of all rows, given those of some: the others are weighted means of their nearest fitted rows.

    >>> rows = np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]], dtype=np.float32)
    >>> places = np.array([[5.0, 5.0], [7.0, 7.0]], dtype=np.float32)
    >>> interpolate_positions(rows, np.array([0, 1]), places).round(2).tolist()
    [[5.0, 5.0], [7.0, 7.0], [7.0, 7.0]]
    """
    places = np.empty((len(rows), 2), dtype=np.float32)
    places[fitted] = on_map
    others = np.setdiff1d(np.arange(len(rows)), fitted)
    anchors = rows[fitted]  # (n_fitted, D)
    squares = np.einsum("nd,nd->n", anchors, anchors)
    count = min(_N_ANCHORS, len(fitted))
    for block in row_blocks(len(others), len(fitted)):
        some = rows[others[block]]  # (n, D)
        distances = squares - 2 * (some @ anchors.T) + np.einsum("nd,nd->n", some, some)[:, None]  # (n, n_fitted)
        nearest = np.argpartition(distances, count - 1, axis=1)[:, :count]
        squared = np.take_along_axis(distances, nearest, axis=1).clip(min=1e-9)
        # Fourth power of the distance: a row between two groups is drawn to one of them, not into the gap.
        weights = squared**-2
        weights /= weights.sum(axis=1, keepdims=True)
        places[others[block]] = np.einsum("nk,nkd->nd", weights, on_map[nearest])
    return places


def _umap(rows: FloatArray, random_state: int) -> FloatArray:
    from umap import UMAP  # compiles for seconds

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about disconnected components, which duplicates cause
        on_map = UMAP(
            n_neighbors=min(N_NEIGHBORS, len(rows) - 1), min_dist=0.1, random_state=random_state, n_jobs=1
        ).fit_transform(rows)
    return np.asarray(on_map, dtype=np.float32)


Array = NDArray[np.float64]

_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
_WITHOUT_RED = np.array(
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
)
_WITHOUT_GREEN = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)

_FIRST = np.array([[0, 114, 178], [230, 159, 0], [0, 158, 115], [204, 121, 167], [86, 180, 233], [213, 94, 0]]) / 255
_LIGHTNESS = (0.35, 0.78)  # of OKLab: dark enough to stand on white, light enough not to be black


def palette(n: int) -> Array:
    """`n` colours as red, green and blue between 0 and 1; the first ones are always the same. (n, 3)"""
    linear = np.vstack([_linear(_FIRST), _candidates()])
    seen = [_lab(linear @ vision.T) for vision in (np.eye(3), _WITHOUT_RED, _WITHOUT_GREEN)]
    chosen: list[int] = []
    nearest = np.full(len(linear), np.inf)
    while len(chosen) < n:
        chosen.append(len(chosen) if len(chosen) < len(_FIRST) else int(nearest.argmax()))
        usual, *others = (np.linalg.norm(lab - lab[chosen[-1]], axis=1) for lab in seen)
        nearest = np.minimum(nearest, (usual + np.minimum(*others)) / 2)
    return _srgb(linear[chosen])


def _candidates() -> Array:
    """A grid of colours, linear in light, neither too dark nor too light nor grey."""
    steps = np.linspace(0.0, 1.0, 22)
    grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    linear = _linear(grid)
    lab = _lab(linear)
    light, colourful = lab[:, 0], np.hypot(lab[:, 1], lab[:, 2]) > 0.08
    return linear[(light > _LIGHTNESS[0]) & (light < _LIGHTNESS[1]) & colourful]


def _linear(srgb: Array) -> Array:
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def _lab(linear: Array) -> Array:
    lab: Array = np.cbrt(linear.clip(0.0, 1.0) @ _TO_CONES.T) @ _TO_LAB.T
    return lab


def _srgb(linear: Array) -> Array:
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
