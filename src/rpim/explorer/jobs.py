"""Work in a process of its own, which goes on when the page is closed and tells how far it is."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rpim.errors import InputError


class Job:
    """One kind of work, of which one is done at a time.

    Parameters
    ----------
    name : str
        In messages: "A {name} is running already".
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._child: Child | None = None
        self._lock = threading.Lock()

    def start(self, module: str, prepare: Callable[[Path], Sequence[str]], finished: Callable[[Path], None]) -> None:
        """Run ``python -m module``.

        Parameters
        ----------
        module : str
        prepare : function of a folder
            Puts what the child needs there, and gives its arguments. The folder is gone once the child has ended.
        finished : function of that folder
            Called in a thread if the child ends well.
        """
        with self._lock:
            if self.status == "running":
                raise InputError(f"A {self.name} is running already: wait for it, or cancel it.")
            folder = tempfile.TemporaryDirectory(prefix="rpim-", ignore_cleanup_errors=True)
            self._child = Child([sys.executable, "-m", module, *prepare(Path(folder.name))], folder, finished)

    def cancel(self) -> None:
        """End the child, if there is one."""
        if self._child is None or self.status != "running":
            raise InputError(f"There is no {self.name} to cancel.")
        self._child.cancel()

    @property
    def status(self) -> str:
        """idle, running, done, failed or cancelled."""
        return "idle" if self._child is None else self._child.status

    def progress(self) -> dict[str, Any]:
        """The status, with what the child has said last."""
        return {"status": self.status, **({} if self._child is None else self._child.said())}


class Child:
    """A process that writes lines of JSON to its standard output.

    They are ``{"stage": ..., "share": ...}`` as it goes on, and ``{"error": ...}`` where it cannot. They go to a file,
    so that a child whose server was killed can still finish.
    """

    def __init__(
        self, command: Sequence[str], folder: tempfile.TemporaryDirectory[str], finished: Callable[[Path], None]
    ) -> None:
        self.status = "running"
        self._folder, self._finished = folder, finished
        self._log = Path(folder.name) / "progress.jsonl"
        self._last: dict[str, Any] = {}
        with open(self._log, "wb") as log:
            # A session of its own, so that Ctrl-C at the server does not end it.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.DEVNULL, start_new_session=True
            )
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        code = self._process.wait()
        self.said()
        if self.status != "cancelled":
            try:
                if code == 0:
                    self._finished(Path(self._folder.name))
                self.status = "done" if code == 0 else "failed"
            except InputError as error:
                self._last = {"error": str(error)}
                self.status = "failed"
        self._folder.cleanup()

    def cancel(self) -> None:
        """End it."""
        self.status = "cancelled"
        self._process.terminate()

    def said(self) -> dict[str, Any]:
        """The last whole line."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._last = json.loads(self._log.read_bytes().rsplit(b"\n", 2)[-2])
        return self._last
