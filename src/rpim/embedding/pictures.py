"""Read images robustly, and preprocess them for an encoder."""

from __future__ import annotations

import io
import math
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line, short
from rpim.embedding.weights import library

SUFFIXES = frozenset(
    {
        ".avif",
        ".bmp",
        ".gif",
        ".jfif",
        ".jp2",
        ".jpe",
        ".jpeg",
        ".jpg",
        ".pgm",
        ".png",
        ".ppm",
        ".tif",
        ".tiff",
        ".webp",
    }
)

MAX_SIDE = 4096
"""Largest picture that an encoder may ask for, in pixels a side."""
MAX_PIXELS = 89_478_485
"""Pillow's limit for decompression bombs: a quarter of a gigabyte."""


class Unusable(Exception):
    """An item that cannot be embedded; the message is the reason."""


def open_picture(content: Any, at_least: int | None = None) -> Any:
    """The picture in a file, in bytes or in an array, upright and in RGB.

    Parameters
    ----------
    content : Path, bytes, or array of uint8 of shape (H, W, 3) or (H, W)
    at_least : int, optional
        A JPEG may be read at a fraction of its size, as long as no side becomes smaller than this.

    Raises
    ------
    Unusable
        If it is no picture, truncated, or too large to unpack.
    """
    pil = library("PIL.Image")
    if isinstance(content, np.ndarray):
        return pil.fromarray(content).convert("RGB")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its size, which is looked at below, and of odd metadata
            with pil.open(content if isinstance(content, Path) else io.BytesIO(content)) as picture:
                megapixels = picture.width * picture.height / 1e6
                if megapixels > MAX_PIXELS / 1e6:
                    raise Unusable(f"it has {megapixels:.0f} megapixels, and at most {MAX_PIXELS // 10**6} are read")
                if at_least is not None:
                    picture.draft("RGB", (at_least, at_least))
                return _in_rgb(library("PIL.ImageOps").exif_transpose(picture))
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


def _in_rgb(picture: Any) -> Any:
    """In red, green and blue, from CMYK, a palette, greys of 16 bits, or over white where it is transparent."""
    if picture.mode.startswith("I") or picture.mode == "F":  # greys of more than 8 bits, which convert would cut off
        greys = np.asarray(picture, dtype=np.float64)
        largest = 65535.0 if greys.max(initial=0) > 255 else 255.0
        picture = library("PIL.Image").fromarray((greys.clip(0, largest) * (255 / largest)).astype(np.uint8))
    if picture.has_transparency_data:
        picture = picture.convert("RGBA")
        white = library("PIL.Image").new("RGBA", picture.size, (255, 255, 255, 255))
        picture = library("PIL.Image").alpha_composite(white, picture)
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
