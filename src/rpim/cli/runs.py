"""The commands that do something with a run: ``rpim predict``, ``extend``, ``evaluate``, ``classes`` and ``export``."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpim._common.errors import InputError, choose, plural
from rpim.cli.embed import TextColumn, Weights
from rpim.cli.report import NoReport, report_of_run, rows_of_extension
from rpim.cli.terminal import (
    AnyEncoder,
    AsFound,
    FeatureColumn,
    LabelColumn,
    LabelsFile,
    New,
    Overwrite,
    Quiet,
    RawCsv,
    RayAddress,
    Run,
    Version,
    Workers,
    check_workers,
    chosen_version,
    console_of_output,
    echo,
    one_line_warnings,
    print_version,
    written,
)

if TYPE_CHECKING:
    from rpim.runs.discovery import Discovery
    from rpim.runs.versions import Versions


def predict(
    run: Run,
    new: New,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help=".csv or .parquet (default: print CSV); with --ray a folder."
        ),
    ] = None,
    feature_column: FeatureColumn = None,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Add the probability of every class.")] = False,
    refined: Annotated[
        bool, typer.Option("--refined", help="Add the refined embedding h(x) of each row (.parquet only).")
    ] = False,
    any_encoder: AnyEncoder = False,
    text_column: TextColumn = None,
    weights: Weights = None,
    version: Version = None,
    as_found: AsFound = False,
    ray: RayAddress = None,
    workers: Workers = None,
    raw_csv: RawCsv = False,
    overwrite: Overwrite = False,
) -> None:
    """Predict the classes of new rows with the model of a run; files may be larger than memory."""
    from rpim._common.files import check_export

    check_workers(ray, workers)
    if ray is not None:
        _predict_on_ray(
            run,
            new,
            (version, as_found),
            output,
            ray,
            workers,
            feature_column=feature_column,
            probabilities=probabilities,
            refined=refined,
            any_encoder=any_encoder,
            text_column=text_column,
            weights=weights,
            overwrite=overwrite,
        )
        return
    if output is not None:
        check_export(output, overwrite)
    from rpim.cli.embed import features_of_new
    from rpim.data.formats import tables
    from rpim.runs.current_version import choose_version

    verbose = output is not None or not sys.stdout.isatty()  # a bar among printed lines could not be read
    chosen = choose_version(run, version, as_found=as_found)
    predictor = chosen.predictor()
    with (
        features_of_new(new, run, output, text_column=text_column, weights=weights, quiet=not verbose) as rows,
        tables.raw_csv(raw_csv),
    ):
        predictor.assign_file(
            rows,
            output,
            feature_column=feature_column,
            probabilities=probabilities,
            refined=refined,
            any_encoder=any_encoder,
            overwrite=overwrite,
            verbose=verbose,
        )
    print_version(chosen, predictor.model)


def extend(
    run: Run,
    new: New,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="RUN", help="Run folder to write.")],
    labels: LabelsFile = None,
    label_column: LabelColumn = None,
    feature_column: FeatureColumn = None,
    any_encoder: AnyEncoder = False,
    text_column: TextColumn = None,
    weights: Weights = None,
    run_features: Annotated[
        Path | None, typer.Option("--features", metavar="FILE", help="Features of the run, if they have moved.")
    ] = None,
    version: Version = None,
    as_found: AsFound = False,
    no_report: NoReport = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Extend a run with new rows: its classes are kept, and new classes are added if the rows need them."""
    from rpim.runs.run_folder import check_target

    check_target(output, overwrite)
    from rpim.cli.embed import features_of_new
    from rpim.data.feature_set import FeatureSet

    with features_of_new(
        new,
        run,
        output,
        labels=labels,
        label_column=label_column,
        text_column=text_column,
        weights=weights,
        quiet=quiet,
    ) as rows:
        if os.fspath(rows) == os.fspath(new):
            features = FeatureSet.read(rows, labels, label_column=label_column, feature_column=feature_column)
        else:
            features = FeatureSet.read(rows)
        before, chosen = chosen_version(run, version, as_found)
        with one_line_warnings(show=not quiet):
            after = before.extended(
                features,
                source=new.resolve(),
                command=["rpim", *sys.argv[1:]],
                any_encoder=any_encoder,
                verbose=not quiet,
            )
        everything = rows_of_extension(before, chosen.run, run_features, after, features)
        kept = None if everything is None else output.with_name(f".{output.name}.features-{os.getpid()}.parquet")
        try:
            if everything is not None and kept is not None:
                everything.write(kept)
            after.save(output, overwrite=overwrite, features=kept)
        finally:
            if kept is not None:
                kept.unlink(missing_ok=True)
    with written(output):
        page = None if no_report else report_of_run(after, output, everything, quiet=quiet)
        if not quiet:
            from rpim.cli.summary import print_extension, print_next_steps

            console = console_of_output()
            print_extension(console, before, after, len(features))
            print_next_steps(console, after, output, page)


