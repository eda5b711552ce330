"""The HTML report of a discovery, and plotly figures for notebooks."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rpim.report.figures import (
        class_sizes_figure,
        confidence_figure,
        confusion_figure,
        history_figure,
        map_figure,
    )
    from rpim.report.page import write_report

__all__ = [
    "class_sizes_figure",
    "confidence_figure",
    "confusion_figure",
    "history_figure",
    "map_figure",
    "write_report",
]


def __getattr__(name: str) -> Any:
    # The command line imports this package for its help texts, without torch.
    if name not in __all__:
        raise AttributeError(f"module 'rpim.report' has no attribute {name!r}")
    home = "rpim.report.page" if name == "write_report" else "rpim.report.figures"
    return getattr(importlib.import_module(home), name)
