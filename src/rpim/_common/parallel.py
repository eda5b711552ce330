"""Small trainings side by side: one core each instead of all cores on one, which a small matrix product cannot use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch

from rpim._common.contexts import within

Item = TypeVar("Item")
Result = TypeVar("Result")

OnResult = Callable[[int, Any], None]
"""Is called with the number of an item and its result, one after the other, as soon as the result is there."""

Place = Callable[[Callable[[Any], Any], list[Any], OnResult], list[Any]]
"""Does the work for every item, and gives the results in their order."""

_place: ContextVar[Place | None] = ContextVar("place", default=None)


def parallel_backend(place: Place) -> AbstractContextManager[None]:
    """Within it, `parallel_map` leaves the work to `place`; see `rpim._common.ray_tasks`.

    >>> with parallel_backend(lambda work, items, on_result: [work(item) for item in reversed(items)]):
    ...     parallel_map(abs, [-1, -2])
    [2, 1]
    """
    return within(_place, place)


def parallel_map(
    work: Callable[[Item], Result], items: Iterable[Item], on_result: OnResult = lambda number, result: None
) -> list[Result]:
    """``[work(item) for item in items]``, on as many threads as torch has, each with one core.

    The result does not depend on the number of cores: each item is worked on by a single one, and nothing is shared.
    """
    items = list(items)
    place = _place.get()
    if place is not None:
        return place(work, items, on_result)
    lock = threading.Lock()

    def done(numbered: tuple[int, Item]) -> Result:
        result = work(numbered[1])
        with lock:
            on_result(numbered[0], result)
        return result

    n_threads = torch.get_num_threads()
    if n_threads == 1:
        return [done(numbered) for numbered in enumerate(items)]
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                return list(pool.map(done, enumerate(items)))
            except BaseException:
                pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C, what has not begun does not begin
                raise
    finally:
        torch.set_num_threads(n_threads)
