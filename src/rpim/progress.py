"""Progress with the time left: shown on a terminal, silent elsewhere, and never part of the mathematics."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any


class Progress:
    """One bar over several stages, in units of work that the caller estimates beforehand.

    Only shown when asked for and when standard error is a terminal, and only once two seconds have passed: a short job
    leaves no trace.
    """

    def __init__(self, show: bool = False, description: str = "") -> None:
        self._show = show and sys.stderr.isatty()
        self._description = description
        self._bar: Any = None
        self._task: Any = None
        self._total = 0.0

    def __enter__(self) -> Progress:
        if self._show:
            from rich.console import Console
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
            from rich.progress import Progress as RichProgress

            self._bar = RichProgress(
                TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn(),
                TextColumn("left"), TimeRemainingColumn(), console=Console(stderr=True), transient=True,
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
        """Announce that much work, in any unit that all stages share."""
        self._total += work
        if self._bar is not None:
            self._bar.update(self._task, total=self._total)

    def stage(self, description: str) -> None:
        """Say what is being done now."""
        if self._bar is not None:
            self._bar.update(self._task, description=description)

    def advance(self, work: float) -> None:
        """That much of the announced work is done."""
        if self._bar is not None:
            elapsed = self._bar.tasks[0].elapsed or 0.0
            self._bar.update(self._task, advance=work, visible=elapsed > 2.0)
