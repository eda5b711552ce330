"""RIM, Regularized Information Maximization, with labels.

Gomes, Krause and Perona, "Discriminative Clustering by Regularized Information Maximization", NeurIPS 2010.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from rpim.estimators.infomax import PlainInfoMaxEstimator
from rpim.estimators.presets import AUTO


class RIM(PlainInfoMaxEstimator):
    """CE + M + C with an L2 penalty on the prototypes: mutual information with both of its terms at full weight.

    On stored embeddings
    --------------------
    The published classifier is a multinomial regression with a bias, from k-means or random weights. Here it is PIM's:
    unit rows, prototypes without a bias, a temperature, the start of semi-supervised k-means, Adam on the full batch;
    the L2 penalty is Adam's weight decay. PIM is this with a lambda that is searched. See `RPIM` for the parameters and
    attributes.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = PlainInfoMaxEstimator._parameter_constraints

    preset = "default"
    search = AUTO

    def __init__(
        self,
        n_classes: int | None = None,
        *,
        n_members: int = 1,
        trade_off: float = 1.0,
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
