"""A person's decisions about a run: each turns one state (the class of every row) into the next."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim.runs.assignments import class_codes

IntArray = NDArray[np.int32]
BoolArray = NDArray[np.bool_]

NO_CLASS = -1
MAX_NAME = 200
MAX_MOVES = 30
"""Number of pairs of classes that `changes` lists, those with most rows first."""


@dataclass(frozen=True)
class ClassInfo:
    """A class and its review status.

    Attributes
    ----------
    name : str
    known : bool
        Whether it is a known class of the run.
    accepted : bool
        A person has accepted it.
    reviewed : bool
        A person has renamed, accepted, merged or split it; a refit uses its rows as labels.
    named : bool
        A person has named it; a known class has the name of its labels.
    """

    name: str
    known: bool
    accepted: bool = False
    reviewed: bool = False
    named: bool = False


@dataclass(frozen=True, eq=False)
class State:
    """The class of each of N rows; immutable, so that decisions can be undone.

    Attributes
    ----------
    class_of : (N,) int32
        The class number of each row, -1 for none. Numbers are never reused.
    junk : (N,) bool
        Rows excluded from everything; they keep their class.
    by_hand : (N,) bool
        Rows assigned by a person.
    classes : dict of number to ClassInfo
    next_class : int
        The number of the next new class.
    merged : dict of number to number
        The class that each merged class is part of.
    """

    class_of: IntArray
    junk: BoolArray
    by_hand: BoolArray
    classes: Mapping[int, ClassInfo]
    next_class: int
    merged: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def of_classes(cls, labels: NDArray[Any], classes: NDArray[Any], n_known: int) -> State:
        """The state of a fit before any decision.

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
        """The rows of a class in order, without junk."""
        return np.flatnonzero((self.class_of == number) & ~self.junk).astype(np.int32)

    def sizes(self) -> dict[int, int]:
        """Number of rows of each class, without junk."""
        counted = self.class_of[(self.class_of >= 0) & ~self.junk]
        counts = np.bincount(counted, minlength=self.next_class)
        return {number: int(counts[number]) for number in self.classes}

    def names(self) -> list[str]:
        """The final label of every row: the name of its class, "" for no class and junk."""
        by_number = np.full(self.next_class + 1, "", dtype=object)  # the last is that of -1
        for number, info in self.classes.items():
            by_number[number] = info.name
        final = by_number[self.class_of]
        final[self.junk] = ""
        named: list[str] = final.tolist()
        return named

    def info(self, number: int) -> ClassInfo:
        """The class with this number; raises if there is none."""
        if number not in self.classes:
            raise InputError("The class no longer exists, it was merged or undone in the meantime: reload the page.")
        return self.classes[number]

    def check_new(self, number: int) -> None:
        """Check that a new class gets the next number: another would take that of a class, or leave a gap."""
        if number != self.next_class:
            raise ValueError(f"a new class has the number {number} instead of {self.next_class}")

    def changed(self, number: int, **changes: Any) -> State:
        """The state with changed fields of one class."""
        return replace(self, classes={**self.classes, number: replace(self.info(number), **changes)})

    def checked_rows(self, rows: IntArray) -> IntArray:
        """The rows; raises if some do not exist."""
        if len(rows) == 0 or rows.min() < 0 or rows.max() >= len(self):
            raise InputError(f"The selected rows are not among the {len(self):,} rows of the run: select others.")
        return rows

    def available_name(self, name: str, but: int | None = None) -> str:
        """The name, stripped; raises if it is empty, too long or taken by another class."""
        name = " ".join(name.split())
        if not name or len(name) > MAX_NAME or not name.isprintable():
            raise InputError(f"The name is empty or too long: give 1 to {MAX_NAME} printable characters.")
        if any(info.name == name and number != but for number, info in self.classes.items()):
            raise InputError(f"Another class is already called {name}: give another name, or merge the two.")
        return name


@dataclass(frozen=True)
class Rename:
    """Rename a class."""

    kind: ClassVar[str] = "rename"
    number: int
    name: str

    def apply(self, state: State) -> State:
        """The state after the decision."""
        name = state.available_name(self.name, but=self.number)
        return state.changed(self.number, name=name, reviewed=True, named=True)

    def describe(self, state: State) -> str:
        """Short description, for a button or a list."""
        return f"rename {state.info(self.number).name} to {self.name}"


@dataclass(frozen=True)
class Accept:
    """Accept a class, or reopen it."""

    kind: ClassVar[str] = "accept"
    number: int
    accepted: bool = True

    def apply(self, state: State) -> State:
        """The state after the decision."""
        return state.changed(self.number, accepted=self.accepted, reviewed=True)

    def describe(self, state: State) -> str:
        """Short description, for a button or a list."""
        return f"{'accept' if self.accepted else 'reopen'} {state.info(self.number).name}"


@dataclass(frozen=True)
class Merge:
    """Merge classes into the first of them."""

    kind: ClassVar[str] = "merge"
    numbers: tuple[int, ...]

    def apply(self, state: State) -> State:
        """The state after the decision."""
        if len(set(self.numbers)) < 2:
            raise InputError("Only one class is selected for merging: select at least two.")
        merged = [state.info(number) for number in self.numbers]
        into, others = self.numbers[0], self.numbers[1:]
        class_of = state.class_of.copy()
        class_of[np.isin(class_of, others)] = into
        classes = {number: info for number, info in state.classes.items() if number not in others}
        classes[into] = replace(merged[0], known=any(info.known for info in merged), reviewed=True)
        now_in = {number: into if one in others else one for number, one in state.merged.items()}
        return replace(state, class_of=class_of, classes=classes, merged={**now_in, **dict.fromkeys(others, into)})

    def describe(self, state: State) -> str:
        """Short description, for a button or a list."""
        names = [state.info(number).name for number in self.numbers]
        return f"merge {', '.join(names[1:])} into {names[0]}"


