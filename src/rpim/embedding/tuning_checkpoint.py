"""The checkpoint of a tuning: beside the output while it runs, so that a killed one goes on, and gone at the end."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from rpim._common.errors import InputError, first_line
from rpim._common.files import replacing, writing

FORMAT = 1


class State(NamedTuple):
    """Where a tuning is after an epoch."""

    epoch: int
    tensors: dict[str, Tensor]
    notes: dict[str, Any]


class TuningCheckpoint:
    """A folder with ``settings.json``, ``state.safetensors`` after each epoch, and the views where they are kept.

    No state of a random generator is in it: each epoch has a generator of its own, by the seed and its number.

    Parameters
    ----------
    output : Path
        The file that is being made; the folder has its name with ``.checkpoint`` behind it.
    settings : dict, ready for JSON
        All that decides the result.

    Raises
    ------
    InputError
        If a checkpoint of other settings is there.
    """

    def __init__(self, output: Path, settings: dict[str, Any]) -> None:
        self.folder = output.with_name(f"{output.name}.checkpoint")
        self._state = self.folder / "state.safetensors"
        said = self.folder / "settings.json"
        wanted = json.loads(json.dumps({"format": FORMAT, **settings}))
        if said.is_file():
            self._check(said, wanted)
        else:
            with writing(self.folder):
                self.folder.mkdir(exist_ok=True)
            with replacing(said) as file:
                file.write(json.dumps(wanted, indent=1).encode())

    def _check(self, said: Path, wanted: dict[str, Any]) -> None:
        try:
            there = json.loads(said.read_bytes())
            others = [name for name in {**wanted, **there} if there.get(name) != wanted.get(name)]
        except (ValueError, AttributeError) as error:
            raise InputError(f"{self.folder} is damaged ({first_line(error)}): remove it.") from error
        if others:
            raise InputError(
                f"{self.folder} is of a tuning with other settings ({', '.join(others)}): give those to go on with it, "
                "or remove it."
            )

    def load(self) -> State | None:
        """The last state, if there is one."""
        if not self._state.is_file():
            return None
        try:
            with safe_open(self._state, "pt") as file:
                notes = json.loads((file.metadata() or {})["notes"])
            return State(int(notes.pop("epoch")), load_file(self._state), notes)
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise InputError(f"{self._state} is damaged ({first_line(error)}): remove {self.folder}.") from error

    def save(self, state: State) -> None:
        """Put a state in the place of the last one."""
        tensors = {name: value.detach().contiguous() for name, value in state.tensors.items()}
        with replacing(self._state) as file:
            file.write(save(tensors, {"notes": json.dumps({"epoch": state.epoch, **state.notes})}))

    def remove(self) -> None:
        """The output is there: nothing is left to go on with."""
        shutil.rmtree(self.folder, ignore_errors=True)
