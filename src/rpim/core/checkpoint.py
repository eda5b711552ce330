"""The checkpoint of a fit on disk, from which an interrupted fit resumes.

    RUN.checkpoint/
      plan.json               the rows and parameters of the fit: no other fit resumes from it
      member-3.safetensors    a trained member of the committee
      start.safetensors       the start of the training
      sample.safetensors      the state of the training on a sample
      training.safetensors    the state of the training on all rows
      workers/                the same, of Ray workers

No tensor is written in the first half minute. They are stored without pickle, and every
number comes back bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from rpim._common.errors import InputError, first_line
from rpim._common.files import replacing
from rpim._common.work_folder import WorkFolder

SAVE_EVERY = 30.0
"""Seconds."""
START_FILE = "start.safetensors"
MEMBER_FILE = "member-{}.safetensors"
SAMPLE_FILE = "sample.safetensors"
TRAINING_FILE = "training.safetensors"
WORKERS_FOLDER = "workers"

History = list[dict[str, float]]
"""The terms of the objective at every step, and what else there is to tell of it."""
TERMS = ("M", "C", "L_R", "CE", "L_S", "objective", "confident", "weight_decay")


def pack(tensors: dict[str, Tensor], facts: Any) -> bytes:
    """A .safetensors file with JSON-able facts in its header.

    >>> import torch
    >>> tensors, facts = unpack(pack({"w": torch.ones(2)}, {"steps": 3, "loss": float("nan")}))
    >>> tensors["w"].tolist(), facts
    ([1.0, 1.0], {'steps': 3, 'loss': nan})
    """
    from safetensors.torch import save

    return save(
        {name: value.detach().cpu().contiguous() for name, value in tensors.items()}, {"facts": json.dumps(facts)}
    )


def unpack(data: bytes) -> tuple[dict[str, Tensor], Any]:
    """The inverse of `pack`; raises ValueError if the data are damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        return load(data), json.loads(header["__metadata__"]["facts"])
    except (SafetensorError, AttributeError, LookupError, RuntimeError, TypeError) as error:
        raise ValueError(f"not written by this program ({error})") from error


