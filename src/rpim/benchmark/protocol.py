"""From a feature set and a seed to the problem that every method gets to see, and the truth that none of them does.

Where the rows all have a class, the seed hides some of it: the known classes are a given list, or the first half of
``RandomState(seed).permutation`` of the sorted classes; of each known class in ascending order ``RandomState(seed)``
(one generator for all classes) permutes the rows in file order, and the first ``round(n / 2)`` keep their label. A
feature set that comes with labels for some of its rows is used as it is, whatever the seed.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim.benchmark.splits import Split
from rpim.errors import InputError
from rpim.features import FeatureSet
from rpim.labels import UNLABELLED, BoolArray, IntArray, unlabelled_rows
from rpim.messages import some, some_rows

KNOWN_SHARE = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One feature set under one seed. Classes are numbers: their places among the sorted classes of the set."""

    features: FeatureSet
    y: IntArray  # (N,), -1 for unlabelled rows: all that a method sees
    truth: IntArray  # (N,), -1 where nobody knows
    known: IntArray
    n_classes: int | None
    """How many classes there are in all; None where the truth of some row is missing, so that nobody can say."""

    @property
    def hidden(self) -> BoolArray:
        """The rows without a label."""
        return self.y < 0

    @property
    def evaluated(self) -> BoolArray:
        """The rows on which accuracy is measured: without a label, but with a truth."""
        return self.hidden & (self.truth >= 0)

    def fingerprint(self, of_features: str) -> str:
        """SHA-256 of all that decides a result, given that of the features."""
        digest = hashlib.sha256(f"rpim benchmark 1: {of_features} {self.n_classes}\n".encode())
        for codes in (self.y, self.truth, self.known):
            digest.update(np.ascontiguousarray(codes, dtype="<i8").data)
        return digest.hexdigest()


def features_fingerprint(features: FeatureSet) -> str:
    """That of the features and of their further views, which some methods look at."""
    views = (dataclasses.replace(features, X=view) for view in features.views)
    return " ".join(part.fingerprint() for part in (features, *views))


def has_labels_of_its_own(features: FeatureSet) -> bool:
    """Whether some rows have a label and some have none, so that there is nothing left to draw."""
    return 0 < features.n_labelled < len(features)


def make_case(features: FeatureSet, seed: int, split: Split | None = None, known_share: float = KNOWN_SHARE) -> Case:
    """The problem of this feature set under this seed.

    Parameters
    ----------
    features : FeatureSet
        With labels for all rows, or a truth, or labels for some rows.
    seed : int
        Decides the known classes, where no list gives them, and the rows that keep their label.
    split : Split, optional
        The known classes.
    known_share : float
        The share of classes that are known, where no list gives them.

    Examples
    --------
    >>> features = FeatureSet.from_arrays(np.eye(8), labels=list("aabbccdd"))
    >>> case = make_case(features, seed=0)
    >>> case.known.tolist(), case.y.tolist(), case.n_classes
    ([2, 3], [-1, -1, -1, -1, -1, 2, 3, -1], 4)
    """
    truth, classes = _classes(features)
    if has_labels_of_its_own(features):
        y: IntArray = np.where(features.labelled, truth, UNLABELLED)
        known = np.unique(y[features.labelled])
        if split is not None and not set(known.tolist()) <= set(_listed(split, classes).tolist()):
            raise InputError("its labelled rows are of classes that the split list does not call known: use one only.")
    else:
        known = _known_classes(classes, seed, known_share) if split is None else _listed(split, classes)
        y = _labelled_half(truth, known, seed)
    if len(known) < 2:
        raise InputError(f"{len(known)} of its {len(classes)} classes would be known, and a method needs two.")
    if not (y < 0).any():
        raise InputError("every row would be labelled, so there is nothing to discover.")
    return Case(features, y, truth, known, len(classes) if (truth >= 0).all() else None)


def _classes(features: FeatureSet) -> tuple[IntArray, NDArray[Any]]:
    """The number of each row's class, -1 where neither label nor truth says it, and the sorted classes."""
    labelled = features.labelled
    values = features.labels if features.truth is None else features.truth
    if values is None:
        raise InputError("it has neither labels nor truth: give labels for some rows at least.")
    told: BoolArray = ~unlabelled_rows(values)
    if features.labels is not None and features.truth is not None and labelled.any():
        if (features.labels.dtype.kind == "U") != (features.truth.dtype.kind == "U"):
            raise InputError("its labels are text and its truth is numbers, or the reverse: give both alike.")
        wrong = np.flatnonzero(labelled & told & (features.labels != features.truth))
        if wrong.size:
            raise InputError(f"labels and truth disagree in {some_rows(wrong.tolist())}: mend one of them.")
        values, told = np.where(labelled, features.labels, features.truth), told | labelled
    if not told.any():
        raise InputError("it has neither labels nor truth: give labels for some rows at least.")
    classes, numbers = np.unique(values[told], return_inverse=True)
    codes = np.full(len(features), UNLABELLED, dtype=np.int64)
    codes[told] = numbers
    return codes, classes


def _known_classes(classes: NDArray[Any], seed: int, share: float) -> IntArray:
    n = len(classes)
    n_known = min(math.floor(share * n + 1e-9), n - 1)
    return np.sort(np.random.RandomState(seed).permutation(n)[:n_known])


def _labelled_half(truth: IntArray, known: IntArray, seed: int) -> IntArray:
    random = np.random.RandomState(seed)
    y = np.full(len(truth), UNLABELLED, dtype=np.int64)
    for c in known:
        rows = random.permutation(np.flatnonzero(truth == c))
        y[rows[: round(len(rows) / 2)]] = c
    return y


def _listed(split: Split, classes: NDArray[Any]) -> IntArray:
    """The numbers of the classes that the list calls known."""
    known = _numbers(split.known, classes)
    if split.unknown is not None:
        in_neither = sorted(set(range(len(classes))) - set(known) - set(_numbers(split.unknown, classes)))
        if in_neither:
            raise InputError(
                f"its class {some(classes[in_neither].tolist())} is called neither known nor unknown in the split "
                "list: give the list of this set."
            )
    return np.asarray(sorted(known), dtype=np.int64)


def _numbers(listed: Sequence[int | str], classes: NDArray[Any]) -> list[int]:
    place = {str(name) if isinstance(name, str) else name: k for k, name in enumerate(classes.tolist())}
    as_text = classes.dtype.kind == "U"
    strange = [name for name in listed if (str(name) if as_text else name) not in place]
    if strange:
        raise InputError(
            f"the split list has classes that the set has not ({some(strange)}): give the list of this set."
        )
    return [place[str(name) if as_text else name] for name in listed]
