"""As many colours as there are classes, as far apart as they can be for people with any colour vision.

The first are those of M. Okabe and K. Ito (2008) that stand out on white. Further ones are chosen one by one, each the
farthest from those before it, in OKLab (B. Ottosson, 2020), where distance is about what the eye sees. The distance
counted is the mean of two: as seen by most people, and the smaller of those seen without the red or without the green
cones (simulated as by Machado, Oliveira and Fernandes, 2009).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
_WITHOUT_RED = np.array(
    [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
)
_WITHOUT_GREEN = np.array(
    [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
)

_FIRST = np.array([[0, 114, 178], [230, 159, 0], [0, 158, 115], [204, 121, 167], [86, 180, 233], [213, 94, 0]]) / 255
_LIGHTNESS = (0.35, 0.78)  # of OKLab: dark enough to stand on white, light enough not to be black


def palette(n: int) -> Array:
    """`n` colours as red, green and blue between 0 and 1; the first ones are always the same. (n, 3)"""
    linear = np.vstack([_linear(_FIRST), _candidates()])
    seen = [_lab(linear @ vision.T) for vision in (np.eye(3), _WITHOUT_RED, _WITHOUT_GREEN)]
    chosen: list[int] = []
    nearest = np.full(len(linear), np.inf)
    while len(chosen) < n:
        chosen.append(len(chosen) if len(chosen) < len(_FIRST) else int(nearest.argmax()))
        usual, *others = (np.linalg.norm(lab - lab[chosen[-1]], axis=1) for lab in seen)
        nearest = np.minimum(nearest, (usual + np.minimum(*others)) / 2)
    return _srgb(linear[chosen])


def _candidates() -> Array:
    """A grid of colours, linear in light, neither too dark nor too light nor grey."""
    steps = np.linspace(0.0, 1.0, 22)
    grid = np.stack(np.meshgrid(steps, steps, steps, indexing="ij"), axis=-1).reshape(-1, 3)
    linear = _linear(grid)
    lab = _lab(linear)
    light, colourful = lab[:, 0], np.hypot(lab[:, 1], lab[:, 2]) > 0.08
    return linear[(light > _LIGHTNESS[0]) & (light < _LIGHTNESS[1]) & colourful]


def _linear(srgb: Array) -> Array:
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def _lab(linear: Array) -> Array:
    lab: Array = np.cbrt(linear.clip(0.0, 1.0) @ _TO_CONES.T) @ _TO_LAB.T
    return lab


def _srgb(linear: Array) -> Array:
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
