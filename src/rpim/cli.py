"""The command line: parse, call, print.

torch takes seconds to import, so everything that needs it is imported inside the command that does.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpim._version import __version__
from rpim.benchmark.command import benchmark
from rpim.choices import choose
from rpim.cluster.options import RayAddress, Workers, check_workers
from rpim.embed.command import EncoderName, TextColumn, Weights, embed
from rpim.embed.finetune_command import finetune
from rpim.errors import BAD_INPUT
from rpim.explorer.command import explore
from rpim.one_line_errors import OneLineErrors
from rpim.report.command import NoReport, report, report_of_run, rows_of_extension

if TYPE_CHECKING:
    from rich.console import Console

    from rpim.discovery import Discovery
    from rpim.features import FeatureSet
    from rpim.unfinished import Unfinished


app = typer.Typer(
    name="rpim",
    cls=OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Find the classes in partly labelled embeddings: known ones recognised, new ones discovered.",
)


def main() -> None:
    """The ``rpim`` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a label that the terminal cannot show must not end the command
            stream.reconfigure(errors="backslashreplace")
    app()


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rpim {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


Data = Annotated[Path, typer.Argument(metavar="DATA", help=".npz, .npy, .parquet, .csv, or PIM's folder.")]
Source = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Features: .npz, .npy, .parquet, a folder of those, .csv, PIM's. Or images or texts, as rpim embed takes.",
    ),
]
LabelsFile = Annotated[
    Path | None,
    typer.Option("--labels", metavar="FILE", help="Labels from a file of their own: .npy, .csv, .txt, .json."),
]
LabelColumn = Annotated[str | None, typer.Option(metavar="C", help="The column or key with the labels.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that rpim discover wrote.")]
FeatureColumn = Annotated[
    str | None, typer.Option(metavar="C", help="The .parquet column or .npz key with the embeddings.")
]
New = Annotated[
    Path, typer.Argument(metavar="NEW", help="New rows, in any format that discover reads, images and texts too.")
]
AnyEncoder = Annotated[
    bool, typer.Option("--any-encoder", help="Go on where the rows look like those of another encoder.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there, once the new one is complete.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Makes the run repeatable.")]


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="RUN", help="The run folder.")] = Path("rpim-demo"),
    seed: Seed = 0,
    overwrite: Overwrite = False,
) -> None:
    """Discover the digits 5 to 9 in images of which only 0 to 4 are known (offline, seconds)."""
    from rpim.run_folder import check_target

    check_target(output, overwrite)
    import torch

    from rpim import demo as digits_demo
    from rpim.fitting import fit
    from rpim.methods import RPIM
    from rpim.summary import print_next_steps, print_plainly

    torch.set_num_threads(1)  # with so few rows, threads wait for each other more than they work
    features = digits_demo.digits()
    console = _console()
    console.print("Handwritten digits: 0 to 4 are known by some labelled examples, 5 to 9 are to be discovered.\n")
    model = RPIM(n_classes=digits_demo.N_CLASSES, random_state=seed, verbose=True)
    discovery = fit(model, features, digits_demo.SOURCE, resamples=5)
    rows = output.with_name(f"{output.name}.features.parquet")
    features.write(rows, overwrite=True)
    discovery.save(output, overwrite=overwrite, features=rows)
    with _written(output):
        page = report_of_run(discovery, output, features, pictures=digits_demo.pictures(), quiet=False)
        _print_findings(console, discovery, features)
        print_plainly(console, "\nWhat the new classes are (the truth serves this table alone, never to find them):")
        console.print(digits_demo.meanings_table(digits_demo.meanings(discovery, features)))
        print_next_steps(console, discovery, output, page)
        print_plainly(console, "With data of your own: rpim discover PHOTOS|TEXTS.csv|FEATURES.npz -o RUN")


