"""Background jobs in child processes, which report their progress and survive a closed page.

A child with its own folder also survives a killed server: the next server finds it there, shows its progress, takes its
result, and can cancel it.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rpim._common.errors import InputError, short
from rpim._common.files import drop_lock, take_lock, writing

_LOG, _ERRORS, _LOCK, _NUMBER = "progress.jsonl", "errors.txt", "lock.sqlite", "pid"
_POLL_SECONDS = 0.2  # seconds
STOPPED = "it was stopped before the end, for example by a restart of the machine. Refit to repeat it."


class Job:
    """A kind of job, of which one runs at a time.

    Parameters
    ----------
    name : str
        In messages: "A {name} is running already".
    place : path, optional
        Folder of a child that may outlive the server (default: a temporary one).
    """

    def __init__(self, name: str, place: Path | None = None) -> None:
        self.name, self._place = name, place
        self._child: Child | None = None
        self._lock = threading.Lock()

    def start(self, module: str, prepare: Callable[[Path], Sequence[str]], finished: Callable[[Path], None]) -> None:
        """Run ``python -m module``.

        Parameters
        ----------
        module : str
        prepare : function of a folder
            Writes the inputs of the child and returns its arguments. The folder is removed when the child ends.
        finished : function of that folder
            Called in a thread if the child succeeds.
        """
        with self._lock, self._one_server():
            if self._child is not None and self._child.status == "cancelled":
                self._child.join()
            if self.status != "running" and self._place is not None and is_held(self._place):
                self.resume(finished)  # that of another server, which this one can then cancel
            if self.status == "running":
                raise InputError(f"A {self.name} is already running: wait for it, or cancel it.")
            folder, clear = self._folder()
            try:
                command = [sys.executable, "-m", module, *prepare(folder)]
            except BaseException:
                clear()
                raise
            with open(folder / _LOG, "wb") as log, open(folder / _ERRORS, "wb") as errors:
                # Its own session, so that Ctrl-C at the server does not stop it.
                process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=errors, start_new_session=True
                )
            self._child = Child(folder, clear, finished, process)
            while self._place is not None and process.poll() is None and not is_held(folder):
                time.sleep(_POLL_SECONDS / 10)

    @contextlib.contextmanager
    def _one_server(self) -> Iterator[None]:
        """Let no other server start a child with the same folder, until this one's child holds it."""
        if self._place is None:
            yield
            return
        with writing(self._place):
            self._place.parent.mkdir(parents=True, exist_ok=True)
        lock = self._place.with_name(f"{self._place.name}.lock")
        try:
            taken = take_lock(lock, self._place)
        except InputError as error:
            raise InputError(f"Another rpim explore is starting a {self.name}: wait for it, or cancel it.") from error
        try:
            yield
        finally:
            drop_lock(taken)

    def resume(self, finished: Callable[[Path], None]) -> None:
        """Take over the child of a previous server, if there is one."""
        if self._place is not None and self._place.is_dir():
            self._child = Child(self._place, functools.partial(_remove, self._place), finished)

    def _folder(self) -> tuple[Path, Callable[[], None]]:
        """A new folder and a function that removes it."""
        if self._place is None:
            temporary = tempfile.TemporaryDirectory(prefix="rpim-", ignore_cleanup_errors=True)
            return Path(temporary.name), temporary.cleanup
        _remove(self._place)  # left by a killed child
        with writing(self._place):
            self._place.mkdir()
        return self._place, functools.partial(_remove, self._place)

    def cancel(self) -> None:
        """Cancel the child."""
        if self._child is None or self.status != "running":
            raise InputError(f"There is no {self.name} to cancel.")
        self._child.cancel()

    @property
    def status(self) -> str:
        """idle, running, done, failed or cancelled."""
        return "idle" if self._child is None else self._child.status

    def progress(self) -> dict[str, Any]:
        """The status and the last progress message."""
        return {"status": self.status, **({} if self._child is None else self._child.said())}


class Child:
    """A process that writes JSON lines, with `emit`, to a file in its folder.

    They are ``{"stage": ..., "share": ...}`` for progress, ``{"error": ...}`` on failure, and ``{"done": true}`` at the
    end. Without `process`, it was started by another server; it holds its folder while it lives.
    """

    def __init__(
        self,
        folder: Path,
        clear: Callable[[], None],
        finished: Callable[[Path], None],
        process: subprocess.Popen[bytes] | None = None,
    ) -> None:
        self.status = "running"
        self._folder, self._clear, self._finished, self._process = folder, clear, finished, process
        self._last: dict[str, Any] = {}
        self._problem: dict[str, str] = {}
        self._ended_unseen = process is None and not is_held(folder)
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        if self._process is not None:
            self._process.wait()
        else:
            while is_held(self._folder):
                time.sleep(_POLL_SECONDS)
        said = self.said()
        if self.status != "cancelled":
            self.status = self._outcome(said)
        self._clear()

    def _outcome(self, said: dict[str, Any]) -> str:
        if self._process is None and not self._folder.is_dir():
            return "idle"  # its own server is alive and has handled it
        try:
            if said.get("done"):
                self._finished(self._folder)
                return "done"
            if "error" not in said:
                self._problem = {"error": self._why()}
        except InputError as error:
            self._problem = {"error": str(error)}
        return "failed"

    def _why(self) -> str:
        """Why the child ended without a word."""
        number = 0 if self._process is None else self._process.returncode
        if self._process is None or number == -signal.SIGTERM:
            return STOPPED
        if number < 0:
            because = ", probably because the memory ran out" if number == -signal.SIGKILL else ""
            return f"the system ended it with signal {-number}{because}. Refit to repeat it."
        with contextlib.suppress(OSError, IndexError):
            last = (self._folder / _ERRORS).read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1]
            return f"it ended with exit code {number} ({short(last, 200)})."
        return f"it ended with exit code {number}."

    def join(self) -> None:
        """Wait for a cancelled child to end."""
        self._thread.join(10)

    def cancel(self) -> None:
        """Terminate the child."""
        self.status = "cancelled"
        if self._process is not None:
            self._process.terminate()
            return
        with contextlib.suppress(OSError, ValueError):
            number = int((self._folder / _NUMBER).read_text())
            if is_held(self._folder):  # so the pid is still that of the child
                os.kill(number, signal.SIGTERM)

    def said(self) -> dict[str, Any]:
        """The last complete message, and whether the child ended before this server started."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            self._last = json.loads((self._folder / _LOG).read_bytes().rsplit(b"\n", 2)[-2])
        return {**self._last, **self._problem, **({"unseen": True} if self._ended_unseen else {})}


def emit(**facts: Any) -> None:
    """Print a progress message of a child."""
    print(json.dumps(facts), flush=True)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder while this process lives; the system releases it however the process ends."""
    (folder / _NUMBER).write_text(str(os.getpid()))
    with contextlib.closing(sqlite3.connect(folder / _LOCK, isolation_level=None)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        yield


def is_held(folder: Path) -> bool:
    """Whether a living process holds the folder."""
    if not (folder / _LOCK).is_file():
        return False
    try:
        with contextlib.closing(sqlite3.connect(folder / _LOCK, timeout=0, isolation_level=None)) as lock:
            lock.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        return "locked" in str(error)
    return False


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
