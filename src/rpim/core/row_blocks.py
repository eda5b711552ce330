"""Rows in blocks: the interface between the training and an engine, and its in-memory implementation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

AllReduce = Callable[[Tensor], Tensor]
"""Sums a tensor over all workers, in place."""

BLOCK_BYTES = 2 << 20  # of rows or logits: a block stays in the CPU cache from one pass to the next
LEAST_ROWS = 128


class Block(NamedTuple):
    """Consecutive rows, the labelled ones first."""

    x: Tensor  # (n, D)
    labels: Tensor  # (n_labelled,) labels of the first rows
    rows: slice  # their positions among the rows of this worker


def block_rows(n_classes: int, n_features: int, n_rows: int) -> int:
    """The number of rows in a block, such that all blocks are about equally large."""
    most = max(LEAST_ROWS, BLOCK_BYTES // (max(n_classes, n_features) * 4))
    return -(-n_rows // -(-n_rows // most))


class Workspace(NamedTuple):
    """Memory for the results of one block, reused by every block and step: allocating costs more than a pass."""

    classes: Tensor  # (block, K)
    wide: Tensor  # (block, padded(K) + D)

    @classmethod
    def like(cls, classes: Tensor, n_features: int) -> Workspace:
        """For blocks of as many rows and classes as these."""
        n_rows, n_classes = classes.shape
        return cls(torch.empty_like(classes), classes.new_empty(n_rows, padded(n_classes) + n_features))


def padded(n_classes: int) -> int:
    """The width of a matrix with a column for each class and one more, as wide as products are fast.

    >>> padded(77), padded(79), padded(80)
    (80, 80, 96)
    """
    return -(-(n_classes + 1) // 16) * 16


class RowBlocks(Protocol):
    """The rows of this worker in blocks; `all_reduce` sums over the workers."""

    n_rows: int
    """Of all workers, as are `n_labelled` and `n_unlabelled`."""
    n_labelled: int
    n_unlabelled: int
    n_local_rows: int
    n_features: int
    n_classes: int
    cache: bool
    """Whether the probabilities of all rows are cached between the passes of a step."""
    z: Tensor
    log_z: Tensor
    workspace: Workspace

    def all_reduce(self, total: Tensor, /) -> Tensor:
        """Sum over all workers, in place."""

    def blocks(self) -> Iterator[Block]:
        """The rows, block by block, always in the same order."""

    def zero_labelled(self, values: Tensor) -> None:
        """Set the entries of `values`, one per row, to zero for labelled rows."""

    def new_labels(self) -> Tensor:
        """Uninitialised memory for the class of each row of this worker. (N,)"""


def single_worker(total: Tensor) -> Tensor:
    """The all-reduce of a single worker."""
    return total


def global_counts(all_reduce: AllReduce, n_rows: int, n_labelled: int) -> tuple[int, int]:
    """The number of rows and of labelled rows of all workers."""
    n_rows, n_labelled = all_reduce(torch.tensor([n_rows, n_labelled])).tolist()
    return n_rows, n_labelled


class InMemoryBlocks:
    """The rows of a worker as one N x D tensor, the labelled ones first; see `RowBlocks`.

    Parameters
    ----------
    x : (N, D)
    labels : (n_labelled,)
        Codes of the first rows.
    cache : bool
        Cache the probabilities of all rows between the passes of a step, two N x K matrices. Without, every pass
        computes them again block by block, and memory does not grow with N x K.
    all_reduce : callable
        Sums over the workers.
    """

    def __init__(
        self, x: Tensor, labels: Tensor, n_classes: int, *, cache: bool = True, all_reduce: AllReduce = single_worker
    ) -> None:
        self.x = x
        self.labels = labels
        self.n_local_rows, self.n_features = x.shape
        self.n_rows, self.n_labelled = global_counts(all_reduce, self.n_local_rows, len(labels))
        self.n_unlabelled = self.n_rows - self.n_labelled
        self.n_classes = n_classes
        self.cache = cache
        self.all_reduce = all_reduce
        block = block_rows(n_classes, self.n_features, self.n_local_rows)
        self._slices = [slice(i, min(i + block, self.n_local_rows)) for i in range(0, self.n_local_rows, block)]
        size = self.n_local_rows if cache else block
        self.z, self.log_z = x.new_empty(size, n_classes), x.new_empty(size, n_classes)
        self.workspace = Workspace.like(x.new_empty(block, n_classes), self.n_features)

    def blocks(self) -> Iterator[Block]:
        """The rows, block by block, always in the same order."""
        for rows in self._slices:
            yield Block(self.x[rows], self.labels[rows.start : rows.stop], rows)

    def zero_labelled(self, values: Tensor) -> None:
        """Set the entries of `values`, one per row, to zero for labelled rows."""
        values[: len(self.labels)] = 0.0

    def new_labels(self) -> Tensor:
        """Uninitialised memory for the class of each row of this worker. (N,)"""
        return self.labels.new_empty(self.n_local_rows)
