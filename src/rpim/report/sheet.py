"""One sheet with tiny pictures of rows on the map, so that pointing at a row shows it without a picture file each."""

from __future__ import annotations

import base64
import importlib.util
import io
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

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
