"""The checkpoint folder beside an output: one process has it at a time, and the same plan resumes it.

OUTPUT.checkpoint/
  plan.json   what has to be the same for the work to be resumed
  lock        names the process that works in it
  ...         the work so far
"""

from __future__ import annotations

import contextlib
import json
import shutil
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpim._common.errors import InputError, some
from rpim._common.files import drop_lock, replacing, take_lock, writing

if TYPE_CHECKING:
    from filelock import FileLock

SUFFIX = ".checkpoint"
_PLAN, _LOCK = "plan.json", "lock"


class WorkFolder:
    """Create the folder beside `output`, or reopen it to resume.

    Parameters
    ----------
    output : path of the file or folder to be
    plan : dict
        JSON-able: what has to be the same for the work to be resumed.
    what : str
        The user's word for the work.
    overwrite : bool
        Remove the work of another plan.

    Raises
    ------
    InputError
        If another process works in the folder, or it holds the work of another plan.
    """

    def __init__(self, output: Path, plan: dict[str, Any], what: str, overwrite: bool = False) -> None:
        self.path = output.with_name(f"{output.name}{SUFFIX}")
        with writing(self.path):
            self.path.mkdir(exist_ok=True)
            self.close = weakref.finalize(self, _close, self.path, take_lock(self.path / _LOCK, self.path))
            """Let other processes in; called at the end of this one. The folder stays if it has work."""
        try:
            self._open(json.loads(json.dumps(plan)), what, overwrite)
        except BaseException:
            self.close()
            raise
        _OPENED.add(self)

    def _open(self, plan: dict[str, Any], what: str, overwrite: bool) -> None:
        for left in (*self.path.glob(".*.tmp"), *self.path.glob(".*.lock")):  # by a killed process
            left.unlink()
        if self.has_work() and (before := self._plan()) != plan:
            if not overwrite:
                others = some(_other_facts(before or {}, plan) or ["plan"])
                raise InputError(
                    f"{self.path} holds the checkpoint of another {what} (other {others}): say --overwrite, choose "
                    "another output, or remove it."
                )
            self._clear()
        with replacing(self.path / _PLAN) as file:
            file.write(json.dumps(plan, indent=2).encode())

    def _plan(self) -> dict[str, Any] | None:
        file = self.path / _PLAN
        try:
            stored = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None  # a pipe would never end
        except (OSError, ValueError):
            return None
        return stored if isinstance(stored, dict) else None

    def has_work(self) -> bool:
        """Whether there is something to resume from."""
        return _has_work(self.path)

    def _clear(self) -> None:
        for file in self.path.iterdir():
            if file.is_dir():
                shutil.rmtree(file, ignore_errors=True)
            elif file.name != _LOCK:
                file.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove the folder, after the output is written."""
        with contextlib.suppress(OSError):
            self._clear()
        self.close()


def _other_facts(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """The names of the facts that differ, within dicts too.

    >>> _other_facts({"rows": "a", "RPIM": {"seed": 1, "beta": 2}}, {"rows": "a", "RPIM": {"seed": 0, "beta": 2}})
    ['seed']
    """
    found = []
    for name in {**before, **now}:
        one, other = before.get(name), now.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            found += _other_facts(one, other)
        elif one != other:
            found.append(name)
    return found


def _has_work(path: Path) -> bool:
    return path.is_dir() and any(file.name not in (_PLAN, _LOCK) for file in path.iterdir())


def _close(path: Path, lock: FileLock | None) -> None:
    with contextlib.suppress(OSError):
        if not _has_work(path):
            (path / _PLAN).unlink(missing_ok=True)
        drop_lock(lock)
        path.rmdir()  # fails unless it is empty


_OPENED: weakref.WeakSet[WorkFolder] = weakref.WeakSet()


_REUSED: set[Path] = set()


def is_reused(path: Path) -> None:
    """Note a complete file that the same command uses again."""
    _REUSED.add(path)


def resumable_work() -> list[Path]:
    """What the same command resumes from: the folders of this process, and complete files that are reused."""
    folders = [work.path for work in _OPENED if work.has_work()]
    return sorted([*folders, *(path for path in _REUSED if path.exists())])
