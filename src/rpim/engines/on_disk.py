"""The engine for rows that stay on disk: every pass reads them again, block by block, but for those that fit."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rpim.core.checkpoint import History
from rpim.core.head import Head
from rpim.core.preprocessing import Preprocessing
from rpim.core.row_blocks import AllReduce, Block, Workspace, block_rows, global_counts, single_worker
from rpim.core.training import train
from rpim.data.labels import IntArray
from rpim.data.row_files import READ_BYTES, RowFiles
from rpim.engines.base import TrainingTask, assign_rows, bytes_for_rows, sample_within, scan_rows

Preprocess = Callable[[NDArray[np.floating]], Tensor]
"""From rows as stored on disk to rows as the head takes them."""


class OnDiskEngine:
    """Rows in files, read by this process; see `Engine`."""

    def __init__(self, rows: RowFiles) -> None:
        self.rows = rows
        self.shape = rows.shape

    def sample(self, codes: IntArray, n_classes: int, seed: int) -> IntArray:
        return sample_within(self.rows, codes, n_classes, seed)

    def scan(
        self, sample: IntArray, preprocess: Preprocessing, *, directions: bool
    ) -> tuple[NDArray[np.floating], Tensor | None]:
        return scan_rows(self.rows, sample, preprocess, directions=directions)

    def train(self, head: Head, task: TrainingTask) -> History:
        n_classes, n_features = head.prototypes.shape
        blocks = StreamedBlocks(
            self.rows,
            task.codes,
            n_classes,
            n_features,
            task.preprocess,
            task.x.device,
            memory=bytes_for_rows(self.rows, len(task.x)),
        )
        return train(blocks, head, task.objective, task.schedule, lambda *_: task.on_step(), task.checkpoint)

    def assign(self, head: Head, preprocess: Preprocessing, *, scores: bool) -> tuple[IntArray, NDArray[np.float32]]:
        return assign_rows(self.rows, head, preprocess, scores=scores)


class StreamedBlocks:
    """Rows in files; see `RowBlocks`. Every pass computes the probabilities again.

    The order is that of the files, except that within a block the labelled rows come first. The first blocks stay in
    memory, preprocessed; every pass reads the others again.

    Parameters
    ----------
    rows : RowFiles
    codes : (N,)
        The class of each row, -1 for unlabelled ones.
    n_classes, n_features : int
        K, and the number of features after `preprocess`.
    preprocess : callable
        Normalizes and projects a block.
    memory : int
        Bytes for the blocks that stay in memory.
    all_reduce : callable
        Sums over the workers.
    """

    cache = False

    def __init__(
        self,
        rows: RowFiles,
        codes: NDArray[np.int64],
        n_classes: int,
        n_features: int,
        preprocess: Preprocess,
        device: torch.device,
        *,
        memory: int = 0,
        all_reduce: AllReduce = single_worker,
    ) -> None:
        self._rows, self._codes, self._preprocess, self._device = rows, codes, preprocess, device
        self.n_local_rows, self.n_features, self.n_classes = len(rows), n_features, n_classes
        self.n_rows, self.n_labelled = global_counts(all_reduce, len(rows), int((codes >= 0).sum()))
        self.n_unlabelled = self.n_rows - self.n_labelled
        self.all_reduce = all_reduce
        self._block = block_rows(n_classes, n_features, self.n_local_rows)
        per_read = READ_BYTES // (rows.shape[1] * rows.dtype.itemsize)
        self._read_rows = max(1, per_read // self._block) * self._block  # whole blocks, the same in every pass
        self._kept = torch.empty(
            min(memory // (4 * n_features * self._block) * self._block, self.n_local_rows), n_features, device=device
        )
        self._n_kept = 0
        empty = torch.empty(self._block, n_classes, device=device)
        self.z, self.log_z = empty, torch.empty_like(empty)
        self.workspace = Workspace.like(empty, n_features)

    def blocks(self) -> Iterator[Block]:
        """The rows, block by block, always in the same order."""
        n_kept = self._n_kept
        for first in range(0, n_kept, self._block):
            rows = slice(first, min(first + self._block, n_kept))
            yield Block(self._kept[rows], self._labels(rows), rows)
        if n_kept == self.n_local_rows:
            return
        for start, read in self._rows.blocks(n_kept, size=self._read_rows):
            for first in range(0, len(read), self._block):
                part = read[first : first + self._block]
                rows = slice(start + first, start + first + len(part))
                order = labelled_first(self._codes[rows])
                x = self._preprocess(part if order is None else part[order])
                if rows.stop <= len(self._kept):
                    x = self._kept[rows].copy_(x)
                    self._n_kept = rows.stop
                yield Block(x, self._labels(rows), rows)

    def _labels(self, rows: slice) -> Tensor:
        """The labels of the labelled rows among these. (n_labelled,)"""
        codes = self._codes[rows]
        return torch.from_numpy(codes[codes >= 0]).to(self._device)

    def zero_labelled(self, values: Tensor) -> None:
        """Set the entries of `values`, one per row, to zero for labelled rows."""
        for first in range(0, self.n_local_rows, self._block):
            n_labelled = int((self._codes[first : first + self._block] >= 0).sum())
            values[first : first + n_labelled] = 0.0

    def new_labels(self) -> Tensor:
        """Uninitialised memory for the class of each row of this worker. (N,)"""
        return torch.empty(self.n_local_rows, dtype=torch.long, device=self._device)


def labelled_first(codes: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The order that puts labelled rows first; None if they already are. (n,)"""
    labelled = codes >= 0
    n_labelled = int(labelled.sum())
    if n_labelled == 0 or labelled[:n_labelled].all():
        return None
    return np.argsort(~labelled, kind="stable")
