"""Progress bars with the time left (shown on a terminal, silent elsewhere), and a parallel map that reports to them.

The map is over small trainings, in threads or by another backend, such as Ray tasks (`ray.py`). Each has one core,
because a small matrix product cannot use several.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

Value = TypeVar("Value")
Listener = Callable[[str, float], None]
"""Called with the name of the stage, and the share of the announced work that is done."""

_listener: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def set_context(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Set a context variable, and reset it at the end of the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def progress_listener(listener: Listener) -> AbstractContextManager[None]:
    """Context in which every `Progress` also calls `listener`, such as one that reports to another process.

    >>> with progress_listener(print), Progress() as progress:
    ...     progress.expect(4)
    ...     progress.stage("counting")
    ...     progress.advance(1)
    counting 0.0
    counting 0.25
    """
    return set_context(_listener, listener)


class Progress:
    """One bar over several stages, in units of work that the caller estimates beforehand.

    It is shown if asked for, if standard error is a terminal, and after two seconds: a short job leaves no trace.
    """

    def __init__(self, show: bool = False, description: str = "") -> None:
        self._show = show and sys.stderr.isatty()
        self._description = description
        self._bar: Any = None
        self._task: Any = None
        self._total = 0.0
        self._done = 0.0
        self._listener = _listener.get()

    def __enter__(self) -> Progress:
        if self._show:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TextColumn("elapsed,"),
                TimeRemainingColumn(),
                TextColumn("left"),
                console=Console(stderr=True),
                transient=True,
                speed_estimate_period=300.0,  # seconds: a step over all rows may take one of the default 30
            )
            self._task = self._bar.add_task(self._description, total=None, visible=False)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, work: float) -> None:
        """Announce that much work, in a unit that all stages share."""
        self._total += work
        if self._bar is not None:
            self._bar.update(self._task, total=self._total)

    def stage(self, description: str) -> None:
        """Start a stage."""
        self._description = description
        self._notify()
        if self._bar is not None:
            self._bar.update(self._task, description=description, visible=self._is_due())

    def advance(self, work: float) -> None:
        """Count that much of the announced work as done."""
        self._done += work
        self._notify()
        if self._bar is not None:
            self._bar.update(self._task, advance=work, visible=self._is_due())

    def _is_due(self) -> bool:
        return (self._bar.tasks[0].elapsed or 0.0) > 2.0

    def _notify(self) -> None:
        if self._listener is not None:
            self._listener(self._description, min(self._done / self._total, 1.0) if self._total else 0.0)


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
    import torch

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
