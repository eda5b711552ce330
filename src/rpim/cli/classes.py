"""``rpim classes``: list the classes of a run, and decide about labels."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpim._common.errors import InputError, plural
from rpim.cli.terminal import (
    AsFound,
    LabelColumn,
    Overwrite,
    RawCsv,
    Run,
    Version,
    chosen_version,
    console_of_output,
    echo,
)

if TYPE_CHECKING:
    from rpim.runs.discovery import Discovery
    from rpim.runs.versions import Versions


def classes(
    run: Run,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help=".csv or .json (default: print a table).")
    ] = None,
    label_issues: Annotated[
        bool, typer.Option("--label-issues", help="List the labels that are probably wrong, most likely errors first.")
    ] = False,
    accept: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="Accept the class suggested for the row with this id, or for all; may be repeated."
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Take these labels as decisions: .csv, or of Label Studio or FiftyOne, by the ids."
        ),
    ] = None,
    label_column: LabelColumn = None,
    version: Version = None,
    as_found: AsFound = False,
    raw_csv: RawCsv = False,
    overwrite: Overwrite = False,
) -> None:
    """List every class: size, confidence, stability, nearest known class, typical and doubtful rows."""
    from rpim._common.files import check_export
    from rpim.cli.summary import print_classes, print_label_issues, print_line
    from rpim.data.formats import tables
    from rpim.runs.class_summaries import SUFFIXES, LabelCounts, write_classes, write_label_issues

    if label_column is not None and labels is None:
        raise InputError("--label-column is for the file of --labels: add it, or leave --label-column out.")
    if accept and labels is not None:
        raise InputError("--accept and --labels both decide about rows: give one of them.")
    if accept:
        with _open_decisions(run) as versions:
            n = versions.accept_suggestions(None if accept == ["all"] else accept)
        echo(f"{plural(n, 'suggestion')} accepted. {_undone(run)}")
        return
    if labels is not None:
        from rpim.data.formats.label_files import read_labels

        with _open_decisions(run) as versions:
            n = versions.take_labels(read_labels(labels, versions.rows.ids, label_column))
        echo(f"{plural(n, 'label')} taken as decisions; a refit uses them. {_undone(run)}")
        return
    if output is not None:
        check_export(output, overwrite, SUFFIXES)
    discovery, _ = chosen_version(run, version, as_found)
    summaries = discovery.classes_table()
    console, counts = console_of_output(), LabelCounts.of(discovery.assignments)
    if label_issues:
        if counts is None:
            raise InputError(_not_checked(run, discovery))
        issues = discovery.label_issues()
        if output is not None:
            with tables.raw_csv(raw_csv):
                write_label_issues(discovery.assignments, issues, output, overwrite=overwrite)
            echo(f"The label issues are in {output}.")
            return
        if issues:
            print_label_issues(console, discovery, issues, summaries)
            named = shlex.quote(str(run))
            how = f"rpim classes {named} --accept ID (or all); rpim explore {named} shows each with its neighbors."
            print_line(console, f"To accept a suggestion: {how}")
        print_line(console, counts.sentence())
    elif output is not None:
        with tables.raw_csv(raw_csv):
            write_classes(summaries, output, overwrite=overwrite)
        echo(f"The classes are in {output}.")
    else:
        print_classes(console, discovery, summaries)
        print_line(console, _not_checked(run, discovery) if counts is None else counts.sentence(run))


@contextlib.contextmanager
def _open_decisions(run: Path) -> Iterator[Versions]:
    """The versions of a run, to decide about as the explorer does."""
    from rpim.runs.run_folder import REFITS_FOLDER
    from rpim.runs.versions import Versions

    if run.resolve().parent.name == REFITS_FOLDER:
        raise InputError(f"{run} is a refit, whose decisions are in the run: give {run.resolve().parents[1]}.")
    versions = Versions(run)
    with contextlib.closing(versions.store):
        yield versions


def _undone(run: Path) -> str:
    return f"rpim explore {shlex.quote(str(run))} lists and undoes decisions."


def _not_checked(run: Path, discovery: Discovery) -> str:
    """Why the labels of a run were not checked, and how to check them."""
    from rpim.estimators.infomax import InfoMaxEstimator

    if isinstance(discovery.model, InfoMaxEstimator):
        how = "fit with --n-members 16"
    else:
        how = f"fit with --method rpim instead of {type(discovery.model).__name__.lower()}"
    return f"The labels of {run} were not checked, because the fit has no committee: {how}."
