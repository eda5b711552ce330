"""How far a training is: the parameters, Adam's running means, and the terms of the objective until now."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rpim.core.tensor_files import pack, unpack

History = list[dict[str, float]]
"""The terms of the objective at every step."""


@dataclass(frozen=True)
class TrainingState:
    """What a training needs to go on; it has taken as many steps as the history is long."""

    tensors: dict[str, Tensor]
    history: History

    def to_bytes(self) -> bytes:
        """As a file."""
        return pack(self.tensors, self.history)

    @classmethod
    def from_bytes(cls, data: bytes) -> TrainingState:
        """What `to_bytes` gave; raises ValueError where it is damaged."""
        return cls(*unpack(data))
