"""The paper's searches: lambda by training without labels, the weight decay on held-out classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from rpim.core.head import Head
from rpim.core.kmeans import kmeans
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import Schedule, train
from rpim.core.transforms import Transform
from rpim.metrics import clustering_accuracy

TRADE_OFFS = tuple(round(0.05 * i, 2) for i in range(1, 21))
WEIGHT_DECAYS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)


def paper_trade_off(
    x: Tensor,
    labels: Tensor,
    n_classes: int,
    objective: Objective,
    schedule: Schedule,
    *,
    temperature: float,
    n_init: int,
    generator: torch.Generator,
    on_trial: Callable[[], None] | None = None,
) -> tuple[float, dict[float, float]]:
    """PIM's search for lambda: train *without labels* from plain k-means, keep the best Hungarian accuracy on L.

    The smallest value of the grid, 0.05, is tried but never chosen, as in the paper.
    """
    start = kmeans(x, n_classes, n_init=n_init, generator=generator).centroids
    nobody = labels[:0]
    engine = InMemoryBlocks(x, nobody, n_classes)
    truth = labels.cpu().numpy()
    scores: dict[float, float] = {}
    for trade_off in TRADE_OFFS:
        head = Head(start.clone(), Transform({}), temperature)
        unsupervised = replace(objective, trade_off=trade_off, labels=False, pseudo_labels=False, mixed_labels=False)
        train(engine, head, unsupervised, schedule)
        scores[trade_off] = clustering_accuracy(truth, head.predict(x[: len(labels)]).cpu().numpy())
        if on_trial is not None:
            on_trial()
    allowed = TRADE_OFFS[1:]
    return allowed[int(np.argmax([scores[value] for value in allowed]))], scores
