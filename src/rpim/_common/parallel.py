"""Parallel map over small trainings: one core for each, because a small matrix product cannot use several."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch

from rpim._common.contexts import set_context

Item = TypeVar("Item")
Result = TypeVar("Result")

OnResult = Callable[[int, Any], None]
"""Called with the number of an item and its result as soon as the result exists, never twice at the same time."""

Backend = Callable[[Callable[[Any], Any], list[Any], OnResult], list[Any]]
"""Applies a function to every item and returns the results in order."""

_backend: ContextVar[Backend | None] = ContextVar("backend", default=None)


def parallel_backend(backend: Backend) -> AbstractContextManager[None]:
    """Context in which `parallel_map` uses this backend, such as that of `rpim._common.ray_tasks`.

    >>> with parallel_backend(lambda work, items, on_result: [work(item) for item in reversed(items)]):
    ...     parallel_map(abs, [-1, -2])
    [2, 1]
    """
    return set_context(_backend, backend)


def parallel_map(
    work: Callable[[Item], Result], items: Iterable[Item], on_result: OnResult = lambda number, result: None
) -> list[Result]:
    """``[work(item) for item in items]``, on as many threads as torch has, each with one core.

    The result does not depend on the number of cores: each item has exactly one, and items share nothing.
    """
    items = list(items)
    backend = _backend.get()
    if backend is not None:
        return backend(work, items, on_result)
    lock = threading.Lock()

    def work_and_report(numbered: tuple[int, Item]) -> Result:
        result = work(numbered[1])
        with lock:
            on_result(numbered[0], result)
        return result

    n_threads = torch.get_num_threads()
    if n_threads == 1:
        return [work_and_report(numbered) for numbered in enumerate(items)]
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(n_threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            try:
                return list(pool.map(work_and_report, enumerate(items)))
            except BaseException:
                pool.shutdown(cancel_futures=True)  # after an error or Ctrl-C no further item starts
                raise
    finally:
        torch.set_num_threads(n_threads)
