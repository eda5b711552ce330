"""Read images robustly, and preprocess them for an encoder."""

from __future__ import annotations

import functools
import io
import math
import stat
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line, short
from rpim.embedding.weights import library

FORMATS = {
    ".avif": "AVIF",
    ".bmp": "BMP",
    ".gif": "GIF",
    ".jfif": "JPEG",
    ".jp2": "JPEG2000",
    ".jpe": "JPEG",
    ".jpeg": "JPEG",
    ".jpg": "JPEG",
    ".pgm": "PPM",
    ".png": "PNG",
    ".ppm": "PPM",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".webp": "WEBP",
}
"""Suffix -> Pillow's name of the format. Its other formats are not opened: one of them starts Ghostscript."""

MAX_SIDE = 4096
"""Largest picture that an encoder may ask for, in pixels a side."""
MAX_PIXELS = 89_478_485
"""Pillow's limit for decompression bombs: a quarter of a gigabyte."""
MAX_RESIZED = 16_000_000
"""Limit of a resized picture in pixels; of a longer one only the middle is computed."""
_BAND = 1_000_000
"""Pixels that are converted at once."""


class Unusable(Exception):
    """An item that cannot be embedded; the message is the reason."""


def open_picture(content: Any, at_least: int | None = None) -> Any:
    """The picture in a file, in bytes or in an array, upright and in RGB.

    Parameters
    ----------
    content : Path, bytes, or array of uint8 of shape (H, W, 3) or (H, W)
        A file or bytes in one of `FORMATS`, whatever the suffix.
    at_least : int, optional
        A JPEG may be read at a fraction of its size, as long as no side becomes smaller than this.

    Raises
    ------
    Unusable
        If it is no picture, no regular file, truncated, or too large to unpack.
    """
    pil = library("PIL.Image")
    if isinstance(content, np.ndarray):
        return pil.fromarray(content).convert("RGB")
    try:
        if isinstance(content, Path) and not stat.S_ISREG(content.stat().st_mode):
            raise Unusable("it is no regular file")  # opening a pipe would wait for ever
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its size, which is looked at below, and of odd metadata
            with pil.open(content if isinstance(content, Path) else io.BytesIO(content), formats=_formats()) as picture:
                megapixels = picture.width * picture.height / 1e6
                if megapixels > MAX_PIXELS / 1e6:
                    raise Unusable(f"it has {megapixels:.0f} megapixels, and at most {MAX_PIXELS // 10**6} are read")
                if at_least is not None:
                    picture.draft("RGB", (at_least, at_least))
                library("PIL.ImageOps").exif_transpose(picture, in_place=True)
                return _in_rgb(picture)
    except Unusable:
        raise
    except pil.DecompressionBombError as error:
        raise Unusable(f"it has more than {MAX_PIXELS // 10**6} megapixels") from error
    except pil.UnidentifiedImageError as error:
        raise Unusable("it is no picture") from error
    # The readers of Pillow's many formats raise what they meet: OSError, SyntaxError, struct.error, ValueError, ...
    except Exception as error:
        raise Unusable(first_line(error)) from error


def small_jpeg(content: Any, size: int, quality: int = 80) -> bytes:
    """A JPEG of a picture, no larger than `size` pixels; raises `Unusable` as `open_picture` does."""
    picture = open_picture(content, size)
    picture.thumbnail((size, size))
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=quality)
    return out.getvalue()


@functools.cache
def _formats() -> list[str]:
    """Those of `FORMATS` that the installed Pillow can read."""
    pil = library("PIL.Image")
    pil.init()
    return sorted(set(FORMATS.values()) & set(pil.OPEN))


