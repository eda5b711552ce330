"""The parts of an embedding under way: rows that are done, on disk, so that no stop loses them.

OUTPUT.parts/
  plan.json          what is being embedded, and by what: parts of another work are not gone on with
  part-000001.npz    positions of items, their rows, and of items that could not be used the reasons
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
from rpim._common.work_folder import unfinished_folder


class EmbeddingCheckpoint:
    """What is done of an embedding, and a place for more.

    Parameters
    ----------
    output : path of the features to be
        The folder of the parts stands beside it.
    plan : dict
        JSON-able: whatever has to be the same for parts to belong together.
    overwrite : bool
        Throw away parts of another plan.

    Raises
    ------
    InputError
        If there are parts of another plan.
    """

    def __init__(self, output: Path, plan: dict[str, Any], overwrite: bool = False) -> None:
        self.folder = unfinished_folder(output, plan, "embedding (another encoder, or other items)", overwrite)
        self._n_parts = max((int(path.stem[5:]) for path in self._files()), default=0)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("part-??????.npz"))

    def add(self, positions: list[int], rows: NDArray[np.float32], skipped: dict[int, str]) -> None:
        """Keep the rows (n, V, D) of items, and why others have none; they are on disk when it returns."""
        self._n_parts += 1
        with replacing(self.folder / f"part-{self._n_parts:06d}.npz") as file:
            np.savez(file, positions=np.array(positions, np.int64), rows=rows, reasons=np.array(json.dumps(skipped)))

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], dict[int, str]]]:
        """Positions (n,), rows (n, V, D) and reasons of each part."""
        for part in self._opened():
            yield part["positions"], part["rows"], _reasons(part)

    def done(self) -> set[int]:
        """The positions of the items that need not be looked at again."""
        found: set[int] = set()
        for part in self._opened():
            found.update(part["positions"].tolist(), _reasons(part))
        return found

    def _opened(self) -> Iterator[Any]:
        for path in self._files():
            with reading(path, "remove it, and its items are embedded again"), open_npz(path) as part:
                yield part

    def remove(self) -> None:
        """Clear up, once the features are written."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _reasons(part: Any) -> dict[int, str]:
    return {int(position): reason for position, reason in json.loads(str(part["reasons"])).items()}
