"""From the outcomes of some methods on one problem to a figure, with what it shows in words."""

from __future__ import annotations

import re

import numpy as np

from rpim._common.errors import InputError
from rpim.benchmark.drawing import LEGEND_CLASSES, Leanings, Map, draw_confusions, draw_leanings, draw_maps, shortened
from rpim.benchmark.outcomes import FloatArray, Outcome
from rpim.data.labels import IntArray
from rpim.runs.confusion import confusion, most_confused, taken_by

N_FOCUS = 3
NO_SAMPLE = "its cells kept no sample of rows, because another seed was the first when they were run"

Outcomes = dict[str, Outcome]
"""By the names of the methods; the first is the one that decides which classes are looked at."""
Drawn = tuple[str, bytes]
"""Caption and image."""


def tsne(rows: FloatArray) -> FloatArray:
    """The rows in two dimensions. (S, 2)"""
    from sklearn.manifold import TSNE

    if len(rows) < 10:
        raise InputError(f"{len(rows)} rows are too few for a map")
    wide = np.pad(rows.astype(np.float32), ((0, 0), (0, max(0, 2 - rows.shape[1]))))
    perplexity = min(30.0, (len(rows) - 1) / 3)
    points: FloatArray = TSNE(init="pca", perplexity=perplexity, random_state=0).fit_transform(wide)
    return points


def _map(title: str, outcome: Outcome, rows: FloatArray | None) -> Map:
    if rows is None or outcome.sample is None:
        raise InputError(NO_SAMPLE)
    classes = outcome.truth[outcome.sample]
    return Map(title, tsne(rows), classes, np.isin(classes, outcome.known))


def _evaluated(outcome: Outcome) -> tuple[IntArray, IntArray]:
    """The true and the found class of each row that is evaluated. (E,), (E,)"""
    return outcome.truth[outcome.evaluated], outcome.predicted[outcome.evaluated]


def _names(outcome: Outcome) -> dict[int, str]:
    return dict(enumerate(outcome.names.tolist()))


def draw_map(outcomes: Outcomes) -> Drawn:
    """The rows by their class probabilities, and where there are many classes those that are confused."""
    maps = [_map(name, outcome, outcome.z) for name, outcome in outcomes.items()]
    reference_name, reference = next(iter(outcomes.items()))
    many = len(np.unique(maps[0].classes)) > LEGEND_CLASSES
    focus = focus_classes(reference) if many else []
    caption = (
        f"{len(maps[0].classes):,} unlabelled rows by their class probabilities z, in two dimensions (t-SNE), coloured "
        "by true class; dots are of known classes, rings of unknown ones. What a method tells apart lies apart."
    )
    if focus:
        caption += (
            f" Below, in colour: the unknown classes that {reference_name} takes most for known ones, and the known "
            "classes it takes them for."
        )
    return caption, draw_maps(maps, _names(reference), focus)


def focus_classes(outcome: Outcome) -> list[int]:
    """The unknown classes that are confused most, each followed by the known class that takes most of its rows."""
    truth, predicted = _evaluated(outcome)
    worst = most_confused(truth, predicted, outcome.known, N_FOCUS)
    pairs = [(one, taken_by(truth, predicted, outcome.known, one)) for one in worst]
    return list(dict.fromkeys(c for pair in pairs for c in pair if c is not None))


def draw_confusion(outcomes: Outcomes) -> Drawn:
    """True against found classes, with the shares of the four blocks."""
    matrices = {name: confusion(*_evaluated(outcome), outcome.known) for name, outcome in outcomes.items()}
    caption = (
        "Unlabelled rows by true class (down) and found class (across), known classes first. A found class stands in "
        "the column of the true class it is matched with by the accuracy's matching, so the diagonal is what is right. "
        "The numbers are shares of all rows of known classes (above) and of unknown ones (below). The confusion in the "
        "tables differs: there a found class is known if it had labels, here if it is matched with a class that had, "
        "and a labelled class that an unknown one has taken over is matched with that one."
    )
    return caption, draw_confusions(matrices, _names(next(iter(outcomes.values()))))


def draw_histogram(outcomes: Outcomes) -> Drawn:
    """How far the rows lean to known classes, of the unknown class that the first method confuses most."""
    reference_name, reference = next(iter(outcomes.items()))
    truth, predicted = _evaluated(reference)
    worst = most_confused(truth, predicted, reference.known)
    if not worst:
        raise InputError(f"{reference_name} takes no row of an unknown class for a known one")
    panels = [_leanings(name, outcome, worst[0]) for name, outcome in outcomes.items()]
    name = str(reference.names[worst[0]])
    called = f"class {name}" if re.fullmatch(r"[\d.-]+", name) else name
    caption = (
        f"How far the unlabelled rows lean to known classes: of {shortened(called, 60)} "
        f"({len(panels[0].of_class)} rows), the unknown class that {reference_name} takes most for known ones, of the "
        "known classes, and of the other unknown ones. Right of the line a row is given a known class: the less orange "
        f"overlaps blue, the better. Being the worst class of {reference_name}, it says less about other methods."
    )
    return caption, draw_leanings(panels, called)


def _leanings(title: str, outcome: Outcome, unknown_class: int) -> Leanings:
    if outcome.lean is None:
        raise InputError(NO_SAMPLE)
    truth, lean = outcome.truth[outcome.evaluated], outcome.lean.astype(np.float64)
    is_known, is_class = np.isin(truth, outcome.known), truth == unknown_class
    return Leanings(title, lean[is_class], lean[is_known], lean[~is_known & ~is_class])


def draw_transforms(outcomes: Outcomes) -> Drawn:
    """The rows by their refined embeddings, a map for each transformation."""
    maps = [_map(h, outcome, outcome.refined) for h, outcome in outcomes.items()]
    caption = (
        f"The refined embeddings h(x) of {len(maps[0].classes):,} unlabelled rows in two dimensions (t-SNE) under each "
        "transformation h of RPIM, coloured by true class; dots are of known classes, rings of unknown ones."
    )
    return caption, draw_maps(maps, _names(next(iter(outcomes.values()))), columns=3)
