"""The rows of a fit in shards, one per Ray worker."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rpim._common.errors import InputError
from rpim._common.ray import import_ray
from rpim.core.preprocessing import Preprocessing
from rpim.core.row_blocks import AllReduce, InMemoryBlocks, RowBlocks
from rpim.data.labels import IntArray
from rpim.data.row_files import RowFiles, row_blocks_of
from rpim.engines.base import BLOCK_ROWS, Rows
from rpim.engines.on_disk import StreamedBlocks

_SHARE_FOR_ROWS = 0.7  # of a worker's memory; the rest is for the training step


@dataclass(frozen=True)
class Shard:
    """Consecutive rows: a span of files that every worker can read, or an array in Ray's object store."""

    start: int
    stop: int
    source: Any  # RowFiles, or a reference to an array

    def rows(self) -> Rows:
        """Get the rows, on the worker."""
        if isinstance(self.source, RowFiles):
            return self.source.span(self.start, self.stop)
        array: Rows = import_ray().get(self.source)
        return array

    def blocks(
        self,
        codes: IntArray,
        n_classes: int,
        preprocess: Preprocessing,
        all_reduce: AllReduce,
        *,
        memory: int,
        cache: bool,
    ) -> RowBlocks:
        """The rows to train on: preprocessed in memory if they fit, else some of them read in every pass.

        `codes` are the classes of the rows of the shard, -1 for unlabelled ones. (n,)
        """
        rows = self.rows()
        n_features = rows.shape[1] if preprocess.components is None else preprocess.components.shape[1]
        free = int(_SHARE_FOR_ROWS * memory) - 4 * n_features * len(rows)
        if free < 0 and isinstance(rows, RowFiles):
            return StreamedBlocks(
                rows,
                codes,
                n_classes,
                n_features,
                preprocess,
                preprocess.device,
                memory=int(_SHARE_FOR_ROWS * memory),
                all_reduce=all_reduce,
            )
        x, labels = _labelled_first(rows, codes, n_features, preprocess)
        return InMemoryBlocks(
            x, labels, n_classes, cache=cache and free >= 8 * n_classes * len(rows), all_reduce=all_reduce
        )


def _labelled_first(rows: Rows, codes: IntArray, n_features: int, preprocess: Preprocessing) -> tuple[Tensor, Tensor]:
    """The preprocessed rows, the labelled ones first, and their labels. (n, d), (n_labelled,)"""
    order = np.argsort(codes < 0, kind="stable")
    position = np.empty_like(order)
    position[order] = np.arange(len(order))
    x = torch.empty(len(codes), n_features, device=preprocess.device)
    for where, block in row_blocks_of(rows, BLOCK_ROWS):
        x[torch.from_numpy(position[where]).to(preprocess.device)] = preprocess(block)
    return x, torch.from_numpy(codes[codes >= 0]).to(preprocess.device)


def cut(rows: Rows, n_shards: int) -> list[Shard]:
    """Cut the rows into shards of about equal size.

    Raises
    ------
    InputError
        If there are fewer rows than shards.
    """
    if len(rows) < n_shards:
        raise InputError(f"There are {len(rows)} rows for {n_shards} workers: ask for fewer workers.")
    put = import_ray().put
    return [
        Shard(start, stop, rows if isinstance(rows, RowFiles) else put(rows[start:stop]))
        for start, stop in itertools.pairwise(bounds(len(rows), n_shards))
    ]


def bounds(n_rows: int, n_shards: int) -> list[int]:
    """The first row of each shard, and the end of the last.

    >>> bounds(10, 3)
    [0, 3, 6, 10]
    """
    return [n_rows * number // n_shards for number in range(n_shards + 1)]
