"""All rows in one tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

AddUp = Callable[[Tensor], Tensor]
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


class Room(NamedTuple):
    """Memory for what is computed on one block, the same for every block and step: new memory costs more than a pass
    over old."""

    classes: Tensor  # (block, K)
    features: Tensor  # (block, D)


def only_here(total: Tensor) -> Tensor:
    """Nothing needs adding where there is only one place."""
    return total


def over_all(add_up: AddUp, n_rows: int, n_labelled: int) -> tuple[int, int]:
    """How many rows there are in all places, and how many of them have a label."""
    n_rows, n_labelled = add_up(torch.tensor([n_rows, n_labelled])).tolist()
    return n_rows, n_labelled


class InMemory:
    """Rows held as one N x D tensor, the labelled ones first.

    ``blocks`` gives them in turn and ``add_up`` totals what was computed on them. An engine that reads from disk
    offers the same two; either can be one of several places, each with some of the rows.

    Parameters
    ----------
    add_up : callable
        Totals over the places.
    keep : bool
        Keep the probabilities of all rows between the passes of a step, two N x K matrices. Without, a pass computes
        them again block by block, and memory does not grow with N x K.
    """

    def __init__(
        self, x: Tensor, labels: Tensor, n_classes: int, *, keep: bool = True, add_up: AddUp = only_here
    ) -> None:
        self.x = x
        self.labels = labels
        self.n_rows_here, self.n_features = x.shape
        self.n_rows, self.n_labelled = over_all(add_up, self.n_rows_here, len(labels))
        self.n_unlabelled = self.n_rows - self.n_labelled
        self.n_classes = n_classes
        self.keep = keep
        self.add_up = add_up
        block = block_rows(n_classes, self.n_features, self.n_rows_here)
        self._slices = [slice(i, min(i + block, self.n_rows_here)) for i in range(0, self.n_rows_here, block)]
        room = self.n_rows_here if keep else block
        self.z, self.log_z = x.new_empty(room, n_classes), x.new_empty(room, n_classes)
        self.room = Room(x.new_empty(block, n_classes), x.new_empty(block, self.n_features))

    def blocks(self) -> Iterator[Block]:
        """The rows, block by block, always in the same order."""
        for rows in self._slices:
            yield Block(self.x[rows], self.labels[rows.start : rows.stop], rows)

    def zero_labelled(self, values: Tensor) -> None:
        """Set to zero what `values`, one a row, has for labelled rows."""
        values[: len(self.labels)] = 0.0

    def new_labels(self) -> Tensor:
        """Room for the class of each row of this place. (N,)"""
        return self.labels.new_empty(self.n_rows_here)