@dataclass(frozen=True, eq=False)
class Split:
    """Split a class. The largest part keeps its number; the other parts become new classes.

    The clusters are stored in the decision, so that replaying it gives the same result.
    """

    kind: ClassVar[str] = "split"
    number: int
    rows: IntArray
    parts: IntArray  # (n,) 0, 1, ...; the rows of part 0 stay
    first: int
    """The number of the first new class."""

    def apply(self, state: State) -> State:
        """The state after the decision."""
        info = state.info(self.number)
        rows = state.checked_rows(self.rows)
        if self.parts.max() < 1:
            raise InputError(f"The rows of {info.name} are too similar to be split: move some rows by hand.")
        state.check_new(self.first)
        if np.unique(self.parts).tolist() != list(range(int(self.parts.max()) + 1)):
            raise ValueError("the parts of a split are not numbered one after the other")
        class_of = state.class_of.copy()
        moved = self.parts > 0
        class_of[rows[moved]] = self.first + self.parts[moved] - 1
        classes = {**state.classes, self.number: replace(info, reviewed=True)}
        taken = {one.name for one in classes.values()}
        for part in range(1, int(self.parts.max()) + 1):
            name = next(name for k in count(part + 1) if (name := f"{info.name} ({k})") not in taken)
            taken.add(name)
            classes[self.first + part - 1] = ClassInfo(name, known=False, reviewed=True)
        return replace(state, class_of=class_of, classes=classes, next_class=self.first + int(self.parts.max()))

    def describe(self, state: State) -> str:
        """Short description, for a button or a list."""
        return f"split {state.info(self.number).name} into {int(self.parts.max()) + 1}"


@dataclass(frozen=True, eq=False)
class Move:
    """Move rows to an existing or a new class."""

    kind: ClassVar[str] = "move"
    rows: IntArray
    to: int
    name: str | None = None
    """Name of the new class; None for an existing one."""

    def apply(self, state: State) -> State:
        """The state after the decision."""
        if self.name is None:
            state.info(self.to)
            classes, next_class = dict(state.classes), state.next_class
        else:
            state.check_new(self.to)
            info = ClassInfo(state.available_name(self.name), known=False, reviewed=True, named=True)
            classes, next_class = {**state.classes, self.to: info}, self.to + 1
        rows = state.checked_rows(self.rows)
        class_of, junk, by_hand = state.class_of.copy(), state.junk.copy(), state.by_hand.copy()
        class_of[rows], junk[rows], by_hand[rows] = self.to, False, True
        return replace(state, class_of=class_of, junk=junk, by_hand=by_hand, classes=classes, next_class=next_class)

    def describe(self, state: State) -> str:
        """Short description, for a button or a list."""
        name = state.info(self.to).name if self.name is None else f"the new class {self.name}"
        return f"move {_rows(self.rows)} to {name}"


@dataclass(frozen=True, eq=False)
class Junk:
    """Mark rows as junk, or restore them."""

    kind: ClassVar[str] = "junk"
    rows: IntArray
    junk: bool = True

    def apply(self, state: State) -> State:
        """The state after the decision."""
        junk = state.junk.copy()
        junk[state.checked_rows(self.rows)] = self.junk
        return replace(state, junk=junk)

    def describe(self, state: State) -> str:
        """Short description, for a button or a list."""
        return f"mark {_rows(self.rows)} as junk" if self.junk else f"restore {_rows(self.rows)} from junk"


CANNOT_APPLY = (InputError, TypeError, ValueError, LookupError, AttributeError)
"""What `apply` raises for a decision that is damaged, or of another run."""
Decision = Rename | Accept | Merge | Split | Move | Junk
_KINDS: dict[str, type[Decision]] = {one.kind: one for one in (Rename, Accept, Merge, Split, Move, Junk)}


def _rows(rows: IntArray) -> str:
    return f"{len(rows):,} row{'' if len(rows) == 1 else 's'}"


def encode(decision: Decision) -> tuple[str, bytes | None]:
    """Serialize a decision to JSON, and its rows, if any, to compressed bytes."""
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


def _whole(number: str) -> int:
    """Refuse a fraction: classes are numbered by integers, and 1.0 would be a key like 1 but no index."""
    raise ValueError(f"a decision has the number {number}, which is not an integer")


def decode(body: str, blob: bytes | None) -> Decision:
    """The inverse of `encode`.

    >>> decode(*encode(Move(np.array([3, 9], dtype=np.int32), to=2))).rows.tolist()
    [3, 9]
    """
    facts = json.loads(body, parse_float=_whole)
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


def changes(before: State, after: State) -> dict[str, Any]:
    """Compare the final labels of two states; rows without a label in either are excluded."""
    pairs = [(a, b) for a, b in zip(before.names(), after.names(), strict=True) if a and b]
    moved = Counter((a, b) for a, b in pairs if a != b)
    had, has = {a for a, _ in pairs}, {b for _, b in pairs}
    return {
        "compared": len(pairs),
        "moved": sum(moved.values()),
        "moves": [{"from": a, "to": b, "rows": n} for (a, b), n in moved.most_common(MAX_MOVES)],
        "appeared": sorted(has - had),
        "vanished": sorted(had - has),
    }
