"""What decisions have led to: the class of every row, and what is known of each class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

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
