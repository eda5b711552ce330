"""Small trainings side by side: one core each instead of all cores on one, which a small matrix product cannot use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch

from rpim.contexts import within

Item = TypeVar("Item")
Result = TypeVar("Result")

Place = Callable[[Callable[[Any], Any], list[Any]], list[Any]]
"""Does the work for every item, and gives the results in their order."""

_place: ContextVar[Place | None] = ContextVar("place", default=None)


def done_by(place: Place) -> AbstractContextManager[None]:
    """Within it, `side_by_side` leaves the work to `place`; see `rpim.cluster.tasks`.

    >>> with done_by(lambda work, items: [work(item) for item in reversed(items)]):
    ...     side_by_side(abs, [-1, -2])
    [2, 1]
    """
    return within(_place, place)


def side_by_side(work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """``[work(item) for item in items]``, on as many threads as torch has, each with one core.

    The result does not depend on the number of cores: each item is worked on by a single one, and nothing is shared.
    """
    place = _place.get()
    if place is not None:
        return place(work, list(items))
    n_threads = torch.get_num_threads()
    if n_threads == 1:
        return [work(item) for item in items]
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(n_threads)
