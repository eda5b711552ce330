"""How many classes there are, with what it rests on: the result of every estimator."""

from __future__ import annotations

from dataclasses import dataclass

ESTIMATORS = ("neighbors", "max-acc", "max-acc-pim")
"""How the number of classes can be estimated; the first is what ``n_classes=None`` does."""


@dataclass(frozen=True)
class ClassCount:
    """An estimate of the number of classes.

    Parameters
    ----------
    n_classes : int
        Known and new classes together.
    low, high : int
        The 95 % interval, as far as the choice of the known classes decides it.
    curve : dict
        What the estimate rests on: for each neighborhood the number of classes (``neighbors``), for each number of
        classes the accuracy on the labelled rows (``max-acc``).
    chosen : int
        The point of the curve that was taken.
    """

    n_classes: int
    low: int
    high: int
    curve: dict[int, float]
    chosen: int

    def within(self, at_least: int, at_most: int) -> ClassCount:
        """The same, with every number of classes brought into these bounds."""
        low, n_classes, high = (min(max(k, at_least), at_most) for k in (self.low, self.n_classes, self.high))
        return ClassCount(n_classes, low, high, self.curve, self.chosen)
