"""The projection that contrastive training compares views in, and that is dropped afterwards."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

HIDDEN, WIDTH = 2048, 256


class ProjectionHead(nn.Module):
    """Three linear layers with GELU between them: D -> 2048 -> 2048 -> 256.

    This is the head of DINO (Caron et al., ICCV 2021), which GCD uses, without its last layer: that one takes the 256
    numbers to 65,536 by one matrix, at first a random one, which hardly changes angles, and has more parameters than
    the block that is tuned. Rows are standardised first, as a ViT's final norm does, and first weights keep the size of
    what they are given: projections that start out small get steps so large that all views fall together.
    """

    def __init__(self, n_features: int, generator: torch.Generator) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(n_features, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, WIDTH, bias=False),  # one would move all views the same way
        )
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=layer.in_features**-0.5, generator=generator)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)

    def forward(self, rows: Tensor) -> Tensor:
        """(n, D) -> (n, 256), not normalized."""
        projections: Tensor = self.layers(F.layer_norm(rows, rows.shape[1:]))
        return projections
