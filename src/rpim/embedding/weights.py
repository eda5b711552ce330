"""Optional libraries and weights of encoders: imported when needed, identified by hash, loaded without running code."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import os
import pickle
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from rpim._common.errors import InputError, first_line
from rpim._common.files import must_exist

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
        # onnxruntime would send what it knows of a model to its makers, and store an id of the machine in the home.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
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


class Bundled(NamedTuple):
    """An installed package that carries weights, and their SHA-256."""

    package: str
    sha256: str

    def folder(self) -> Path | None:
        """The folder of the package, if it is installed; it is not imported."""
        found = importlib.util.find_spec(self.package)
        return None if found is None or found.origin is None else Path(found.origin).parent

    def check(self, sha256: str) -> None:
        """Raise if the package holds other weights."""
        if sha256 != self.sha256:
            name = self.package.replace("_", "-")
            raise InputError(
                f"The installed package {name} holds other weights than it was published with: remove it with "
                f"pip uninstall {name}, and install it again."
            )


WEIGHTS = "model.safetensors"
_PROXIES = ("https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


def in_cache(repository: str) -> Path | None:
    """The file with the weights of a repository of the Hugging Face hub, if it was downloaded before."""
    import huggingface_hub as hub

    found = hub.try_to_load_from_cache(repository, WEIGHTS)
    return Path(found) if isinstance(found, str) else None


def without_hub(installed: Path | None, name: str, extra: str) -> str:
    """How to embed without the hub: with the bundled encoder of that name, which may have to be installed."""
    if installed is not None:
        return f", or leave out --encoder to use {name}, which is installed"
    return f", or pip install 'rpim[{extra}]' for an encoder that needs no hub"


def from_hub(repository: str, what: str, hint: str = "") -> Path:
    """The file with the weights of a repository of the Hugging Face hub: from its cache, else downloaded.

    `hint` says what else to do without the hub.

    Raises
    ------
    InputError
        If it is not in the cache and the hub cannot be reached, or does not have it.
    """
    import huggingface_hub as hub

    found = in_cache(repository)
    if found is not None:
        return found
    if not hub_is_reachable():
        raise InputError(
            f"The weights of {what} are not on this machine and {hub_host()} cannot be reached: bring "
            f"model.safetensors of {repository} from a machine with a network, and give --weights FILE{hint}."
        )
    try:
        return Path(hub.hf_hub_download(repository, WEIGHTS))
    except (OSError, hub.errors.HfHubHTTPError, hub.errors.EntryNotFoundError) as error:
        raise InputError(
            f"The weights of {what} could not be fetched from {repository} ({first_line(error)}): bring its {WEIGHTS}, "
            "and give --weights FILE."
        ) from error


def hub_host() -> str:
    """The host of the Hugging Face hub, or of the mirror that HF_ENDPOINT names."""
    return urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname or "huggingface.co"


@functools.cache
def hub_is_reachable() -> bool:
    """Whether the hub can be reached; its own library would retry for a minute."""
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "TRUE", "YES", "ON"):
        return False
    if any(os.environ.get(name) for name in _PROXIES):
        return True
    try:
        with socket.create_connection((hub_host(), 443), timeout=5):
            return True
    except OSError:
        return False


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_hash(name: str, found: str, expected: str | None) -> None:
    """Raise if the weights of an encoder are not the expected ones."""
    if expected is not None and found != expected:
        raise InputError(f"The weights of {name} differ from those of the run: give the original ones with --weights.")


def tensors_hash(tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of tensors by their names: the same whatever file they came from."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        values = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def load_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a .safetensors file, or of a .pth, .pt or .bin that holds nothing but tensors.

    What wraps them in checkpoints, such as ``{"state_dict": …}`` and the prefix ``module.``, is taken off.

    Raises
    ------
    InputError
        If it is of another kind, damaged, or holds more than tensors.
    """
    must_exist(path)
    suffix = path.suffix.lower()
    if suffix not in (".safetensors", ".pth", ".pt", ".bin"):
        raise InputError(
            f"{path} has the suffix {path.suffix!r}, which cannot be read as weights: give .safetensors or .pth."
        )
    try:
        if suffix == ".safetensors":
            return load_file(path)
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path} is no checkpoint, or holds more than tensors, and is not loaded: save it as .safetensors."
        ) from error
    except (SafetensorError, RuntimeError, OSError, ValueError, EOFError, KeyError) as error:
        raise InputError(f"{path} is truncated or damaged ({first_line(error)}): fetch it again.") from error
    return _unwrapped(path, loaded)


def _unwrapped(path: Path, loaded: Any) -> dict[str, Tensor]:
    for key in ("state_dict", "model", "teacher"):
        if isinstance(loaded, dict) and isinstance(loaded.get(key), dict):
            loaded = loaded[key]
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise InputError(f"{path} holds no table of tensors: give the weights alone, by their names.")
    for prefix in ("module.", "backbone."):
        inside = {name[len(prefix) :]: value for name, value in loaded.items() if name.startswith(prefix)}
        loaded = inside or loaded
    tensors: dict[str, Tensor] = loaded
    return tensors
