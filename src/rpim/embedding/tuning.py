"""Fine-tuning as it runs: GCD's two contrastive losses (Vaze et al., CVPR 2022), steps, schedule and checkpoint."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional as F

from rpim._common.errors import InputError, first_line
from rpim._common.files import replacing
from rpim._common.work_folder import WorkFolder
from rpim.core.checkpoint import check_tensors
from rpim.embedding.encoders import fast_precision
from rpim.embedding.views import LastBlock

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


FORMAT = 1


class State(NamedTuple):
    """The state after an epoch."""

    epoch: int
    tensors: dict[str, Tensor]
    notes: dict[str, Any]


class TuningCheckpoint:
    """A work folder with ``state.safetensors`` after each epoch, and the cached views.

    It holds no generator state: each epoch has its own generator, seeded by the seed and the epoch.

    Parameters
    ----------
    output : Path
        The file that is being made; the folder has its name with ``.checkpoint`` behind it.
    hyperparameters : dict, ready for JSON
        Everything that determines the result.
    overwrite : bool
        Remove a checkpoint with other hyperparameters.

    Raises
    ------
    InputError
        If the checkpoint has other hyperparameters, or another process has it.
    """

    def __init__(self, output: Path, hyperparameters: dict[str, Any], overwrite: bool = False) -> None:
        self._work = WorkFolder(output, {"format": FORMAT, **hyperparameters}, "fine-tuning", overwrite)
        self.folder = self._work.path
        self._state = self.folder / "state.safetensors"

    def load(self, like: Mapping[str, Tensor]) -> State | None:
        """The last state, if there is one, checked to have tensors like these."""
        if not self._state.is_file():
            return None
        try:
            with safe_open(self._state, "pt") as file:
                notes = json.loads((file.metadata() or {})["notes"])
            state = State(int(notes.pop("epoch")), load_file(self._state), notes)
            check_tensors(state.tensors, like)
            if len(notes["losses"]) != state.epoch or not all(_is_pair(pair) for pair in notes["losses"]):
                raise ValueError("its losses are not those of its epochs")
        except (SafetensorError, AttributeError, KeyError, RecursionError, TypeError, ValueError, OSError) as error:
            raise InputError(f"{self._state} is damaged ({first_line(error)}): remove {self.folder}.") from error
        return state

    def save(self, state: State) -> None:
        """Replace the last state."""
        tensors = {name: value.detach().contiguous() for name, value in state.tensors.items()}
        with replacing(self._state) as file:
            file.write(save(tensors, {"notes": json.dumps({"epoch": state.epoch, **state.notes})}))

    def remove(self) -> None:
        """Remove the checkpoint once the output is written."""
        self._work.remove()

    def close(self) -> None:
        """Let other processes resume the training."""
        self._work.close()


def _is_pair(losses: Any) -> bool:
    return isinstance(losses, list) and [type(value) for value in losses] == [float, float]


MOMENTUM, WEIGHT_DECAY, LAST_RATE = 0.9, 5e-5, 1e-3
"""As GCD publishes them. The learning rate falls along a cosine to a thousandth of what it was."""

LARGEST_GRADIENT = 1.0
"""The length that gradients are cut to. GCD has no such limit; without it, EfficientNet-Lite0 fell to one point at the
same learning rate (docs/results.md)."""

IntArray = NDArray[np.int64]


class Losses(NamedTuple):
    """The means of the two losses, over a batch or an epoch."""

    self_supervised: float
    supervised: float


class Tuning:
    """The last block and a projection behind it, trained by both contrastive losses.

    Parameters
    ----------
    last_block : LastBlock
    device : torch.device
    learning_rate : float
    epochs : int
    seed : int
        Of the projection's first weights.
    supervised_weight : float
        The share of the supervised loss in the sum of both.
    """

    def __init__(
        self,
        last_block: LastBlock,
        device: torch.device,
        learning_rate: float,
        epochs: int,
        seed: int,
        supervised_weight: float,
    ) -> None:
        self._last_block, self._device = last_block, device
        self._weight = supervised_weight
        self._learning_rate, self._epochs = learning_rate, epochs
        self._head = ProjectionHead(last_block.n_features, torch.Generator().manual_seed(seed)).to(device)
        self._trained = {f"encoder.{name}": value for name, value in last_block.parameters.items()} | {
            f"head.{name}": value for name, value in self._head.named_parameters()
        }
        self._optimiser = torch.optim.SGD(
            self._trained.values(), lr=learning_rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
        )
        self._precision = _training_precision(device)
        self._scaler = torch.amp.GradScaler(device.type, enabled=self._precision == torch.float16)

    def begin(self, epoch: int) -> None:
        """Set the learning rate of an epoch, counted from 0."""
        fall = (1 + math.cos(math.pi * epoch / self._epochs)) / 2
        for group in self._optimiser.param_groups:
            group["lr"] = self._learning_rate * (LAST_RATE + (1 - LAST_RATE) * fall)

    def step(self, pairs: Tensor, rows: IntArray, codes: IntArray) -> Losses:
        """Train on a batch.

        Parameters
        ----------
        pairs : (2, b, ...)
            Two views of each image, as they enter the last block.
        rows, codes : (b,)
            Which image each is, and the number of its class, -1 where it has no label.
        """
        with torch.autocast(self._device.type, self._precision, enabled=self._precision != torch.float32):
            projections = self._head(self._last_block.rows(pairs.to(self._device).flatten(0, 1)))  # (2b, P)
        first, second = projections.chunk(2)
        classes = torch.from_numpy(codes).to(self._device)
        labelled = classes >= 0
        alone = self_supervised_terms(first, second, torch.from_numpy(rows).to(self._device)).mean()
        together = supervised_terms(first[labelled], second[labelled], classes[labelled]).mean()
        loss = (1 - self._weight) * alone + self._weight * together
        self._optimiser.zero_grad()
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        self._scaler.unscale_(self._optimiser)
        torch.nn.utils.clip_grad_norm_(self._trained.values(), LARGEST_GRADIENT)
        self._scaler.step(self._optimiser)
        self._scaler.update()
        return Losses(alone.item(), together.item())

    def untrained(self) -> dict[str, Tensor]:
        """The tensors of a state before the first epoch."""
        return {f"{prefix}{name}": value for prefix in ("", "momentum.") for name, value in self._trained.items()}

    def state(self, epoch: int, notes: dict[str, Any]) -> State:
        """All that the next epoch depends on, once `epoch` of them are done."""
        tensors: dict[str, Tensor] = dict(self._trained)
        for name, value in self._trained.items():
            tensors[f"momentum.{name}"] = self._optimiser.state[value]["momentum_buffer"]
        return State(epoch, tensors, {"scaler": self._scaler.state_dict(), **notes})

    def restore(self, state: State) -> None:
        """Restore a state."""
        with torch.no_grad():
            for name, value in self._trained.items():
                value.copy_(state.tensors[name])
                momentum = state.tensors[f"momentum.{name}"].to(self._device)
                self._optimiser.state[value]["momentum_buffer"] = momentum
        if state.notes["scaler"] and self._scaler.is_enabled():
            self._scaler.load_state_dict(state.notes["scaler"])


def batches(codes: IntArray, batch_size: int, rng: np.random.Generator) -> Iterator[IntArray]:
    """The rows of each batch of an epoch, half of them labelled, as many rows in all as there are.

    Labelled and unlabelled rows go through one shuffle after another, each at the pace that this takes.
    """
    labelled, others = np.flatnonzero(codes >= 0), np.flatnonzero(codes < 0)
    size, n_labelled = _batch(codes, batch_size)
    n_batches = len(codes) // size
    known = _shuffles(labelled, n_batches * n_labelled, rng).reshape(n_batches, n_labelled)
    rest = _shuffles(others, n_batches * (size - n_labelled), rng).reshape(n_batches, size - n_labelled)
    yield from np.concatenate([known, rest], axis=1)


def losses_of_one_point(codes: IntArray, batch_size: int) -> Losses:
    """What the losses are when all views are projected to the same point: every other view has the same share."""
    size, n_labelled = _batch(codes, batch_size)
    return Losses(math.log(2 * size - 1), math.log(2 * n_labelled - 1))


def _batch(codes: IntArray, batch_size: int) -> tuple[int, int]:
    """How many rows a batch has, and how many of them have labels."""
    size = min(batch_size, len(codes))
    return size, size // 2 if (codes < 0).any() else size


def _shuffles(rows: IntArray, count: int, rng: np.random.Generator) -> IntArray:
    passes = [rng.permutation(rows) for _ in range(0, count, max(len(rows), 1))]
    return np.concatenate([np.empty(0, dtype=np.int64), *passes])[:count]


def _training_precision(device: torch.device) -> torch.dtype:
    """bfloat16 where it is fast, float16 on other GPUs, and float32 elsewhere."""
    fast = fast_precision(device)
    return torch.float16 if device.type == "cuda" and fast == torch.float32 else fast
