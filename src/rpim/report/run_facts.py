"""What the report says of a run: how it was made, its training curves, and its comparison with true classes."""

from __future__ import annotations

import base64
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from rpim._common.errors import in_halves, interval
from rpim.data.labels import IntArray, unlabelled_rows
from rpim.estimators.base import DiscoveryEstimator
from rpim.metrics import contingency
from rpim.report.pictures import png
from rpim.runs.assignments import class_codes
from rpim.runs.discovery import Discovery
from rpim.runs.evaluation import Confusion, Evaluation, confusion, evaluate
from rpim.runs.saved_model import describe, json_value

MAX_POINTS = 300
"""Maximum number of points of a curve."""

TERMS = {
    "objective": "The training objective: the weighted sum of the terms below.",
    "M": "Negative marginal entropy: lower means more evenly used classes.",
    "C": "Conditional entropy of the unlabelled rows: lower means more confident predictions.",
    "L_R": "Conditional entropy of the rows with a confident balanced pseudo-label.",
    "CE": "Cross-entropy with the given labels.",
    "L_S": "Cross-entropy with the given labels mixed with pseudo-labels.",
    "confident": "Share of unlabelled rows with a confident balanced pseudo-label.",
}
MEANINGS = {
    "n_classes": "number of classes, known and new",
    "n_members": "committee size; 1 is a single fit",
    "trade_off": "lambda, the weight of the conditional entropy",
    "beta": "share of the pseudo-label in mixed labels",
    "weight_decay": "L2 regularization",
    "class_sizes": "assumed distribution of class sizes",
}
_NOT_SHOWN = ("verbose", "device", "objective")


@dataclass(frozen=True)
class Curve:
    """One term over the steps."""

    name: str
    meaning: str
    points: list[tuple[float, float]]
    """The step, from 1 on, and the value there."""

    @property
    def values(self) -> list[float]:
        """Without the steps."""
        return [value for _, value in self.points]

    @property
    def is_share(self) -> bool:
        """Whether it is between 0 and 1 by nature."""
        return self.name == "confident"


@dataclass(frozen=True)
class Parameter:
    """A parameter of the method as it was used."""

    name: str
    value: str
    origin: str
    meaning: str = ""


@dataclass(frozen=True)
class Trial:
    """A value of a parameter that was tried."""

    value: str
    score: float
    used: bool


@dataclass(frozen=True)
class Count:
    """The estimate of the number of classes."""

    n_classes: int
    low: int
    high: int
    curve: list[tuple[float, float]]
    """Number of neighbors, and the number of classes estimated with it."""
    without_labels: bool = False

    @property
    def within(self) -> str:
        """The range of the estimate."""
        return (in_halves if self.without_labels else interval)(self.low, self.high)


def curves(discovery: Discovery) -> list[Curve]:
    """The non-zero terms of the objective over the steps; empty for a single step.

    Terms of other methods are shown by name.
    """
    history = discovery.model.history_
    if len(history) < 2:
        return []
    stride = math.ceil(len(history) / MAX_POINTS)
    steps = sorted({*range(0, len(history), stride), len(history) - 1})
    names = [name for name in TERMS if name in history[0]]
    names += [name for name in history[0] if name not in (*TERMS, "weight_decay")]
    found = [
        Curve(name, TERMS.get(name, ""), [(k + 1, float(history[k].get(name, math.nan))) for k in steps])
        for name in names
    ]
    return [one for one in found if all(map(math.isfinite, one.values)) and any(one.values)]


def averages_members(discovery: Discovery) -> bool:
    """Whether the curves are means over the committee; not if the head was then trained on all rows."""
    model = discovery.model
    return bool(getattr(model, "n_members_", 1) > 1 and getattr(model, "calibration_", 1.0) == 1.0)


def parameters(model: DiscoveryEstimator) -> list[Parameter]:
    """The parameters of the method: searched, estimated and given ones before defaults."""
    facts = describe(model)[0]
    usual = type(model)().get_params()
    found = []
    for nested, given in model.get_params().items():
        name = nested.removeprefix("objective__")
        if name in _NOT_SHOWN or name in model.absent_terms:
            continue
        given = json_value(given)
        value = facts["resolved"].get(name, given)
        if name in getattr(model, "search_", {}):
            origin = "searched"
        elif name == "n_classes" and given is None:
            origin = "estimated"
        else:
            origin = "default" if usual[nested] == given else "given"
        found.append(Parameter(name, _said(value), origin, MEANINGS.get(name, "")))
    ranks = ("searched", "estimated", "given", "default")
    return sorted(found, key=lambda one: ranks.index(one.origin))


def searches(model: DiscoveryEstimator) -> dict[str, list[Trial]]:
    """The tried values of each searched parameter, in order."""
    tables: Mapping[str, Mapping[Any, float]] = getattr(model, "search_", {})
    found = {}
    for name, scores in tables.items():
        used = getattr(model, f"{name}_", None)
        values = sorted(scores) if all(isinstance(value, int | float) for value in scores) else list(scores)
        found[name] = [Trial(_said(value), scores[value], value == used) for value in values]
    return found


