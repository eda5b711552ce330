"""What to label next: the rows whose labels would help a refit most."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpim._common.errors import InputError, plural
from rpim._common.files import StrPath, check_export
from rpim.data.feature_set import FeatureSet
from rpim.data.formats.tables import new_table
from rpim.estimators.base import DiscoveryEstimator
from rpim.runs.assignments import Assignments, class_codes

NEW_SHARE = 0.25
"""A row of a new class counts this much beside its expected error, since its class has no label."""
KNOWN_WEIGHT = 0.25
"""Weight of an expected error in a known class, which has labels."""
MAX_ROWS = 30_000
"""Number of rows among which those to label are chosen, if there are more."""


class Suggestion(NamedTuple):
    """A row to label next.

    Parameters
    ----------
    row : int
        Its number among the rows of the discovery.
    id : str or int
        Its id.
    predicted : str, int or float
        Its class in the discovery.
    known : bool
        Whether that is a known class.
    confidence : float
        The probability of that class.
    runner_up : str, int or float
        The second most probable class.
    runner_up_confidence : float
        Its probability.
    """

    row: int
    id: Any
    predicted: Any
    known: bool
    confidence: float
    runner_up: Any
    runner_up_confidence: float


def candidates(assignments: Assignments, n: int, exclude: ArrayLike = ()) -> NDArray[np.int64]:
    """The rows that can be suggested: unlabelled, not rejected, and without those whose ids are excluded.

    Raises
    ------
    InputError
        If there are fewer than n of them, or n is not positive.
    """
    if n < 1:
        raise InputError(f"n={n} is too few: give at least 1.")
    left = set(np.asarray(exclude).tolist())
    rows = np.flatnonzero(~assignments.labelled & ~assignments.left_out)
    if left:
        rows = rows[[name not in left for name in assignments.ids[rows].tolist()]]
    if not len(rows):
        raise InputError("Every row of the run is labelled or rejected, so there is none to label: add rows.")
    if n > len(rows):
        raise InputError(f"n={n} is more than the {plural(len(rows), 'unlabelled row')} of the run: give fewer.")
    return rows


def choose_rows(
    codes: NDArray[np.int64],
    confidence: NDArray[np.float32],
    n_known: int,
    n: int,
    vectors: NDArray[np.float32] | None = None,
) -> NDArray[np.int64]:
    """Choose n rows, the most useful first: those of new classes, then of classes with many expected errors.

    Within a class the rows are typical of different parts of it: those nearest to the centroids of as many clusters.
    Doubtful rows alone hardly help (docs/results.md).

    Parameters
    ----------
    codes : (m,)
        The class of each row; the first `n_known` classes are known ones.
    confidence : (m,)
        The probability of that class.
    n_known : int
        Number of known classes.
    n : int
        How many rows, at most m.
    vectors : (m, D), optional
        Embeddings, in which rows that are near are similar; without them, rows of different confidence are chosen.

    Returns
    -------
    (n,)
        Positions in `codes`.

    Examples
    --------
    >>> codes, confidence = np.array([0, 0, 0, 1, 1, 1]), np.array([0.9, 0.5, 1.0, 0.8, 0.9, 0.7], dtype=np.float32)
    >>> choose_rows(codes, confidence, n_known=1, n=2).tolist()
    [4, 3]
    """
    chosen: list[tuple[int, bool, int, int]] = []  # the turn of each row within its class, and so on
    for k, quota in enumerate(_quotas(codes, confidence, n_known, n).tolist()):
        if quota:
            rows = np.flatnonzero(codes == k)
            picked = _spread(rows, confidence, quota) if vectors is None else _central(rows, vectors[rows], quota)
            chosen += [(turn, k < n_known, k, row) for turn, row in enumerate(picked.tolist())]
    first = sorted(chosen, key=lambda one: (one[1], *one[:1], *one[2:]))
    return np.array([row for *_, row in first], dtype=np.int64)


def _quotas(codes: NDArray[np.int64], confidence: NDArray[np.float32], n_known: int, n: int) -> NDArray[np.int64]:
    """How many rows of each class: one of each new class, then by expected errors (Webster's method). (K,)"""
    n_classes = int(codes.max()) + 1
    is_new = np.arange(n_classes) >= n_known
    sizes = np.bincount(codes, minlength=n_classes)
    errors = 1.0 - confidence.astype(np.float64)
    weights = np.where(codes >= n_known, NEW_SHARE + errors, KNOWN_WEIGHT * errors)
    mass = np.bincount(codes, weights, minlength=n_classes) + 1e-9
    quotas = np.zeros(n_classes, dtype=np.int64)
    while quotas.sum() < n:
        worth = mass / (quotas + 0.5)
        worth[is_new & (quotas == 0)] += mass.sum() * 2.0  # a label names the class
        worth[quotas >= sizes] = -1.0
        quotas[worth.argmax()] += 1
    return quotas


def _central(rows: NDArray[np.int64], vectors: NDArray[np.float32], quota: int) -> NDArray[np.int64]:
    """The row nearest to the centroid of each of `quota` clusters, that of the largest cluster first. (quota,)"""
    from sklearn.cluster import KMeans

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct rows than clusters
        found = KMeans(quota, n_init=1, random_state=0).fit(vectors)
    # Rounded: the two rows of a cluster of two are equally near, and the last bit must not choose between them.
    distances = np.linalg.norm(vectors - found.cluster_centers_[found.labels_], axis=1).round(5)
    picked = []
    for cluster in np.argsort(-np.bincount(found.labels_, minlength=quota), kind="stable"):
        own = np.flatnonzero(found.labels_ == cluster)
        if len(own):
            picked.append(own[distances[own].argmin()])
    others = np.setdiff1d(np.arange(len(rows)), picked)[: quota - len(picked)]  # copies of rows, if there are too few
    found_rows: NDArray[np.int64] = rows[np.concatenate([np.array(picked, dtype=np.int64), others])]
    return found_rows


def _spread(rows: NDArray[np.int64], confidence: NDArray[np.float32], quota: int) -> NDArray[np.int64]:
    """Rows from the most to the least confident, evenly spaced. (quota,)"""
    ranked = rows[np.argsort(-confidence[rows], kind="stable")]
    return ranked[np.arange(quota) * len(rows) // quota]


def suggest(
    assignments: Assignments,
    model: DiscoveryEstimator,
    n: int,
    features: FeatureSet | None = None,
    exclude: ArrayLike = (),
) -> list[Suggestion]:
    """Suggest n rows to label next, the most useful first; see `Discovery.suggest`."""
    rows = candidates(assignments, n, exclude)
    codes = class_codes(assignments.labels[rows], model.classes_)
    vectors = None
    if features is not None:
        if not np.array_equal(features.ids, assignments.ids):
            raise InputError("The features are not those of the discovery, whose ids differ: give the rows of the fit.")
        rows, codes = sample_rows(rows, codes, n)
        vectors = model.transform(features.subset(rows).rows(normalize=model.normalize))
    chosen = rows[choose_rows(codes, assignments.confidence[rows], len(model.known_classes_), n, vectors)]
    return [
        Suggestion(
            row,
            assignments.ids[row].item(),
            assignments.labels[row].item(),
            bool(assignments.known[row]),
            float(assignments.confidence[row]),
            assignments.runner_up[row].item(),
            float(assignments.runner_up_confidence[row]),
        )
        for row in chosen.tolist()
    ]


def sample_rows(
    rows: NDArray[np.int64], codes: NDArray[np.int64], n: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """At most about MAX_ROWS rows, or 10 n, evenly spaced within each class, in order."""
    step = -(-len(rows) // max(MAX_ROWS, 10 * n))
    if step == 1:
        return rows, codes
    by_class = np.argsort(codes, kind="stable")
    kept = [own[::step] for own in np.split(by_class, np.flatnonzero(np.diff(codes[by_class])) + 1)]
    some = np.sort(np.concatenate(kept))
    return rows[some], codes[some]


def write_suggestions(
    assignments: Assignments, suggestions: Sequence[Suggestion], path: StrPath, *, overwrite: bool = False
) -> None:
    """Write a .csv or .parquet file with an empty column label, atomically."""
    rows = [one.row for one in suggestions]
    shown = (("text", assignments.texts), ("path", assignments.paths))
    columns: dict[str, Any] = {"id": assignments.ids[rows]}
    columns |= {name: [values[row] for row in rows] for name, values in shown if values is not None}
    columns |= {
        "predicted": assignments.labels[rows],
        "confidence": assignments.confidence[rows],
        "runner_up": assignments.runner_up[rows],
        "runner_up_confidence": assignments.runner_up_confidence[rows],
        "label": np.ma.masked_array(np.full(len(rows), ""), mask=True),
    }
    with new_table(check_export(path, overwrite), overwrite=overwrite) as table:
        table.append(columns)
