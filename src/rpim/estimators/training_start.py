"""What a training on all rows starts with: found once, saved in a checkpoint, and restored from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rpim.core.head import Head
from rpim.data.labels import IntArray
from rpim.estimators.label_checks import LabelCheck
from rpim.estimators.presets import Hyperparameters

Search = dict[str, dict[Any, float]]
"""For each parameter that was searched, the score of each value."""


@dataclass(frozen=True)
class CommitteeFindings:
    """What a committee found besides its head."""

    stability: NDArray[np.float64]  # (K,)
    label_check: LabelCheck
    labelled_rows: IntArray  # (n_checked,) numbers, among the rows of the problem, of the rows that were checked


@dataclass(frozen=True)
class TrainingStart:
    """A distilled committee, or the initial head of a single fit."""

    head: Head
    hyperparameters: Hyperparameters
    shares: Tensor | None  # (K,)
    n_members: int = 1
    search: Search = field(default_factory=dict)
    committee: CommitteeFindings | None = None

    def to_state(self, generator: torch.Generator) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and JSON for a checkpoint, with the state of the generator."""
        tensors = {f"head.{name}": value for name, value in self.head.tensors().items()}
        tensors["generator"] = generator.get_state()
        if self.shares is not None:
            tensors["shares"] = self.shares
        facts: dict[str, Any] = {
            "hyperparameters": asdict(self.hyperparameters),
            "transform": self.head.transform_name,
            "temperature": self.head.temperature,
            "n_members": self.n_members,
            "search": {name: list(scores.items()) for name, scores in self.search.items()},
        }
        if self.committee is not None:
            tensors |= {f"check.{name}": value for name, value in self.committee.label_check.tensors().items()}
            tensors["labelled_rows"] = torch.from_numpy(self.committee.labelled_rows)
            tensors["stability"] = torch.from_numpy(self.committee.stability)
        return tensors, facts

    @classmethod
    def from_state(
        cls, tensors: dict[str, Tensor], facts: dict[str, Any], generator: torch.Generator, device: torch.device
    ) -> TrainingStart:
        """Restore what `to_state` gave, and the state of the generator."""
        generator.set_state(tensors["generator"])
        of_head = {name: value.to(device) for name, value in _under("head.", tensors).items()}
        head, n_members = Head.from_tensors(of_head, facts["transform"], facts["temperature"]), facts["n_members"]
        shares = tensors.get("shares")
        findings = None
        if n_members > 1:
            check = LabelCheck.from_tensors(_under("check.", tensors))
            findings = CommitteeFindings(tensors["stability"].numpy(), check, tensors["labelled_rows"].numpy())
        return cls(
            head,
            Hyperparameters(**facts["hyperparameters"]),
            None if shares is None else shares.to(device),
            n_members,
            {name: dict(map(tuple, scores)) for name, scores in facts["search"].items()},
            findings,
        )


def _under(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors whose names have the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
