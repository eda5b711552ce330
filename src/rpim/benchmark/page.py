"""OUT/index.html: the tables and figures of a benchmark as one self-contained page."""

from __future__ import annotations

import base64
import importlib.util
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rpim._common.files import replacing
from rpim._version import __version__
from rpim.benchmark.results import NOTHING, Record, Results, Table
from rpim.benchmark.studies import Study
from rpim.benchmark.tables import notes, tables

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from rpim.benchmark.figures import Figure

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
