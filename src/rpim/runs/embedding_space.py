"""Whether new rows can be embeddings of the encoder that a run was made with.

Whatever an encoder embeds, the leading principal directions of one pile of its rows hold more of the rows of another
pile than as many directions drawn at random would. Rows of another encoder, or with their columns in another order,
have no such preference: of a row that knows nothing of r directions out of D, they hold r / D, more or less. (A row's
mean over its columns is taken off first, because it stays the same whatever the order; that leaves D - 1 directions.)
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
"""With fewer features or rows than these, rows of the same encoder could look strange by chance: none are refused."""

LEAST_ALIGNMENT = 2.0
"""Rows below it are refused. Rows all alike count as one row, and by chance one row in forty is above."""

SURE_ALIGNMENT = 2 * LEAST_ALIGNMENT
"""Where one half of a run's own rows is below it by the directions of the other, none are refused."""

_SAMPLE = 4096


@dataclass(frozen=True, eq=False)
class EmbeddingSpace:
    """What is remembered of the embeddings of a run, to compare new ones with.

    Parameters
    ----------
    encoder : Any
        What the metadata of the features call their encoder; None where they do not say.
    directions : array of shape (D, r), or None
        The leading principal directions of the rows; None where there were too few rows or features to tell, or the
        rows have none that lead.
    """

    encoder: Any = None
    directions: NDArray[np.float16] | None = None

    @classmethod
    def of(cls, features: FeatureSet) -> EmbeddingSpace:
        """The space of these rows, from a sample of them."""
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
        if _alignment(leading(rows[one]), rows[other]) < SURE_ALIGNMENT:
            return cls(encoder)  # they prefer no direction themselves, as after whitening
        return cls(encoder, np.ascontiguousarray(leading(rows)))  # (D, r)

    def alignment(self, features: FeatureSet) -> float | None:
        """How much more of the rows the directions hold than by chance; None if it cannot be told."""
        if self.directions is None:
            return None
        rows = _centred(features.X[:_SAMPLE])  # (n, D)
        return None if len(rows) < MIN_ROWS else _alignment(self.directions, rows)

    def check(self, features: FeatureSet) -> None:
        """Raise where the rows cannot be of the same encoder.

        Rows of another domain pass, and so may a few rows or rows all alike, of which nothing can be said.
        """
        what_to_do = "embed them with the same encoder, or say --any-encoder (any_encoder=True) to go on"
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
                f"The rows lie across the directions of the run's embeddings as if by chance, so they seem to come "
                f"from another encoder: {what_to_do}."
            )


def _alignment(directions: NDArray[np.float16], rows: NDArray[np.float32]) -> float:
    """How much more of the rows the directions hold than by chance.

    In standard deviations of what they hold of one row drawn at random, a Beta(r / 2, (d - r) / 2) of d = D - 1.
    """
    d, r = directions.shape[0] - 1, directions.shape[1]
    held = np.square(rows @ directions.astype(np.float32)).sum(axis=1).mean()
    return float((held - r / d) / np.sqrt(2 * r * (d - r) / (d * d * (d + 2))))


def _centred(matrix: NDArray[Any]) -> NDArray[np.float32]:
    """The rows of length one after their mean over the columns is taken off; rows of equal values are left out."""
    rows: NDArray[np.float64] = matrix.astype(np.float64)
    rows -= rows.mean(axis=1, keepdims=True)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    rows = rows[largest[:, 0] > 0] / largest[largest > 0][:, None]  # first, so that no square overflows
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows.astype(np.float32)
