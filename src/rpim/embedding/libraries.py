"""Optional libraries of the encoders: imported lazily, with one sentence if they are not installed."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from rpim._common.errors import InputError

EXTRAS = {
    "PIL": "images",
    "timm": "images",
    "onnxruntime": "onnx",
    "sentence_transformers": "text",
    "transformers": "text",
}
"""The extra that installs each library."""


def library(name: str) -> Any:
    """Import an optional library; the error says how to install it."""
    top = name.partition(".")[0]
    try:
        if top in ("timm", "sentence_transformers"):
            _declare_torchvision()
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != top:
            raise
        raise InputError(f"This needs {top}, which is not installed: pip install 'rpim[{EXTRAS[top]}]'.") from error


@functools.cache
def _declare_torchvision() -> Any:
    """Let a torchvision without its compiled operators be imported, as timm and transformers do.

    The torchvision of PyPI for Linux is compiled for CUDA, and beside a torch without CUDA its operators cannot be
    loaded. It goes without them, but for two of which it describes the result while it is imported, and torch refuses
    a description of what it has never heard of. No encoder calls them, so their names are enough.
    """
    try:
        importlib.import_module("torchvision")
        return None
    except ModuleNotFoundError:
        return None
    except RuntimeError:
        operators = importlib.import_module("torch.library").Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return operators  # kept by the cache: they are gone with it
