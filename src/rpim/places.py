"""Where a fit passes over its rows when it does not hold them: in this process from files, or on workers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rpim.contexts import within
from rpim.labels import IntArray
from rpim.row_files import RowFiles

if TYPE_CHECKING:
    from rpim.head import Head
    from rpim.methods.streaming import SpreadProblem
    from rpim.optimise import Objective, Schedule
    from rpim.preparation import Preparation
    from rpim.training_state import History
    from rpim.unfinished import Unfinished

Rows = RowFiles | NDArray[np.floating]


class Place(Protocol):
    """Who passes over all rows: three times before, in and after the training."""

    def look(
        self, rows: Rows, sample: IntArray, prepare: Preparation, *, directions: bool
    ) -> tuple[NDArray[np.float32], Tensor | None]:
        """Check the values, bring the rows of the sample (n, D), and add up what directions come from (D, D)."""

    def train(
        self, problem: SpreadProblem, head: Head, objective: Objective, schedule: Schedule, *, keep: bool,
        on_step: Callable[[], None], unfinished: Unfinished | None,
    ) -> History:  # fmt: skip
        """Train the head, in place."""

    def assign(
        self, rows: Rows, head: Head, prepare: Preparation, *, scores: bool
    ) -> tuple[IntArray, NDArray[np.float32]]:
        """The class of each row by number, and where `scores` are wanted how little it fits any. (N,), (N,)"""


_present: ContextVar[Place | None] = ContextVar("place", default=None)


def fits_at(place: Place | None) -> AbstractContextManager[None]:
    """Within it, fits are at this place; None for this process."""
    return within(_present, place)


def present_place() -> Place | None:
    """Where fits are at present; None for this process."""
    return _present.get()
