"""The demo: handwritten digits, half of them known classes, the others to be discovered.

The digits come with scikit-learn (1,797 images of 8 x 8 pixels), so the demo works offline; the pixels are the
embeddings. 0 to 4 are known classes with half of their rows labelled; 5 to 9 have no labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from rpim.cli.summary import class_table
from rpim.data.feature_set import FeatureSet
from rpim.runs.discovery import Discovery

N_CLASSES = 10
N_KNOWN = 5
SOURCE = "scikit-learn's digits"
_WORDS = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
_SPLIT_SEED = 0


def digits() -> FeatureSet:
    """The digits as a discovery problem; the same rows are labelled every time, and the truth is for display only."""
    from sklearn.datasets import load_digits

    images = load_digits()
    truth = _WORDS[images.target]
    of_known = np.random.RandomState(_SPLIT_SEED).permutation(np.flatnonzero(images.target < N_KNOWN))
    labelled = np.isin(np.arange(len(truth)), of_known[: len(of_known) // 2])
    return FeatureSet.from_arrays(
        images.data.astype(np.float32),
        labels=np.where(labelled, truth, ""),
        truth=truth,
        metadata={"source": SOURCE},
    )


def pictures() -> list[NDArray[np.uint8]]:
    """The images of the digits for the report: ink on white, 8 x 8 pixels."""
    from sklearn.datasets import load_digits

    return list((255 - load_digits().images * (255 / 16)).round().astype(np.uint8))


@dataclass(frozen=True)
class Meaning:
    """A new class and its majority true class."""

    name: Any
    rows: int
    mostly: Any
    share: float


def meanings(discovery: Discovery, features: FeatureSet) -> list[Meaning]:
    """The majority true class of each non-empty new class."""
    truth = np.asarray(features.truth)
    found = []
    for row in discovery.classes_table():
        if row.known or not row.rows:
            continue
        names, counts = np.unique(truth[discovery.labels == row.name], return_counts=True)
        best = int(counts.argmax())
        found.append(Meaning(row.name, row.rows, names[best].item(), float(counts[best] / row.rows)))
    return found


def meanings_table(rows: list[Meaning]) -> Table:
    """`meanings` as a table for the terminal."""
    cells = [(str(row.name), f"{row.rows:,}", f"{row.share:.0%}", str(row.mostly)) for row in rows]
    return class_table(("class", "rows", "share", "mostly"), cells)
