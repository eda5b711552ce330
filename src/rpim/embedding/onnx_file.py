"""Image encoders in .onnx files, through onnxruntime."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line
from rpim._common.files import must_exist
from rpim.embedding.encoders import Encoder
from rpim.embedding.pictures import Preprocessing
from rpim.embedding.weights import check_hash, file_hash, library

_FALLBACK_SIZE = 224
_PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")
"""Those that compute the network of the file, and load nothing that the file names."""


class OnnxEncoder(Encoder):
    """A network that takes pictures and gives an embedding of each.

    Its only input is (n, 3, H, W) or (n, H, W, 3). Of its first output, (n, D) is taken as it is, of (n, tokens, D) the
    first token, and of (n, D, h, w) the mean over h and w.

    Parameters
    ----------
    path : path of the .onnx file
    preprocessing : Preprocessing, optional
        Where left out, ImageNet's mean and deviation, and the size that the file asks for.
    sha256 : str, optional
        The expected hash of the file, and of those beside it that hold its weights; checked before it is loaded.
    """

    kind = "images"
    weights: str
    prepare: Preprocessing

    def __init__(self, path: Path, preprocessing: Preprocessing | None = None, sha256: str | None = None) -> None:
        must_exist(path)
        content = path.read_bytes()
        beside = _files_beside(path, content)
        digest = hashlib.sha256(content)
        for file in beside:
            digest.update(file_hash(file).encode())
        self.name, self.weights, self.weights_hash = path.name, str(path.resolve()), digest.hexdigest()
        check_hash(self.name, self.weights_hash, sha256)
        runtime = library("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
        try:
            self._session = runtime.InferenceSession(
                path if beside else content,
                options,
                providers=[one for one in _PROVIDERS if one in runtime.get_available_providers()],
            )
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


_MESSAGES: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse tensor"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse tensor", 23: "sparse tensor"},
    "sparse tensor": {1: "tensor", 2: "tensor"},
}
"""Of the messages of ONNX that may hold a tensor, the fields that lead to it."""
_EXTERNAL_DATA = 13  # the field of a tensor: entries with a key and a value


def _files_beside(path: Path, content: bytes) -> list[Path]:
    """The files beside a network that hold some of its weights, as torch.onnx.export writes them.

    Raises
    ------
    InputError
        If the network is damaged, or names a file anywhere else: it could be any file of this machine.
    """
    try:
        names = sorted(set(_locations(memoryview(content), "model")))
    except (IndexError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is no network that onnxruntime can run (it is damaged): write it again.") from error
    for name in names:
        beside = path.parent / name
        if name in ("", ".", "..") or "/" in name or "\\" in name or beside.is_symlink() or not beside.is_file():
            raise InputError(
                f"{path} has weights in {name!r}, which is no file beside it and is not opened: write it as one file, "
                "with torch.onnx.export and external_data=False."
            )
    return [path.parent / name for name in names]


def _locations(message: memoryview, kind: str) -> Iterator[str]:
    """The files that tensors within a message of this kind name."""
    for field, value in _fields(message):
        if not isinstance(value, memoryview):
            continue
        if kind == "tensor" and field == _EXTERNAL_DATA:
            entry = [(number, bytes(text).decode()) for number, text in _fields(value) if isinstance(text, memoryview)]
            if (1, "location") in entry:
                yield from (text for number, text in entry if number == 2)
        elif field in _MESSAGES.get(kind, {}):
            yield from _locations(value, _MESSAGES[kind][field])


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message of Protocol Buffers: numbers and values."""
    place = 0
    while place < len(message):
        key, place = _varint(message, place)
        field, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _varint(message, place)
            yield field, value
            continue
        if wire == 2:
            size, place = _varint(message, place)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if place + size > len(message):
            raise ValueError("truncated")
        yield field, message[place : place + size]
        place += size


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """A number of variable length, and the place after it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise ValueError("a number of more than ten bytes")