@app.command()
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
    settings: Annotated[str, typer.Option(metavar="default|paper", help="What is not given below.")] = "default",
    trade_off: Annotated[
        float | None, typer.Option(help="Weight of the conditional entropy; searched if left out.")
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Searched if left out.")] = None,
    beta: Annotated[float | None, typer.Option(help="Softening of the labels (rpim); searched if left out.")] = None,
    abstain: Annotated[
        float | None, typer.Option(help="Share of the unlabelled rows to leave without class: those that fit least.")
    ] = None,
    resamples: Annotated[
        int, typer.Option(min=0, help="Repetitions of the fit that show which classes come back; 0 for none.")
    ] = 5,
    seed: Seed = 0,
    no_normalise: Annotated[bool, typer.Option("--no-normalise", help="Keep the lengths of the rows.")] = False,
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
    from rpim.run_folder import check_target

    check_workers(ray, workers)
    check_target(output, overwrite)
    from rpim.embed.command import embed_for_run, read_data
    from rpim.features import FeatureSet
    from rpim.fitting import check_problem, fit, make_model, spread_over, under_way

    rows = read_data(
        data, labels, label_column=label_column, feature_column=feature_column, text_column=text_column,
        encoder=encoder, weights=weights, memory=memory,
    )  # fmt: skip
    check_problem(rows, data, n_classes)
    given = {"trade_off": trade_off, "weight_decay": weight_decay, "beta": beta, "abstain": abstain}
    model = make_model(
        method, choose("--settings", settings, ("default", "paper")), device,
        {name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    model.set_params(n_classes=n_classes, normalise=not no_normalise, random_state=seed, verbose=not quiet)
    with spread_over(ray, workers, model) as place:
        embedded = None
        if not isinstance(rows, FeatureSet):
            embedded = embed_for_run(rows, output, encoder, weights, device, quiet=quiet)
            rows = FeatureSet.read(embedded)
            check_problem(rows, data, n_classes)  # some may have been skipped
        features = rows
        unfinished = under_way(model, features, output)
        with _goes_on(unfinished, quiet=quiet):
            discovery = fit(model, features, data, resamples, unfinished, place)
            discovery.save(output, overwrite=overwrite, features=embedded)
    with _written(output):
        page = None if no_report else report_of_run(discovery, output, features, quiet=quiet)
        if not quiet:
            from rpim.summary import print_next_steps

            console = _console()
            _print_findings(console, discovery, features)
            print_next_steps(console, discovery, output, page)


@app.command()
def estimate(
    data: Data,
    labels: LabelsFile = None,
    label_column: LabelColumn = None,
    feature_column: FeatureColumn = None,
    method: Annotated[
        str,
        typer.Option(metavar="NAME", help="neighbours, or to compare: max-acc (GCD's), max-acc-pim (PIM's)."),
    ] = "neighbours",
    at_least: Annotated[int | None, typer.Option(metavar="K", help="No fewer classes than this.")] = None,
    at_most: Annotated[int | None, typer.Option(metavar="K", help="No more classes than this.")] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the curve behind the estimate: .png or .svg.")
    ] = None,
    seed: Seed = 0,
    no_normalise: Annotated[bool, typer.Option("--no-normalise", help="Keep the lengths of the rows.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Estimate how many classes DATA has, known and new, with an interval."""
    from rpim.counting_report import as_dict, check_picture, draw, in_words
    from rpim.search.class_count import ESTIMATORS

    choose("--method", method, ESTIMATORS)
    picture = None if plot is None else check_picture(plot, overwrite)
    from rpim.features import FeatureSet

    features = FeatureSet.read(data, labels, label_column=label_column, feature_column=feature_column)
    from rpim.fitting import check_problem

    n_known = check_problem(features, data)
    import numpy as np

    from rpim.counting import estimate_n_classes

    found = estimate_n_classes(
        features.rows(normalise=not no_normalise), np.asarray(features.labels), method=method, at_least=at_least,
        at_most=at_most, normalise=not no_normalise, random_state=seed, verbose=True,
    )  # fmt: skip
    if picture is not None:
        draw(found, n_known, method, picture)
    typer.echo(json.dumps(as_dict(found, n_known, method)) if as_json else in_words(found, n_known, method))


@app.command()
def predict(
    run: Run,
    new: New,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help=".csv or .parquet; printed if left out. With --ray a folder."
        ),
    ] = None,
    feature_column: FeatureColumn = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of every class.")
    ] = False,
    refined: Annotated[
        bool, typer.Option("--refined", help="Add the refined embedding of each row (.parquet).")
    ] = False,
    any_encoder: AnyEncoder = False,
    text_column: TextColumn = None,
    weights: Weights = None,
    ray: RayAddress = None,
    workers: Workers = None,
    overwrite: Overwrite = False,
) -> None:
    """Give new rows the classes of a run, in files of any size."""
    from rpim.assignments import check_export

    check_workers(ray, workers)
    if ray is not None:
        from rpim.cluster.prediction import predict_command

        predict_command(
            run, new, output, ray, workers, feature_column=feature_column, probabilities=probabilities,
            refined=refined, any_encoder=any_encoder, text_column=text_column, weights=weights, overwrite=overwrite,
        )  # fmt: skip
        return
    if output is not None:
        check_export(output, overwrite)
    from rpim.embed.command import features_of_new
    from rpim.prediction import Predictor

    verbose = output is not None or not sys.stdout.isatty()  # a bar among printed lines could not be read
    predictor = Predictor.load(run)
    with features_of_new(new, run, output, text_column=text_column, weights=weights, quiet=not verbose) as rows:
        predictor.assign_file(
            rows, output, feature_column=feature_column, probabilities=probabilities, refined=refined,
            any_encoder=any_encoder, overwrite=overwrite, verbose=verbose,
        )  # fmt: skip


@app.command()
def extend(
    run: Run,
    new: New,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="RUN", help="The run folder to write.")],
    labels: LabelsFile = None,
    label_column: LabelColumn = None,
    feature_column: FeatureColumn = None,
    any_encoder: AnyEncoder = False,
    text_column: TextColumn = None,
    weights: Weights = None,
    no_report: NoReport = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Add new rows to a run: its classes stay, and new ones are added where the rows call for them."""
    from rpim.run_folder import check_target

    check_target(output, overwrite)
    from rpim.embed.command import features_of_new
    from rpim.features import FeatureSet

    with features_of_new(
        new, run, output, labels=labels, label_column=label_column, text_column=text_column, weights=weights,
        quiet=quiet,
    ) as rows:  # fmt: skip
        if rows == new:
            features = FeatureSet.read(new, labels, label_column=label_column, feature_column=feature_column)
        else:
            features = FeatureSet.read(rows)
        before = _load(run)
        after = before.extended(
            features, source=new.resolve(), command=["rpim", *sys.argv[1:]], any_encoder=any_encoder, verbose=not quiet
        )
        after.save(output, overwrite=overwrite)
    with _written(output):
        page = None
        if not no_report:
            page = report_of_run(after, output, rows_of_extension(before, run, after, features), quiet=quiet)
        if not quiet:
            from rpim.summary import print_extension, print_next_steps

            console = _console()
            print_extension(console, before, after, len(features))
            print_next_steps(console, after, output, page)


@app.command()
def evaluate(
    run: Run,
    truth: Annotated[
        Path, typer.Option(metavar="FILE", help="One true class per row, or with ids: .npy, .csv, .npz, …")
    ],
    truth_column: Annotated[str | None, typer.Option(metavar="C", help="The column or key with the truth.")] = None,
    metric: Annotated[str, typer.Option(metavar="v2|v1|orca", help="Which reading of GCD accuracy.")] = "v2",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compare the rows without a label with the truth: All, Known, Unknown, NMI, ARI."""
    from rpim.evaluation import METRICS, read_truth
    from rpim.evaluation import evaluate as compare

    choose("--metric", metric, METRICS)
    discovery = _load(run)
    result = compare(discovery, read_truth(truth, discovery.ids, truth_column), metric)
    if as_json:
        typer.echo(json.dumps(result.as_dict()))
        return
    left_out = f" ({result.left_out:,} more were left out)" if result.left_out else ""
    typer.echo(f"{result.rows:,} rows without a label{left_out}, GCD accuracy {metric}")
    typer.echo(f"{result}\nNMI {result.nmi:.3f}  ARI {result.ari:.3f}")


@app.command()
def classes(
    run: Run,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help=".csv or .json; printed if left out.")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Every class: size, sureness, stability, nearest known class, typical and doubtful rows."""
    from rpim.assignments import check_export
    from rpim.class_summaries import SUFFIXES, write_classes
    from rpim.explorer.decided_names import decided_names
    from rpim.summary import print_classes, print_plainly

    if output is not None:
        check_export(output, overwrite, SUFFIXES)
    discovery = _load(run)
    decided = decided_names(run)
    if decided.problem:
        typer.echo(f"rpim: {decided.problem}", err=True)
    summaries = decided.given_to(discovery.classes_table())
    if output is None:
        print_classes(_console(), discovery, summaries)
        for sentence in decided.in_words(summaries):
            print_plainly(_console(), sentence)
    else:
        write_classes(summaries, output, overwrite=overwrite)


@app.command()
def export(
    run: Run,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help=".csv or .parquet; see --decisions for others.")
    ],
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions", help="As decided in rpim explore: .csv, .parquet, .jsonl, Label Studio's .json, or a folder."
        ),
    ] = False,
    images: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where images are now, if they moved.")] = None,
    overwrite: Overwrite = False,
) -> None:
    """Write the class of every row, how sure it is, and the runner-up, to one file."""
    if decisions:
        from rpim.explorer.exports import export_run

        typer.echo(export_run(run, output, images, overwrite=overwrite))
        return
    from rpim.assignments import check_export

    check_export(output, overwrite)
    _load(run).export(output, overwrite=overwrite)


app.command()(explore)
app.command()(report)
app.command()(embed)
app.command()(finetune)
app.command()(benchmark)


def _load(run: Path) -> Discovery:
    from rpim.discovery import Discovery

    return Discovery.load(run)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def _print_findings(console: Console, discovery: Discovery, features: FeatureSet) -> None:
    from rpim.evaluation import evaluate as compare
    from rpim.summary import print_plainly, print_summary

    print_summary(console, discovery)
    if features.truth is not None:
        console.print()
        print_plainly(console, f"Against the truth, on the rows without a label: {compare(discovery, features.truth)}")


@contextlib.contextmanager
def _goes_on(unfinished: Unfinished, *, quiet: bool) -> Iterator[None]:
    """What a stop leaves of the fit is told, and cleared up once the run is written."""
    if unfinished.exists and not quiet:
        typer.echo(f"Going on with the fit in {unfinished.folder}, which was stopped.", err=True)
    try:
        yield
    except KeyboardInterrupt:
        if not unfinished.exists:
            raise
        typer.echo(f"rpim: interrupted; the same command goes on with what is in {unfinished.folder}.", err=True)
        raise typer.Exit(BAD_INPUT) from None
    unfinished.remove()


@contextlib.contextmanager
def _written(output: Path) -> Iterator[None]:
    """From here on a Ctrl-C ends the printing alone."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"rpim: interrupted, but {output} is complete.", err=True)
        raise typer.Exit(BAD_INPUT) from None


if __name__ == "__main__":
    main()
