"""The command line: parse, call, print.

torch takes seconds to import, so everything that needs it is imported inside the command that does.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from rpim._version import __version__
from rpim.benchmark.command import benchmark
from rpim.choices import choose
from rpim.errors import BAD_INPUT, FAILURE, InputError
from rpim.messages import first_line

if TYPE_CHECKING:
    from rich.console import Console

    from rpim.discovery import Discovery
    from rpim.features import FeatureSet
    from rpim.methods.base import DiscoveryEstimator


class OneLineErrors(TyperGroup):
    """Every error is one line on standard error: exit code 2 for bad input, 1 for a failure; --debug shows it all."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt) as error:
            # What typer itself raises, such as a wrong option, knows its exit code; a closed pipe is no error.
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort | BrokenPipeError):
                raise
            if ctx.params.get("debug"):
                traceback.print_exc()
            message, code = _in_one_line(error)
            typer.echo(f"rpim: {message}", err=True)
            raise typer.Exit(code) from error


def _in_one_line(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; nothing was written.", BAD_INPUT
    if isinstance(error, InputError):
        return " ".join(str(error).split()), BAD_INPUT
    from rpim.files import disk_is_full

    if disk_is_full(error):
        return "no space left on the disk, so nothing was written: free some of it.", BAD_INPUT
    reason = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {reason} (run rpim --debug … to see where)", FAILURE


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
LabelsFile = Annotated[
    Path | None,
    typer.Option("--labels", metavar="FILE", help="Labels from a file of their own: .npy, .csv, .txt, .json."),
]
LabelColumn = Annotated[str | None, typer.Option(metavar="C", help="The column or key with the labels.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that rpim discover wrote.")]
FeatureColumn = Annotated[
    str | None, typer.Option(metavar="C", help="The .parquet column or .npz key with the embeddings.")
]
New = Annotated[Path, typer.Argument(metavar="NEW", help="New rows, in any format that discover reads.")]
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
    from rpim.methods import RPIM
    from rpim.summary import print_next_steps, print_plainly

    torch.set_num_threads(1)  # with so few rows, threads wait for each other more than they work
    features = digits_demo.digits()
    console = _console()
    console.print("Handwritten digits: 0 to 4 are known by some labelled examples, 5 to 9 are to be discovered.\n")
    model = RPIM(n_classes=digits_demo.N_CLASSES, random_state=seed, verbose=True)
    discovery = _fit(model, features, digits_demo.SOURCE, resamples=5)
    discovery.save(output, overwrite=overwrite)
    with _written(output):
        _report(console, discovery, features)
        print_plainly(console, "\nWhat the new classes are (the truth serves this table alone, never to find them):")
        console.print(digits_demo.meanings_table(digits_demo.meanings(discovery, features)))
        print_next_steps(console, discovery, output)
        print_plainly(console, "With embeddings of your own: rpim discover FEATURES.npz -o RUN")


@app.command()
def discover(
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="RUN", help="The run folder to write.")],
    labels: LabelsFile = None,
    label_column: LabelColumn = None,
    feature_column: FeatureColumn = None,
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
    overwrite: Overwrite = False,
    quiet: Quiet = False,
    device: Annotated[str | None, typer.Option(help="A torch device; a GPU where there is one.")] = None,
) -> None:
    """Give every row of DATA its class, known or new, and write the run folder."""
    from rpim.run_folder import check_target

    check_target(output, overwrite)
    from rpim.features import FeatureSet

    features = FeatureSet.read(data, labels, label_column=label_column, feature_column=feature_column)
    _check_problem(features, data, n_classes)
    given = {"trade_off": trade_off, "weight_decay": weight_decay, "beta": beta, "abstain": abstain}
    model = _model(
        method, choose("--settings", settings, ("default", "paper")), device,
        {name: value for name, value in given.items() if value is not None},
    )  # fmt: skip
    model.set_params(n_classes=n_classes, normalise=not no_normalise, random_state=seed, verbose=not quiet)
    discovery = _fit(model, features, data, resamples)
    discovery.save(output, overwrite=overwrite)
    if not quiet:
        from rpim.summary import print_next_steps

        with _written(output):
            console = _console()
            _report(console, discovery, features)
            print_next_steps(console, discovery, output)


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
    n_known = _check_problem(features, data)
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
        Path | None, typer.Option("--output", "-o", metavar="FILE", help=".csv or .parquet; printed if left out.")
    ] = None,
    feature_column: FeatureColumn = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add the probability of every class.")
    ] = False,
    refined: Annotated[
        bool, typer.Option("--refined", help="Add the refined embedding of each row (.parquet).")
    ] = False,
    any_encoder: AnyEncoder = False,
    overwrite: Overwrite = False,
) -> None:
    """Give new rows the classes of a run, in files of any size."""
    from rpim.assignments import check_export

    if output is not None:
        check_export(output, overwrite)
    from rpim.prediction import Predictor

    Predictor.load(run).assign_file(
        new, output, feature_column=feature_column, probabilities=probabilities, refined=refined,
        any_encoder=any_encoder, overwrite=overwrite,
        verbose=output is not None or not sys.stdout.isatty(),  # a bar among printed lines could not be read
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
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:
    """Add new rows to a run: its classes stay, and new ones are added where the rows call for them."""
    from rpim.run_folder import check_target

    check_target(output, overwrite)
    from rpim.features import FeatureSet

    features = FeatureSet.read(new, labels, label_column=label_column, feature_column=feature_column)
    before = _load(run)
    after = before.extended(
        features, source=new.resolve(), command=["rpim", *sys.argv[1:]], any_encoder=any_encoder, verbose=not quiet
    )
    after.save(output, overwrite=overwrite)
    if not quiet:
        from rpim.summary import print_extension, print_next_steps

        with _written(output):
            console = _console()
            print_extension(console, before, after, len(features))
            print_next_steps(console, after, output)


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
    from rpim.summary import print_classes

    if output is not None:
        check_export(output, overwrite, SUFFIXES)
    discovery = _load(run)
    if output is None:
        print_classes(_console(), discovery)
    else:
        write_classes(discovery.classes_table(), output, overwrite=overwrite)


@app.command()
def export(
    run: Run,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help=".csv or .parquet")],
    overwrite: Overwrite = False,
) -> None:
    """Write the class of every row, how sure it is, and the runner-up, to one file."""
    from rpim.assignments import check_export

    check_export(output, overwrite)
    _load(run).export(output, overwrite=overwrite)


