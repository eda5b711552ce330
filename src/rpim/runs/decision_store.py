"""Decisions on disk: an append-only log in SQLite with one pointer per version of the run, and the states they lead to.

A decision stores its parent, so the log is a tree: undo moves the pointer to the parent, redo to the latest child.
Decisions that were undone and replaced stay in the log as a branch.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

from rpim._common.errors import InputError, first_line
from rpim.runs.decisions import Decision, State, decode, encode
from rpim.runs.run_folder import DECISIONS_FILE

SCHEMA = 1
START = 0
"""What the pointer says before the first decision."""

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


class Store:
    """The decisions about one run, each on disk before `add` returns; any thread may use it.

    Parameters
    ----------
    run : path of the run folder

    Raises
    ------
    InputError
        If the database cannot be read, or is a newer version's; it is left as it is.
    """

    def __init__(self, run: Path) -> None:
        self.path = run / DECISIONS_FILE
        self._lock = threading.RLock()
        with self._speaking():
            self._database = sqlite3.connect(self.path, timeout=10, isolation_level=None, check_same_thread=False)
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
                raise InputError(f"{self.path} is a database of something else: move it away.")

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._database.close()

    def current(self, version: int) -> int:
        """The number of the decision that the version stands at; 0 before the first."""
        return self._number("SELECT coalesce(max(current), 0) FROM pointers WHERE version = ?", version)

    def path_to(self, number: int) -> list[int]:
        """The decisions that lead to this one, itself the last."""
        with self._speaking():
            found = self._database.execute(
                "WITH RECURSIVE way(number, before) AS (SELECT number, before FROM decisions WHERE number = ?"
                " UNION ALL SELECT d.number, d.before FROM decisions d JOIN way ON d.number = way.before)"
                " SELECT number FROM way ORDER BY number",
                (number,),
            )
            return [one for (one,) in found]

    def read(self, number: int) -> Decision:
        """A decision by its number."""
        with self._speaking():
            found = self._database.execute("SELECT body, rows FROM decisions WHERE number = ?", (number,)).fetchone()
            return decode(*found)

    def before(self, number: int) -> int:
        """The decision before this one; 0 for the first."""
        return self._number("SELECT before FROM decisions WHERE number = ?", number)

    def after(self, version: int, number: int) -> int | None:
        """The decision that redo would do again; None where there is none."""
        found = self._number(
            "SELECT coalesce(max(number), 0) FROM decisions WHERE version = ? AND before = ?", version, number
        )
        return found or None

    def seen(self, key: str) -> bool:
        """Whether the request with this key was carried out already."""
        return bool(self._number("SELECT count(*) FROM requests WHERE key = ?", key))

    def add(self, version: int, decision: Decision, key: str, before: int) -> int:
        """Write a decision down as the one after `before`, and move the pointer there.

        Raises
        ------
        InputError
            If the pointer is elsewhere by now, because somebody else has decided something meanwhile.
        """
        body, blob = encode(decision)
        with self._request(key):
            if self.current(version) != before:
                raise InputError("Somebody else has decided something at the same moment: look again, and repeat it.")
            number = self._database.execute(
                "INSERT INTO decisions (version, before, body, rows) VALUES (?, ?, ?, ?)", (version, before, body, blob)
            ).lastrowid
            assert number is not None
            self._point(version, number)
        return number

    def undo(self, version: int, key: str) -> None:
        """Go back to the decision before."""
        with self._request(key):
            current = self.current(version)
            if current == START:
                raise InputError("There is nothing to undo.")
            self._point(version, self.before(current))

    def redo(self, version: int, key: str) -> None:
        """Do again what was undone last."""
        with self._request(key):
            after = self.after(version, self.current(version))
            if after is None:
                raise InputError("There is nothing to redo.")
            self._point(version, after)

    @property
    def active(self) -> int:
        """The version of the run that is looked at; 0 is the run itself."""
        return self._number("SELECT coalesce(max(value), 0) FROM settings WHERE name = 'active'")

    def activate(self, version: int) -> None:
        """Look at another version."""
        with self._speaking(), self._transaction():
            self._database.execute("INSERT OR REPLACE INTO settings VALUES ('active', ?)", (version,))

    def stamp(self) -> tuple[int, ...]:
        """Another one after every change, by whomever."""
        with self._speaking():
            pointers = self._database.execute("SELECT version, current FROM pointers ORDER BY version").fetchall()
            return (self.active, *(number for pointer in pointers for number in pointer))

    def _point(self, version: int, number: int) -> None:
        self._database.execute("INSERT OR REPLACE INTO pointers VALUES (?, ?)", (version, number))

    def _number(self, query: str, *values: int | str) -> int:
        with self._speaking():
            (found,) = self._database.execute(query, values).fetchone()
        return int(found)

    @contextlib.contextmanager
    def _request(self, key: str) -> Iterator[None]:
        """One transaction, on disk at its end; a key that was seen before is refused."""
        with self._speaking(), self._transaction():
            if self.seen(key):
                raise InputError("That was done already.")
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
    def _speaking(self) -> Iterator[None]:
        """One thread at a time; what SQLite says becomes one sentence."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                raise InputError(
                    f"{self.path} cannot be used ({first_line(error)}): nothing in it was changed; check the disk, "
                    "or move the file away to begin anew."
                ) from error


