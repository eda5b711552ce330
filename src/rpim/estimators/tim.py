"""TIM, Transductive Information Maximization.

Boudiaf, Masud, Rony, Dolz, Piantanida and Ben Ayed, "Transductive Information Maximization For Few-Shot Learning",
NeurIPS 2020.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from rpim.estimators.infomax import PlainInfoMaxEstimator
from rpim.estimators.presets import AUTO


class TIM(PlainInfoMaxEstimator):
    """CE + M + alpha C with the marginal taken over the unlabelled rows alone (alpha is ``trade_off``).

    On stored embeddings
    --------------------
    Published for few-shot queries whose classes all have labelled examples, with the cross-entropy weighted down to
    0.1. Here the new classes' prototypes start at the centroids of semi-supervised k-means, and CE has weight one, as
    in PIM, from which it then differs in the marginal alone. alpha is the published 0.1. See `RPIM` for the parameters
    and attributes.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = PlainInfoMaxEstimator._parameter_constraints

    preset = "default"
    search = AUTO
    marginal_rows = "unlabelled"

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        n_members: int = 1,
        trade_off: float = 0.1,
        weight_decay: float = 0.01,
        temperature: float = 25.0,
        n_init: int | None = None,
        schedule: Literal["fast", "paper"] = "fast",
        learning_rate: float | Literal["auto"] = AUTO,
        max_iter: int | Literal["auto"] = AUTO,
        n_components: int | None = 256,
        normalize: bool = True,
        low_memory: bool = False,
        abstain: float = 0.0,
        device: str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_classes = n_classes
        self.n_members = n_members
        self.trade_off = trade_off
        self.weight_decay = weight_decay
        self.temperature = temperature
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
