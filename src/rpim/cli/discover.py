"""The commands that find classes: ``rpim demo``, ``discover`` and ``estimate``."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpim._common.errors import BAD_INPUT, choose
from rpim._common.memory_budget import as_bytes
from rpim.cli.embed import EncoderName, TextColumn, Weights
from rpim.cli.options import (
    Data,
    FeatureColumn,
    LabelColumn,
    LabelsFile,
    Overwrite,
    Quiet,
    RayAddress,
    Seed,
    Source,
    Workers,
    check_workers,
)
from rpim.cli.report import NoReport, report_of_run
from rpim.cli.terminal import console_of_output, print_findings, written

if TYPE_CHECKING:
    from rpim.core.checkpoint import Checkpoint


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="RUN", help="The run folder.")] = Path("rpim-demo"),
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Discover the digits 5 to 9 in images of which only 0 to 4 are known (offline, seconds)."""
    from rpim.runs.run_folder import check_target

    check_target(output, overwrite)
    import torch

    from rpim.cli import demo as digits_demo
    from rpim.cli.fitting import fit
    from rpim.cli.summary import print_next_steps, print_plainly
    from rpim.estimators import RPIM

    torch.set_num_threads(1)  # with so few rows, threads wait for each other more than they work
    features = digits_demo.digits()
    console = console_of_output()
    console.print("Handwritten digits: 0 to 4 are known by some labelled examples, 5 to 9 are to be discovered.\n")
    model = RPIM(n_classes=digits_demo.N_CLASSES, random_state=seed, verbose=True)
    discovery = fit(model, features, digits_demo.SOURCE)
    rows = output.with_name(f"{output.name}.features.parquet")
    features.write(rows, overwrite=True)
    discovery.save(output, overwrite=overwrite, features=rows)
    with written(output):
        page = report_of_run(discovery, output, features, pictures=digits_demo.pictures(), quiet=False)
        print_findings(console, discovery, features, output)
        print_plainly(console, "\nWhat the new classes are (the truth serves this table alone, never to find them):")
        console.print(digits_demo.meanings_table(digits_demo.meanings(discovery, features)))
        print_next_steps(console, discovery, output, page)
        print_plainly(console, "With data of your own: rpim discover PHOTOS|TEXTS.csv|FEATURES.npz -o RUN")


def discover(
    data: Source,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="RUN", help="The run folder to write.")],
    labels: LabelsFile = None,
    label_column: LabelColumn = None,
    feature_column: FeatureColumn = None,
    text_column: TextColumn = None,
    encoder: EncoderName = None,
    weights: Weights = None,
    n_classes: Annotated[
        int | None, typer.Option("--n-classes", metavar="K", help="All classes, known and new; estimated if left out.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="rpim, or to compare: pim tim rim gcd kmeans uno orca rankstats spreadlabels selftraining "
            "umaphdbscan.",
        ),
    ] = "rpim",
    preset: Annotated[str, typer.Option(metavar="default|paper", help="What is not given below.")] = "default",
    trade_off: Annotated[float | None, typer.Option(help="Weight of the conditional entropy; 0.1 if left out.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="0.01 if left out.")] = None,
    beta: Annotated[float | None, typer.Option(help="Softening of the labels (rpim); 0.2 if left out.")] = None,
    abstain: Annotated[
        float | None, typer.Option(help="Share of the unlabelled rows to leave without class: those that fit least.")
    ] = None,
    n_members: Annotated[
        int | None,
        typer.Option(metavar="M", help="Fits in the committee; 1 for a single fit. 16 for rpim if left out, else 1."),
    ] = None,
    seed: Seed = 0,
    no_normalize: Annotated[bool, typer.Option("--no-normalize", help="Keep the lengths of the rows.")] = False,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="What may be used, such as 4GB: rows that do not fit stay on disk."),
    ] = None,
    ray: RayAddress = None,
    workers: Workers = None,
    no_report: NoReport = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    device: Annotated[str | None, typer.Option(help="A torch device; a GPU where there is one.")] = None,
) -> None:
    """Give every row of DATA its class, known or new, and write the run folder."""
    from rpim.runs.run_folder import check_target

    check_workers(ray, workers)
    budget = None if memory is None else as_bytes(memory)
    check_target(output, overwrite)
    from rpim.cli.embed import embed_for_run, read_data
    from rpim.cli.fitting import check_problem, checkpoint_of, fit, make_model, spread_over
    from rpim.data.feature_set import FeatureSet

    rows = read_data(
        data,
        labels,
        label_column=label_column,
        feature_column=feature_column,
        text_column=text_column,
        encoder=encoder,
        weights=weights,
        memory=budget,
    )
    check_problem(rows, data, n_classes, n_members)
    given = {
        "n_members": n_members,
        "trade_off": trade_off,
        "weight_decay": weight_decay,
        "beta": beta,
        "abstain": abstain,
    }
    model = make_model(
        method,
        choose("--preset", preset, ("default", "paper")),
        device,
        {name: value for name, value in given.items() if value is not None},
    )
    model.set_params(n_classes=n_classes, normalize=not no_normalize, random_state=seed, verbose=not quiet)
    with spread_over(ray, workers, model) as spread:
        embedded = None
        if not isinstance(rows, FeatureSet):
            embedded = embed_for_run(rows, output, encoder, weights, device, quiet=quiet)
            rows = FeatureSet.read(embedded, memory=budget)
            check_problem(rows, data, n_classes, n_members)  # some may have been skipped
        features = rows
        checkpoint = checkpoint_of(model, features, output)
        with _resumable(checkpoint, quiet=quiet):
            discovery = fit(model, features, data, checkpoint, spread, quiet=quiet)
            discovery.save(output, overwrite=overwrite, features=embedded)
    with written(output):
        page = None if no_report else report_of_run(discovery, output, features, quiet=quiet)
        if not quiet:
            from rpim.cli.summary import print_next_steps

            console = console_of_output()
            print_findings(console, discovery, features, output)
            print_next_steps(console, discovery, output, page)


