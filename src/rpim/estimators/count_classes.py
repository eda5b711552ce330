"""The number of classes, where it is not given."""

from __future__ import annotations

import torch
from torch import Tensor

from rpim._common.errors import InputError
from rpim._common.progress import Progress
from rpim.estimators.class_count import ESTIMATORS, ClassCount
from rpim.estimators.count_by_max_acc import N_EVALUATIONS, max_acc
from rpim.estimators.count_by_neighbors import MAX_ROWS, count_by_neighbors


def count_classes(
    x: Tensor,
    labels: Tensor,
    *,
    method: str = ESTIMATORS[0],
    at_least: int | None = None,
    at_most: int | None = None,
    generator: torch.Generator,
    progress: Progress,
) -> ClassCount:
    """Estimate the number of classes.

    Parameters
    ----------
    x : (N, D)
        The rows, the labelled ones first.
    labels : (n_labelled,)
        Codes 0 .. n_known - 1.
    method : {"neighbors", "max-acc", "max-acc-pim"}
    at_least, at_most : int, optional
        Bounds of the answer: by default the known classes, and so many that a new one has five rows.
    """
    n_known, n_unlabelled = int(labels.max()) + 1, len(x) - len(labels)
    low, high = _bounds(n_known, n_unlabelled, at_least, at_most)
    progress.stage("counting the classes")
    if low == high:
        return ClassCount(low, low, low, {}, low)
    if method == "neighbors":
        progress.expect(min(len(labels), MAX_ROWS))
        return count_by_neighbors(x, labels, generator=generator, on_rows=progress.advance).within(low, high)
    if at_most is None:  # Brent wants a range that is not too wide
        high = min(high, max(low, 4 * n_known + 20))
    progress.expect(N_EVALUATIONS)
    return max_acc(
        x,
        labels,
        clusterer="pim" if method == "max-acc-pim" else "kmeans",
        at_least=low,
        at_most=high,
        generator=generator,
        on_trial=lambda: progress.advance(1),
    )


def _bounds(n_known: int, n_unlabelled: int, at_least: int | None, at_most: int | None) -> tuple[int, int]:
    if n_unlabelled == 0:
        return n_known, n_known
    low = n_known if at_least is None else at_least
    high = max(low, n_known + n_unlabelled // 5) if at_most is None else at_most
    if at_least is not None and at_least < n_known:
        raise InputError(f"At least {at_least} classes are asked for, but {n_known} are known already: ask for more.")
    if high < low:
        raise InputError(f"No number of classes is at least {low} and at most {high}: swap the two, or leave one out.")
    if low > n_known + n_unlabelled:
        raise InputError(
            f"At least {low} classes are asked for, but {n_unlabelled} unlabelled rows and {n_known} known classes "
            f"can make no more than {n_known + n_unlabelled}."
        )
    return low, high