app.command()(benchmark)


def _load(run: Path) -> Discovery:
    from rpim.discovery import Discovery

    return Discovery.load(run)


def _check_problem(features: FeatureSet, data: Path, n_classes: int | None = None) -> int:
    """How many classes are known; raises what can be said before any work, in the words of the command line."""
    from rpim.labels import encode_labels

    if features.labels is None or features.n_labelled == 0:
        raise InputError(f"{data} has no labelled row: label some rows of at least two classes, or give --labels FILE.")
    known = encode_labels(features.labels)[1]
    if len(known) == 1:
        raise InputError(
            f"The labelled rows of {data} hold only one class, {known[0].item()!r}: label some of at least two classes."
        )
    if features.n_labelled == len(features):
        raise InputError(f"Every row of {data} is labelled, so there is nothing to discover: leave some without label.")
    if n_classes is not None and n_classes < len(known):
        raise InputError(
            f"--n-classes {n_classes} is smaller than the number of known classes, {len(known)}: "
            f"give at least {len(known)}, or leave it out to have it estimated."
        )
    return len(known)


def _model(method: str, settings: str, device: str | None, given: dict[str, float]) -> DiscoveryEstimator:
    import torch

    from rpim.saved_model import METHODS

    name = choose("--method", method, METHODS)
    model = METHODS[name]()
    if "settings" in model.get_params():
        model.set_params(settings=settings)
    elif settings != "default":
        raise InputError(f"--settings is not for --method {name}: leave it out.")
    unknown = sorted(set(given) - set(model.get_params()))
    if unknown:
        raise InputError(f"--{unknown[0].replace('_', '-')} is not for --method {name}: leave it out.")
    try:
        if device is not None:
            torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {device!r} is not there ({first_line(error)}).") from error
    estimator: DiscoveryEstimator = model.set_params(device=device, **given)
    return estimator


def _fit(model: DiscoveryEstimator, features: FeatureSet, source: Path | str, resamples: int) -> Discovery:
    import numpy as np
    from sklearn.utils._param_validation import InvalidParameterError

    from rpim.discovery import Discovery

    start = time.monotonic()
    try:
        views = features.further_rows(model.normalise) if model.uses_views else []
        model.fit(features.rows(normalise=model.normalise), np.asarray(features.labels), views)
    except InvalidParameterError as error:
        raise InputError(str(error)) from error
    where = source.resolve() if isinstance(source, Path) else source
    return Discovery.from_fit(
        model, features, source=where, duration=time.monotonic() - start, command=["rpim", *sys.argv[1:]],
        resamples=resamples, verbose=model.verbose,
    )  # fmt: skip


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def _report(console: Console, discovery: Discovery, features: FeatureSet) -> None:
    from rpim.evaluation import evaluate as compare
    from rpim.summary import print_plainly, print_summary

    print_summary(console, discovery)
    if features.truth is not None:
        console.print()
        print_plainly(console, f"Against the truth, on the rows without a label: {compare(discovery, features.truth)}")


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