def check_tensors(found: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> None:
    """Raise ValueError unless the tensors have the names, shapes and dtypes of `like`.

    They have to be finite too, except those that are NaN in `like`.

    >>> import torch
    >>> check_tensors({"w": torch.ones(2)}, {"w": torch.zeros(3)})
    Traceback (most recent call last):
    ValueError: w has shape (2,) and not (3,)
    """
    if set(found) != set(like):
        raise ValueError(f"its tensors are {', '.join(sorted(found))} and not {', '.join(sorted(like))}")
    for name, value in found.items():
        if value.shape != like[name].shape:
            raise ValueError(f"{name} has shape {tuple(value.shape)} and not {tuple(like[name].shape)}")
        if value.dtype != like[name].dtype:
            raise ValueError(f"{name} has dtype {value.dtype} and not {like[name].dtype}")
        if not bool(value.isfinite().all()) and not bool(like[name].isnan().any()):
            raise ValueError(f"{name} is not finite")


def checked_history(found: Any) -> History:
    """The same; raises ValueError unless it is a `History`."""
    if not isinstance(found, list) or not all(isinstance(step, dict) and set(step) == set(TERMS) for step in found):
        raise ValueError(f"its history is not a list of {', '.join(TERMS)}")
    if not all(type(value) in (int, float) for step in found for value in step.values()):
        raise ValueError("its history holds more than numbers")
    return found


@dataclass(frozen=True)
class TrainingState:
    """The parameters and Adam's running means after as many steps as the history has."""

    tensors: dict[str, Tensor]
    history: History

    def to_bytes(self) -> bytes:
        """As a .safetensors file."""
        return pack(self.tensors, self.history)

    @classmethod
    def from_bytes(cls, data: bytes, like: Mapping[str, Tensor]) -> TrainingState:
        """The inverse of `to_bytes`; raises ValueError if the data are damaged, or the tensors are not like these."""
        tensors, history = unpack(data)
        check_tensors(tensors, like)
        return cls(tensors, checked_history(history))


class Checkpoint:
    """The checkpoint of one fit.

    Parameters
    ----------
    output : path of the run folder to be
        The checkpoint stands beside it.
    plan : dict
        JSON-able: what has to be the same for the fit to be resumed.
    overwrite : bool
        Remove the checkpoint of another fit.

    Raises
    ------
    InputError
        If the folder holds the checkpoint of another fit, or another process has it.
    """

    def __init__(self, output: Path, plan: dict[str, Any], *, overwrite: bool = False) -> None:
        self._work = WorkFolder(output, plan, "fit", overwrite)
        self.folder = self._work.path
        self._start: bytes | None = None
        self._members: dict[int, bytes] = {}  # trained, and not on disk yet
        self._saved = time.monotonic()

    @property
    def exists(self) -> bool:
        """Whether there is something to resume from."""
        return self._work.has_work()

    def members(self) -> dict[int, bytes]:
        """The saved members of the committee by number."""
        found = {}
        for path in sorted(self.folder.glob(MEMBER_FILE.format("*"))):
            number = path.name.removeprefix("member-").removesuffix(".safetensors")
            with self.reading(path.name):
                found[int(number)] = path.read_bytes()
                unpack(found[int(number)])  # a damaged file is named here
        return found

    def save_member(self, number: int, data: bytes) -> None:
        """Save a trained member; it is on disk, with those before it, from the first half minute on."""
        self._members[number] = data
        if self.exists or self.due():
            self._write_members()

    def start(self) -> tuple[dict[str, Tensor], Any] | None:
        """The saved start of the training."""
        return self._read(START_FILE) if (self.folder / START_FILE).is_file() else None

    def save_start(self, tensors: dict[str, Tensor], facts: Any) -> None:
        """Save the start of the training: now if half a minute has passed, else with the first training state."""
        self._start = pack(tensors, facts)
        if self.due():
            self._write_start()

    def last(self, like: Mapping[str, Tensor], name: str = TRAINING_FILE) -> TrainingState | None:
        """The last saved state of the training, checked to have tensors like these."""
        path = self.folder / name
        if not path.is_file():
            return None
        with self.reading(name):
            return TrainingState.from_bytes(path.read_bytes(), like)

    def due(self) -> bool:
        """Whether half a minute has passed since the last save."""
        return time.monotonic() - self._saved >= SAVE_EVERY

    def save(self, state: TrainingState, name: str = TRAINING_FILE) -> None:
        """Save the state of the training; it is on disk when this returns."""
        self._write_start()
        self._write(name, state.to_bytes())
        self._saved = time.monotonic()

    def workers_folder(self) -> Path:
        """A folder for the checkpoints of Ray workers; the start is on disk when this returns."""
        self._write_start()
        return self.folder.resolve() / WORKERS_FOLDER

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[None]:
        """Turn the ValueError of a damaged file, or of one from another fit, into one sentence about it."""
        try:
            yield
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.folder / name} cannot be read ({first_line(error)}): remove {self.folder}, and the fit begins "
                "again."
            ) from error

    def remove(self) -> None:
        """Remove the folder, after the run is written."""
        self._work.remove()

    def close(self) -> None:
        """Let other processes resume the fit."""
        self._work.close()

    def _read(self, name: str) -> tuple[dict[str, Tensor], Any]:
        with self.reading(name):
            return unpack((self.folder / name).read_bytes())

    def _write_start(self) -> None:
        if self._start is None:
            return
        try:
            self._write(START_FILE, self._start)
        except InputError:
            self.remove()  # without a start there is nothing to resume
            raise
        self._start = None

    def _write_members(self) -> None:
        for number, data in sorted(self._members.items()):
            self._write(MEMBER_FILE.format(number), data)
        self._members = {}

    def _write(self, name: str, data: bytes) -> None:
        with replacing(self.folder / name) as file:
            file.write(data)


class SampleCheckpoint:
    """The part of a checkpoint that belongs to the training on a sample."""

    def __init__(self, whole: Checkpoint) -> None:
        self._whole = whole

    def last(self, like: Mapping[str, Tensor]) -> TrainingState | None:
        """The last saved state of the training, checked to have tensors like these."""
        return self._whole.last(like, SAMPLE_FILE)

    def due(self) -> bool:
        """Whether half a minute has passed since the last save."""
        return self._whole.due()

    def save(self, state: TrainingState) -> None:
        """Save the state of the training; it is on disk when this returns."""
        self._whole.save(state, SAMPLE_FILE)
