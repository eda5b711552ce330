"""Decisions on disk: an append-only log in SQLite with one pointer per version of the run, and the states they lead to.

A decision stores its parent, so the log is a tree: undo moves the pointer to the parent, redo to the latest child.
Decisions that were undone and replaced stay in the log as a branch.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rpim._common.errors import InputError, first_line
from rpim.runs.decisions import CANNOT_APPLY, Decision, State, decode, encode
from rpim.runs.run_folder import decisions_file

SCHEMA = 1
START = 0
"""The pointer before the first decision."""

_TABLES = """
CREATE TABLE decisions (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    version INTEGER NOT NULL,
    before INTEGER NOT NULL,
    made TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ')),
    body TEXT NOT NULL,
    rows BLOB
);
CREATE INDEX after ON decisions (version, before);
CREATE TABLE pointers (version INTEGER PRIMARY KEY, current INTEGER NOT NULL);
CREATE TABLE requests (key TEXT PRIMARY KEY);
CREATE TABLE settings (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""

_DISORDER = """
SELECT EXISTS (
    SELECT 1 FROM decisions d LEFT JOIN decisions p ON p.number = d.before
    WHERE d.number < 1 OR d.before >= d.number OR (d.before <> 0 AND p.version IS NOT d.version)
) OR EXISTS (
    SELECT 1 FROM pointers LEFT JOIN decisions d ON d.number = current
    WHERE current <> 0 AND d.version IS NOT pointers.version
)
"""
"""Whether a decision or pointer does not follow an earlier decision about the same version: there may be a cycle."""


class Store:
    """The decisions of one run; thread-safe, and durable once `add` returns.

    Parameters
    ----------
    run : path of the run folder
    create : bool
        Create the database if the run has none; otherwise an empty one in memory takes its place.

    Raises
    ------
    InputError
        If the database cannot be read or is of a newer version; it is not changed.
    """

    def __init__(self, run: Path, *, create: bool = True) -> None:
        self.path = decisions_file(run)
        self._lock = threading.RLock()
        where = self.path if create or self.path.exists() else ":memory:"
        with self._locked():
            self._database = sqlite3.connect(where, timeout=10, isolation_level=None, check_same_thread=False)
            try:
                self._prepare()
            except BaseException:
                self._database.close()
                raise

    def _prepare(self) -> None:
        schema = self._number("PRAGMA user_version")
        if schema > SCHEMA:
            raise InputError(
                f"{self.path} was written by a newer version of rpim (schema {schema}, and this one reads up to "
                f"{SCHEMA}): install a newer rpim."
            )
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        with self._transaction():  # two servers may start at once
            tables = {name for (name,) in self._database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not tables:
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA user_version = {SCHEMA}")
            elif not {"decisions", "pointers", "requests", "settings"} <= tables:
                raise InputError(f"{self.path} is not a database of decisions: move it away.")
            elif self._number(_DISORDER):
                raise InputError(f"{self.path} is damaged, its decisions are not in order: move it away to start over.")

    def close(self) -> None:
        """Move the log into the database file, so that this one file is all there is, and close it."""
        with self._lock:
            with contextlib.suppress(sqlite3.Error):  # another process may be reading; the log is complete too
                self._database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._database.close()

    def current(self, version: int) -> int:
        """The number of the current decision of a version; 0 before the first."""
        return self._number("SELECT coalesce(max(current), 0) FROM pointers WHERE version = ?", version)

    def path_to(self, number: int) -> list[int]:
        """The numbers of the decisions that lead to this one, ending with it."""
        with self._locked():
            found = self._database.execute(
                "WITH RECURSIVE way(number, before) AS (SELECT number, before FROM decisions WHERE number = ?"
                " UNION ALL SELECT d.number, d.before FROM decisions d JOIN way ON d.number = way.before)"
                " SELECT number FROM way ORDER BY number",
                (number,),
            )
            return [one for (one,) in found]

    def read(self, number: int) -> Decision:
        """A decision by its number."""
        with self._locked():
            found = self._database.execute("SELECT body, rows FROM decisions WHERE number = ?", (number,)).fetchone()
        try:
            return decode(*found)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, zlib.error) as error:
            raise InputError(
                f"{self.path} is damaged, its decision {number} cannot be read: move it away to start over."
            ) from error

    def made(self, number: int) -> str:
        """When a decision was made, in ISO 8601."""
        with self._locked():
            (found,) = self._database.execute("SELECT made FROM decisions WHERE number = ?", (number,)).fetchone()
        return str(found)

    def before(self, number: int) -> int:
        """The parent of a decision; 0 for the first."""
        return self._number("SELECT before FROM decisions WHERE number = ?", number)

    def after(self, version: int, number: int) -> int | None:
        """The decision that redo would repeat; None if there is none."""
        found = self._number(
            "SELECT coalesce(max(number), 0) FROM decisions WHERE version = ? AND before = ?", version, number
        )
        return found or None

    def seen(self, key: str) -> bool:
        """Whether a request with this key was already executed."""
        return bool(self._number("SELECT count(*) FROM requests WHERE key = ?", key))

    def add(self, version: int, decision: Decision, key: str, before: int) -> int:
        """Append a decision after `before`, and move the pointer to it.

        Raises
        ------
        InputError
            If the pointer has moved, because of a concurrent decision.
        """
        body, blob = encode(decision)
        with self._request(key):
            if self.current(version) != before:
                raise InputError("Another decision was made at the same time: reload the page and try again.")
            number = self._database.execute(
                "INSERT INTO decisions (version, before, body, rows) VALUES (?, ?, ?, ?)", (version, before, body, blob)
            ).lastrowid
            assert number is not None
            self._point(version, number)
        return number

    def undo(self, version: int, key: str) -> None:
        """Move the pointer to the parent decision."""
        with self._request(key):
            current = self.current(version)
            if current == START:
                raise InputError("There is nothing to undo.")
            self._point(version, self.before(current))

    def redo(self, version: int, key: str) -> None:
        """Repeat the decision that was undone last."""
        with self._request(key):
            after = self.after(version, self.current(version))
            if after is None:
                raise InputError("There is nothing to redo.")
            self._point(version, after)

    @property
    def active(self) -> int:
        """The active version of the run; 0 is the run itself."""
        return self._number("SELECT coalesce(max(value), 0) FROM settings WHERE name = 'active'")

    @property
    def latest(self) -> int:
        """The latest version when one was activated; a later refit is activated by being there."""
        return max(self.active, self._number("SELECT coalesce(max(value), 0) FROM settings WHERE name = 'latest'"))

    def activate(self, version: int, latest: int = 0) -> None:
        """Make another version active; `latest` is the latest that is there."""
        with self._locked(), self._transaction():
            chosen = (("active", version), ("latest", latest))
            self._database.executemany("INSERT OR REPLACE INTO settings VALUES (?, ?)", chosen)

    def stamp(self) -> tuple[int, ...]:
        """Changes with every decision, undo, redo or change of version."""
        with self._locked():
            pointers = self._database.execute("SELECT version, current FROM pointers ORDER BY version").fetchall()
            return (self.active, *(number for pointer in pointers for number in pointer))

    def _point(self, version: int, number: int) -> None:
        self._database.execute("INSERT OR REPLACE INTO pointers VALUES (?, ?)", (version, number))

    def _number(self, query: str, *values: int | str) -> int:
        with self._locked():
            (found,) = self._database.execute(query, values).fetchone()
        return int(found)

    @contextlib.contextmanager
    def _request(self, key: str) -> Iterator[None]:
        """One durable transaction; a key that was already used is refused."""
        with self._locked(), self._transaction():
            if self.seen(key):
                raise InputError("The request was already executed.")
            self._database.execute("INSERT INTO requests VALUES (?)", (key,))
            yield

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock; SQLite errors become one sentence."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise InputError(
                    f"{self.path} cannot be used ({first_line(error)}): it was not changed; check the disk, "
                    "or move the file away to start over."
                ) from error


