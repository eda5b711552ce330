"""The terminal summary of a discovery: a few sentences and two tables."""

from __future__ import annotations

import math
import shlex
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from rpim._common.errors import end_of, plural, short
from rpim.data.labels import EMBEDDINGS
from rpim.runs.assignments import UNSTABLE
from rpim.runs.class_summaries import estimated_count, expected_accuracy

if TYPE_CHECKING:
    from rpim.estimators.committee import LabelIssue
    from rpim.runs.class_summaries import ClassSummary
    from rpim.runs.discovery import Discovery

MAX_ROWS = 20
_NAME_WIDTH = 16
_N_KEYWORDS = 2
_NUMBERS_WIDTH = 43
"""Width of the columns that hold numbers, in the tables of classes."""
_MAX_ISSUES = 200


def print_summary(console: Console, discovery: Discovery, folder: Path | None = None) -> None:
    """Print the counts, the expected accuracy, the new classes with examples, and the known classes in short.

    `folder` is the run folder, for follow-up commands. Empty classes are reported as warnings by the fit.
    """
    from rpim.runs.class_summaries import LabelCounts  # imports torch, which some commands do not need

    table = discovery.classes_table()
    known = [row for row in table if row.known]
    new = sorted((row for row in table if not row.known and row.rows), key=lambda row: -row.rows)
    for line in _overview(discovery, known, new):
        console.print(Text(line))
    counts = LabelCounts.of(discovery.assignments)
    if counts is not None:
        print_line(console, counts.sentence(folder))
    if new:
        console.print()
        console.print(_new_classes(discovery, new, console.width))
        if len(new) > MAX_ROWS:
            console.print(Text(f"… and {len(new) - MAX_ROWS:,} more"))
        doubtful = [row for row in new if row.stability < UNSTABLE]
        if doubtful:
            console.print(
                Text(
                    f"{len(doubtful):,} of {plural(len(new), 'new class' if known else 'group')} "
                    f"{'is' if len(doubtful) == 1 else 'are'} unstable (below {UNSTABLE:.0%}): the members of the "
                    f"committee disagree about {'its' if len(doubtful) == 1 else 'their'} rows. Inspect some of "
                    "them before you rely on the result."
                )
            )
    if known:
        console.print()
        console.print(_known_classes(known))


def print_extension(console: Console, before: Discovery, after: Discovery, n_rows: int) -> None:
    """Print what an extension changed: counts, renamed classes and added classes."""
    renamed = getattr(after.model, "renamed_", {})
    there = {renamed.get(name, name) for name in before.classes.tolist()}
    came = after.labels[-n_rows:].tolist()
    to_old = sum(name in there for name in came)
    table = after.classes_table()
    added = [row for row in table if row.name not in there]
    lines = [
        f"{plural(n_rows, 'new row')}: {to_old:,} in existing classes, "
        f"{sum(row.rows for row in added):,} in {plural(len(added), 'added class')}.",
        estimated_count(after.model),
    ]
    left_out = int(after.assignments.left_out[-n_rows:].sum())
    if left_out:
        lines.append(f"{left_out:,} rows were rejected as outliers.")
    lines += [f"{old} was renamed to {new}." for old, new in renamed.items()]
    for line in filter(None, lines):
        console.print(Text(line))
    if added:
        console.print()
        console.print(_new_classes(after, sorted(added, key=lambda row: -row.rows), console.width))
        if len(added) > MAX_ROWS:
            console.print(Text(f"… and {len(added) - MAX_ROWS:,} more"))


def print_next_steps(console: Console, discovery: Discovery, folder: Path, page: Path | None = None) -> None:
    """Print the duration, the run folder, the report, and the next commands."""
    name = shlex.quote(str(folder))
    console.print()
    seen = "" if page is None else f"Open {page} in a browser to see the report. "
    print_line(
        console, f"Fitted in {discovery.provenance['duration_seconds']:.0f} s. The run folder is {folder}. {seen}Next:"
    )
    print_line(console, f"  rpim explore {name}                  inspect, rename and correct its classes")
    print_line(console, f"  rpim classes {name}                  all classes with typical and doubtful rows")
    print_line(console, f"  rpim export {name} -o rows.csv       the class of every row")
    print_line(console, f"  rpim predict {name} {_new_data(discovery):<16} the same classes for new rows")


