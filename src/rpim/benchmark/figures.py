"""The figures of a benchmark with captions, from its records and outcomes.

As in the paper: maps and confusion matrices of PIM and RPIM, the density histogram of a confused unknown class, maps
under each transformation h, and averages over data sets.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rpim._common.errors import InputError, first_line
from rpim._common.files import replacing, writing
from rpim._common.progress import Progress
from rpim.benchmark.cell import FloatArray, Outcome, read_outcome
from rpim.benchmark.drawing import (
    LEGEND_CLASSES,
    Leanings,
    Map,
    draw_averages,
    draw_confusions,
    draw_leanings,
    draw_maps,
    shortened,
)
from rpim.benchmark.results import ACCURACY, Record, Results
from rpim.benchmark.studies import Study, of_study
from rpim.benchmark.study_tables import column_name
from rpim.core.transforms import TRANSFORMS, SemanticBias, Transform
from rpim.data.labels import IntArray
from rpim.runs.evaluation import confusion, most_confused, taken_by

N_FOCUS = 3
NO_SAMPLE = "its cells kept no sample of rows, because another seed was the first when they were run"

Outcomes = dict[str, Outcome]
"""Outcomes by method name; the first method selects the classes shown."""
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
    """Maps of the class probabilities; with many classes, the most confused ones are highlighted."""
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
    """The most confused unknown classes, each followed by the known class that takes most of its rows."""
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


FOLDER = "figures"
COMPARED = ("pim", "rpim")


@dataclass(frozen=True)
class Figure:
    """An image with title and caption."""

    name: str
    title: str
    caption: str
    image: bytes

    @property
    def is_svg(self) -> bool:
        """SVG, or else PNG."""
        return self.name.endswith(".svg")


@dataclass(frozen=True)
class _Wanted:
    """A figure to draw; `make` returns its caption and image."""

    kind: str
    of: str
    title: str
    make: Callable[[], Drawn]
    form: str = "png"
    work: int = 1


def make_figures(
    folder: Path, studies: Sequence[Study], records: Sequence[Record], verbose: bool = False
) -> tuple[list[Figure], list[str]]:
    """Draw the figures, also into OUT/figures; return them, and a sentence for each that failed."""
    wanted = [*_averages(studies, records), *_of_problems(folder, records)]
    figures: list[Figure] = []
    missing: list[str] = []
    with writing(folder / FOLDER):
        (folder / FOLDER).mkdir(exist_ok=True)
    with Progress(verbose) as progress:
        progress.expect(sum(one.work for one in wanted))
        for one in wanted:
            progress.stage(f"drawing {one.title[0].lower()}{one.title[1:]}")
            progress.advance(0)
            # A failed figure must not affect the others and the tables.
            try:
                caption, image = one.make()
            except Exception as error:
                missing.append(f"{one.title} is left out: {first_line(error)}.")
            else:
                name = _file_name(one, {figure.name for figure in figures})
                with replacing(folder / FOLDER / name) as file:
                    file.write(image)
                figures.append(Figure(name, one.title, caption, image))
            progress.advance(one.work)
    return figures, missing


def _file_name(one: _Wanted, taken: set[str]) -> str:
    """A unique file name that is valid on any file system."""
    of = re.sub(r"[^A-Za-z0-9._-]+", "-", one.of).strip(".-")
    stem = "-".join(part for part in (one.kind, of) if part)
    names = (f"{stem}{suffix}.{one.form}" for suffix in ["", *(f"-{k}" for k in range(2, len(taken) + 3))])
    return next(name for name in names if name.lower() not in {other.lower() for other in taken})


def _averages(studies: Sequence[Study], records: Sequence[Record]) -> Iterator[_Wanted]:
    """A chart for each table with one row per method."""
    for study in studies:
        results = Results(of_study(study, records))
        complete = results.complete(results.measured)
        if study.layout == "methods" and results.measured and len(complete) > 1:
            title = f"{study.title}: {'averages' if len(results.measured) > 1 else results.measured[0]}"
            yield _Wanted("averages", study.name, title, functools.partial(_draw_averages, results, complete), "svg")


def _draw_averages(results: Results, methods: Sequence[str]) -> Drawn:
    values = {method: [results.average(method, results.measured, part) for part in ACCURACY] for method in methods}
    counts = ((len(results.measured), "data sets"), (len(results.seeds), "seeds"))
    means = " and ".join(f"{count} {what}" for count, what in counts if count > 1)
    caption = f"All, Known and Unknown in %{f', mean over {means}' if means else ''}; the best of each is dark."
    if len(methods) < len(results.methods):
        caption += " Methods without a result for every set and seed are left out."
    return caption, draw_averages(values, [part.capitalize() for part in ACCURACY])


def _of_problems(folder: Path, records: Sequence[Record]) -> Iterator[_Wanted]:
    """The figures of each set, at each share of known classes where there are several, of the first seed.

    Cells of the protocol batches store no outcome.
    """
    problems: dict[str, list[Record]] = {}
    measured = Results(records).measured
    for record in records:
        if record["seed"] == records[0]["seed"] and record["set"] in measured and "way" not in record:
            problems.setdefault(column_name(record), []).append(record)

    def later(draw: Callable[[Outcomes], Drawn], chosen: dict[str, Record]) -> Callable[[], Drawn]:
        return lambda: draw({method: _outcome(folder, record) for method, record in chosen.items()})

    for name, own in problems.items():
        pair, by_h = compared(own), by_transform(own)
        yield _Wanted("map", name, f"Map of {name}", later(draw_map, pair), work=10)
        yield _Wanted("confusion", name, f"Confusion on {name}", later(draw_confusion, pair))
        yield _Wanted("histogram", name, f"A confused class of {name}", later(draw_histogram, pair), "svg")
        if by_h:
            work = 5 * len(by_h)
            yield _Wanted("transforms", name, f"Transformations on {name}", later(draw_transforms, by_h), work=work)


def _outcome(folder: Path, record: Record) -> Outcome:
    if "error" in record:
        raise InputError(f"{record['method']} failed on it")
    return read_outcome(folder, record)


def compared(records: Sequence[Record]) -> dict[str, Record]:
    """PIM and RPIM, by name, as near to their defaults as they were run; or else the first two methods."""
    own = [[record for record in records if record["estimator"] == estimator] for estimator in COMPARED]
    pair = [min(candidates, key=lambda record: len(record["parameters"])) for candidates in own if candidates]
    return {record["method"]: record for record in (pair if len(pair) == len(COMPARED) else records[:2])}


def by_transform(records: Sequence[Record]) -> dict[str, Record]:
    """RPIM under each transformation h, the largest group of records that differ in nothing else.

    PIM stands for "none" where RPIM was not run so: both leave the embedding as it is.
    """
    groups: dict[str, dict[str, Record]] = {}
    for record in records:
        if record["estimator"] == "rpim":
            others = {name: value for name, value in record["parameters"].items() if name != "h"}
            h = record["parameters"].get("h", SemanticBias.name)
            groups.setdefault(repr(sorted(others.items())), {}).setdefault(h, record)
    largest = max(groups.values(), key=len, default={})
    if len(largest) < 2:
        return {}
    pim = [record for record in records if record["estimator"] == "pim"]
    found = dict.fromkeys([Transform.name], pim[0]) | largest if pim else largest
    return {name: found[name] for name in TRANSFORMS if name in found}
