"""A fit under way, on disk: what it has found until now, so that a stop loses no more than a few steps.

    RUN.checkpoint/
      plan.json               of what rows and parameters the fit is: another is not gone on with
      member-3.safetensors    a member of the committee that is trained
      start.safetensors       what the training on all rows starts with
      training.safetensors    how far the training is
      workers/                the same, where it is spread over workers

Nothing is written in the first half minute: a short fit leaves no trace.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from torch import Tensor

from rpim._common.errors import InputError
from rpim._common.files import reading, replacing, writing
from rpim._common.work_folder import PLAN_FILE, is_of
from rpim.core.tensor_files import pack, unpack
from rpim.core.training_state import TrainingState

SAVE_EVERY = 30.0
"""Seconds."""
START_FILE = "start.safetensors"
MEMBER_FILE = "member-{}.safetensors"
TRAINING_FILE = "training.safetensors"
WORKERS_FOLDER = "workers"


class Checkpoint:
    """What is known of a fit that has not ended, and a place for more.

    Parameters
    ----------
    output : path of the run folder to be
    plan : dict
        JSON-able: whatever has to be the same for a fit to be gone on with. What there is of another is thrown away.
    """

    def __init__(self, output: Path, plan: dict[str, Any]) -> None:
        self.folder = output.with_name(f"{output.name}.checkpoint")
        self._plan = json.loads(json.dumps(plan))
        self._start: bytes | None = None
        self._members: dict[int, bytes] = {}  # trained, and not on disk yet
        self._saved = time.monotonic()
        if self.folder.exists() and not is_of(self.folder, self._plan):
            self.remove()
        self._written = self.exists

    @property
    def exists(self) -> bool:
        """Whether there is something to go on with."""
        return (self.folder / PLAN_FILE).is_file()

    def members(self) -> dict[int, bytes]:
        """The trained members that `keep_member` was given, by their number."""
        found = {}
        for path in sorted(self.folder.glob(MEMBER_FILE.format("*"))):
            number = path.name.removeprefix("member-").removesuffix(".safetensors")
            with reading(path, f"remove {self.folder}, and the fit begins again"):
                found[int(number)] = path.read_bytes()
                unpack(found[int(number)])  # a damaged file is named here
        return found

    def keep_member(self, number: int, data: bytes) -> None:
        """Keep a trained member: on disk, with those before it, from the first half minute on."""
        self._members[number] = data
        if self._written or self.due():
            self._write_members()

    def start(self) -> tuple[dict[str, Tensor], Any] | None:
        """What `keep_start` was given, in the fit that is gone on with."""
        return self._read(START_FILE) if (self.folder / START_FILE).is_file() else None

    def keep_start(self, tensors: dict[str, Tensor], facts: Any) -> None:
        """Keep what the training begins with: on disk if half a minute has passed, or else with its first state."""
        self._start = pack(tensors, facts)
        if self.due():
            self._write_start()

    def last(self) -> TrainingState | None:
        """How far the training had come."""
        there = (self.folder / TRAINING_FILE).is_file()
        return TrainingState(*self._read(TRAINING_FILE)) if there else None

    def due(self) -> bool:
        """Whether half a minute has passed."""
        return time.monotonic() - self._saved >= SAVE_EVERY

    def save(self, state: TrainingState) -> None:
        """Keep how far the training is; it is on disk when this returns."""
        self._write_start()
        self._write(TRAINING_FILE, state.to_bytes())
        self._saved = time.monotonic()

    def place_for_workers(self) -> Path:
        """A folder for what workers keep; the start is on disk from then on."""
        self._write_start()
        return self.folder.resolve() / WORKERS_FOLDER

    def remove(self) -> None:
        """Clear up, once the run is written."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._written = False

    def _read(self, name: str) -> tuple[dict[str, Tensor], Any]:
        path = self.folder / name
        with reading(path, f"remove {self.folder}, and the fit begins again"):
            return unpack(path.read_bytes())

    def _write_start(self) -> None:
        if self._start is None:
            return
        self._write_plan()
        try:
            self._write(START_FILE, self._start)
        except InputError:
            self.remove()  # without a start there is nothing to resume
            raise
        self._start = None

    def _write_members(self) -> None:
        self._write_plan()
        for number, data in sorted(self._members.items()):
            self._write(MEMBER_FILE.format(number), data)
        self._members = {}

    def _write_plan(self) -> None:
        if self._written:
            return
        with writing(self.folder):
            self.folder.mkdir(exist_ok=True)
        self._write(PLAN_FILE, json.dumps(self._plan, indent=2).encode())
        self._written = True

    def _write(self, name: str, data: bytes) -> None:
        with replacing(self.folder / name) as file:
            file.write(data)
