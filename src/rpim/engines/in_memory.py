"""The engine for rows in one array."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rpim.core.checkpoint import History
from rpim.core.head import Head
from rpim.core.preprocessing import Preprocessing
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import train
from rpim.data.labels import IntArray
from rpim.engines.base import TrainingTask, assign_rows


class InMemoryEngine:
    """Rows in an array that scikit-learn has validated; see `Engine`."""

    def __init__(self, rows: NDArray[np.floating]) -> None:
        self.rows = rows
        self.shape = rows.shape[0], rows.shape[1]

    def sample(self, codes: IntArray, n_classes: int, seed: int) -> IntArray:
        return np.arange(len(self.rows))

    def scan(
        self, sample: IntArray, preprocess: Preprocessing, *, directions: bool
    ) -> tuple[NDArray[np.floating], Tensor | None]:
        return self.rows, None

    def train(self, head: Head, task: TrainingTask) -> History:
        blocks = InMemoryBlocks(task.x, task.labels, len(head.prototypes), cache=task.cache)
        return train(blocks, head, task.objective, task.schedule, lambda *_: task.on_step(), task.checkpoint)

    def assign(self, head: Head, preprocess: Preprocessing, *, scores: bool) -> tuple[IntArray, NDArray[np.float32]]:
        return assign_rows(self.rows, head, preprocess, scores=scores)
