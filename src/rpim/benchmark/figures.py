"""Which figures a benchmark has, made from its records and their outcomes, each with what it shows in words.

As in the paper: maps and confusion matrices of PIM and RPIM, the density histogram of an unknown class that is confused
with known ones, maps under each transformation h, and the averages over data sets.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rpim._common.errors import InputError, first_line
from rpim._common.files import replacing, writing
from rpim._common.progress import Progress
from rpim.benchmark.drawing import draw_averages
from rpim.benchmark.nid_tables import column_name
from rpim.benchmark.outcome_figures import Drawn, Outcomes, draw_confusion, draw_histogram, draw_map, draw_transforms
from rpim.benchmark.outcomes import Outcome, read_outcome
from rpim.benchmark.results import ACCURACY, Record, Results
from rpim.benchmark.studies import Study
from rpim.benchmark.tables import of_study
from rpim.core.transforms import TRANSFORMS, SemanticBias, Transform

FOLDER = "figures"
COMPARED = ("pim", "rpim")


@dataclass(frozen=True)
class Figure:
    """An image with its words."""

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
    """A figure that is to be made; `make` gives its caption and its image."""

    kind: str
    of: str
    title: str
    make: Callable[[], Drawn]
    form: str = "png"
    work: int = 1


def make_figures(
    folder: Path, studies: Sequence[Study], records: Sequence[Record], verbose: bool = False
) -> tuple[list[Figure], list[str]]:
    """The figures, also written to OUT/figures, and a sentence for each that could not be made."""
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
            # Whatever goes wrong with a figure, there are the others, and the tables.
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
    """A name that is safe in any file system, whatever the set is called."""
    of = re.sub(r"[^A-Za-z0-9._-]+", "-", one.of).strip(".-")
    stem = "-".join(part for part in (one.kind, of) if part)
    names = (f"{stem}{suffix}.{one.form}" for suffix in ["", *(f"-{k}" for k in range(2, len(taken) + 3))])
    return next(name for name in names if name.lower() not in {other.lower() for other in taken})


def _averages(studies: Sequence[Study], records: Sequence[Record]) -> Iterator[_Wanted]:
    """A chart for each table that has a row for each method."""
    for study in studies:
        results = Results(of_study(study, records))
        whole = [name for name in results.methods if all(results.whole(name, one) for one in results.measured)]
        if study.layout == "methods" and results.measured and len(whole) > 1:
            title = f"{study.title}: {'averages' if len(results.measured) > 1 else results.measured[0]}"
            yield _Wanted("averages", study.name, title, functools.partial(_draw_averages, results, whole), "svg")


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

    Cells in which rows come in arrivals keep no outcome to draw.
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
