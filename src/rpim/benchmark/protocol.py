"""From a feature set and a seed to the problem that the methods see, and the hidden true classes.

If all rows have a class, the seed hides some of them: the known classes are a given list, or the first half of
``RandomState(seed).permutation`` of the sorted classes; of each known class in ascending order ``RandomState(seed)``
(one generator for all classes) permutes the rows in file order, and the first ``round(n / 2)`` keep their label. GCD's
code draws half of the rows of all known classes together, with numpy's seed 0 whatever the seed of the run: classes
then differ in their share of labels, and all runs have the same labels (``labelled_half="gcd"``). A partly labelled
feature set is used as it is, regardless of the seed.

If a set has a ``split``, this applies to the rows of "train"; rows of "test" are predicted afterwards, and other rows
are not used.

In the protocol of new-intent discovery 25, 50 or 75 % of the classes are known, and a tenth of their training rows are
labelled. Where lists are given, they say which classes and rows these are. Where not, the seed does: the known classes
are the first ``round(share * n)`` of ``RandomState(seed).permutation`` of the n sorted classes; of each known class in
ascending order ``RandomState(seed)`` (one generator for all classes) permutes the training rows in file order, and the
first ``max(1, round(n / 10))`` keep their label. Methods are trained on the training rows, labelled or not, and
measured on the test rows; development rows are not used.

A file of lists is JSON: ``{"0.25": {"seed0": {"known": [classes], "labelled": [rows]}, ...}, ...}``, rows by their
number in the whole feature set from zero on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, some, some_rows
from rpim._common.files import must_exist, reading
from rpim.benchmark.entries import Split
from rpim.benchmark.results import published_name
from rpim.data.feature_set import FeatureSet
from rpim.data.labels import UNLABELLED, BoolArray, IntArray, unlabelled_rows

KNOWN_SHARE = 0.5
HALVES = ("per-class", "gcd")
TRAIN, TEST = "train", "test"


@dataclasses.dataclass(frozen=True, eq=False)
class Unseen:
    """Test rows, for prediction only."""

    features: FeatureSet
    truth: IntArray  # (M,), never -1


@dataclasses.dataclass(frozen=True, eq=False)
class Case:
    """One feature set under one seed. Classes are indices into the sorted classes of the set."""

    features: FeatureSet
    y: IntArray  # (N,), -1 for unlabelled rows: all that a method sees
    truth: IntArray  # (N,), -1 if unknown
    known: IntArray
    n_classes: int | None
    """Number of classes; None if the true class of some row is missing."""
    test: Unseen | None = None
    unused: int = 0
    """Number of unused rows."""

    @property
    def hidden(self) -> BoolArray:
        """The unlabelled rows."""
        return self.y < 0

    @property
    def evaluated(self) -> BoolArray:
        """The evaluated rows: unlabelled, with a true class."""
        return self.hidden & (self.truth >= 0)

    def fingerprint(self, of_features: str) -> str:
        """SHA-256 of all that decides a result, given that of the features."""
        digest = hashlib.sha256(f"rpim benchmark 1: {of_features} {self.n_classes}\n".encode())
        for codes in (self.y, self.truth, self.known, *([] if self.test is None else [self.test.truth])):
            digest.update(np.ascontiguousarray(codes, dtype="<i8").data)
        return digest.hexdigest()


@dataclasses.dataclass(frozen=True, eq=False)
class SplitFeatures:
    """A feature set split into training, test and unused rows, with class codes."""

    train: FeatureSet
    rows: IntArray  # (N,), where those are in the whole set
    truth: IntArray  # (N,), -1 if unknown
    classes: NDArray[Any]  # of the whole set, sorted; the codes are places in it
    test: Unseen | None
    unused: int

    @property
    def present(self) -> IntArray:
        """The classes that are there to be discovered: those of the training rows."""
        return np.unique(self.truth[self.truth >= 0])

    def case(self, y: IntArray, known: IntArray) -> Case:
        """The problem in which the rows have these labels."""
        if len(known) < 2:
            n = len(self.present)
            raise InputError(f"{len(known)} of its {n} classes would be known, and a method needs two.")
        if not (y < 0).any():
            raise InputError("every row would be labelled, so there is nothing to discover.")
        n_classes = len(self.present) if (self.truth >= 0).all() else None
        return Case(self.train, y, self.truth, known, n_classes, self.test, self.unused)

    def fingerprint(self) -> str:
        """That of the features that are used, of the training rows with their further views."""
        views = (dataclasses.replace(self.train, X=view) for view in self.train.views)
        test = () if self.test is None else (self.test.features,)
        return " ".join(part.fingerprint() for part in (self.train, *views, *test))


def split_features(features: FeatureSet) -> SplitFeatures:
    """Split the rows into training, test and unused rows."""
    truth, classes = _classes(features)
    if features.split is None:
        return SplitFeatures(features, np.arange(len(features)), truth, classes, None, 0)
    train, test = (features.split == part for part in (TRAIN, TEST))
    if not train.any():
        found = some(np.unique(features.split).tolist())
        raise InputError(f"no row is of the part called {TRAIN} (there are: {found}): rename the part, or remove it.")
    test &= truth >= 0
    unseen = Unseen(features.subset(test), truth[test]) if test.any() else None
    unused = len(features) - int(train.sum()) - int(test.sum())
    whole = bool(train.all())  # then a memory map stays one
    part = features if whole else features.subset(train)
    return SplitFeatures(part, np.flatnonzero(train), truth[train], classes, unseen, unused)


def has_labels_of_its_own(features: FeatureSet) -> bool:
    """Whether the set is partly labelled, so that nothing is drawn."""
    return 0 < features.n_labelled < len(features)


def make_case(
    parts: SplitFeatures,
    seed: int,
    split: Split | None = None,
    known_share: float = KNOWN_SHARE,
    labelled_half: str = HALVES[0],
) -> Case:
    """The problem of this feature set under this seed.

    Parameters
    ----------
    parts : SplitFeatures
        Of a feature set with labels for all rows, or a truth, or labels for some rows.
    seed : int
        Decides the known classes, where no list gives them, and the rows that keep their label.
    split : Split, optional
        The known classes.
    known_share : float
        The share of classes that are known, where no list gives them.
    labelled_half : {"per-class", "gcd"}
        How the labelled half of the rows of known classes is drawn: class by class, or as in GCD's code.

    Examples
    --------
    >>> features = FeatureSet.from_arrays(np.eye(8), labels=list("aabbccdd"))
    >>> case = make_case(split_features(features), seed=0)
    >>> case.known.tolist(), case.y.tolist(), case.n_classes
    ([2, 3], [-1, -1, -1, -1, -1, 2, 3, -1], 4)
    """
    if has_labels_of_its_own(parts.train):
        labelled = parts.train.labelled
        y: IntArray = np.where(labelled, parts.truth, UNLABELLED)
        known = np.unique(y[labelled])
        if split is not None and not set(known.tolist()) <= set(_listed(split, parts.classes).tolist()):
            raise InputError("its labelled rows are of classes that the split list does not call known: use one only.")
        return parts.case(y, known)
    present = parts.present
    n_known = min(math.floor(known_share * len(present) + 1e-9), len(present) - 1)
    known = drawn_classes(present, n_known, seed) if split is None else _listed(split, parts.classes)
    draw = gcd_half(parts.truth, known) if labelled_half == "gcd" else labelled_share(parts.truth, known, 0.5, seed)
    return parts.case(draw, known)


@dataclasses.dataclass(frozen=True)
class GcdDraw:
    """How a problem of generalized category discovery is made of a feature set."""

    split: Split | None = None
    known_share: float = KNOWN_SHARE
    labelled_half: str = HALVES[0]

    def case(self, parts: SplitFeatures, seed: int) -> Case:
        """The problem under this seed."""
        return make_case(parts, seed, self.split, self.known_share, self.labelled_half)

    @property
    def facts(self) -> dict[str, Any]:
        """Fields of the record."""
        return {}


def _classes(features: FeatureSet) -> tuple[IntArray, NDArray[Any]]:
    """The number of each row's class, -1 where neither label nor truth says it, and the sorted classes."""
    labelled = features.labelled
    values = features.labels if features.truth is None else features.truth
    if values is None:
        raise InputError("it has neither labels nor truth: give labels for some rows at least.")
    has_class: BoolArray = ~unlabelled_rows(values)
    if features.labels is not None and features.truth is not None and labelled.any():
        if (features.labels.dtype.kind == "U") != (features.truth.dtype.kind == "U"):
            raise InputError("its labels are text and its truth is numbers, or the reverse: give both alike.")
        wrong = np.flatnonzero(labelled & has_class & (features.labels != features.truth))
        if wrong.size:
            raise InputError(f"labels and truth disagree in {some_rows(wrong.tolist())}: mend one of them.")
        values, has_class = np.where(labelled, features.labels, features.truth), has_class | labelled
    if not has_class.any():
        raise InputError("it has neither labels nor truth: give labels for some rows at least.")
    classes, numbers = np.unique(values[has_class], return_inverse=True)
    codes = np.full(len(features), UNLABELLED, dtype=np.int64)
    codes[has_class] = numbers
    return codes, classes


