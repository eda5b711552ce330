"""What is done side by side, as tasks of a cluster: the members of a committee.

A task is sent the work as it stands; a `Progress` in it reports to the one that is shown.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from rpim._common.errors import InputError
from rpim._common.parallel import OnResult, parallel_backend
from rpim._common.progress import Progress
from rpim._common.ray import imported_ray
from rpim._common.ray_failures import in_a_sentence, unprinted


@contextlib.contextmanager
def spread_tasks() -> Iterator[None]:
    """Within it, what a fit does side by side is done by the cluster that this process has joined.

    The result is the same, bit for bit: each piece of work has one core, here and there.

    Examples
    --------
    >>> from rpim._common.ray import connected
    >>> with connected("auto"), spread_tasks():  # doctest: +SKIP
    ...     RPIM().fit(X, y)

    Raises
    ------
    InputError
        If no cluster was joined.
    """
    ray = imported_ray()
    if not ray.is_initialized():
        raise InputError("Tasks cannot be spread, as no cluster was joined: use rpim._common.ray.connected.")
    driver = _Driver(ray)
    ray.util.register_serializer(Progress, serializer=driver.send_progress, deserializer=_RemoteProgress)
    try:
        with parallel_backend(driver.parallel_map):
            yield
    finally:
        ray.util.deregister_serializer(Progress)


class _Found(NamedTuple):
    """What comes back from a task."""

    result: Any
    advanced: list[tuple[int, float]]  # of the progress: which one, and by how much


class _Driver:
    """The end of the wire at which the results are wanted."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._task = ray.remote(num_cpus=1)(_work)
        self._shown: dict[int, Progress] = {}

    def parallel_map(self, work: Callable[[Any], Any], items: list[Any], on_result: OnResult) -> list[Any]:
        """``[work(item) for item in items]``, a task each."""
        with in_a_sentence(), unprinted():
            stored = self._ray.put(work)
            tasks: list[Any] = []
            try:
                tasks += [self._task.remote(stored, self._ray.put(item)) for item in items]
                return self._collect(tasks, on_result)
            except Exception:
                # Not cancelled: Ray 2.60 ends this very process where a task is cancelled in the moment it ends.
                self._pending(tasks, timeout=None)
                raise
            except BaseException:
                for task in self._pending(tasks, timeout=0.0):
                    self._ray.cancel(task)
                raise

    def _collect(self, tasks: list[Any], on_result: OnResult) -> list[Any]:
        """The results in the order of the tasks; `on_result` hears of each as soon as it is there."""
        number_of = {task: number for number, task in enumerate(tasks)}
        results: dict[int, Any] = {}
        waiting = list(tasks)
        while waiting:
            [ready], waiting = self._ray.wait(waiting, num_returns=1)
            number = number_of[ready]
            results[number] = self._answer(ready)
            on_result(number, results[number])
        return [results[number] for number in range(len(tasks))]

    def _pending(self, tasks: list[Any], timeout: float | None) -> list[Any]:
        found: list[Any] = self._ray.wait(tasks, num_returns=len(tasks), timeout=timeout)[1] if tasks else []
        return found

    def _answer(self, task: Any) -> Any:
        try:
            found: _Found = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error  # as if it had been done here
        for number, work in found.advanced:
            self._shown[number].advance(work)
        return found.result

    def send_progress(self, progress: Progress) -> int:
        """What a task needs of a progress."""
        self._shown[id(progress)] = progress
        return id(progress)


# From here on, what is in a task.

_advanced: list[tuple[int, float]] = []


def _work(work: Callable[[Any], Any], item: Any) -> _Found:
    """The life of a task."""
    torch.set_num_threads(1)
    _advanced.clear()
    return _Found(work(item), list(_advanced))


class _RemoteProgress:
    """The progress of the driver."""

    def __init__(self, number: int) -> None:
        self._number = number

    def advance(self, work: float) -> None:
        """To be told when the task is done."""
        _advanced.append((self._number, work))
