"""All rows in one tensor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

_BLOCK_BYTES = 2 << 20  # of rows or logits: a block then stays in the cache from one pass to the next

Sums = dict[str, Tensor]
"""What is added up over rows, by name."""


class Block(NamedTuple):
    """Some consecutive rows; the labelled ones among them come first."""

    number: int
    x: Tensor  # (n, D)
    labels: Tensor  # (n_labelled,) of the first rows
    rows: slice  # where they stand among this engine's rows


class Room(NamedTuple):
    """Memory for what is computed on one block, the same for every block and step: new memory costs more than a pass
    over old."""

    classes: Tensor  # (block, K)
    features: Tensor  # (block, D)


class Part:
    """The blocks that one core goes through, with room of its own to work in."""

    def __init__(self, engine: InMemory, slices: list[tuple[int, slice]]) -> None:
        self._engine = engine
        self._slices = slices
        block = max((rows.stop - rows.start for _, rows in slices), default=0)
        room = engine.x.new_empty
        self.room = Room(room(block, engine.n_classes), room(block, engine.n_features))
        self._z = None if engine.keep else (room(block, engine.n_classes), room(block, engine.n_classes))

    def blocks(self) -> Iterator[Block]:
        """The rows, block by block, always in the same order."""
        engine = self._engine
        for number, rows in self._slices:
            yield Block(number, engine.x[rows], engine.labels[rows.start : rows.stop], rows)

    def probabilities(self, block: Block) -> tuple[Tensor, Tensor]:
        """Room for z and log z of a block: its own where they are kept, the same for all blocks where not."""
        if self._z is not None:
            return self._z[0][: len(block.x)], self._z[1][: len(block.x)]
        return self._engine.z[block.rows], self._engine.log_z[block.rows]


class InMemory:
    """Rows held as one N x D tensor, the labelled ones first.

    ``total`` goes through them, every core through a part of its own, and adds up what is computed on each. An engine
    that reads from disk or spans workers offers the same. A core that works through whole blocks alone waits for the
    others once a pass, not once an operation.

    Parameters
    ----------
    keep : bool
        Keep the probabilities of all rows between the passes of a step, two N x K matrices. Without, a pass computes
        them again block by block, and memory does not grow with N x K.
    """

    def __init__(self, x: Tensor, labels: Tensor, n_classes: int, *, keep: bool = True) -> None:
        self.x = x
        self.labels = labels
        self.n_rows, self.n_features = x.shape
        self.n_rows_here = self.n_rows
        self.n_labelled = len(labels)
        self.n_unlabelled = self.n_rows - self.n_labelled
        self.n_classes = n_classes
        self.keep = keep
        most = max(256, _BLOCK_BYTES // (max(n_classes, self.n_features) * x.element_size()))
        n_parts = min(torch.get_num_threads() if x.device.type == "cpu" else 1, -(-self.n_rows // most))
        n_blocks = n_parts * -(-self.n_rows // (most * n_parts))  # as many for each part, all of about the same size
        edges = [self.n_rows * i // n_blocks for i in range(n_blocks + 1)]
        slices = list(enumerate(slice(a, b) for a, b in itertools.pairwise(edges)))
        room = self.n_rows if keep else 0
        self.z, self.log_z = x.new_empty(room, n_classes), x.new_empty(room, n_classes)
        each = n_blocks // n_parts
        self.parts = [Part(self, slices[i : i + each]) for i in range(0, n_blocks, each)]
        self._pool = (
            ThreadPoolExecutor(n_parts, initializer=torch.set_num_threads, initargs=(1,)) if n_parts > 1 else None
        )

    def total(self, work: Callable[[Part], Sums]) -> Sums:
        """What ``work`` finds on each part, added up over all of them, and over all places where there are rows."""
        first, *others = map(work, self.parts) if self._pool is None else self._pool.map(work, self.parts)
        for other in others:
            for name, value in other.items():
                first[name] += value
        return first

    def blocks(self) -> Iterator[Block]:
        """The blocks of all parts."""
        for part in self.parts:
            yield from part.blocks()

    def new_labels(self) -> Tensor:
        """Room for the class of each row of this place. (N,)"""
        return self.labels.new_empty(self.n_rows_here)
