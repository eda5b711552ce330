"""Detect rows that do not come from the encoder of a run.

The leading r principal directions of a sample of embeddings explain more variance of other embeddings of the same
encoder than r random directions do. For rows of another encoder, or with permuted columns, they explain about r / D, as
for random rows. (The mean of each row over its columns is subtracted first, because it is invariant to permutations;
that leaves D - 1 dimensions.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim.data.feature_set import FeatureSet

N_DIRECTIONS = 128
MIN_FEATURES = 128
MIN_FITTED_ROWS = 4 * N_DIRECTIONS
MIN_ROWS = 32
"""With fewer features or rows, the test has no power, and no rows are refused."""

LEAST_ALIGNMENT = 2.0
"""Rows with a smaller alignment are refused. Identical rows count as one; by chance one row in forty exceeds it."""

CLEAR_ALIGNMENT = 2 * LEAST_ALIGNMENT
"""If one half of the run's own rows has a smaller alignment with the other, no rows are refused."""

_SAMPLE = 4096


@dataclass(frozen=True, eq=False)
class EmbeddingSpace:
    """The embedding space of a run, to compare new rows with.

    Parameters
    ----------
    encoder : Any
        The encoder in the metadata of the features; None if unknown.
    directions : array of shape (D, r), or None
        The leading principal directions; None with too few rows or features, or if the spectrum is flat.
    """

    encoder: Any = None
    directions: NDArray[np.float16] | None = None

    @classmethod
    def of(cls, features: FeatureSet) -> EmbeddingSpace:
        """Estimate the space from a sample of the rows."""
        from sklearn.utils.extmath import randomized_svd

        encoder = features.metadata.get("encoder")
        rows = _centred(features.X[:: -(-len(features) // _SAMPLE)])  # (n, D)
        if len(rows) < MIN_FITTED_ROWS or features.n_features < MIN_FEATURES:
            return cls(encoder)
        n_directions = min(N_DIRECTIONS, features.n_features // 3)

        def leading(rows: NDArray[np.float32]) -> NDArray[np.float16]:
            directions: NDArray[np.float16] = randomized_svd(rows, n_directions, random_state=0)[2].T.astype(np.float16)
            return directions

        one, other = np.array_split(np.random.RandomState(0).permutation(len(rows)), 2)
        if _alignment(leading(rows[one]), rows[other]) < CLEAR_ALIGNMENT:
            return cls(encoder)  # flat spectrum, as after whitening
        return cls(encoder, np.ascontiguousarray(leading(rows)))  # (D, r)

    def alignment(self, features: FeatureSet) -> float | None:
        """Excess variance of the rows explained by the directions; None if it cannot be estimated."""
        if self.directions is None:
            return None
        rows = _centred(features.X[:_SAMPLE])  # (n, D)
        return None if len(rows) < MIN_ROWS else _alignment(self.directions, rows)

    def check(self, features: FeatureSet) -> None:
        """Raise if the rows do not come from the same encoder.

        Rows of another domain pass; few or identical rows may pass, because the test has no power.
        """
        what_to_do = "embed them with the same encoder, or use --any-encoder (any_encoder=True) to skip this check"
        encoder = features.metadata.get("encoder")
        if encoder is not None and self.encoder is not None:
            if encoder != self.encoder:
                raise InputError(
                    f"The rows were embedded by {encoder!r} but those of the run by {self.encoder!r}: {what_to_do}."
                )
            return
        alignment = self.alignment(features)
        if alignment is not None and alignment < LEAST_ALIGNMENT:
            raise InputError(
                f"The rows are not aligned with the principal directions of the run's embeddings, so they seem to come "
                f"from another encoder: {what_to_do}."
            )


def _alignment(directions: NDArray[np.float16], rows: NDArray[np.float32]) -> float:
    """The z-score of the explained variance under random rows.

    The explained share of one random row is Beta(r / 2, (d - r) / 2), with d = D - 1.
    """
    d, r = directions.shape[0] - 1, directions.shape[1]
    held = np.square(rows @ directions.astype(np.float32)).sum(axis=1).mean()
    return float((held - r / d) / np.sqrt(2 * r * (d - r) / (d * d * (d + 2))))


def _centred(matrix: NDArray[Any]) -> NDArray[np.float32]:
    """Subtract the mean of each row and normalize it; constant rows are dropped."""
    rows: NDArray[np.float64] = matrix.astype(np.float64)
    rows -= rows.mean(axis=1, keepdims=True)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows[largest[:, 0] > 0] / largest[largest > 0][:, None]  # so that no square overflows
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)
