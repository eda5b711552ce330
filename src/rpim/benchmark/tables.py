"""The tables of a benchmark: results.csv with a row for each cell, results.md for people, index.html with figures.

They depend on the plan and on what the cells say alone, never on the order in which they finished.
"""

from __future__ import annotations

import base64
import csv
import importlib.util
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rpim._common.files import replacing
from rpim._version import __version__
from rpim.benchmark.batches import ACCURACY_GROUPS, by_batch, row_name
from rpim.benchmark.cells import Cell, CellFile
from rpim.benchmark.entries import Method
from rpim.benchmark.results import ACCURACY, CONFUSION, NOTHING, TEST_ACCURACY, Record, Results, Table
from rpim.benchmark.studies import Study, of_study, what_ran
from rpim.benchmark.study_tables import by_known_share, by_method, by_seed, chosen, column_name, costs, paper_data

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from rpim.benchmark.figures import Figure

CSV_FILE, MARKDOWN_FILE = "results.csv", "results.md"

_KEY = ("method", "estimator", "parameters", "set", "seed")
_FACTS = (
    "seconds",
    "peak_mb",
    "rows",
    "labelled",
    "evaluated",
    "n_classes",
    "n_classes_used",
    "trade_off",
    "beta",
    "weight_decay",
    "n_members",
    "n_iter",
    "trained_parameters",
    "threads",
)

_LAYOUTS: dict[str, Callable[[Study, Results], list[Table]]] = {
    "methods": by_method,
    "seeds": by_seed,
    "nid": by_known_share,
    "batches": by_batch,
}


def write_tables(folder: Path, studies: Sequence[Study], records: Sequence[Record]) -> str:
    """Write both files, each whole or not at all, and give the text of results.md."""
    text = markdown(studies, records)
    for name, content in ((CSV_FILE, as_csv(records)), (MARKDOWN_FILE, text)):
        with replacing(folder / name) as file:
            file.write(content.encode())
    return text


def records_of(cells: Sequence[Cell], kept: CellFile) -> list[Record]:
    """What is kept of these cells, under the names that this plan has for them: they may have been run under others.

    A cell in which rows came in several batches has a record for each of them.
    """
    return [
        {**record, **batch, **cell.facts}
        for cell in cells
        if (record := kept.find(cell)) is not None
        for batch in record.get("batches", [{}])
    ]


def as_csv(records: Sequence[Record]) -> str:
    """A row for each record; without the columns of accuracy where no record has a truth to go by."""
    names = (
        (*ACCURACY_GROUPS, "n_classes_true") if any("batch" in record for record in records) else ACCURACY + CONFUSION
    )
    measured = names if any(record.get("all") is not None for record in records) else ()
    tested = (*TEST_ACCURACY, "test_rows") if any(record.get("test_all") is not None for record in records) else ()
    varied = [name for name in ("known_share", "way", "batch") if any(name in record for record in records)]
    columns = (*_KEY, *varied, *measured, *tested, *_FACTS, "rpim", "torch", "error")
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for record in records:
        parameters = json.dumps(record["parameters"], sort_keys=True)
        writer.writerow({**record.get("versions", {}), **record, "parameters": parameters})
    return out.getvalue()


def tables(studies: Sequence[Study], records: Sequence[Record]) -> list[Table]:
    """Those of each study, and then what was chosen and what it cost in all of them."""
    found = []
    for study in studies:
        found += _LAYOUTS[study.layout](study, _results(of_study(study, records)))
    everything = _results([record for study in _each_once(studies) for record in of_study(study, records)])
    papers = paper_data(everything) if any(study.paper for study in studies) else []
    return [*found, *papers, *chosen(everything), costs(everything)]


def _results(records: Sequence[Record]) -> Results:
    return Results([{**record, "set": column_name(record), "method": row_name(record)} for record in records])


def _each_once(studies: Sequence[Study]) -> list[Study]:
    """The studies without the methods that an earlier one has; a name that is used for two of them says for which."""
    seen: list[Any] = []
    kept: list[Study] = []
    for study in studies:
        new = [method for method in study.methods if what_ran(method) not in seen]
        seen += map(what_ran, new)
        # Of a method that two studies have, the earlier one may lack seeds; the records of all of them count.
        kept.append(replace(study, methods=tuple(new), seeds=None))
    names = Counter(method.name for study in kept for method in study.methods)
    return [replace(study, methods=tuple(_apart(method, study, names) for method in study.methods)) for study in kept]


def _apart(method: Method, study: Study, names: Counter[str]) -> Method:
    return method if names[method.name] == 1 else replace(method, name=f"{method.name} ({study.name})")


def markdown(studies: Sequence[Study], records: Sequence[Record]) -> str:
    """Every table under its heading, and what has to be said about all of them."""
    parts = [
        f"## {table.title}\n\n{table.note}\n\n{_as_markdown(table.header, table.rows)}"
        for table in tables(studies, records)
    ]
    said = "".join(f"* {note}\n" for note in notes(Results(records)))
    return "# Benchmark\n\n" + "\n".join([*parts, said] if said else parts)


def notes(results: Results) -> list[str]:
    """What has to be said about the tables: rows that were not used, what could not be measured, what failed."""
    missing = results.without_truth
    found = [f"{name} has no truth for its unlabelled rows, so its accuracy is left out." for name in missing]
    found += {record["set"]: _use_of_rows(record) for record in results.done if _is_divided(record)}.values()
    given = {record["set"] for record in results.done if record["n_classes"] is not None}
    estimated = [name for name in results.sets if any(r["set"] == name for r in results.done) and name not in given]
    if estimated:
        found.append(f"The number of classes was estimated on {', '.join(estimated)}.")
    versions = sorted({record["versions"]["rpim"] for record in results.done})
    if len(versions) > 1:
        found.append(f"These cells come from different versions of rpim: {', '.join(versions)}.")
    return found + [f"Failed: {describe_failure(record)}" for record in results.failed]


