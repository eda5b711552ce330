"""Parallel map over small trainings, in threads or as Ray tasks.

Each training has one core, because a small matrix product cannot use several. On Ray, a `Progress` that the work refers
to reports back to the process that shows it.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, NamedTuple, TypeVar

import torch

from rpim._common.errors import InputError
from rpim._common.progress import Progress, set_context
from rpim._common.ray import explain_ray_errors, import_ray, suppress_stdout

Item = TypeVar("Item")
Result = TypeVar("Result")

OnResult = Callable[[int, Any], None]
"""Called with the number of an item and its result as soon as the result exists, never twice at the same time."""

Backend = Callable[[Callable[[Any], Any], list[Any], OnResult], list[Any]]
"""Applies a function to every item and returns the results in order."""

_backend: ContextVar[Backend | None] = ContextVar("backend", default=None)


def parallel_backend(backend: Backend) -> AbstractContextManager[None]:
    """Context in which `parallel_map` uses this backend, such as Ray tasks.

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


@contextlib.contextmanager
def ray_backend() -> Iterator[None]:
    """Context in which `parallel_map` runs its items as tasks of the cluster that this process has joined.

    The results are the same bit for bit: each item has one core on either backend.

    Examples
    --------
    >>> from rpim._common.ray import connected
    >>> with connected("auto"), ray_backend():  # doctest: +SKIP
    ...     RPIM().fit(X, y)

    Raises
    ------
    InputError
        If no cluster was joined.
    """
    ray = import_ray()
    if not ray.is_initialized():
        raise InputError("This process has joined no Ray cluster: use rpim._common.ray.connected.")
    driver = _Driver(ray)
    ray.util.register_serializer(Progress, serializer=driver.send_progress, deserializer=_RemoteProgress)
    try:
        with parallel_backend(driver.parallel_map):
            yield
    finally:
        ray.util.deregister_serializer(Progress)


class _TaskResult(NamedTuple):
    """The result of a task, and the progress that it made."""

    result: Any
    advanced: list[tuple[int, float]]  # the number of a Progress, and by how much it advanced


class _Driver:
    """Submits the tasks and collects their results."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._task = ray.remote(num_cpus=1)(_work)
        self._shown: dict[int, Progress] = {}

    def parallel_map(self, work: Callable[[Any], Any], items: list[Any], on_result: OnResult) -> list[Any]:
        """``[work(item) for item in items]``, one task per item."""
        with explain_ray_errors(), suppress_stdout():
            stored = self._ray.put(work)
            tasks: list[Any] = []
            try:
                tasks += [self._task.remote(stored, self._ray.put(item)) for item in items]
                return self._collect(tasks, on_result)
            except Exception:
                # Not cancelled: Ray 2.60 kills this process if a task is cancelled in the moment it ends.
                self._pending(tasks, timeout=None)
                raise
            except BaseException:
                for task in self._pending(tasks, timeout=0.0):
                    self._ray.cancel(task)
                raise

    def _collect(self, tasks: list[Any], on_result: OnResult) -> list[Any]:
        """The results in the order of the tasks; calls `on_result` for each as soon as it exists."""
        number_of = {task: number for number, task in enumerate(tasks)}
        results: dict[int, Any] = {}
        waiting = list(tasks)
        while waiting:
            [ready], waiting = self._ray.wait(waiting, num_returns=1)
            number = number_of[ready]
            results[number] = self._result(ready)
            on_result(number, results[number])
        return [results[number] for number in range(len(tasks))]

    def _pending(self, tasks: list[Any], timeout: float | None) -> list[Any]:
        found: list[Any] = self._ray.wait(tasks, num_returns=len(tasks), timeout=timeout)[1] if tasks else []
        return found

    def _result(self, task: Any) -> Any:
        try:
            found: _TaskResult = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error  # as without Ray
        for number, work in found.advanced:
            self._shown[number].advance(work)
        return found.result

    def send_progress(self, progress: Progress) -> int:
        """What a task receives instead of a Progress: its number."""
        self._shown[id(progress)] = progress
        return id(progress)


# -- what runs in a task ----------------------------------------------------------------------------------------------

_advanced: list[tuple[int, float]] = []


def _work(work: Callable[[Any], Any], item: Any) -> _TaskResult:
    """The body of a task."""
    torch.set_num_threads(1)
    _advanced.clear()
    return _TaskResult(work(item), list(_advanced))


class _RemoteProgress:
    """Records the advance of a Progress of the driver."""

    def __init__(self, number: int) -> None:
        self._number = number

    def advance(self, work: float) -> None:
        """Record the advance; the driver applies it when the task ends."""
        _advanced.append((self._number, work))