KEPT = 64
"""Number of cached states: 1.2 MB each for 200,000 rows."""


@dataclass(frozen=True)
class Entry:
    """A decision in the history of a version."""

    number: int
    made: str
    description: str
    undone: bool


class Timeline:
    """The state after each decision, with a cache; decisions are immutable, so cached states stay valid.

    Parameters
    ----------
    store : Store
    initial : function of a version
        The state of a version before any decision.
    """

    def __init__(self, store: Store, initial: Callable[[int], State]) -> None:
        self.store = store
        self._initial = initial
        self._states: OrderedDict[int, State] = OrderedDict()
        self._entries: dict[int, tuple[str, str]] = {}
        self._lock = threading.RLock()

    def state(self, version: int) -> State:
        """The current state of a version."""
        return self._state_at(version, self.store.current(version))

    def decide(self, version: int, make: Callable[[State], Decision], key: str) -> None:
        """Make a decision on the current state and store it; at most once per key.

        Raises
        ------
        InputError
            If the state does not allow it; nothing is stored.
        """
        with self._lock:
            if self.store.seen(key):
                return
            before = self.store.current(version)
            state = self._state_at(version, before)
            decision = make(state)
            after = decision.apply(state)
            self._keep(self.store.add(version, decision, key, before), after)

    def undo(self, version: int, key: str) -> None:
        """Undo the last decision; at most once per key."""
        if not self.store.seen(key):
            self.store.undo(version, key)

    def redo(self, version: int, key: str) -> None:
        """Redo the last undone decision; at most once per key."""
        if not self.store.seen(key):
            self.store.redo(version, key)

    def undo_description(self, version: int) -> str | None:
        """Description of what undo would revert; None if there is nothing."""
        current = self.store.current(version)
        return None if current == START else self._words(version, current)

    def redo_description(self, version: int) -> str | None:
        """Description of what redo would repeat; None if there is nothing."""
        after = self.store.after(version, self.store.current(version))
        return None if after is None else self._words(version, after)

    def history(self, version: int) -> list[Entry]:
        """The decisions about a version, in order: those made, then those that redo would repeat."""
        with self._lock:
            made = self.store.path_to(self.store.current(version))
            undone, last = [], made[-1] if made else START
            while (after := self.store.after(version, last)) is not None:
                undone.append(after)
                last = after
            for number in (*made, *undone):
                if number not in self._entries:  # decisions are immutable
                    self._entries[number] = self.store.made(number), self._words(version, number)
        return [
            Entry(number, *self._entries[number], undone=k >= len(made)) for k, number in enumerate((*made, *undone))
        ]

    def _words(self, version: int, number: int) -> str:
        return self.store.read(number).describe(self._state_at(version, self.store.before(number)))

    def _state_at(self, version: int, number: int) -> State:
        with self._lock:
            if number == START:
                return self._initial(version)
            if number in self._states:
                self._states.move_to_end(number)
                return self._states[number]
            path = self.store.path_to(number)
            done = next((k for k in range(len(path) - 1, -1, -1) if path[k] in self._states), -1)
            state = self._initial(version) if done < 0 else self._states[path[done]]
            for step in path[done + 1 :]:
                decision = self.store.read(step)
                try:
                    state = decision.apply(state)
                except CANNOT_APPLY as error:
                    raise InputError(
                        f"{self.store.path} does not belong to this run, its decision {step} cannot be applied: "
                        "move it away to start over."
                    ) from error
                self._keep(step, state)
            return state

    def _keep(self, number: int, state: State) -> None:
        self._states[number] = state
        while len(self._states) > KEPT:
            self._states.popitem(last=False)