def _is_divided(record: Record) -> bool:
    return bool(record.get("test_rows") or record.get("unused_rows"))


def _use_of_rows(record: Record) -> str:
    others = [
        f"{record[name]:,} {what}"
        for name, what in (("test_rows", "called test were predicted afterwards"), ("unused_rows", "were not used"))
        if record[name]
    ]
    return f"{record['set']}: methods saw its {record['rows']:,} rows called train alone; {', '.join(others)}."


def describe_failure(record: Record) -> str:
    """Which cell it was, and what went wrong, in one line."""
    return f"{row_name(record)} on {column_name(record)}, seed {record['seed']}: {record['error']}"


def _as_markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, in columns for those who read it as it stands."""
    cells = [[_escaped(text) for text in row] for row in (header, *rows)]
    widths = [max(len(row[j]) for row in cells) for j in range(len(header))]
    padded = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in cells]
    padded.insert(1, ["-" * width for width in widths])
    return "".join(f"| {' | '.join(row)} |\n" for row in padded)


def _escaped(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGE_FILE = "index.html"
NEEDED = ("matplotlib", "jinja2")
HOW_TO_GET_IT = "The page and the figures are skipped: pip install 'rpim[figures]' and repeat the command."

_NUMBER = re.compile(rf"(\*\*)?(\d|{NOTHING})")
_BOLD = re.compile(r"\*\*(.+?)\*\*")


def can_be_made() -> bool:
    """Whether matplotlib and jinja2 are installed."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


def write_page(
    folder: Path, studies: Sequence[Study], records: Sequence[Record], *, command: str = "", verbose: bool = False
) -> Path:
    """Draw the figures, and write them with the tables into one page.

    Parameters
    ----------
    folder : path
        That of the benchmark, with the outcomes of its cells.
    studies, records : sequences of Study and Record
        What the tables are about, and what the cells say.
    command : str
        By which the page can be made again.
    verbose : bool
        Show progress on a terminal.
    """
    from rpim.benchmark.figures import make_figures

    figures, missing = make_figures(folder, studies, records, verbose)
    path = folder / PAGE_FILE
    text = render(tables(studies, records), records, figures, notes(Results(records)), missing, command)
    with replacing(path) as file:
        file.write(text.encode())
    return path


def render(
    shown: Sequence[Table],
    records: Sequence[Record],
    figures: Sequence[Figure] = (),
    said: Sequence[str] = (),
    missing: Sequence[str] = (),
    command: str = "",
) -> str:
    """The text of the page. Names of sets and methods are the user's: whatever they hold is shown, never obeyed."""
    template = _environment().get_template("page.html.jinja")
    return template.render(
        lead=_lead(Results(records)),
        tables=[(table, numbers(table)) for table in shown],
        notes=said,
        figures=figures,
        missing=missing,
        command=command,
        versions=_versions(records),
        batches=any("way" in record for record in records),  # whose table says itself how to read it
    )


def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(loader=PackageLoader("rpim.benchmark", "."), autoescape=True, undefined=StrictUndefined)
    found.filters |= {"bold": bold, "unbold": lambda text: _BOLD.sub(r"\1", text), "inline": inline}
    return found


def bold(text: str) -> Markup:
    """Text with what stands between two ** in bold, safe to stand in a page.

    >>> bold("<b>, **0.5**/0.4")
    Markup('&lt;b&gt;, <b>0.5</b>/0.4')
    """
    from markupsafe import Markup, escape

    parts = _BOLD.split(text)  # every second part is bold
    return Markup("").join(Markup("<b>{}</b>").format(part) if k % 2 else escape(part) for k, part in enumerate(parts))


def inline(figure: Figure) -> str:
    """The image as an address that holds all of it."""
    kind = "svg+xml" if figure.is_svg else "png"
    return f"data:image/{kind};base64,{base64.b64encode(figure.image).decode()}"


def numbers(table: Table) -> set[int]:
    """The columns, the first aside, in which there is nothing but numbers.

    >>> sorted(numbers(Table("", "", ["set", "method", "All"], [["a", "pim", "**0.5** ±1"], ["b", "rim", "—"]])))
    [2]
    """
    columns = zip(*table.rows, strict=True)
    return {j for j, texts in enumerate(columns) if j and all(_NUMBER.match(text) for text in texts)}


def _lead(results: Results) -> str:
    counts = ((len(results.methods), "method"), (len(results.sets), "data set"), (len(results.seeds), "seed"))
    counted = [f"{count} {what}{'s' if count != 1 else ''}" for count, what in counts]
    return f"Generalized category discovery compared on equal terms: {_listed(counted)}."


def _listed(parts: Sequence[str]) -> str:
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def _versions(records: Iterable[Record]) -> str:
    """What the cells were run with, and what made the page."""
    seen: dict[str, set[str]] = {}
    for record in records:
        for name, version in record.get("versions", {}).items():
            seen.setdefault(name, set()).add(version)
    ran = ", ".join(f"{name} {' and '.join(sorted(versions))}" for name, versions in seen.items())
    return f"Cells: {ran}. Page: rpim {__version__}" if ran else f"Page: rpim {__version__}"
