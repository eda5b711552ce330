"""The commands that apply a run: to new rows (``rpim predict``, ``extend``) and to true classes (``evaluate``)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from rpim._common.errors import InputError, choose
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
    RunFeatures,
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
    if output is not None:
        echo(f"The classes of the rows are in {output}.")


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
    run_features: RunFeatures = None,
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
    echo(f"The classes of the rows are in {output}.")
