"""The feature sets and splits on which accuracy is measured (not shipped: docs/results.md says what they are).

A feature set is an .npz with ``features``, ``labels`` and ``split``. Seed s decides the known classes (where the set
has no published list of them) and which half of their training rows keeps its label.
"""

from __future__ import annotations

import dataclasses
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from rpim import RPIM, Discovery, FeatureSet
from rpim.benchmark.entries import read_splits
from rpim.benchmark.protocol import KNOWN_SHARE, labelled_share, make_case, split_features

DATA_SETS = {
    "banking77": "banking77_minilm",
    "clinc150": "clinc150_minilm",
    "cub200": "cub200_efflite2",
    "cifar100": "cifar100_efflite2",
}
LISTS = {"cub200": "cub", "cifar100": "cifar100"}
"""Those with a published list of known classes, by its name."""
TAILS = {"-longtail5": 5.0, "-longtail": 20.0, "-longtail100": 100.0}
"""A data set's name with one of these behind it: the first class keeps all its rows, the last one part in so many."""
MIN_ROWS = 2
"""No class is thinned below this: one row to label and one to find."""


@dataclass(frozen=True)
class Case:
    """One data set under one seed."""

    X: np.ndarray
    y: np.ndarray  # -1 for unlabelled rows: all that a method sees
    truth: np.ndarray
    known: np.ndarray
    n_classes: int

    @property
    def hidden(self) -> np.ndarray:
        """The rows on which accuracy is measured."""
        return self.y < 0


def load(folder: Path, name: str, seed: int, known_share: float | None = None) -> Case:
    """The training rows of a data set, half of the known classes' rows labelled.

    With a ``known_share`` so many of the classes are known, drawn by the seed, whatever list there is.
    """
    stored, _, _ = name.partition("-")
    parts = split_features(FeatureSet.read(folder / "features" / f"{DATA_SETS[stored]}.npz"))
    if name != stored:
        ratio = TAILS[name.removeprefix(stored)]
        parts = split_features(parts.train.subset(long_tail(parts.truth, len(parts.classes), ratio, seed)))
    listed = LISTS.get(stored)
    split = None
    if listed is not None and known_share is None:
        split = read_splits(folder / "splits" / "class_splits.json").of(listed)
    case = make_case(parts, seed, split, known_share or KNOWN_SHARE)
    return Case(case.features.X, case.y, case.truth, case.known, len(parts.present))


def fit_committee(case: Case, n_members: int) -> Discovery:
    """A committee of this size on a case."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = RPIM(case.n_classes, n_members=n_members, random_state=0).fit(case.X, case.y)
    return Discovery.from_fit(model, FeatureSet.from_arrays(case.X, labels=case.y))


def kept_fit(case: Case, n_members: int, run: Path) -> Discovery:
    """The same; its run folder is kept, and read the next time."""
    if not run.exists():
        run.parent.mkdir(parents=True, exist_ok=True)
        fit_committee(case, n_members).save(run)
    return Discovery.load(run)


def largest_known(case: Case, seed: int) -> Case:
    """The same rows with as many known classes, but the largest ones: what a person would label first."""
    sizes = np.bincount(case.truth)
    known = np.sort(np.argsort(-sizes, kind="stable")[: len(case.known)])
    return dataclasses.replace(case, y=labelled_share(case.truth, known, 0.5, seed), known=known)


def digits(seed: int) -> Case:
    """scikit-learn's digits, for those who have no embeddings at hand: half of the rows of 0 to 4 are labelled."""
    X, truth = load_digits(return_X_y=True)
    random = np.random.RandomState(seed)
    return Case(X, np.where((truth < 5) & (random.rand(len(truth)) < 0.5), truth, -1), truth, np.arange(5), 10)


def long_tail(truth: np.ndarray, n_classes: int, ratio: float, seed: int) -> np.ndarray:
    """Rows such that the classes' sizes fall geometrically, by the ratio from the first to the last."""
    random = np.random.RandomState(seed)
    shares = ratio ** -(random.permutation(n_classes) / (n_classes - 1))
    drawn = [random.permutation(np.flatnonzero(truth == c)) for c in range(n_classes)]
    kept = [rows[: max(MIN_ROWS, round(len(rows) * s))] for rows, s in zip(drawn, shares, strict=True)]
    return np.sort(np.concatenate(kept))