def count(model: DiscoveryEstimator) -> Count | None:
    """The estimate of the number of classes, by the fit or an extension; None if it was given."""
    if not hasattr(model, "n_classes_low_"):
        return None
    curve = sorted((float(along), float(up)) for along, up in getattr(model, "n_classes_curve_", {}).items())
    return Count(
        model.n_classes_, int(model.n_classes_low_), int(model.n_classes_high_), curve, not len(model.known_classes_)
    )


def provenance(discovery: Discovery) -> list[tuple[str, str]]:
    """Provenance as (name, value) pairs."""
    facts = discovery.provenance
    data = facts["data"]
    metadata = data.get("metadata") or {}
    lines = [
        ("Method", type(discovery.model).__name__),
        ("Command", shlex.join(facts["command"]) if facts.get("command") else ""),
        ("Data", data.get("path") or ""),
        ("Rows", f"{data['rows']:,} of {data['features']:,} features, {data['labelled']:,} labelled"),
        ("Encoders" if len(discovery.model.widths_) > 1 else "Encoder", str(metadata.get("encoder") or "")),
        ("Fingerprint", data["fingerprint"]),
        ("Seed", "" if facts.get("seed") is None else str(facts["seed"])),
        ("Created", facts["created"]),
        ("Duration", "" if facts.get("duration_seconds") is None else f"{facts['duration_seconds']:,.1f} s"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items())),
    ]
    before = facts.get("extends")
    if before is not None:
        lines.append(("Extends", f"a run of {before['created']} on {before['data'].get('path') or 'features'}"))
    return [(name, value) for name, value in lines if value]


def path_of(values: Sequence[tuple[float, float]], width: float, height: float, low: float, high: float) -> str:
    """SVG path of the points, scaled to the given size.

    >>> path_of([(0, 1.0), (1, 3.0), (2, 2.0)], 100, 50, 1.0, 3.0)
    'M0.0 50.0L50.0 0.0L100.0 25.0'
    """
    first, last = values[0][0], values[-1][0]
    points = (
        (width * (x - first) / ((last - first) or 1.0), height * (high - y) / ((high - low) or 1.0)) for x, y in values
    )
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _said(value: Any) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


MIX_UPS = 12
_INK = (0, 114, 178)


@dataclass(frozen=True)
class MixUp:
    """Rows of a true class in a found class that is not matched with it."""

    true: str
    found: int
    """The number of the found class."""
    rows: int
    share: float
    """Of the rows of the true class."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """Accuracy, confusion matrix and the most confused pairs."""

    evaluation: Evaluation
    confusion: Confusion
    names: list[str]
    """Names of the true classes, in the order of the confusion matrix."""
    mix_ups: list[MixUp]
    """The most confused pairs, largest first."""

    def picture(self) -> str:
        """The confusion matrix as a PNG data URL, one pixel per cell; opacity shows the share."""
        shares = self.confusion.shares  # (K, K or more)
        pixels = np.empty((*shares.shape, 4), dtype=np.uint8)
        pixels[..., :3] = _INK
        pixels[..., 3] = (255 * np.sqrt(shares)).round()  # square root, so that small shares are visible
        return f"data:image/png;base64,{base64.b64encode(png(pixels)).decode()}"


def compare(discovery: Discovery, truth: NDArray[Any]) -> Comparison:
    """Compare the unlabelled rows with the true classes.

    Raises
    ------
    InputError
        If the truth has another length or type than the labels, or no unlabelled row has one.
    """
    values = np.asarray(truth)
    evaluation = evaluate(discovery, values)
    rows = ~discovery.assignments.labelled & ~unlabelled_rows(values) & ~discovery.assignments.left_out
    names, true = np.unique(values[rows], return_inverse=True)
    codes = class_codes(discovery.labels, discovery.classes)[rows]
    known = np.flatnonzero(np.isin(names, discovery.model.known_classes_))
    found, texts = confusion(true, codes, known), [str(name) for name in names.tolist()]
    return Comparison(evaluation, found, [texts[k] for k in found.classes], mix_ups(true, codes, texts))


def mix_ups(true: IntArray, found: IntArray, names: Sequence[str], n: int = MIX_UPS) -> list[MixUp]:
    """The unmatched pairs of a true and a found class that share the most rows.

    >>> mix_ups(np.array([0, 0, 0, 1]), np.array([4, 4, 7, 7]), ["cat", "dog"])
    [MixUp(true='cat', found=7, rows=1, share=0.3333333333333333)]
    """
    counts = contingency(true, found, len(names), int(found.max()) + 1)
    sizes = counts.sum(axis=1)
    counts[linear_sum_assignment(counts, maximize=True)] = 0
    largest = np.argsort(-counts, axis=None, kind="stable")[:n]
    pairs = zip(*(part.tolist() for part in np.unravel_index(largest, counts.shape)), strict=True)
    return [MixUp(names[i], j, int(counts[i, j]), float(counts[i, j] / sizes[i])) for i, j in pairs if counts[i, j]]
