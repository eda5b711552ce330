"""``rpim report``, and the report that other commands write into the run folder: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpim._common.errors import InputError, first_line
from rpim.cli.terminal import AsFound, Images, RunFeatures, Version, chosen_version, echo

if TYPE_CHECKING:
    from rpim.data.feature_set import FeatureSet
    from rpim.runs.discovery import Discovery

NoReport = Annotated[bool, typer.Option("--no-report", help="Do not write report.html into the run folder.")]


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder written by rpim discover.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help=".html file (default: RUN/report.html).")
    ] = None,
    features: RunFeatures = None,
    images: Images = None,
    truth: Annotated[
        Path | None, typer.Option(metavar="FILE", help="True classes, one per row or with ids: .npy, .csv, .npz, …")
    ] = None,
    truth_column: Annotated[
        str | None, typer.Option(metavar="C", help="Column (or .npz key) with the true classes.")
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="C", help="Metadata column: the shares of the classes by its values, or over time."),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(metavar="DAY", help="With --by a column of dates: compare before and since, such as 2024-01-31."),
    ] = None,
    version: Version = None,
    as_found: AsFound = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE if it exists.")] = False,
) -> None:
    """Write a self-contained HTML report of a run: classes, map, training curves, hyperparameters.

    With --by, also the classes by a metadata column, or over time: which grow, and which have appeared since a day.
    """
    from rpim.runs.run_folder import read_run_file

    facts = read_run_file(run)
    if images is not None and not images.is_dir():
        raise InputError(f"--images {images} is not a folder: give the folder of the images.")
    if since is not None and by is None:
        raise InputError("--since compares by a column of dates, which is not given: add --by COLUMN.")
    from rpim.report.page import REPORT_FILE, check_report, write_report

    # The report in the run folder is derived from the run, so it is always replaced.
    target = check_report(output or run / REPORT_FILE, overwrite or output is None)
    from rpim.report.pictures import careful_map
    from rpim.runs.evaluation import read_truth

    discovery, chosen = chosen_version(run, version, as_found)
    true_classes = None if truth is None else read_truth(truth, discovery.ids, truth_column)
    rows, pictures, why = _rows(chosen.run, facts, features)
    if by is not None:
        from rpim.report.facts import by_column
        from rpim.runs.run_folder import features_of

        by_column(discovery, features_of(chosen.run, features) if rows is None else rows, by, since)  # before the map
    if images is not None:
        from rpim.explorer.pictures import Pictures

        moved = Pictures(discovery.assignments.paths, discovery.ids.tolist(), images)
        pictures = [moved.path(row) for row in range(len(discovery))]
    note = chosen.sentence(discovery.model)
    write_report(
        discovery,
        target,
        features=rows,
        truth=true_classes,
        pictures=pictures,
        on_map=careful_map(discovery, rows, chosen.folder),
        no_map=why,
        notes=[note] if note else [],
        by=by,
        since=since,
        overwrite=True,
    )
    echo(f"The report is {target}.")


def _rows(run: Path, facts: dict[str, Any], given: Path | None) -> tuple[FeatureSet | None, list[Any] | None, str]:
    """The features of a run and the images of its rows, or the reason why they are unavailable."""
    from rpim.cli import demo
    from rpim.runs.run_folder import features_of

    if given is None and facts["provenance"]["data"]["path"] == demo.SOURCE:
        return demo.digits(), demo.pictures(), ""
    try:
        return features_of(run, given), None, ""
    except InputError as error:
        if given is not None:
            raise
        return None, None, f"There is no map. {error}"


def report_of_run(
    discovery: Discovery, run: Path, features: FeatureSet | None, *, pictures: list[Any] | None = None, quiet: bool
) -> Path | None:
    """Write the report into a complete run folder; an error is printed, not raised."""
    from rpim.report.page import HOW_TO_GET_IT, REPORT_FILE, can_be_made, write_report

    if not can_be_made():
        if not quiet:
            echo(f"rpim: {HOW_TO_GET_IT}", err=True)
        return None
    try:
        return write_report(discovery, run / REPORT_FILE, features=features, pictures=pictures, overwrite=True)
    # The run is complete and on disk: an error in the report must not look like a failed run.
    except Exception as error:
        echo(f"rpim: the run is complete, but its report could not be written ({first_line(error)}).", err=True)
        return None


def rows_of_extension(
    before: Discovery, run: Path, given: Path | None, after: Discovery, new: FeatureSet
) -> FeatureSet | None:
    """The features of an extended run, in its order; None, and a line says so, if those of the run are missing."""
    import numpy as np

    from rpim.data.feature_set import FeatureSet
    from rpim.runs.run_folder import features_of

    try:
        old = features_of(run, given)
    except InputError as error:
        if given is not None:
            raise
        echo(f"rpim: the extended run has no features of its rows, so it cannot be explored. {error}", err=True)
        return None
    kept = np.isin(before.ids, after.ids[: -len(new)])

    def joined(first: Any, second: Any) -> Any:
        return [*np.asarray(first, dtype=object)[kept].tolist(), *np.asarray(second, dtype=object).tolist()]

    shared = [name for name in old.columns if name in new.columns]
    both_true = old.truth is not None and new.truth is not None
    return FeatureSet.from_arrays(
        np.concatenate([old.X[kept], new.X]),
        labels=after.given,
        ids=after.ids,
        truth=joined(old.truth, new.truth) if both_true else None,
        texts=after.assignments.texts,
        paths=after.assignments.paths,
        columns={name: joined(old.columns[name], new.columns[name]) for name in shared},
        metadata=old.metadata,
    )