def _in_rgb(picture: Any) -> Any:
    """In red, green and blue, from CMYK, a palette, greys of 16 bits, or over white where it is transparent.

    It is converted in bands of rows: some conversions take many bytes a pixel.
    """
    picture.load()
    if picture.mode == "RGB" and not picture.has_transparency_data:
        return picture
    largest = 255.0
    if _is_deep(picture):
        largest = 65535.0 if picture.getextrema()[1] > 255 else 255.0
    out = library("PIL.Image").new("RGB", picture.size)
    rows = max(1, _BAND // picture.width)
    for top in range(0, picture.height, rows):
        band = picture.crop((0, top, picture.width, min(top + rows, picture.height)))
        out.paste(_band_in_rgb(band, largest), (0, top))
    return out


def _is_deep(picture: Any) -> bool:
    """Whether it has greys of more than 8 bits, which Pillow's conversion would cut off."""
    return bool(picture.mode.startswith("I") or picture.mode == "F")


def _band_in_rgb(picture: Any, largest: float) -> Any:
    pil = library("PIL.Image")
    if _is_deep(picture):
        greys = np.nan_to_num(np.asarray(picture, dtype=np.float64))
        picture = pil.fromarray((greys.clip(0, largest) * (255 / largest)).astype(np.uint8))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = pil.alpha_composite(pil.new("RGBA", picture.size, (255, 255, 255, 255)), picture)
    return picture.convert("RGB")


@dataclass(frozen=True)
class Preprocessing:
    """From a picture to what an encoder takes.

    Parameters
    ----------
    size : int
        The side of the square that is cut out of the middle, in pixels.
    crop : float
        The part of the shorter side that this is.
    interpolation : "bicubic" or "bilinear"
    mean, std : three numbers
        What each channel, from 0 to 1, is shifted and divided by.
    """

    size: int = 224
    crop: float = 0.875
    interpolation: str = "bicubic"
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)

    def as_dict(self) -> dict[str, Any]:
        """JSON-serializable."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, facts: Any) -> Preprocessing:
        """What `as_dict` gave.

        Raises
        ------
        InputError
            If it is something else.
        """
        try:
            plain: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in facts.items()}
            made = cls(**plain)
            colours = np.array([made.mean, made.std], dtype=np.float64)  # (2, 3)
            good = (
                isinstance(made.size, int)
                and 1 <= made.size <= MAX_SIDE
                and made.size / MAX_SIDE <= made.crop <= 1
                and colours.shape == (2, 3)
                and bool(np.isfinite(colours).all())
                and bool((colours[1] > 0).all())
            )
        except (AttributeError, TypeError, ValueError):
            good = False
        if not good:
            raise InputError(f"The preprocessing of the encoder is {short(facts, 80)}, which is none: embed again.")
        return made

    def __call__(self, content: Any) -> NDArray[np.uint8]:
        """The middle of a picture, to be normalized. (3, size, size)"""
        shorter = math.floor(self.size / self.crop)
        picture = open_picture(content, 2 * shorter)
        scale = shorter / min(picture.size)
        wide, high = (shorter if side == min(picture.size) else int(scale * side) for side in picture.size)
        if wide * high > MAX_RESIZED:
            middle = [side / 2 for side in picture.size]
            reach = self.size / scale / 2
            box = tuple(max(0.0, centre - reach) for centre in middle) + tuple(centre + reach for centre in middle)
            return _pixels(picture.resize((self.size, self.size), self._filter(), box=box))
        picture = picture.resize((wide, high), self._filter())
        left, top = round((wide - self.size) / 2), round((high - self.size) / 2)
        return _pixels(picture.crop((left, top, left + self.size, top + self.size)))

    def augmented(self, content: Any, rng: np.random.Generator) -> NDArray[np.uint8]:
        """A view of a picture: a part of it, mirrored or not, in other light. (3, size, size)"""
        return _pixels(augment(open_picture(content), self.size, self._filter(), rng))

    def _filter(self) -> int:
        pil = library("PIL.Image")
        return int({"bilinear": pil.Resampling.BILINEAR}.get(self.interpolation, pil.Resampling.BICUBIC))


def augment(picture: Any, size: int, resampling: int, rng: np.random.Generator) -> Any:
    """A random part of the picture, mirrored half of the time, with brightness, contrast and colour a little off.

    The part has 0.3 to 1 of the area and sides of 3:4 to 4:3, as in most contrastive training of image encoders.
    """
    area = picture.width * picture.height * rng.uniform(0.3, 1.0)
    ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
    wide, high = min(picture.width, math.sqrt(area * ratio)), min(picture.height, math.sqrt(area / ratio))
    left, top = rng.uniform(0, picture.width - wide), rng.uniform(0, picture.height - high)
    view = picture.resize((size, size), resampling, box=(left, top, left + wide, top + high))
    if rng.random() < 0.5:
        view = library("PIL.ImageOps").mirror(view)
    enhance = library("PIL.ImageEnhance")
    for change in (enhance.Brightness, enhance.Contrast, enhance.Color):
        view = change(view).enhance(rng.uniform(0.8, 1.2))
    return view


def _pixels(picture: Any) -> NDArray[np.uint8]:
    return np.ascontiguousarray(np.asarray(picture, dtype=np.uint8).transpose(2, 0, 1))
