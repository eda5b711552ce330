"""Generalized category discovery on embeddings: known classes recognised, new ones found."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rpim._version import __version__

if TYPE_CHECKING:
    from rpim.counting import estimate_n_classes
    from rpim.discovery import Discovery
    from rpim.errors import InputError
    from rpim.features import FeatureSet
    from rpim.methods import PIM, RPIM
    from rpim.metrics import gcd_accuracy
    from rpim.prediction import Predictor

__all__ = [
    "PIM", "RPIM", "Discovery", "FeatureSet", "InputError", "Predictor", "__version__", "estimate_n_classes",
    "gcd_accuracy",
]  # fmt: skip

# torch takes seconds to import; ``rpim --help`` and the readers do without it.
_HOMES = {
    "PIM": "rpim.methods", "RPIM": "rpim.methods", "Discovery": "rpim.discovery", "FeatureSet": "rpim.features",
    "InputError": "rpim.errors", "Predictor": "rpim.prediction", "estimate_n_classes": "rpim.counting",
    "gcd_accuracy": "rpim.metrics",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rpim' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
