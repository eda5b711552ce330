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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim.embedding.items import path_of_text

_COLOUR_TYPES = {1: 0, 3: 2, 4: 6}
"""Number of channels -> PNG colour type: grey, RGB, RGBA."""


def png(pixels: NDArray[np.uint8]) -> bytes:
    """Encode pixels of shape (H, W), (H, W, 3) or (H, W, 4) as PNG (ISO/IEC 15948), without a library."""
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
"""Longer side in pixels: twice the displayed size, for high-density screens."""
BUDGET = 8_000_000
"""Maximum total size of the data URLs, in characters."""


class Thumbnails:
    """Data URLs of images within a budget, with notes about missing images.

    Parameters
    ----------
    contents : sequence, or None
        For each row the path of its image or its pixels (uint8); None or "" for none.
    budget : int
        Maximum total size in characters.
    """

    def __init__(self, contents: Sequence[Any] | None, budget: int = BUDGET) -> None:
        self.contents = contents
        self._left = budget
        self._made: dict[int, str | None] = {}
        self._missing = self._beyond = 0
        self._can_read = importlib.util.find_spec("PIL") is not None

    def of(self, row: int) -> str | None:
        """The data URL of a row's image; None if unavailable."""
        if row not in self._made:
            self._made[row] = self._make(row)
        return self._made[row]

    def __contains__(self, row: int) -> bool:
        """Whether the row has an image, readable or not."""
        content = None if self.contents is None else self.contents[row]
        return isinstance(content, np.ndarray) or bool(content)

    def notes(self) -> list[str]:
        """Notes about images that are not shown."""
        said = []
        if self._missing and not self._can_read:
            said.append("Images are shown by name only: pip install 'rpim[report]' for thumbnails.")
        elif self._missing:
            said.append(
                f"{self._missing:,} images could not be opened at their recorded path and are shown by name: give "
                "their folder with rpim report RUN --images FOLDER."
            )
        if self._beyond:
            said.append(f"{self._beyond:,} images are omitted to keep the page small.")
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
            return "jpeg", small_jpeg(content if isinstance(content, np.ndarray) else path_of_text(str(content)), SIZE)
        except Unusable:
            return "jpeg", None


CELL = 48
"""Side of a thumbnail on the sheet, in pixels."""
COLUMNS = 40
MOST = 2000
"""Maximum number of thumbnails: at most 3.4 MB (incompressible noise)."""
SECONDS = 6.0
"""Time limit for reading images; those read by then are shown."""


@dataclass(frozen=True)
class Sheet:
    """A sprite sheet of thumbnails, `COLUMNS` per line, and the rows they show."""

    address: str
    """The sheet as a data URL."""
    rows: list[int]


def picture_sheet(contents: Sequence[Any] | None, rows: Sequence[int], seconds: float = SECONDS) -> Sheet | None:
    """Square thumbnails of some of the rows; None if there are no images.

    Parameters
    ----------
    contents : sequence, or None
        For each row of the run the path of its image, or its pixels (uint8); None or "" where it has none.
    rows : sequence of int
        Candidate rows.
    seconds : float
        Time limit.
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
        picture = open_picture(content if isinstance(content, np.ndarray) else path_of_text(str(content)), CELL)
    except Unusable:
        return None
    # Small images are enlarged without smoothing, so that their pixels stay visible.
    how = Image.Resampling.NEAREST if max(picture.size) <= CELL else Image.Resampling.BICUBIC
    return ImageOps.fit(picture, (CELL, CELL), how)
