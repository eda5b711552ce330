"""Rows that stay on disk: read block by block, as often as a step passes over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rpim.engine.memory import AddUp, Block, Room, block_rows, only_here, over_all
from rpim.row_files import READ_BYTES, RowFiles

Prepare = Callable[[NDArray[np.floating]], Tensor]
"""From rows as they are on disk to rows as the head takes them."""


class Streamed:
    """Rows in files, and no matrix of rows by anything in memory: the probabilities are computed anew in every pass.

    Within a block the labelled rows are put first, so that an engine's order is that of the files but for this.

    Parameters
    ----------
    rows : RowFiles
    codes : (N,)
        The class of each labelled row, -1 for the others.
    n_classes, n_features : int
        K, and D as `prepare` gives it.
    prepare : callable
        Normalises and projects a block.
    add_up : callable
        Totals over the places, where these are only some of the rows.
    """

    keep = False

    def __init__(
        self, rows: RowFiles, codes: NDArray[np.int64], n_classes: int, n_features: int, prepare: Prepare,
        device: torch.device, *, add_up: AddUp = only_here,
    ) -> None:  # fmt: skip
        self._rows, self._codes, self._prepare, self._device = rows, codes, prepare, device
        self.n_rows_here, self.n_features, self.n_classes = len(rows), n_features, n_classes
        self.n_rows, self.n_labelled = over_all(add_up, len(rows), int((codes >= 0).sum()))
        self.n_unlabelled = self.n_rows - self.n_labelled
        self.add_up = add_up
        self._block = block_rows(n_classes, n_features, self.n_rows_here)
        per_read = READ_BYTES // (rows.shape[1] * rows.dtype.itemsize)
        self._at_once = max(1, per_read // self._block) * self._block  # so that a block is the same in every pass
        empty = torch.empty(self._block, n_classes, device=device)
        self.z, self.log_z = empty, torch.empty_like(empty)
        self.room = Room(torch.empty_like(empty), torch.empty(self._block, n_features, device=device))

    def blocks(self) -> Iterator[Block]:
        """The rows, block by block, always in the same order."""
        for start, read in self._rows.blocks(size=self._at_once):
            for first in range(0, len(read), self._block):
                part = read[first : first + self._block]
                rows = slice(start + first, start + first + len(part))
                codes = self._codes[rows]
                order = labelled_first(codes)
                if order is not None:
                    part, codes = part[order], codes[order]
                labels = torch.from_numpy(codes[: int((codes >= 0).sum())]).to(self._device)
                yield Block(self._prepare(part), labels, rows)

    def zero_labelled(self, values: Tensor) -> None:
        """Set to zero what `values`, one a row, has for labelled rows."""
        for first in range(0, self.n_rows_here, self._block):
            n_labelled = int((self._codes[first : first + self._block] >= 0).sum())
            values[first : first + n_labelled] = 0.0

    def in_given_order(self, values: Tensor) -> Tensor:
        """What belongs to each row, from the engine's order to that of the files."""
        out = torch.empty_like(values)
        for first in range(0, self.n_rows_here, self._block):
            order = labelled_first(self._codes[first : first + self._block])
            part = values[first : first + self._block]
            if order is None:
                out[first : first + self._block] = part
            else:
                out[first : first + self._block][torch.from_numpy(order).to(part.device)] = part
        return out

    def new_labels(self) -> Tensor:
        """Room for the class of each row of this place. (N,)"""
        return torch.empty(self.n_rows_here, dtype=torch.long, device=self._device)


def labelled_first(codes: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The order in which labelled rows come first; None where they do already."""
    labelled = codes >= 0
    n_labelled = int(labelled.sum())
    if n_labelled == 0 or labelled[:n_labelled].all():
        return None
    return np.argsort(~labelled, kind="stable")
