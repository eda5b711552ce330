"""What a fitted method does with rows, seen or unseen: predict, score and transform."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
from torch import Tensor

from rpim._common.errors import InputError
from rpim._common.hardware import row_blocks
from rpim.core.head import Head
from rpim.core.preprocessing import Normalization, Preprocessing
from rpim.data.labels import UNLABELLED, IntArray, are_several, encode_labels, name_rows, side_by_side
from rpim.metrics import contingency

FloatArray = NDArray[np.float32]


class FittedEstimator(TransformerMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Applies the head that a fit has found; `DiscoveryEstimator` adds the fit."""

    head_: Head
    normalize_: Normalization | tuple[Normalization, ...]
    widths_: tuple[int, ...]
    classes_: NDArray[Any]
    known_classes_: NDArray[Any]
    new_classes_: NDArray[Any]
    outlier_threshold_: float = math.inf

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Predict the class of each row, known or discovered, for rows seen or unseen.

        Where the fit left rows out (``abstain``), a row that fits no better than those has none: -1, NaN or "".

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows, seen or unseen.

        Returns
        -------
        ndarray of shape (n_rows,)
            Classes, in the type of the labels.
        """
        rows = self._rows_like_fitted(X)
        codes = np.empty(len(rows), dtype=np.int64)
        for block, x in self._blocks(rows):
            z, scores = _on_cpu(self.head_.proba_and_score(x))
            codes[block] = self._reject(self._by_class(z), scores)
        return name_rows(codes, self.classes_)

    def _proba_and_score(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """``predict_proba`` and ``outlier_scores`` of the same rows, in one pass. (n, K), (n,)"""
        rows = self._rows_like_fitted(X)
        probabilities = np.empty((len(rows), len(self.classes_)), dtype=np.float32)
        scores = np.empty(len(rows), dtype=np.float32)
        for block, x in self._blocks(rows):
            z, scores[block] = _on_cpu(self.head_.proba_and_score(x))
            probabilities[block] = self._by_class(z)
        return probabilities, scores

    def _by_class(self, z: FloatArray) -> FloatArray:
        """The probabilities of the classes, given those of the prototypes: several are one class after a merge."""
        classes: IntArray | None = getattr(self, "class_of_prototype_", None)
        if classes is None:
            return z
        summed: FloatArray = z @ np.eye(len(self.classes_), dtype=z.dtype)[classes]
        return summed

    def _reject(self, probabilities: FloatArray, scores: FloatArray) -> IntArray:
        """The number of the likeliest class of each row; -1 where its outlier score is too large. (n,)"""
        classes: IntArray = np.where(scores > self.outlier_threshold_, UNLABELLED, probabilities.argmax(axis=1))
        return classes

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Accuracy on the labelled rows, where discovered classes are matched with the labels that ``fit`` did not see.

        A known class counts under its own name alone. Discovered classes and the other labels are matched one to one by
        the Hungarian assignment. Rows without a label are ignored.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows, seen or unseen.
        y : array-like of shape (n_rows,)
            The true labels; -1, None, NaN or "" where they are unknown.

        Returns
        -------
        float
            Share of the labelled rows in their class, or in the class matched with it.
        """
        return discovery_accuracy(y, self.predict(X), self.known_classes_, self.new_classes_)

    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Compute the probability of each class for each row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows, seen or unseen.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities, in the order of ``classes_``.
        """
        return self._proba_and_score(X)[0]

    def outlier_scores(self, X: ArrayLike) -> FloatArray:
        """Compute how little each row fits any class.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows, seen or unseen.

        Returns
        -------
        ndarray of shape (n_rows,)
            The larger, the less a row fits. Comparable between rows of one model alone.
        """
        return self._proba_and_score(X)[1]

    def transform(self, X: ArrayLike) -> FloatArray:
        """Compute the refined embedding h(x) of each row, in the directions that the training kept.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Rows, seen or unseen.

        Returns
        -------
        ndarray of shape (n_rows, n_components)
            Refined embeddings.
        """
        rows = self._rows_like_fitted(X)
        refined = np.empty((len(rows), self.head_.prototypes.shape[1]), dtype=np.float32)
        for block, x in self._blocks(rows):
            refined[block] = self.head_.transform(x).cpu().numpy()
        return refined

    def _rows_like_fitted(self, X: ArrayLike) -> NDArray[Any]:
        check_is_fitted(self)
        if are_several(X):
            X, widths = side_by_side(X)
            if widths != self.widths_:
                raise InputError(
                    f"X has embeddings of {_columns(widths)}, but the model was fitted on {_columns(self.widths_)}: "
                    "give the same embeddings in the same order."
                )
        rows: NDArray[Any] = validate_data(self, X, reset=False, dtype=[np.float32, np.float64], order="C")
        return rows

    def _blocks(self, rows: NDArray[Any]) -> Iterator[tuple[slice, Tensor]]:
        """The rows as the head knows them, a block at a time."""
        prepare = self._preparation(self.head_.prototypes.device)
        for block in row_blocks(*rows.shape):
            yield block, prepare(rows[block])

    def _set_components(self, directions: Tensor | None) -> None:
        """Keep the principal directions (D, d), and as ``components_`` in scikit-learn's shape (d, D)."""
        self._directions = directions
        self.components_: FloatArray | None = None if directions is None else directions.T.cpu().numpy().copy()

    def _preparation(self, device: torch.device) -> Preprocessing:
        """What is done to each row; the directions are those of the fit, if it has found them."""
        return Preprocessing(self.normalize_, self._directions, device, self.widths_)


def _columns(widths: Sequence[int]) -> str:
    return ", ".join(map(str, widths)) + " columns"


def _on_cpu(tensors: tuple[Tensor, ...]) -> Iterator[FloatArray]:
    return (tensor.cpu().numpy() for tensor in tensors)


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
