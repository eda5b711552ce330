"""What a parameter of RIM, TIM, PIM and RPIM left at "auto" becomes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from rpim.core.initialization import ClassSizes

AUTO: Final = "auto"

PRESETS: dict[str, dict[str, Any]] = {
    "default": {"search": None, "n_members": 16, "n_init": None, "n_components": 256},
    "paper": {
        "search": "paper",
        "n_members": 1,
        "n_init": 100,
        "n_components": None,
        "beta": 0.05,
        "class_sizes": "equal",
        "threshold": 0.5,
        "temperature": 25.0,
    },
}
"""What a parameter left at "auto" becomes. One that is not listed varies between the members of a committee (see
committee.py), is searched where the paper searches it, and otherwise takes its value from `DEFAULTS`."""

SCHEDULES: dict[str, dict[str, Any]] = {
    "default": {"learning_rate": 5e-3, "max_iter": 300, "tol": 1e-3},
    "paper": {"learning_rate": 1e-3, "max_iter": 1000, "tol": 0.0},
}
"""The training on all rows of each preset: until the classes of the rows settle, or as published."""

DEFAULTS: dict[str, Any] = {"trade_off": 0.1, "class_sizes": "equal", "beta": 0.2, "weight_decay": 0.01}


@dataclass(frozen=True)
class Hyperparameters:
    """The parameters of the objective that are searched, varied or estimated, with the values of a fit."""

    trade_off: float
    beta: float
    weight_decay: float
    class_sizes: ClassSizes = "equal"