@contextlib.contextmanager
def _resumable(checkpoint: Checkpoint, *, quiet: bool) -> Iterator[None]:
    """What a stop leaves of the fit is told, and cleared up once the run is written."""
    if checkpoint.exists and not quiet:
        typer.echo(f"Resuming the fit in {checkpoint.folder}.", err=True)
    try:
        yield
    except KeyboardInterrupt:
        if not checkpoint.exists:
            raise
        typer.echo(f"rpim: interrupted; the same command resumes from {checkpoint.folder}.", err=True)
        raise typer.Exit(BAD_INPUT) from None
    checkpoint.remove()


def estimate(
    data: Data,
    labels: LabelsFile = None,
    label_column: LabelColumn = None,
    feature_column: FeatureColumn = None,
    method: Annotated[
        str,
        typer.Option(metavar="NAME", help="neighbors, or to compare: max-acc (GCD's), max-acc-pim (PIM's)."),
    ] = "neighbors",
    at_least: Annotated[int | None, typer.Option(metavar="K", help="No fewer classes than this.")] = None,
    at_most: Annotated[int | None, typer.Option(metavar="K", help="No more classes than this.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the curve behind the estimate: .png or .svg.")
    ] = None,
    seed: Seed = 0,
    no_normalize: Annotated[bool, typer.Option("--no-normalize", help="Keep the lengths of the rows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Estimate how many classes DATA has, known and new, with an interval."""
    from rpim.cli.count_report import as_dict, check_picture, draw, in_words
    from rpim.estimators.class_count import ESTIMATORS

    choose("--method", method, ESTIMATORS)
    picture = None if plot is None else check_picture(plot, overwrite)
    from rpim.data.feature_set import FeatureSet

    features = FeatureSet.read(data, labels, label_column=label_column, feature_column=feature_column)
    from rpim.cli.fitting import check_problem

    n_known = check_problem(features, data)
    import numpy as np

    from rpim.estimators.n_classes import estimate_n_classes

    found = estimate_n_classes(
        features.rows(normalize=not no_normalize),
        np.asarray(features.labels),
        method=method,
        at_least=at_least,
        at_most=at_most,
        normalize=not no_normalize,
        random_state=seed,
        verbose=True,
    )
    if picture is not None:
        draw(found, n_known, method, picture)
    typer.echo(json.dumps(as_dict(found, n_known, method)) if as_json else in_words(found, n_known, method))
