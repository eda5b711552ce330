"""Rows a block at a time: all that a training needs of them, wherever they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

AllReduce = Callable[[Tensor], Tensor]
"""The sum over all places where there are rows, in place."""

BLOCK_BYTES = 2 << 20  # of rows or logits: a block then stays in the cache from one pass to the next
LEAST_ROWS = 256


class Block(NamedTuple):
    """Some consecutive rows; the labelled ones among them come first."""

    x: Tensor  # (n, D)
    labels: Tensor  # (n_labelled,) of the first rows
    rows: slice  # where they stand among this engine's rows


def block_rows(n_classes: int, n_features: int, n_rows: int) -> int:
    """How many rows a block has: all about as many."""
    most = max(LEAST_ROWS, BLOCK_BYTES // (max(n_classes, n_features) * 4))
    return -(-n_rows // -(-n_rows // most))


class Workspace(NamedTuple):
    """Memory for what is computed on one block, the same for every block and step: new memory costs more than a pass
    over old."""

    classes: Tensor  # (block, K)
    features: Tensor  # (block, D)


class RowBlocks(Protocol):
    """Rows given in blocks, of which there may be more on other workers; `all_reduce` sums over all of them."""

    n_rows: int
    """On all workers."""
    n_labelled: int
    n_unlabelled: int
    n_rows_here: int
    n_features: int
    n_classes: int
    cache: bool
    """Whether the probabilities of all rows are kept between the passes of a step."""
    z: Tensor
    log_z: Tensor
    workspace: Workspace

    def all_reduce(self, total: Tensor, /) -> Tensor:
        """Sum over all workers, in place."""

    def blocks(self) -> Iterator[Block]:
        """The rows, block by block, always in the same order."""

    def zero_labelled(self, values: Tensor) -> None:
        """Set to zero what `values`, one a row, has for labelled rows."""

    def new_labels(self) -> Tensor:
        """Uninitialised memory for the class of each row of this worker. (N,)"""


def only_here(total: Tensor) -> Tensor:
    """Nothing needs adding where there is only one place."""
    return total


def over_all(all_reduce: AllReduce, n_rows: int, n_labelled: int) -> tuple[int, int]:
    """How many rows there are in all places, and how many of them have a label."""
    n_rows, n_labelled = all_reduce(torch.tensor([n_rows, n_labelled])).tolist()
    return n_rows, n_labelled


class InMemory:
    """Rows held as one N x D tensor, the labelled ones first.

    ``blocks`` gives them in turn and ``all_reduce`` totals what was computed on them. An engine that reads from disk
    offers the same two; either can be one of several places, each with some of the rows.

    Parameters
    ----------
    all_reduce : callable
        Totals over the places.
    cache : bool
        Keep the probabilities of all rows between the passes of a step, two N x K matrices. Without, a pass computes
        them again block by block, and memory does not grow with N x K.
    """

    def __init__(
        self, x: Tensor, labels: Tensor, n_classes: int, *, cache: bool = True, all_reduce: AllReduce = only_here
    ) -> None:
        self.x = x
        self.labels = labels
        self.n_rows_here, self.n_features = x.shape
        self.n_rows, self.n_labelled = over_all(all_reduce, self.n_rows_here, len(labels))
        self.n_unlabelled = self.n_rows - self.n_labelled
        self.n_classes = n_classes
        self.cache = cache
        self.all_reduce = all_reduce
        block = block_rows(n_classes, self.n_features, self.n_rows_here)
        self._slices = [slice(i, min(i + block, self.n_rows_here)) for i in range(0, self.n_rows_here, block)]
        size = self.n_rows_here if cache else block
        self.z, self.log_z = x.new_empty(size, n_classes), x.new_empty(size, n_classes)
        self.workspace = Workspace(x.new_empty(block, n_classes), x.new_empty(block, self.n_features))

    def blocks(self) -> Iterator[Block]:
        """The rows, block by block, always in the same order."""
        for rows in self._slices:
            yield Block(self.x[rows], self.labels[rows.start : rows.stop], rows)

    def zero_labelled(self, values: Tensor) -> None:
        """Set to zero what `values`, one a row, has for labelled rows."""
        values[: len(self.labels)] = 0.0

    def new_labels(self) -> Tensor:
        """Uninitialised memory for the class of each row of this worker. (N,)"""
        return self.labels.new_empty(self.n_rows_here)
