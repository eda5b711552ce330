"""A PNG from pixels, by its specification (ISO/IEC 15948) and without a library: the page has few and small ones."""

from __future__ import annotations

import struct
import zlib

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
