"""Labels that look wrong to the members of a committee that did not see them, until a person decides about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim.data.labels import unlabelled_rows
from rpim.runs.assignments import Assignments, class_codes
from rpim.runs.decision_state import BoolArray, IntArray, State


@dataclass(frozen=True, eq=False)
class Suspects:
    """The suspect labels of one fit, the most suspect first.

    Attributes
    ----------
    rows : (n,) int32
    suggested : (n,) int32
        The number of the class that is suggested instead of each label.
    quality : (n,) float32
        The probability that the members give to the label.
    """

    rows: IntArray
    suggested: IntArray
    quality: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.rows)

    @classmethod
    def of(cls, found: Assignments, classes: NDArray[Any], places: NDArray[np.int64]) -> Suspects:
        """Those of a fit, where `places` are the numbers that its rows have in the run; none for a single fit."""
        if found.suggested is None or found.label_quality is None:
            return cls(np.empty(0, np.int32), np.empty(0, np.int32), np.empty(0, np.float32))
        has = np.flatnonzero(~unlabelled_rows(found.suggested))
        # The order of rpim.runs.label_issues.ranked_issues, which is not asked because it takes torch.
        confidence = 0.0 if found.suggested_confidence is None else np.nan_to_num(found.suggested_confidence[has])
        has = has[np.argsort(found.label_quality[has] - confidence, kind="stable")]
        codes = class_codes(found.suggested[has], classes)
        return cls(places[has].astype(np.int32), codes.astype(np.int32), found.label_quality[has])

    def open(self, fitted: State, now: State, decided: BoolArray) -> Suspects:
        """Those that nobody has decided about: not moved, not junk, and not of the suggested class by a merge.

        Parameters
        ----------
        fitted, now : State
            Before any decision, and after all of them.
        decided : (N,) bool
            Rows that a person has put where they are, in this version or in one that led to it.
        """
        gone = {number: _merged_into(number, fitted, now) for number in set(self.suggested.tolist()) - set(now.classes)}
        suggested = np.array([gone.get(number, number) for number in self.suggested.tolist()], dtype=np.int32)
        rows = self.rows
        is_open = ~decided[rows] & ~now.junk[rows] & (suggested >= 0) & (suggested != now.class_of[rows])
        return Suspects(rows[is_open], suggested[is_open], self.quality[is_open])


def _merged_into(number: int, fitted: State, now: State) -> int:
    """The class that most rows of a class which is gone are in now; -1 where there are none."""
    classes = now.class_of[(fitted.class_of == number) & (now.class_of >= 0)]
    return int(np.bincount(classes).argmax()) if len(classes) else -1
