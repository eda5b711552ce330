"""Generalized category discovery on embeddings: known classes recognized, new ones found."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rpim._version import __version__

if TYPE_CHECKING:
    from rpim._common.errors import InputError
    from rpim.data.feature_set import FeatureSet
    from rpim.data.row_files import RowFiles
    from rpim.embedding.embed import embed
    from rpim.embedding.finetune import finetune
    from rpim.embedding.sources import read_source
    from rpim.engines.ray import on_ray
    from rpim.estimators import (
        GCD,
        ORCA,
        PIM,
        RIM,
        RPIM,
        TIM,
        UMAPHDBSCAN,
        UNO,
        KMeans,
        RankStats,
        SelfTraining,
        SpreadLabels,
    )
    from rpim.estimators.fitted import gcd_scorer
    from rpim.estimators.objective import InfoMaxObjective
    from rpim.estimators.rpim import estimate_n_classes
    from rpim.explorer.from_python import explore
    from rpim.metrics import expected_calibration_error, gcd_accuracy
    from rpim.report.figures import (
        class_sizes_figure,
        confidence_figure,
        confusion_figure,
        history_figure,
        map_figure,
    )
    from rpim.report.page import write_report
    from rpim.runs.current_version import load_version
    from rpim.runs.discovery import Discovery
    from rpim.runs.hierarchy import Hierarchy
    from rpim.runs.predictor import Predictor
    from rpim.runs.suggestions import Suggestion

__all__ = [
    "GCD",
    "ORCA",
    "PIM",
    "RIM",
    "RPIM",
    "TIM",
    "UMAPHDBSCAN",
    "UNO",
    "Discovery",
    "FeatureSet",
    "Hierarchy",
    "InfoMaxObjective",
    "InputError",
    "KMeans",
    "Predictor",
    "RankStats",
    "RowFiles",
    "SelfTraining",
    "SpreadLabels",
    "Suggestion",
    "__version__",
    "class_sizes_figure",
    "confidence_figure",
    "confusion_figure",
    "embed",
    "estimate_n_classes",
    "expected_calibration_error",
    "explore",
    "finetune",
    "gcd_accuracy",
    "gcd_scorer",
    "history_figure",
    "load_version",
    "map_figure",
    "on_ray",
    "read_source",
    "write_report",
]

# torch takes seconds to import; ``rpim --help`` and the readers do without it.
_MODULES = {
    "_common.errors": ["InputError"],
    "data.feature_set": ["FeatureSet"],
    "data.row_files": ["RowFiles"],
    "embedding.embed": ["embed"],
    "embedding.finetune": ["finetune"],
    "embedding.sources": ["read_source"],
    "engines.ray": ["on_ray"],
    "estimators": [
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
    ],
    "estimators.fitted": ["gcd_scorer"],
    "estimators.rpim": ["estimate_n_classes"],
    "estimators.objective": ["InfoMaxObjective"],
    "explorer.from_python": ["explore"],
    "metrics": ["expected_calibration_error", "gcd_accuracy"],
    "report.figures": [
        "class_sizes_figure",
        "confidence_figure",
        "confusion_figure",
        "history_figure",
        "map_figure",
    ],
    "report.page": ["write_report"],
    "runs.current_version": ["load_version"],
    "runs.discovery": ["Discovery"],
    "runs.hierarchy": ["Hierarchy"],
    "runs.predictor": ["Predictor"],
    "runs.suggestions": ["Suggestion"],
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'rpim' has no attribute {name!r}")
    return getattr(importlib.import_module(f"rpim.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
