"""Search by meaning: all rows by their cosine similarity to a query in words, or to rows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line
from rpim.data.embeddings import EMBEDDINGS
from rpim.data.labels import unit_rows

if TYPE_CHECKING:
    from rpim.embedding.encoders import Encoder

FloatArray = NDArray[np.float32]


class Ranking:
    """The refined rows at unit length, and the encoder that embeds queries.

    Parameters
    ----------
    rows : (N, D') float32
        The refined rows, in which rows of one class are closer than in the embeddings.
    refine : function of an (n, D) array
        Refines embeddings at unit length.
    metadata : dict
        What the features say of their encoder.
    weights : sequence of paths
        Weights of the encoders that the user has named; no file that the run names is opened.
    """

    def __init__(
        self,
        rows: FloatArray,
        refine: Callable[[FloatArray], FloatArray],
        metadata: dict[str, Any],
        weights: Sequence[Path] = (),
    ) -> None:
        self._given, self._refine, self._metadata, self._weights = rows, refine, metadata, weights
        self._encoder: Encoder | None = None
        self._lock = threading.Lock()

    def by_words(self, words: str) -> tuple[NDArray[np.int32], FloatArray]:
        """All rows, the most similar to the words first, and their similarities.

        Raises
        ------
        InputError
            If there are no words, or the encoder of the run cannot embed them.
        """
        text = words.strip()
        if not text:
            raise InputError("The search is empty: type what the rows should be about.")
        return self._by(self._embedded(text))

    def by_rows(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], FloatArray]:
        """All rows, the most similar to the mean of these first, and their similarities."""
        return self._by(self._rows[rows].mean(axis=0, keepdims=True))

    @cached_property
    def _rows(self) -> FloatArray:
        return unit_rows(self._given)

    def _by(self, query: FloatArray) -> tuple[NDArray[np.int32], FloatArray]:
        similarity = self._rows @ unit_rows(query)[0]  # (N,)
        order = np.argsort(-similarity, kind="stable").astype(np.int32)
        return order, similarity[order]

    def _embedded(self, text: str) -> FloatArray:
        from rpim.embedding.pictures import Unusable

        with self._lock:  # the encoder is opened once, which takes seconds, and used by one request at a time
            encoder = self._opened()
            try:
                found = encoder.encode([encoder.prepare(text)])  # (1, D)
            except Unusable as error:
                raise InputError(f"The search cannot be embedded ({error}): type other words.") from error
        try:
            return self._refine(unit_rows(found))
        except ValueError as error:  # of another width
            raise InputError(
                f"The encoder does not give rows like those of the run ({first_line(error)}): choose a row and show "
                "more like it."
            ) from error

    def _opened(self) -> Encoder:
        if self._encoder is None:
            several = self._metadata.get(EMBEDDINGS)
            said = several[0] if several else self._metadata.get("embedding")
            if not isinstance(said, dict):
                raise InputError(
                    "The rows of this run were not embedded by rpim, so words cannot be compared with them: choose a "
                    "row and show more like it, or search in texts and ids."
                )
            if said.get("kind") == "images":
                raise InputError(
                    f"The images of this run were embedded by {str(said.get('encoder'))[:80]}, which does not embed "
                    "words: choose a row and show more like it."
                )
            from rpim.embedding.open_encoder import encoders_of

            self._encoder = encoders_of(self._metadata, self._weights)
        return self._encoder
