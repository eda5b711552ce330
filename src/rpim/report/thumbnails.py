"""Small images of rows, inlined as data URLs within a budget for the whole page; and one sprite sheet for the map."""

from __future__ import annotations

import base64
import importlib.util
import io
import struct
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
"""Grey, red-green-blue, and the latter with how opaque, by the number of channels."""


def png(pixels: NDArray[np.uint8]) -> bytes:
    """The image with these pixels, of shape (H, W), (H, W, 3) or (H, W, 4)."""
    channels = pixels[..., None] if pixels.ndim == 2 else pixels
    height, width, depth = channels.shape
    # Each line begins with the number of its filter: 0, none.
    lines = np.hstack([np.zeros((height, 1), np.uint8), channels.reshape(height, width * depth)])
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[depth], 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in parts)


def _chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


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


CELL = 48
"""Pixels of a side: as few as tell what is on a picture."""
COLUMNS = 40
MOST = 2000
"""Pictures: of noise, which no format makes small, they are 3.4 MB of the page."""
SECONDS = 6.0
"""What the reading of images may take, which a command that is over soon has not got; those read by then are shown."""


@dataclass(frozen=True)
class Sheet:
    """Squares in rows of `COLUMNS`, and which rows of the run they show."""

    address: str
    """The sheet as a data address."""
    rows: list[int]


def picture_sheet(contents: Sequence[Any] | None, rows: Sequence[int], seconds: float = SECONDS) -> Sheet | None:
    """Pictures of some of these rows, cut to squares; None where there are none to be had.

    Parameters
    ----------
    contents : sequence, or None
        For each row of the run the path of its image, or its pixels (uint8); None or "" where it has none.
    rows : sequence of int
        Those that would be shown if there were room.
    seconds : float
        After which no more are read.
    """
    if contents is None or importlib.util.find_spec("PIL") is None:
        return None
    from PIL import Image

    end = time.monotonic() + seconds
    squares: dict[int, Any] = {}
    for row in np.random.RandomState(0).permutation(np.asarray(rows, dtype=np.int64)).tolist():
        if len(squares) == MOST or time.monotonic() > end:
            break
        square = _square(contents[row])
        if square is not None:
            squares[row] = square
    if not squares:
        return None
    height = -(-len(squares) // COLUMNS)
    sheet = Image.new("RGB", (CELL * min(COLUMNS, len(squares)), CELL * height))
    for place, square in enumerate(squares.values()):
        sheet.paste(square, (CELL * (place % COLUMNS), CELL * (place // COLUMNS)))
    out = io.BytesIO()
    sheet.save(out, "JPEG", quality=70)
    return Sheet(f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}", list(squares))


def _square(content: Any) -> Any:
    from PIL import Image, ImageOps

    from rpim.embedding.pictures import Unusable, open_picture

    if not isinstance(content, np.ndarray) and not content:
        return None
    try:
        picture = open_picture(content if isinstance(content, np.ndarray) else Path(content), CELL)
    except Unusable:
        return None
    # The pixels of what is smaller than a square are meant to be seen.
    how = Image.Resampling.NEAREST if max(picture.size) <= CELL else Image.Resampling.BICUBIC
    return ImageOps.fit(picture, (CELL, CELL), how)