KEPT = 64
"""States in memory: 1.2 MB each for 200,000 rows."""


class Timeline:
    """States by the number of the decision that led to them, which never changes its meaning.

    Parameters
    ----------
    store : Store
    beginnings : function of a version
        The state of a version before any decision.
    """

    def __init__(self, store: Store, beginnings: Callable[[int], State]) -> None:
        self.store = store
        self._beginnings = beginnings
        self._states: OrderedDict[int, State] = OrderedDict()
        self._lock = threading.RLock()

    def state(self, version: int) -> State:
        """Where the version stands now."""
        return self._state_at(version, self.store.current(version))

    def decide(self, version: int, make: Callable[[State], Decision], key: str) -> None:
        """Make a decision for the state as it is, and write it down; not twice for one key.

        Raises
        ------
        InputError
            If the state does not allow it. Then nothing is written.
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
        """Take back the last decision; not twice for one key."""
        if not self.store.seen(key):
            self.store.undo(version, key)

    def redo(self, version: int, key: str) -> None:
        """Do again what was undone last; not twice for one key."""
        if not self.store.seen(key):
            self.store.redo(version, key)

    def undo_says(self, version: int) -> str | None:
        """What undo would take back; None where there is nothing."""
        current = self.store.current(version)
        return None if current == START else self._words(version, current)

    def redo_says(self, version: int) -> str | None:
        """What redo would do again; None where there is nothing."""
        after = self.store.after(version, self.store.current(version))
        return None if after is None else self._words(version, after)

    def _words(self, version: int, number: int) -> str:
        return self.store.read(number).in_words(self._state_at(version, self.store.before(number)))

    def _state_at(self, version: int, number: int) -> State:
        with self._lock:
            if number == START:
                return self._beginnings(version)
            if number in self._states:
                self._states.move_to_end(number)
                return self._states[number]
            path = self.store.path_to(number)
            done = next((k for k in range(len(path) - 1, -1, -1) if path[k] in self._states), -1)
            state = self._beginnings(version) if done < 0 else self._states[path[done]]
            for step in path[done + 1 :]:
                try:
                    state = self.store.read(step).apply(state)
                except InputError as error:
                    raise InputError(
                        f"{self.store.path} does not belong to this run, its decision {step} cannot be repeated: "
                        "move it away to begin anew."
                    ) from error
                self._keep(step, state)
            return state

    def _keep(self, number: int, state: State) -> None:
        self._states[number] = state
        while len(self._states) > KEPT:
            self._states.popitem(last=False)
