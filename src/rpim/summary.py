"""A discovery in words and two tables, for the person at the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rpim.discovery import ClassSummary, Discovery

MAX_ROWS = 20
N_EXAMPLES = 3
_EXAMPLE_WIDTH = 24


def print_summary(console: Console, discovery: Discovery) -> None:
    """How many rows went where, the new classes with examples, and the known ones in short."""
    table = discovery.classes_table()
    known = [row for row in table if row.known]
    new = sorted((row for row in table if not row.known and row.rows), key=lambda row: -row.rows)
    empty = [row for row in table if not row.known and not row.rows]
    for line in _in_words(discovery, known, new, empty):
        console.print(Text(line))
    if new:
        console.print()
        console.print(_new_classes(discovery, new))
        if len(new) > MAX_ROWS:
            console.print(Text(f"… and {len(new) - MAX_ROWS:,} more"))
    console.print()
    console.print(_known_classes(known))


def print_next_steps(console: Console, discovery: Discovery, folder: Path) -> None:
    """How long it took, where the run is, and what to do with it."""
    name = shlex.quote(str(folder))
    console.print()
    print_plainly(console, f"Took {discovery.provenance['duration_seconds']:.0f} s. The run folder is {folder}. Next:")
    print_plainly(console, f"  rpim export {name} -o classes.csv    the class of every row")
    print_plainly(console, f"  rpim predict {name} NEW.npz          the same classes for new rows")


def print_plainly(console: Console, line: str) -> None:
    """A line to copy from: whole, and without markup."""
    console.print(line, markup=False, soft_wrap=True)


def plural(n: int, noun: str) -> str:
    """'1 row', '1,797 rows', '2 new classes'."""
    return f"{n:,} {noun}" + ("" if n == 1 else "es" if noun.endswith("s") else "s")


def short(value: Any, width: int = _EXAMPLE_WIDTH) -> str:
    """A text on one line and not too long."""
    text = " ".join(str(value).split())
    return text if len(text) <= width else text[: width - 1] + "…"


def class_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table whose first and last columns are words and the others numbers; user's words are never markup."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for j, column in enumerate(columns):
        words = j in (0, len(columns) - 1)
        table.add_column(Text(column), justify="left" if words else "right", overflow="fold" if words else "ellipsis")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _in_words(
    discovery: Discovery, known: list[ClassSummary], new: list[ClassSummary], empty: list[ClassSummary]
) -> list[str]:
    labelled = discovery.assignments.labelled
    unlabelled = int((~labelled).sum())
    to_known = int((discovery.known & ~labelled).sum())
    lines = [
        f"{plural(len(discovery), 'row')}, {int(labelled.sum()):,} of them with a label "
        f"({plural(len(known), 'known class')}).",
        f"Of the {unlabelled:,} without one, {to_known:,} went to known classes "
        f"and {unlabelled - to_known:,} to {plural(len(new), 'new class')}.",
    ]
    if empty:
        lines.append(f"{plural(len(empty), 'new class')} stayed without rows: there may be fewer classes.")
    return lines


def _new_classes(discovery: Discovery, new: list[ClassSummary]) -> RenderableType:
    rows = [
        (short(row.name), f"{row.rows:,}", f"{row.mean_sureness:.0%}", f"{row.sure_share:.0%}",
         ", ".join(_examples(discovery, row.name)))
        for row in new[:MAX_ROWS]
    ]  # fmt: skip
    return class_table(("new class", "rows", "sureness", "over 90%", "surest rows"), rows)


def _examples(discovery: Discovery, name: Any) -> list[str]:
    """The texts, file names or ids of the surest rows of a class."""
    of_class = np.flatnonzero(discovery.labels == name)
    surest = of_class[np.argsort(-discovery.sureness[of_class], kind="stable")[:N_EXAMPLES]]
    shown: Any = discovery.assignments.texts or discovery.assignments.paths or discovery.ids
    return [short(shown[row]) for row in surest]


def _known_classes(known: list[ClassSummary]) -> Text:
    parts = [f"{short(row.name)} {row.rows:,} ({row.labelled:,} labelled)" for row in known[:MAX_ROWS]]
    more = f" … and {len(known) - MAX_ROWS:,} more" if len(known) > MAX_ROWS else ""
    return Text("Known classes, with their rows: " + ", ".join(parts) + more)
