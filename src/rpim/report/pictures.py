"""The pictures of the report: the map of its rows, small images within a budget, and one sprite sheet for the map."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import io
import json
import struct
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim._common.files import replacing
from rpim.core.sampling import rank_within_class
from rpim.data.feature_set import FeatureSet
from rpim.data.formats.arrays import load_npy
from rpim.data.labels import IntArray
from rpim.embedding.items import path_of_text
from rpim.report.facts import ClassFacts, captions
from rpim.runs.assignments import class_codes
from rpim.runs.discovery import Discovery
from rpim.runs.maps import (
    N_DIRECTIONS,
    UMAP_MAP,
    FloatArray,
    close_gaps,
    interpolate_positions,
    kind_of_map,
    leading,
    palette,
    two_dimensional,
)
from rpim.runs.run_folder import MAP_FILE

MAX_POINTS = 10_000
_FEW = 5
"""Minimum number of rows per class on the map."""
_LANDMARKS = 600
"""Number of rows that t-SNE is fitted to: takes two seconds."""
_CAPTION = 90


@dataclass(frozen=True, eq=False)
class PageMap:
    """2-D positions of some rows."""

    kind: str
    rows: IntArray  # (S,)
    places: FloatArray  # (S, 2)


def sample_rows(codes: IntArray, at_most: int = MAX_POINTS, seed: int = 0) -> IntArray:
    """A stratified sample of rows with at least a few per class, in ascending order."""
    if len(codes) <= at_most:
        return np.arange(len(codes))
    shuffled = np.random.RandomState(seed).permutation(len(codes))
    by_class, rank, size = rank_within_class(codes, shuffled)
    turn = np.where(rank < _FEW, 0.0, (rank + 0.5) / size)
    return np.sort(by_class[np.argsort(turn, kind="stable")[:at_most]])


def quick_map(discovery: Discovery, features: FeatureSet) -> PageMap:
    """A map within seconds for any number of rows: t-SNE of 600 rows, the others interpolated.

    UMAP takes ten times as long.
    """
    check_rows(discovery, features)
    rows = sample_rows(class_codes(discovery.labels, discovery.classes))
    return PageMap("t-SNE", rows, quick_places(refined(discovery, features.subset(rows))))


def check_rows(discovery: Discovery, features: FeatureSet) -> None:
    """Raise if the features are not those of the discovery."""
    if len(features) != len(discovery):
        raise InputError(
            f"The features have {len(features):,} rows but the discovery has {len(discovery):,}: give the same ones."
        )
    if not np.array_equal(features.ids, discovery.ids):
        raise InputError("The features have other ids than the discovery, or another order: give the same rows.")


def quick_places(rows: FloatArray, seed: int = 0) -> FloatArray:
    """2-D positions: t-SNE for some rows, interpolated for the others. (N, 2)"""
    from sklearn.manifold import TSNE

    reduced = leading(rows, N_DIRECTIONS)  # (N, 50)
    fitted = np.sort(np.random.RandomState(seed).permutation(len(rows))[:_LANDMARKS])
    perplexity = min(20.0, max(len(fitted) - 1, 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="random" if len(fitted) < 3 else "pca", max_iter=500, random_state=seed)
    return interpolate_positions(reduced, fitted, tsne.fit_transform(reduced[fitted]).astype(np.float32))


def careful_map(discovery: Discovery, features: FeatureSet | None, run: Path | None = None) -> PageMap | None:
    """The UMAP map of all rows, cached in the run folder; without umap-learn, the quick map."""
    rows = sample_rows(class_codes(discovery.labels, discovery.classes))
    kept = None if run is None else kept_map(run, len(discovery))
    if kept is None:
        if features is None:
            return None
        if kind_of_map() != UMAP_MAP:
            return quick_map(discovery, features)
        kept = two_dimensional(refined(discovery, features), verbose=True)
        if run is not None:
            # If the folder is read-only, the map is computed again next time.
            with contextlib.suppress(InputError), replacing(run / MAP_FILE) as file:
                np.save(file, kept, allow_pickle=False)
    return PageMap(UMAP_MAP, rows, kept[rows])


def kept_map(run: Path, n_rows: int) -> FloatArray | None:
    """The cached map of a run folder; None if missing or of other rows."""
    try:
        places = load_npy(run / MAP_FILE)
    except InputError:
        return None
    fits = places.shape == (n_rows, 2) and places.dtype.kind == "f" and bool(np.isfinite(places).all())
    return places.astype(np.float32) if fits else None


def refined(discovery: Discovery, features: FeatureSet) -> FloatArray:
    """The refined rows h(x)."""
    rows: FloatArray = discovery.model.transform(features.rows(normalize=discovery.model.normalize))
    return rows


def for_the_page(found: PageMap, discovery: Discovery, classes: list[ClassFacts], sheet: Sheet | None = None) -> str:
    """The map as JSON: positions, classes and confidence as base64 bytes, captions as text."""
    codes = class_codes(discovery.labels, discovery.classes)[found.rows]
    places = close_gaps(found.places)
    middle = (places.max(axis=0) + places.min(axis=0)) / 2
    extent = float(np.ptp(places, axis=0).max()) or 1.0
    within = 0.5 + (places - middle) / extent  # (S, 2), the longer side from 0 to 1
    facts = {
        "rows": found.rows.tolist(),
        "places": _bytes((within * 65535).round().astype("<u2")),
        "classes": _bytes(np.where(codes < 0, len(classes), codes).astype("<u2")),
        "confidence": _bytes((100 * discovery.confidence[found.rows]).round().astype("u1")),
        "names": [one.name for one in classes],
        "titles": [one.title for one in classes],
        "known": [one.summary.known for one in classes],
        "colours": colours(len(classes)),
        "captions": captions(discovery, found.rows.tolist(), _CAPTION),
        "sheet": None if sheet is None else {**asdict(sheet), "cell": CELL, "columns": COLUMNS},
    }
    return safe_json(facts)


def colours(n: int) -> list[str]:
    """A colour for each class.

    >>> colours(2)
    ['#0072b2', '#e69f00']
    """
    rgb: Any = (palette(n) * 255).round().astype(int)
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in rgb.tolist()]


def safe_json(facts: Any) -> str:
    """JSON that is safe inside an HTML script element.

    >>> safe_json("</script>&")
    '"\\\\u003c/script\\\\u003e\\\\u0026"'
    """
    text = json.dumps(facts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _bytes(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()


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
