"""Tensors and facts about them as one .safetensors file: no pickle, and every number comes back bit for bit."""

from __future__ import annotations

import json
from typing import Any

from torch import Tensor


def pack(tensors: dict[str, Tensor], facts: Any) -> bytes:
    """A .safetensors file with JSON-able facts in its header.

    >>> import torch
    >>> tensors, facts = unpack(pack({"w": torch.ones(2)}, {"steps": 3, "loss": float("nan")}))
    >>> tensors["w"].tolist(), facts
    ([1.0, 1.0], {'steps': 3, 'loss': nan})
    """
    from safetensors.torch import save

    return save(
        {name: value.detach().cpu().contiguous() for name, value in tensors.items()}, {"facts": json.dumps(facts)}
    )


def unpack(data: bytes) -> tuple[dict[str, Tensor], Any]:
    """What `pack` was given; raises ValueError where it is damaged."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        return load(data), json.loads(header["__metadata__"]["facts"])
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"not written by this program ({error})") from error
