"""How reliable a result is, in sentences that the terminal, the report and notebooks share."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rpim._common.errors import in_halves, interval, plural

if TYPE_CHECKING:
    from rpim.estimators.base import DiscoveryEstimator


def expected_accuracy(model: DiscoveryEstimator) -> str:
    """The expected accuracy of the committee on known classes, or why there is none."""
    n_members, accuracy = getattr(model, "n_members_", 1), getattr(model, "expected_accuracy_", math.nan)
    if n_members == 1:
        return "This is a single fit: its confidence is not calibrated, and usually too high."
    if not len(model.known_classes_):
        return (
            f"A committee of {n_members} fits. Without labels its accuracy is unknown: name some groups in the "
            "explorer and refit."
        )
    if math.isnan(accuracy):
        return f"A committee of {n_members} fits; its expected accuracy could not be estimated."
    return (
        f"A committee of {n_members} fits: expected accuracy on known classes {accuracy:.0%} (estimated on held-out "
        "labels)."
    )


def estimated_count(model: DiscoveryEstimator) -> str:
    """The number of classes with its interval; "" if it was given."""
    if not hasattr(model, "n_classes_low_"):
        return ""
    low, high = model.n_classes_low_, model.n_classes_high_
    if not len(model.known_classes_):
        return (
            f"The number of groups was estimated without labels ({in_halves(low, high)}). Finer classes may exist: "
            "give --n-classes to look for more."
        )
    return f"The number of classes was estimated: {plural(len(model.classes_), 'class')} ({interval(low, high)})."
