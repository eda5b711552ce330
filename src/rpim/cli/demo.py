"""The demo: handwritten digits, of which half are known, and what discovery makes of the others.

The digits are scikit-learn's (1,797 images of 8 x 8 pixels), so it works offline, and the pixels themselves are the
embeddings. 0 to 4 are known, half of their rows labelled; 5 to 9 have no label at all.
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
    """The digits as a discovery problem, the same rows labelled every time; the truth is there for display."""
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
    """The digits to look at, ink on white: of 8 x 8 pixels each, for the report."""
    from sklearn.datasets import load_digits

    return list((255 - load_digits().images * (255 / 16)).round().astype(np.uint8))


@dataclass(frozen=True)
class Meaning:
    """What a new class turns out to be."""

    name: Any
    rows: int
    mostly: Any
    share: float


def meanings(discovery: Discovery, features: FeatureSet) -> list[Meaning]:
    """For each new class with rows the true class that most of its rows have."""
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
    """`meanings` for the terminal."""
    cells = [(str(row.name), f"{row.rows:,}", f"{row.share:.0%}", str(row.mostly)) for row in rows]
    return class_table(("class", "rows", "share", "mostly"), cells)
