"""One file per system, or per family of short ones, all with the contract of `DiscoveryEstimator`."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpim.estimators.nearest_centroid import GCD, KMeans
    from rpim.estimators.orca import ORCA
    from rpim.estimators.plain_infomax import PIM, RIM, TIM
    from rpim.estimators.rankstats import RankStats
    from rpim.estimators.rpim import RPIM
    from rpim.estimators.semi_supervised import SelfTraining, SpreadLabels
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

_FILES = {
    **dict.fromkeys(("GCD", "KMeans"), "nearest_centroid"),
    **dict.fromkeys(("PIM", "RIM", "TIM"), "plain_infomax"),
    **dict.fromkeys(("SelfTraining", "SpreadLabels"), "semi_supervised"),
    "UMAPHDBSCAN": "umap_hdbscan",
}


def __getattr__(name: str) -> Any:
    # Importing one method does not load the others.
    if name not in __all__:
        raise AttributeError(f"module 'rpim.estimators' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rpim.estimators.{_FILES.get(name, name.lower())}"), name)
