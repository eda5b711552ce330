"""Image encoders from an .onnx file, through onnxruntime."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line
from rpim._common.files import must_exist
from rpim.embedding.encoders import Encoder
from rpim.embedding.libraries import library
from rpim.embedding.pictures import Preprocessing
from rpim.embedding.weights import file_hash

_FALLBACK_SIZE = 224


class OnnxEncoder(Encoder):
    """A network that takes pictures and gives an embedding of each.

    Its only input is (n, 3, H, W) or (n, H, W, 3). Of its first output, (n, D) is taken as it is, of (n, tokens, D) the
    first token, and of (n, D, h, w) the mean over h and w.

    Parameters
    ----------
    path : path of the .onnx file
    preprocessing : Preprocessing, optional
        Where left out, ImageNet's mean and deviation, and the size that the file asks for.
    """

    kind = "images"
    weights: str
    prepare: Preprocessing

    def __init__(self, path: Path, preprocessing: Preprocessing | None = None) -> None:
        must_exist(path)
        runtime = library("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        try:
            self._session = runtime.InferenceSession(path, options, providers=runtime.get_available_providers())
        except Exception as error:  # onnxruntime's own, without a common ancestor
            raise InputError(f"{path} is no network that onnxruntime can run ({first_line(error)}).") from error
        shape = self._check_input(path)
        self._channels_last = shape[1] != 3 and shape[3] == 3
        sides = shape[1:3] if self._channels_last else shape[2:]
        asked = sides[0] if isinstance(sides[0], int) and sides[0] > 0 else None
        self.prepare = preprocessing or Preprocessing(size=asked or _FALLBACK_SIZE)
        if asked is not None and self.prepare.size != asked:
            raise InputError(f"{path} takes pictures of {asked} pixels, not of {self.prepare.size}: say nothing of it.")
        self._fixed_batch = shape[0] if isinstance(shape[0], int) else None
        self.name, self.weights, self.weights_hash = path.name, str(path.resolve()), file_hash(path)

    def _check_input(self, path: Path) -> list[Any]:
        inputs = self._session.get_inputs()
        shape = list(inputs[0].shape) if inputs else []
        if len(inputs) != 1 or len(shape) != 4 or 3 not in (shape[1], shape[3]) or inputs[0].type != "tensor(float)":
            given = "; ".join(f"{i.name} {i.shape} {i.type}" for i in inputs)
            raise InputError(f"{path} takes {given}: give a network with one input of floats, (n, 3, H, W).")
        return shape

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """The rows of pictures as `prepare` gives them. (n, D)"""
        mean, std = (
            np.asarray(values, dtype=np.float32)[:, None, None] * 255
            for values in (self.prepare.mean, self.prepare.std)
        )
        pictures = (np.asarray(prepared).astype(np.float32) - mean) / std  # (n, 3, H, W)
        if self._channels_last:
            pictures = np.ascontiguousarray(pictures.transpose(0, 2, 3, 1))
        size = self._fixed_batch or len(pictures)
        blocks = [pictures[start : start + size] for start in range(0, len(pictures), size)]
        return np.concatenate([self._run(block, size) for block in blocks])

    def _run(self, pictures: NDArray[np.float32], size: int) -> NDArray[np.float32]:
        n = len(pictures)
        full = np.pad(pictures, [(0, size - n), (0, 0), (0, 0), (0, 0)]) if n < size else pictures
        try:
            out = np.asarray(self._session.run(None, {self._session.get_inputs()[0].name: full})[0])[:n]
        except Exception as error:
            raise InputError(f"{self.weights} could not be run ({first_line(error)}).") from error
        if out.ndim == 3:
            out = out[:, 0]
        if out.ndim == 4:
            out = out.mean(axis=(2, 3))
        if out.ndim != 2 or len(out) != n:
            raise InputError(f"{self.weights} gives an output of shape {out.shape} for {n} pictures: give an encoder.")
        return out.astype(np.float32)

    def describe(self) -> dict[str, Any]:
        """Preprocessing, and the version of onnxruntime."""
        return {
            "preprocessing": self.prepare.as_dict(),
            "library": f"onnxruntime {importlib.metadata.version('onnxruntime')}",
        }
