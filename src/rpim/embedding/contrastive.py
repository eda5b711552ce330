"""GCD's two contrastive losses and the projection head they are computed on (Vaze et al., CVPR 2022)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SELF_SUPERVISED_TEMPERATURE = 1.0
SUPERVISED_TEMPERATURE = 0.07


def self_supervised_terms(
    first: Tensor, second: Tensor, items: Tensor, temperature: float = SELF_SUPERVISED_TEMPERATURE
) -> Tensor:
    """The self-supervised contrastive term of every view: the positive is the other view of the item.

    This is SimCLR's loss (Chen et al., ICML 2020). If an item is twice in the batch, all its views are positives.

    Parameters
    ----------
    first, second : (n, P)
        Projections of two views of each of n items, not normalized.
    items : (n,)
        The item of each row.
    temperature : float

    Returns
    -------
    (2n,), the first views before the second ones.
    """
    return supervised_terms(first, second, items, temperature)


def supervised_terms(
    first: Tensor, second: Tensor, classes: Tensor, temperature: float = SUPERVISED_TEMPERATURE
) -> Tensor:
    """The supervised contrastive term of every view: the positives are all other views of its class.

    With z the 2n projections on the unit sphere, P(i) the other views of i's class, and t the temperature::

        term_i = - mean over p in P(i) of  log( exp(z_i . z_p / t) / sum over j != i of exp(z_i . z_j / t) )

    which is the outer of the two forms of Khosla et al. (NeurIPS 2020).

    Parameters
    ----------
    first, second : (n, P)
        Projections of two views of each of n items, not normalized.
    classes : (n,)
    temperature : float

    Returns
    -------
    (2n,), the first views before the second ones.
    """
    z = F.normalize(torch.cat([first, second]).float(), dim=1)  # (2n, P)
    of = torch.cat([classes, classes])  # (2n,)
    itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
    log_share = F.log_softmax((z @ z.T / temperature).masked_fill(itself, -torch.inf), dim=1)  # (2n, 2n)
    alike = (of[:, None] == of[None, :]) & ~itself
    return -log_share.masked_fill(~alike, 0.0).sum(1) / alike.sum(1)  # never 0: the other view is a positive


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