def _new_data(discovery: Discovery) -> str:
    """New rows of the kind that the run was made from."""
    data = discovery.provenance.get("data", {})
    metadata = data.get("metadata", {})
    said = [facts for facts in metadata.get(EMBEDDINGS) or [metadata.get("embedding")] if isinstance(facts, dict)]
    options = "".join(f" --weights {shlex.quote(str(one['weights']))}" for one in said if one.get("weights"))
    suffixes = Path(str(data.get("path") or "rows.npz")).suffixes
    suffix = "".join(suffixes[-2 if suffixes[-1:] == [".gz"] else -1 :])
    return ("NEW_IMAGES" if said and said[0].get("kind") == "images" else f"NEW{suffix}") + options


def print_line(console: Console, line: str) -> None:
    """Print one line without markup or wrapping, so that it can be copied."""
    console.print(line, markup=False, soft_wrap=True)


def class_table(columns: Sequence[str], rows: Sequence[Sequence[str]], words: Collection[str] = ()) -> Table:
    """A table: the first, the last and the named columns hold text, the others numbers; no cell is parsed as markup."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    longest = max((len(row[0]) for row in rows), default=0)
    for column in columns:
        if column == columns[0]:
            table.add_column(Text(column), overflow="fold", min_width=min(longest, _NAME_WIDTH))
        elif column in (columns[-1], *words):
            table.add_column(Text(column), overflow="fold")
        else:
            table.add_column(Text(column), justify="right", no_wrap=True, min_width=len(column))
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table


def _overview(discovery: Discovery, known: list[ClassSummary], new: list[ClassSummary]) -> list[str]:
    labelled = discovery.assignments.labelled
    unlabelled, left_out = int((~labelled).sum()), int(discovery.assignments.left_out.sum())
    to_known = int((discovery.known & ~labelled).sum())
    lines = [
        f"{plural(len(discovery), 'row')}, {int(labelled.sum()):,} of them labelled "
        f"({plural(len(known), 'known class')}).",
        f"Of the {unlabelled:,} unlabelled rows, {to_known:,} were assigned to known classes "
        f"and {unlabelled - to_known - left_out:,} to {plural(len(new), 'new class')}.",
    ]
    if not known:
        lines = [f"{plural(len(discovery), 'row')}, none of them labelled, in {plural(len(new), 'group')}."]
    lines.append(estimated_count(discovery.model))
    if left_out:
        lines.append(f"{left_out:,} rows were rejected as outliers.")
    return [line for line in (*lines, expected_accuracy(discovery.model)) if line]


def print_label_issues(
    console: Console, discovery: Discovery, issues: Sequence[LabelIssue], summaries: Sequence[ClassSummary]
) -> None:
    """Print the label issues, most likely errors first, with the text or file of the row if it has one."""
    rows = discovery.assignments
    called = {row.name: _called(row) for row in summaries}
    last = "text" if rows.texts is not None else "path" if rows.paths is not None else "confidence"
    width = max(24, console.width - 4 * _NAME_WIDTH)
    cells = []
    for issue in issues[:_MAX_ISSUES]:
        if rows.texts is not None:
            shown = short(rows.texts[issue.row], width)
        elif rows.paths is not None:
            shown = end_of(rows.paths[issue.row], width)
        else:
            shown = _percent(issue.confidence)
        cells.append(
            (
                short(rows.ids[issue.row], _NAME_WIDTH),
                short(issue.label, _NAME_WIDTH),
                called.get(issue.suggested, short(issue.suggested, _NAME_WIDTH)),
                _percent(issue.label_quality, 1),
                shown,
            )
        )
    console.print(class_table(("id", "label", "suggested", "quality", last), cells, words=("label", "suggested")))
    if len(issues) > _MAX_ISSUES:
        console.print(Text(f"… and {len(issues) - _MAX_ISSUES:,} more: -o FILE.csv writes all of them."))
    console.print(Text("Quality: probability of the given label according to the members that did not see it."))


def print_classes(console: Console, discovery: Discovery, summaries: Sequence[ClassSummary]) -> None:
    """Print every class, known classes first, with the ids of its typical and doubtful rows.

    With texts, the columns "about" (keywords) and the most typical text replace "nearest" and the ids. A narrow
    terminal shows one id of each kind, and not "nearest".
    """
    texts = discovery.assignments.texts
    if texts is not None:
        _print_classes_of_texts(console, dict(zip(discovery.ids.tolist(), texts, strict=True)), summaries)
        return
    left = max(24, console.width - _NUMBERS_WIDTH - max(len(_called(row)) for row in summaries))
    narrow = left < 60
    n, width = (1, left // 2 - 1) if narrow else (2, 24)
    cells = [
        (
            *_numbers(row),
            *([] if narrow else [short(row.nearest_known, _NAME_WIDTH)]),
            _listed(row.typical[:n], width),
            _listed(row.doubtful[:n], width),
        )
        for row in summaries
    ]
    columns = (*_NUMBERS, *([] if narrow else ["nearest"]), "typical", "doubtful")
    console.print(class_table(columns, cells, words=("nearest", "typical")))


_NUMBERS = ("class", "rows", "labelled", "confidence", "stability")


def _numbers(row: ClassSummary) -> tuple[str, ...]:
    """The cells of `_NUMBERS`."""
    shares = (_percent(row.mean_confidence), _percent(row.stability))
    return _called(row), f"{row.rows:,}", f"{row.labelled:,}", *shares


def _print_classes_of_texts(console: Console, text_of: dict[Any, str], summaries: Sequence[ClassSummary]) -> None:
    left = max(24, console.width - _NUMBERS_WIDTH - max(len(_called(row)) for row in summaries))
    about = [short(_about(row), max(12, left // 2 if left < 60 else left // 3)) for row in summaries]
    width = left - 2 - max(map(len, about))
    cells = [
        (*_numbers(row), said, *(short(text_of[one], width) for one in row.typical[:1]))
        for row, said in zip(summaries, about, strict=True)
    ]
    columns = (*_NUMBERS, "about", "typical")
    console.print(class_table(columns, cells, words=("about",)))


def _new_classes(discovery: Discovery, new: list[ClassSummary], width: int) -> RenderableType:
    """The table of new classes; with texts, the last column holds the suggested name and the most typical text."""
    left = max(24, width - _NUMBERS_WIDTH - max(len(short(row.name)) for row in new))
    texts = discovery.assignments.texts
    shown = texts or discovery.assignments.paths
    of_id = {} if shown is None else dict(zip(discovery.ids.tolist(), shown, strict=True))
    rows = []
    for row in new[:MAX_ROWS]:
        typical = [of_id.get(i) or i for i in row.typical]
        named = [short(row.suggested_name, left)] * bool(row.suggested_name) + [
            short(text, left) for text in typical[:1]
        ]
        rows.append(
            (
                short(row.name),
                f"{row.rows:,}",
                _percent(row.mean_confidence),
                _percent(row.stability),
                short(row.nearest_known, _NAME_WIDTH),
                _listed(typical) if texts is None else "\n".join(named),
            )
        )
    last = "typical rows" if texts is None else "suggested name, typical"
    columns = ["new class", "rows", "confidence", "stability", "nearest known", last]
    if not len(discovery.model.known_classes_):
        columns = ["group", *columns[1:4], last]
        return class_table(columns, [(*row[:4], row[5]) for row in rows])
    return class_table(columns, rows, words=("nearest known",))


def _called(row: ClassSummary) -> str:
    """The name, followed by the one that the fit gave if a person has decided another."""
    found = f" ({short(row.found_name, _NAME_WIDTH)})" if row.found_name else ""
    return short(row.name, _NAME_WIDTH) + found


def _about(row: ClassSummary) -> str:
    """The suggested name of a new class, or the keywords of a known one."""
    return row.suggested_name or ", ".join(row.keywords[:_N_KEYWORDS])


def _listed(rows: Sequence[Any], width: int = 24) -> str:
    """Ids or paths."""
    return ", ".join(end_of(row, width) if "/" in str(row) else short(row, width) for row in rows)


def _percent(share: float, places: int = 0) -> str:
    return "—" if math.isnan(share) else f"{share:.{places}%}"


def _known_classes(known: list[ClassSummary]) -> Text:
    parts = [f"{short(row.name)} {row.rows:,} ({row.labelled:,} labelled)" for row in known[:MAX_ROWS]]
    more = f" … and {len(known) - MAX_ROWS:,} more" if len(known) > MAX_ROWS else ""
    return Text("Known classes and their rows: " + ", ".join(parts) + more)
