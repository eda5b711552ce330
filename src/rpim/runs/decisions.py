"""A person's decisions about a run: each turns one state (the class of every row) into the next."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim.runs.assignments import class_codes

IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]

NO_CLASS = -1
MAX_NAME = 200


@dataclass(frozen=True)
class ClassInfo:
    """A class as a person sees it.

    Attributes
    ----------
    name : str
    known : bool
        Whether it had labels when the run was made.
    accepted : bool
        A person has looked at it and found it good.
    reviewed : bool
        A person has named, accepted, merged or split it, so that a new fit may learn from it.
    """

    name: str
    known: bool
    accepted: bool = False
    reviewed: bool = False


@dataclass(frozen=True, eq=False)
class State:
    """The class of each of N rows; never changed in place, so that one can go back to it.

    Attributes
    ----------
    class_of : (N,) int32
        The number of each row's class, -1 where it has none. Numbers are never used again for another class.
    junk : (N,) bool
        Rows that are to be left out of everything; they remember their class.
    by_hand : (N,) bool
        Rows that a person has put where they are.
    classes : dict of number to ClassInfo
    next_class : int
        The number that the next class gets.
    """

    class_of: IntArray
    junk: BoolArray
    by_hand: BoolArray
    classes: Mapping[int, ClassInfo]
    next_class: int

    @classmethod
    def of_classes(cls, labels: NDArray[Any], classes: NDArray[Any], n_known: int) -> State:
        """What a fit has found, before any decision.

        >>> State.of_classes(np.array([7, -1, 4]), np.array([4, 7]), n_known=1).class_of.tolist()
        [1, -1, 0]
        """
        n = len(labels)
        infos = {k: ClassInfo(str(name), k < n_known) for k, name in enumerate(classes.tolist())}
        codes = class_codes(labels, classes).astype(np.int32)
        return cls(codes, np.zeros(n, dtype=bool), np.zeros(n, dtype=bool), infos, len(infos))

    def __len__(self) -> int:
        return len(self.class_of)

    def rows_of(self, number: int) -> IntArray:
        """The rows of a class that are not junk, in their order."""
        return np.flatnonzero((self.class_of == number) & ~self.junk).astype(np.int32)

    def sizes(self) -> dict[int, int]:
        """How many rows each class has, junk aside."""
        counted = self.class_of[(self.class_of >= 0) & ~self.junk]
        counts = np.bincount(counted, minlength=self.next_class)
        return {number: int(counts[number]) for number in self.classes}

    def names(self) -> list[str]:
        """The final label of every row: the name of its class, "" where it has none or is junk."""
        by_number = np.full(self.next_class + 1, "", dtype=object)  # the last is that of -1
        for number, info in self.classes.items():
            by_number[number] = info.name
        final = by_number[self.class_of]
        final[self.junk] = ""
        named: list[str] = final.tolist()
        return named

    def info(self, number: int) -> ClassInfo:
        """The class of that number, which must be there."""
        if number not in self.classes:
            raise InputError("That class is no longer there, it was merged or undone meanwhile: look again.")
        return self.classes[number]

    def changed(self, number: int, **changes: Any) -> State:
        """The same with other facts about one class."""
        return replace(self, classes={**self.classes, number: replace(self.info(number), **changes)})

    def checked_rows(self, rows: IntArray) -> IntArray:
        """The rows, which must be there."""
        if len(rows) == 0 or rows.min() < 0 or rows.max() >= len(self):
            raise InputError(f"The selected rows are not among the {len(self):,} of the run: select some that are.")
        return rows

    def free_name(self, name: str, but: int | None = None) -> str:
        """A name that may be given: not empty, not too long, and no other class has it."""
        name = " ".join(name.split())
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise InputError(f"A class needs a name of 1 to {MAX_NAME} visible characters: give another.")
        if any(info.name == name and number != but for number, info in self.classes.items()):
            raise InputError(f"There is a class called {name} already: give another name, or merge the two.")
        return name


@dataclass(frozen=True)
class Rename:
    """Call a class by another name."""

    kind: ClassVar[str] = "rename"
    number: int
    name: str

    def apply(self, state: State) -> State:
        """The state after it."""
        return state.changed(self.number, name=state.free_name(self.name, but=self.number), reviewed=True)

    def in_words(self, state: State) -> str:
        """What it does to this state, for a button or a list."""
        return f"rename {state.info(self.number).name} to {self.name}"


@dataclass(frozen=True)
class Accept:
    """Say that a class is good as it is, or that it is not after all."""

    kind: ClassVar[str] = "accept"
    number: int
    accepted: bool = True

    def apply(self, state: State) -> State:
        """The state after it."""
        return state.changed(self.number, accepted=self.accepted, reviewed=True)

    def in_words(self, state: State) -> str:
        """What it does to this state, for a button or a list."""
        return f"{'accept' if self.accepted else 'reopen'} {state.info(self.number).name}"


@dataclass(frozen=True)
class Merge:
    """Make one class of several: the others become part of the first."""

    kind: ClassVar[str] = "merge"
    numbers: tuple[int, ...]

    def apply(self, state: State) -> State:
        """The state after it."""
        if len(set(self.numbers)) < 2:
            raise InputError("Merging takes two classes or more: choose another one.")
        merged = [state.info(number) for number in self.numbers]
        into, others = self.numbers[0], self.numbers[1:]
        class_of = state.class_of.copy()
        class_of[np.isin(class_of, others)] = into
        classes = {number: info for number, info in state.classes.items() if number not in others}
        classes[into] = replace(merged[0], known=any(info.known for info in merged), reviewed=True)
        return replace(state, class_of=class_of, classes=classes)

    def in_words(self, state: State) -> str:
        """What it does to this state, for a button or a list."""
        names = [state.info(number).name for number in self.numbers]
        return f"merge {', '.join(names[1:])} into {names[0]}"


@dataclass(frozen=True, eq=False)
class Split:
    """Make several classes of one. The largest part stays the class; the others are new.

    What the clustering found is part of the decision, so that doing it again gives the same.
    """

    kind: ClassVar[str] = "split"
    number: int
    rows: IntArray
    parts: IntArray  # (n,) 0, 1, ...; the rows of part 0 stay
    first: int
    """The number of the first new class."""

    def apply(self, state: State) -> State:
        """The state after it."""
        info = state.info(self.number)
        rows = state.checked_rows(self.rows)
        if self.parts.max() < 1:
            raise InputError(f"The rows of {info.name} are too alike to be split: move some of them by hand.")
        class_of = state.class_of.copy()
        moved = self.parts > 0
        class_of[rows[moved]] = self.first + self.parts[moved] - 1
        classes = {**state.classes, self.number: replace(info, reviewed=True)}
        taken = {one.name for one in classes.values()}
        for part in range(1, int(self.parts.max()) + 1):
            name = next(name for k in range(part + 1, 10_000) if (name := f"{info.name} ({k})") not in taken)
            taken.add(name)
            classes[self.first + part - 1] = ClassInfo(name, known=False, reviewed=True)
        return replace(state, class_of=class_of, classes=classes, next_class=self.first + int(self.parts.max()))

    def in_words(self, state: State) -> str:
        """What it does to this state, for a button or a list."""
        return f"split {state.info(self.number).name} into {int(self.parts.max()) + 1}"


@dataclass(frozen=True, eq=False)
class Move:
    """Put rows into a class, which may be a new one."""

    kind: ClassVar[str] = "move"
    rows: IntArray
    to: int
    name: str | None = None
    """Of the new class, where it is one."""

    def apply(self, state: State) -> State:
        """The state after it."""
        if self.name is None:
            state.info(self.to)
            classes, next_class = dict(state.classes), state.next_class
        else:
            info = ClassInfo(state.free_name(self.name), known=False, reviewed=True)
            classes, next_class = {**state.classes, self.to: info}, self.to + 1
        rows = state.checked_rows(self.rows)
        class_of, junk, by_hand = state.class_of.copy(), state.junk.copy(), state.by_hand.copy()
        class_of[rows], junk[rows], by_hand[rows] = self.to, False, True
        return State(class_of, junk, by_hand, classes, next_class)

    def in_words(self, state: State) -> str:
        """What it does to this state, for a button or a list."""
        name = state.info(self.to).name if self.name is None else f"the new class {self.name}"
        return f"move {_rows(self.rows)} to {name}"


@dataclass(frozen=True, eq=False)
class Junk:
    """Leave rows out of everything, or take them back in."""

    kind: ClassVar[str] = "junk"
    rows: IntArray
    junk: bool = True

    def apply(self, state: State) -> State:
        """The state after it."""
        junk = state.junk.copy()
        junk[state.checked_rows(self.rows)] = self.junk
        return replace(state, junk=junk)

    def in_words(self, state: State) -> str:
        """What it does to this state, for a button or a list."""
        return f"mark {_rows(self.rows)} as junk" if self.junk else f"take {_rows(self.rows)} back from junk"


Decision = Rename | Accept | Merge | Split | Move | Junk
_KINDS: dict[str, type[Decision]] = {one.kind: one for one in (Rename, Accept, Merge, Split, Move, Junk)}


def _rows(rows: IntArray) -> str:
    return f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"


def encode(decision: Decision) -> tuple[str, bytes | None]:
    """A decision as JSON, and its rows, where it has some, in a few bytes."""
    facts: dict[str, Any] = {"kind": decision.kind}
    arrays = []
    for name, value in vars(decision).items():
        if isinstance(value, np.ndarray):
            arrays.append(value)
        else:
            facts[name] = value
    if not arrays:
        return json.dumps(facts), None
    steps = np.diff(arrays[0], prepend=0)  # small numbers, which compress well
    return json.dumps(facts), zlib.compress(np.concatenate([steps, *arrays[1:]]).astype("<i4").tobytes())


def decode(body: str, blob: bytes | None) -> Decision:
    """What `encode` wrote down.

    >>> decode(*encode(Move(np.array([3, 9], dtype=np.int32), to=2))).rows.tolist()
    [3, 9]
    """
    facts = json.loads(body)
    make: Any = _KINDS[facts.pop("kind")]
    if blob is not None:
        values = np.frombuffer(zlib.decompress(blob), dtype="<i4").astype(np.int32)
        first, *others = values.reshape(2 if make is Split else 1, -1)
        facts["rows"] = np.cumsum(first, dtype=np.int32)
        if others:
            facts["parts"] = others[0]
    if make is Merge:
        facts["numbers"] = tuple(facts["numbers"])
    decision: Decision = make(**facts)
    return decision
