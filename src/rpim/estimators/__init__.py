"""One file per system, all with the contract of `DiscoveryEstimator`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpim.estimators.gcd import GCD
    from rpim.estimators.kmeans import KMeans
    from rpim.estimators.label_spreading import SpreadLabels
    from rpim.estimators.orca import ORCA
    from rpim.estimators.pim import PIM
    from rpim.estimators.rankstats import RankStats
    from rpim.estimators.rim import RIM
    from rpim.estimators.rpim import RPIM
    from rpim.estimators.self_training import SelfTraining
    from rpim.estimators.tim import TIM
    from rpim.estimators.umap_hdbscan import UMAPHDBSCAN
    from rpim.estimators.uno import UNO

__all__ = [
    "GCD",
    "ORCA",
    "PIM",
    "RIM",
    "RPIM",
    "TIM",
    "UMAPHDBSCAN",
    "UNO",
    "KMeans",
    "RankStats",
    "SelfTraining",
    "SpreadLabels",
]

_FILES = {"SelfTraining": "self_training", "SpreadLabels": "label_spreading", "UMAPHDBSCAN": "umap_hdbscan"}


def __getattr__(name: str) -> Any:
    # Importing one method does not load the others.
    if name not in __all__:
        raise AttributeError(f"module 'rpim.estimators' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rpim.estimators.{_FILES.get(name, name.lower())}"), name)
