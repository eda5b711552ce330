"""The checkpoint of an embedding in progress: finished rows on disk.

OUTPUT.parts/
  plan.json          items and encoder: only an embedding with the same plan resumes
  part-000001.npz    positions and rows of items, and reasons for unusable items
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.files import open_npz, reading, replacing
from rpim._common.work_folder import open_work_folder


class EmbeddingCheckpoint:
    """The finished parts of an embedding.

    Parameters
    ----------
    output : path of the features to write
        The folder of the parts is next to it.
    plan : dict
        JSON-serializable; parts with the same plan belong together.
    overwrite : bool
        Discard parts of another plan.

    Raises
    ------
    InputError
        If there are parts of another plan.
    """

    def __init__(self, output: Path, plan: dict[str, Any], overwrite: bool = False) -> None:
        self.folder = open_work_folder(output, plan, "embedding (another encoder, or other items)", overwrite)
        self._n_parts = max((int(path.stem[5:]) for path in self._files()), default=0)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("part-??????.npz"))

    def add(self, positions: list[int], rows: NDArray[np.float32], skipped: dict[int, str]) -> None:
        """Store the rows (n, V, D) of items, and reasons for skipped ones; durable when this returns."""
        self._n_parts += 1
        with replacing(self.folder / f"part-{self._n_parts:06d}.npz") as file:
            np.savez(file, positions=np.array(positions, np.int64), rows=rows, reasons=np.array(json.dumps(skipped)))

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], dict[int, str]]]:
        """Positions (n,), rows (n, V, D) and reasons of each part."""
        for part in self._opened():
            yield part["positions"], part["rows"], _reasons(part)

    def done(self) -> set[int]:
        """The positions of finished items."""
        found: set[int] = set()
        for part in self._opened():
            found.update(part["positions"].tolist(), _reasons(part))
        return found

    def _opened(self) -> Iterator[Any]:
        for path in self._files():
            with reading(path, "remove it, and its items are embedded again"), open_npz(path) as part:
                yield part

    def remove(self) -> None:
        """Remove the checkpoint."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _reasons(part: Any) -> dict[int, str]:
    return {int(position): reason for position, reason in json.loads(str(part["reasons"])).items()}
