"""The state that the decisions of a version lead to, without doing all of them again each time."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from rpim._common.errors import InputError
from rpim.runs.decision_state import State
from rpim.runs.decision_store import START, Store
from rpim.runs.decisions import Decision

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