def evaluate(
    run: Run,
    truth: Annotated[
        Path, typer.Option(metavar="FILE", help="True classes, one per row or with ids: .npy, .csv, .npz, …")
    ],
    truth_column: Annotated[
        str | None, typer.Option(metavar="C", help="Column (or .npz key) with the true classes.")
    ] = None,
    metric: Annotated[str, typer.Option(metavar="v2|v1|orca", help="Definition of GCD accuracy.")] = "v2",
    version: Version = None,
    as_found: AsFound = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate the unlabelled rows against the true classes: All, Known, Unknown, NMI, ARI."""
    from rpim.runs.evaluation import METRICS, known_classes, read_truth
    from rpim.runs.evaluation import evaluate as compare

    choose("--metric", metric, METRICS)
    discovery, chosen = chosen_version(run, version, as_found)
    true_classes = read_truth(truth, discovery.ids, truth_column)
    result = compare(discovery, true_classes, metric, known=known_classes(chosen.run))
    if as_json:
        echo(json.dumps(result.as_dict()))
        return
    left_out = f" ({result.left_out:,} rejected rows excluded)" if result.left_out else ""
    echo(f"{result.rows:,} unlabelled rows{left_out}, GCD accuracy {metric}")
    echo(f"{result}\nNMI {result.nmi:.3f}  ARI {result.ari:.3f}")


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


def export(
    run: Run,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help=".csv or .parquet; --format and others write more."),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="For another tool: label-studio (a .json), fiftyone, huggingface or imagefolder (folders).",
        ),
    ] = None,
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions",
            help="Export the decisions made in rpim explore: .csv, .parquet, .jsonl, Label Studio .json, or a folder.",
        ),
    ] = False,
    hierarchy: Annotated[
        bool, typer.Option("--hierarchy", help="Export the tree of the classes: .json, or .nwk (Newick).")
    ] = False,
    images: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the images, if they have moved.")
    ] = None,
    link: Annotated[
        bool,
        typer.Option("--link", help="Hard links in a folder of images instead of copies; they share their content."),
    ] = False,
    version: Version = None,
    as_found: AsFound = False,
    raw_csv: RawCsv = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the class of every row, its confidence and the runner-up to one file, or all rows for another tool."""
    from rpim._common.files import check_export
    from rpim.data.formats import tables

    if link and not decisions and form != "imagefolder":
        raise InputError("--link is for a folder of images: add --format imagefolder, or leave --link out.")
    if hierarchy and (decisions or form is not None):
        other = "--decisions" if decisions else "--format"
        raise InputError(f"{other} and --hierarchy are two exports: give one of them.")
    if hierarchy:
        check_export(output, overwrite, (".json", ".nwk"))
        chosen_version(run, version, as_found)[0].hierarchy().write(output, overwrite=overwrite)
        return
    if decisions or form is not None:
        from rpim.explorer.exports import FORMATS, export_run

        if form is not None:
            choose("--format", form, FORMATS)
        if decisions and as_found:
            raise InputError("--decisions exports the decisions, which --as-found leaves out: give one of them.")
        if overwrite and output.is_dir():
            raise InputError(f"{output} exists already, and --overwrite replaces only files: choose another name.")
        with tables.raw_csv(raw_csv):
            echo(
                export_run(
                    run,
                    output,
                    images,
                    form=form,
                    version=version,
                    as_found=as_found,
                    link=link,
                    overwrite=overwrite,
                )
            )
        return
    check_export(output, overwrite)
    discovery, _ = chosen_version(run, version, as_found)
    with tables.raw_csv(raw_csv):
        discovery.export(output, overwrite=overwrite)


def _predict_on_ray(
    run: Path,
    new: Path,
    wanted: tuple[int | None, bool],
    output: Path | None,
    ray: str,
    workers: int | None,
    *,
    text_column: str | None,
    weights: list[Path] | None,
    **how: Any,
) -> None:
    """``rpim predict --ray``; the workers also embed images and texts."""
    from rpim._common.ray import connected
    from rpim.cli.embed import features_of_new
    from rpim.data.ray_shards import check_folder
    from rpim.runs.current_version import choose_version
    from rpim.runs.predictor import predict_on_ray

    if output is None:
        raise InputError("--ray writes a folder of .parquet files, but no output is given: give -o FOLDER.")
    check_folder(output, how["overwrite"])
    chosen = choose_version(run.resolve(), wanted[0], as_found=wanted[1])
    print_version(chosen, chosen.predictor().model)  # report a damaged run before connecting to the cluster
    with (
        connected(ray, workers) as n,
        features_of_new(new, run, output, text_column=text_column, weights=weights, workers=n) as rows,
    ):
        predict_on_ray(chosen.folder, rows, output, n, load=chosen.predictor, verbose=True, **how)
