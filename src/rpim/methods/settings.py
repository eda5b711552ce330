"""What can be set of RIM, TIM, PIM and RPIM, the values that are tried for what is searched, and a choice of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

from rpim.starts import ClassSizes

AUTO: Final = "auto"

SETTINGS: dict[str, dict[str, Any]] = {
    "default": {"search": "held-out", "n_starts": 6, "n_init": 10, "n_components": 256, "schedule": "fast"},
    "paper": {
        "search": "paper", "n_starts": 1, "n_init": 100, "n_components": None, "schedule": "paper", "beta": 0.05,
        "class_sizes": "equal",
    },
}  # fmt: skip
"""What a parameter left at "auto" becomes; one that is not listed is searched."""

SCHEDULES: dict[str, dict[str, Any]] = {
    "fast": {"learning_rate": 5e-3, "max_iter": 300, "tol": 1e-3},
    "paper": {"learning_rate": 1e-3, "max_iter": 1000, "tol": 0.0},
}
"""How long and how boldly to train: until the classes of the rows settle, or as published."""

GRID: dict[str, tuple[Any, ...]] = {
    "trade_off": (0.1, 0.05, 0.2, 0.02, 0.5, 1.0),
    "class_sizes": ("equal", "estimated"),
    "beta": (0.2, 0.4, 0.05, 0.6),
    "weight_decay": (0.01, 0.005, 0.02),
}
"""The held-out search: one parameter after the other, from the first value on; of equals the earlier wins."""


@dataclass(frozen=True)
class Setting:
    """What is searched: three numbers, and whether classes are taken to be equally large."""

    trade_off: float
    beta: float
    weight_decay: float
    class_sizes: ClassSizes = "equal"

    def for_a_division(self) -> Setting:
        """What this setting becomes on a problem of half the classes and half the rows of each.

        With fewer rows to go by it has to regularise more: twice the weight decay (the paper halves what it found on
        such a problem) and, for the same reason, half of lambda.
        """
        return replace(self, trade_off=self.trade_off / 2, weight_decay=self.weight_decay * 2)
