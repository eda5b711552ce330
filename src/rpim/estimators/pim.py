"""PIM, Parametric InfoMax.

Chiaroni, Dolz, Masud, Mitiche and Ben Ayed, "Parametric Information Maximization for Generalized Category Discovery",
ICCV 2023.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from rpim.estimators.infomax import PlainInfoMaxEstimator
from rpim.estimators.presets import AUTO


class PIM(PlainInfoMaxEstimator):
    """CE + M + lambda C: RPIM without its transformation, pseudo-labels and mixed labels.

    ``PIM(...)`` and ``RPIM(h="none", pseudo_labels=False, mixed_labels=False, ...)`` with the same `n_members` give the
    same bits. A single fit by default; ``n_members=16`` is a committee. See `RPIM` for the parameters and attributes.
    The PIM of the literature is ``PIM(preset="paper", weight_decay=0.01)``: lambda
    searched without labels, one start, 1000 steps.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = PlainInfoMaxEstimator._parameter_constraints

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        n_members: int | Literal["auto"] = 1,
        preset: Literal["default", "paper"] = "default",
        trade_off: float | Literal["auto"] = AUTO,
        weight_decay: float | Literal["auto"] = AUTO,
        class_sizes: Literal["auto", "equal", "estimated"] = AUTO,
        temperature: float = 25.0,
        search: Literal["auto", "paper"] = AUTO,
        n_init: int | Literal["auto"] | None = AUTO,
        schedule: Literal["auto", "fast", "paper"] = AUTO,
        learning_rate: float | Literal["auto"] = AUTO,
        max_iter: int | Literal["auto"] = AUTO,
        n_components: int | Literal["auto"] | None = AUTO,
        normalize: bool = True,
        low_memory: bool = False,
        abstain: float = 0.0,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.n_members = n_members
        self.preset = preset
        self.trade_off = trade_off
        self.weight_decay = weight_decay
        self.class_sizes = class_sizes
        self.temperature = temperature
        self.search = search
        self.n_init = n_init
        self.schedule = schedule
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.n_components = n_components
        self.normalize = normalize
        self.low_memory = low_memory
        self.abstain = abstain
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
