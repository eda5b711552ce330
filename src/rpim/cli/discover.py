"""The commands that find classes: ``rpim discover`` and its ``demo``."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpim._common.errors import InputError, choose
from rpim._common.hardware import as_bytes, memory_limit
from rpim.cli.embed import EncoderNames, TextColumn, Weights
from rpim.cli.report import NoReport, report_of_run
from rpim.cli.terminal import (
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
    console_of_output,
    echo,
    print_findings,
    written,
)

if TYPE_CHECKING:
    from rpim.core.checkpoint import Checkpoint


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="RUN", help="Run folder to write.")] = Path(
        "rpim-demo"
    ),
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Discover the digits 5 to 9 when only 0 to 4 are labelled (offline, takes seconds)."""
    from rpim.runs.run_folder import check_target

    check_target(output, overwrite)
    import torch

    from rpim.cli import demo as digits_demo
    from rpim.cli.fitting import fit
    from rpim.cli.summary import print_line, print_next_steps
    from rpim.estimators import RPIM

    torch.set_num_threads(1)  # with so few rows, threads wait for each other more than they work
    features = digits_demo.digits()
    console = console_of_output()
    console.print("Handwritten digits: 0 to 4 are known classes (partly labelled), 5 to 9 are to be discovered.\n")
    model = RPIM(n_classes=digits_demo.N_CLASSES, random_state=seed, verbose=True)
    discovery = fit(model, features, digits_demo.SOURCE)
    rows = output.with_name(f"{output.name}.features.parquet")
    features.write(rows, overwrite=True)
    discovery.save(output, overwrite=overwrite, features=rows)
    with written(output):
        page = report_of_run(discovery, output, features, pictures=digits_demo.pictures(), quiet=False)
        print_findings(console, discovery, features, output)
        print_line(console, "\nTrue classes of the new classes (the truth is used for this table only):")
        console.print(digits_demo.meanings_table(digits_demo.meanings(discovery, features)))
        print_next_steps(console, discovery, output, page)
        print_line(console, "With your own data: rpim discover PHOTOS|TEXTS.csv|FEATURES.npz -o RUN")


def discover(
    data: Source,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="RUN", help="Run folder to write.")],
    labels: LabelsFile = None,
    add_labels: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Add the labels in FILE, such as the completed file of rpim suggest, to the others."
        ),
    ] = None,
    label_column: LabelColumn = None,
    feature_column: FeatureColumn = None,
    text_column: TextColumn = None,
    encoder: EncoderNames = None,
    weights: Weights = None,
    n_classes: Annotated[
        int | None,
        typer.Option("--n-classes", metavar="K", help="Number of classes, known and new (default: estimated)."),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="rpim, or a baseline: pim tim rim gcd kmeans uno orca rankstats spreadlabels selftraining "
            "umaphdbscan.",
        ),
    ] = "rpim",
    preset: Annotated[
        str,
        typer.Option(
            metavar="default|paper",
            help="paper: the published procedure of the method, which options must not contradict.",
        ),
    ] = "default",
    trade_off: Annotated[
        float | None, typer.Option(help="lambda, the weight of the conditional entropy (default: 0.1).")
    ] = None,
    weight_decay: Annotated[
        float | None, typer.Option(help="Weight decay (default: 0.01, less with over 200 classes).")
    ] = None,
    beta: Annotated[
        float | None, typer.Option(help="Share of the pseudo-label in mixed labels, rpim only (default: 0.2).")
    ] = None,
    abstain: Annotated[float | None, typer.Option(help="Share of the unlabelled rows to reject as outliers.")] = None,
    n_members: Annotated[
        int | None,
        typer.Option(metavar="M", help="Committee size; 1 is a single fit (default: 16 for rpim, else 1)."),
    ] = None,
    no_labels: Annotated[
        bool, typer.Option("--no-labels", help="Ignore labels, if there are any: cluster all rows into groups.")
    ] = False,
    namer: Annotated[
        str | None,
        typer.Option(
            metavar="MODULE:FUNCTION",
            help="Function that names the new classes, given typical texts and keywords (default: from keywords).",
        ),
    ] = None,
    seed: Seed = 0,
    no_normalize: Annotated[
        bool, typer.Option("--no-normalize", help="Do not normalize the rows to unit length.")
    ] = False,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory budget, such as 4GB; rows that exceed it stay on disk."),
    ] = None,
    ray: RayAddress = None,
    workers: Workers = None,
    no_report: NoReport = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    device: Annotated[str | None, typer.Option(help="torch device (default: a GPU if available).")] = None,
) -> None:
    """Assign every row of DATA to a known or new class, and write a run folder.

    Without any label, the rows are clustered into groups.
    """
    from rpim.runs.run_folder import check_target

    check_workers(ray, workers)
    budget = None if memory is None else as_bytes(memory)
    check_target(output, overwrite)
    from rpim.cli.embed import embed_for_run, read_data
    from rpim.cli.fitting import (
        check_clusters,
        check_parameters,
        check_problem,
        checkpoint_of,
        fit,
        load_namer,
        make_model,
        named,
        spread_over,
    )
    from rpim.data.feature_set import FeatureSet
    from rpim.data.formats.label_files import read_added_labels

    name_class = None if namer is None else load_namer(namer)
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
    if no_labels:
        if add_labels is not None:
            raise InputError("--no-labels ignores labels, but --add-labels adds some: give one of them.")
        rows = dataclasses.replace(rows, labels=None)
    if add_labels is not None:
        rows = dataclasses.replace(rows, labels=read_added_labels(add_labels, rows.ids, rows.labels))
    n_known = check_problem(rows, data, n_classes, n_members, no_labels=no_labels)
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
    model.set_params(n_classes=n_classes, random_state=seed, verbose=not quiet)
    if no_normalize:
        model.set_params(normalize=False)
    check_parameters(model)
    if n_known == 0:
        check_clusters(model, data, method, preset)
    with spread_over(ray, workers, model) as spread:
        embedded = None
        if not isinstance(rows, FeatureSet):
            embedded = embed_for_run(rows, output, encoder, weights, device, quiet=quiet)
            rows = FeatureSet.read(embedded, memory=budget)
            check_problem(rows, data, n_classes, n_members, no_labels=no_labels)  # some may have been skipped
        features = rows
        checkpoint = checkpoint_of(model, features, output, overwrite=overwrite)
        with _resumable(checkpoint, quiet=quiet), memory_limit(budget):
            discovery = fit(model, features, data, checkpoint, spread, quiet=quiet)
            if name_class is not None:
                discovery = named(discovery, name_class)
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
    """Say that a fit is resumed; remove its checkpoint once the run is written."""
    if checkpoint.exists and not quiet:
        echo(f"Resuming the fit in {checkpoint.folder}.", err=True)
    try:
        yield
        checkpoint.remove()
    finally:
        checkpoint.close()