def drawn_classes(present: IntArray, n_known: int, seed: int) -> IntArray:
    """The first of the classes in the order that the seed gives them."""
    return np.sort(present[np.random.RandomState(seed).permutation(len(present))[:n_known]])


def labelled_share(truth: IntArray, known: IntArray, share: float, seed: int, at_least: int = 0) -> IntArray:
    """The labels of that share of each known class's rows, -1 for all else."""
    random = np.random.RandomState(seed)
    y = np.full(len(truth), UNLABELLED, dtype=np.int64)
    for c in known:
        rows = random.permutation(np.flatnonzero(truth == c))
        y[rows[: max(at_least, round(len(rows) * share))]] = c
    return y


def gcd_half(truth: IntArray, known: IntArray) -> IntArray:
    """The labels of half of the rows of all known classes together, -1 for all else: GCD's draw, always of seed 0."""
    rows = np.flatnonzero(np.isin(truth, known))
    drawn = rows[np.random.RandomState(0).choice(len(rows), len(rows) // 2, replace=False)]
    y = np.full(len(truth), UNLABELLED, dtype=np.int64)
    y[drawn] = truth[drawn]
    return y


def _listed(split: Split, classes: NDArray[Any]) -> IntArray:
    """The numbers of the classes that the list calls known."""
    known = class_numbers(split.known, classes)
    if split.unknown is not None:
        in_neither = sorted(set(range(len(classes))) - set(known) - set(class_numbers(split.unknown, classes)))
        if in_neither:
            raise InputError(
                f"its class {some(classes[in_neither].tolist())} is called neither known nor unknown in the split "
                "list: give the list of this set."
            )
    return np.asarray(sorted(known), dtype=np.int64)


def class_numbers(listed: Sequence[int | str], classes: NDArray[Any]) -> list[int]:
    """The places of the listed classes among the sorted ones; a number may name a class that is written as text."""
    place = {str(name) if isinstance(name, str) else name: k for k, name in enumerate(classes.tolist())}
    as_text = classes.dtype.kind == "U"
    strange = [name for name in listed if (str(name) if as_text else name) not in place]
    if strange:
        raise InputError(
            f"the split list has classes that the set has not ({some(strange)}): give the list of this set."
        )
    return [place[str(name) if as_text else name] for name in listed]


KNOWN_SHARES = (0.25, 0.5, 0.75)
NID_SEEDS = tuple(range(10))
LABELLED_SHARE = 0.1
NID_SPLIT_COLUMN = "nid_split"
NID_SETS = {"banking": "BANKING77", "banking77": "BANKING77", "clinc": "CLINC150", "clinc150": "CLINC150"}
"""What people call the sets of the published figures, in small letters and figures alone."""


@dataclasses.dataclass(frozen=True)
class NidList:
    """The known classes and the labelled rows of one share and one seed."""

    known: tuple[int | str, ...]
    labelled: tuple[int, ...]


Lists = dict[tuple[float, int], NidList]
"""By share of known classes and seed."""


@dataclasses.dataclass(frozen=True)
class NidDraw:
    """How a problem of new-intent discovery is made of a feature set."""

    known_share: float
    listed: NidList | None = None

    def case(self, parts: SplitFeatures, seed: int) -> Case:
        """The problem under this seed."""
        if parts.test is None:
            raise InputError(f"it has no row whose part is called {TEST}, on which this protocol measures: give some.")
        if self.listed is not None:
            return _listed_case(parts, self.listed)
        present = parts.present
        known = drawn_classes(present, min(round(self.known_share * len(present)), len(present) - 1), seed)
        return parts.case(labelled_share(parts.truth, known, LABELLED_SHARE, seed, at_least=1), known)

    @property
    def facts(self) -> dict[str, Any]:
        """Fields of the record."""
        return {"known_share": self.known_share}


def _listed_case(parts: SplitFeatures, listed: NidList) -> Case:
    known = np.unique(np.asarray(class_numbers(listed.known, parts.classes), dtype=np.int64))
    place = {row: k for k, row in enumerate(parts.rows.tolist())}
    strange = [row for row in listed.labelled if row not in place]
    if strange:
        raise InputError(
            f"the split list labels {some_rows(strange)} outside the training rows: give the list of this set."
        )
    rows = np.asarray([place[row] for row in listed.labelled], dtype=np.int64)
    y = np.full(len(parts.truth), UNLABELLED, dtype=np.int64)
    y[rows] = parts.truth[rows]
    wrong = [row for row in listed.labelled if y[place[row]] not in known]
    if wrong:
        raise InputError(
            f"the split list labels {some_rows(wrong)} of classes that it does not call known: make the two agree."
        )
    without = np.setdiff1d(known, y[rows])
    if without.size:
        raise InputError(
            f"the split list calls class {some(parts.classes[without].tolist())} known but labels no row of it: "
            "label some, or call it unknown."
        )
    return parts.case(y, known)


def find_lists(path: Path, name: str) -> Path:
    """The file of lists for the set of this name: `path` itself, or the one in that folder which is called after it."""
    if not path.is_dir():
        return path
    known_as = (published_name(name, NID_SETS) or name).lower()
    files = sorted(path.glob("*.json"))
    found = [file for file in files if file.stem.lower() in (known_as, name.lower())] or [
        file for file in files if file.stem.lower().endswith(f"_{known_as}")
    ]
    if len(found) != 1:
        several = f"several lists ({some(file.name for file in found)})"
        what = several if found else f"no list called nid_splits_{known_as}.json"
        raise InputError(f"{path} has {what} for the set {name!r}: give the file itself.")
    return found[0]


def read_lists(path: Path) -> Lists:
    """The lists of a file by share of known classes and seed."""
    must_exist(path)
    with reading(path):
        held = json.loads(path.read_text(encoding="utf-8-sig"))
    try:
        return {
            (float(share), int(seed.removeprefix("seed"))): NidList(tuple(one["known"]), _row_numbers(one["labelled"]))
            for share, by_seed in held.items()
            for seed, one in by_seed.items()
        }
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} holds no lists of this protocol: give "
            '{"0.25": {"seed0": {"known": [classes], "labelled": [row numbers]}}}.'
        ) from error


def _row_numbers(listed: Any) -> tuple[int, ...]:
    if not all(isinstance(row, int) and not isinstance(row, bool) for row in listed):
        raise TypeError("a row that is no number")
    return tuple(dict.fromkeys(listed))


def nid_draws(lists: Lists | None, seed: int) -> list[NidDraw]:
    """One draw for each share of known classes."""
    if lists is None:
        return [NidDraw(share) for share in KNOWN_SHARES]
    for share in KNOWN_SHARES:
        if (share, seed) not in lists:
            raise InputError(f"the split list has nothing for a share of {share} and seed {seed}: give other seeds.")
    return [NidDraw(share, lists[share, seed]) for share in KNOWN_SHARES]
