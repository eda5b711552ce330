"""Small trainings side by side: one core each instead of all cores on one, which a small matrix product cannot use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """``[work(item) for item in items]``, on as many threads as torch has, each with one core.

    The result does not depend on the number of cores: each item is worked on by a single one, and nothing is shared.
    """
    n_threads = torch.get_num_threads()
    if n_threads == 1:
        return [work(item) for item in items]
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(n_threads)
