"""Small pictures of rows as addresses that hold all of it, within a budget for the whole page."""

from __future__ import annotations

import base64
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rpim.report.png import png

SIZE = 112
"""Pixels of the longer side: twice what it has on the page, for screens that show two to a point."""
BUDGET = 8_000_000
"""Characters of all pictures together."""


class Thumbnails:
    """Pictures that were asked for, and what became of those that could not be had.

    Parameters
    ----------
    contents : sequence, or None
        For each row the path of its image, or its pixels (uint8); None or "" where it has none.
    budget : int
        Characters of all pictures together: beyond it there are none.
    """

    def __init__(self, contents: Sequence[Any] | None, budget: int = BUDGET) -> None:
        self.contents = contents
        self._left = budget
        self._made: dict[int, str | None] = {}
        self._missing = self._beyond = 0
        self._can_read = importlib.util.find_spec("PIL") is not None

    def of(self, row: int) -> str | None:
        """The picture of a row as a data address; None where there is none to be had."""
        if row not in self._made:
            self._made[row] = self._make(row)
        return self._made[row]

    def __contains__(self, row: int) -> bool:
        """Whether the row has an image, be it at hand or not."""
        content = None if self.contents is None else self.contents[row]
        return isinstance(content, np.ndarray) or bool(content)

    def notes(self) -> list[str]:
        """What has to be said of pictures that are not on the page."""
        said = []
        if self._missing and not self._can_read:
            said.append("Images are shown by their names alone: pip install 'rpim[report]' for small pictures of them.")
        elif self._missing:
            said.append(
                f"{self._missing:,} of the images could not be opened where the run found them, and stand here by "
                "name: say where they are now with rpim report RUN --images FOLDER."
            )
        if self._beyond:
            said.append(f"{self._beyond:,} of the images are left out, so that the page stays small.")
        return said

    def _make(self, row: int) -> str | None:
        if row not in self or self.contents is None:
            return None
        if self._left <= 0:
            self._beyond += 1
            return None
        kind, made = self._small(self.contents[row])
        if made is None:
            self._missing += 1
            return None
        address = f"data:image/{kind};base64,{base64.b64encode(made).decode()}"
        self._left -= len(address)
        return address

    def _small(self, content: Any) -> tuple[str, bytes | None]:
        if isinstance(content, np.ndarray) and max(content.shape[:2]) <= SIZE:
            return "png", png(content)
        if not self._can_read:
            return "jpeg", None
        from rpim.embedding.pictures import Unusable, small_jpeg

        try:
            return "jpeg", small_jpeg(content if isinstance(content, np.ndarray) else Path(content), SIZE)
        except Unusable:
            return "jpeg", None
