"""Rows that belong to no class: which ones to leave out, by a score that is larger the less a row fits.

The score is the free energy of the logits, -log sum_k exp(tau <h(x), w_k>) (Liu, Wang, Owens and Li, "Energy-based
Out-of-distribution Detection", NeurIPS 2020): no prototype is near, so no class claims the row. It needs nothing but
the trained head; docs/results.md compares it with other scores.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rpim.data.labels import IntArray


def least_fitting(scores: NDArray[np.float32], share: float) -> tuple[IntArray, float]:
    """The rows with the largest scores, that share of all, and a score between them and the others.

    >>> rows, threshold = least_fitting(np.array([1.0, 5.0, 2.0, 4.0], dtype=np.float32), 0.5)
    >>> sorted(rows.tolist()), threshold
    ([1, 3], 3.0)
    """
    n_out = round(share * len(scores))
    if n_out == 0:
        return np.empty(0, dtype=np.int64), float("inf")
    order = np.argsort(-scores, kind="stable")
    last_out = float(scores[order[n_out - 1]])
    first_kept = float(scores[order[n_out]]) if n_out < len(scores) else -np.inf
    # Halfway, so that rounding, which differs with the size of a block, does not move a row of the fit across.
    return order[:n_out], (last_out + first_kept) / 2.0
