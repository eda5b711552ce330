"""Progress bars with the time left: shown on a terminal, silent elsewhere."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
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
            self._bar.update(self._task, description=description)

    def advance(self, work: float) -> None:
        """Count that much of the announced work as done."""
        self._done += work
        self._notify()
        if self._bar is not None:
            elapsed = self._bar.tasks[0].elapsed or 0.0
            self._bar.update(self._task, advance=work, visible=elapsed > 2.0)

    def _notify(self) -> None:
        if self._listener is not None:
            self._listener(self._description, min(self._done / self._total, 1.0) if self._total else 0.0)
