"""How good a discovery estimator is, as scikit-learn's model selection asks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import column_or_1d

from rpim._common.errors import InputError
from rpim.data.labels import encode_labels
from rpim.metrics import contingency


def gcd_scorer(estimator: Any, X: ArrayLike, y: ArrayLike) -> float:
    """Score a fitted estimator on the labelled rows of `y`; for ``scoring=`` of `GridSearchCV` and its like.

    Known classes count under their own name, discovered ones are matched with the labels that ``fit`` did not see, and
    rows without a label are ignored: ``score`` of every estimator here, for pipelines and other classifiers too.

    Parameters
    ----------
    estimator : estimator
        A fitted estimator of this package, a pipeline with one, or another classifier.
    X : array-like of shape (n_rows, n_features)
        Rows, seen or unseen.
    y : array-like of shape (n_rows,)
        The true labels; -1, None, NaN or "" where they are unknown.

    Returns
    -------
    float
        Accuracy on the labelled rows.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from rpim import RPIM, gcd_scorer
    >>> X, truth = make_blobs(240, n_features=16, centers=6, random_state=0)
    >>> y = [c if c < 4 and i % 2 else -1 for i, c in enumerate(truth)]
    >>> gcd_scorer(RPIM(n_classes=6, random_state=0).fit(X, y), X, truth)
    1.0
    """
    last = estimator[-1] if isinstance(estimator, Pipeline) else estimator
    known = getattr(last, "known_classes_", estimator.classes_)
    return discovery_accuracy(y, estimator.predict(X), known, getattr(last, "new_classes_", known[:0]))


def discovery_accuracy(y: ArrayLike, predicted: NDArray[Any], known: NDArray[Any], new: NDArray[Any]) -> float:
    """Accuracy on the labelled rows, discovered classes under the names that the Hungarian assignment gives them.

    Parameters
    ----------
    y : array-like of shape (n,)
        True labels; -1, None, NaN or "" where a row has none.
    predicted : (n,)
    known, new : (n_known,), (n_new,)
        The classes with labels in ``fit``, and the discovered ones.

    Examples
    --------
    >>> y = ["ant", "ant", "eel", "eel", ""]
    >>> predicted = np.array(["ant", "new-1", "new-1", "new-1", "new-2"])
    >>> discovery_accuracy(y, predicted, np.array(["ant"]), np.array(["new-1", "new-2"]))
    0.75
    """
    values = column_or_1d(y if hasattr(y, "dtype") else np.asarray(y, dtype=object))
    if len(values) != len(predicted):
        raise InputError(f"There are {len(values)} labels but {len(predicted)} rows; give one label per row.")
    codes, names = encode_labels(values)
    labelled = codes >= 0
    if not labelled.any():
        raise InputError("No row of y has a label, so there is nothing to score: give labels of some rows.")
    if (names.dtype.kind == "U") != (known.dtype.kind in "UO"):
        raise InputError(f"The labels of y are of type {names.dtype} but the classes of {known.dtype}: give the same.")
    truth, found = names[codes[labelled]], predicted[labelled]
    hits = int((np.isin(truth, known) & (truth == found)).sum())
    unseen = names[~np.isin(names, known)]
    rows = np.isin(truth, unseen) & np.isin(found, new)
    if rows.any():
        counts = contingency(
            _positions(truth[rows], unseen), _positions(found[rows], new), n_truth=len(unseen), n_predicted=len(new)
        )
        hits += int(counts[linear_sum_assignment(counts, maximize=True)].sum())
    return hits / int(labelled.sum())


def _positions(values: NDArray[Any], among: NDArray[Any]) -> NDArray[np.int64]:
    """The position of each value among different ones. (n,)"""
    order = np.argsort(among)
    positions: NDArray[np.int64] = order[np.searchsorted(among, values, sorter=order)]
    return positions
