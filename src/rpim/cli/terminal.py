"""Shared options of commands, the console, warnings as single lines, and Ctrl-C after the output is written."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rpim._common.errors import INTERRUPTED, InputError, printable

if TYPE_CHECKING:
    from rich.console import Console

    from rpim.data.feature_set import FeatureSet
    from rpim.estimators.base import DiscoveryEstimator
    from rpim.runs.current_version import ChosenVersion
    from rpim.runs.discovery import Discovery


def echo(message: str, *, err: bool = False) -> None:
    """Print a line without control characters; commands print by this or by `console_of_output` alone."""
    typer.echo(printable(message), err=err)


def console_of_output() -> Console:
    """The console that commands print to; control characters in a text are not printed."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class PrintableConsole(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else printable(text), style, control)

    return PrintableConsole(highlight=False, soft_wrap=False)


def print_findings(console: Console, discovery: Discovery, features: FeatureSet, folder: Path) -> None:
    """Print the summary, and the accuracy if the features have true classes."""
    from rpim.cli.summary import print_line, print_summary
    from rpim.runs.evaluation import evaluate as compare

    print_summary(console, discovery, folder)
    if features.truth is not None:
        console.print()
        print_line(console, f"Accuracy on the unlabelled rows: {compare(discovery, features.truth)}")


def chosen_version(run: Path, version: int | None, as_found: bool) -> tuple[Discovery, ChosenVersion]:
    """The wanted version of a run with its decisions; a line on stderr says which it is, if there are others."""
    from rpim.runs.current_version import choose_version

    chosen = choose_version(run, version, as_found=as_found)
    discovery = chosen.load()
    print_version(chosen, discovery.model)
    return discovery, chosen


def print_version(chosen: ChosenVersion, model: DiscoveryEstimator) -> None:
    """Say on stderr which version of a run is used, if there are others."""
    sentence = chosen.sentence(model)
    if sentence:
        echo(f"rpim: {sentence}", err=True)


@contextlib.contextmanager
def one_line_warnings(*, show: bool = True) -> Iterator[None]:
    """Print warnings as single lines on stderr at the end (a progress bar may be active before); none on failure."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        yield
    for message in dict.fromkeys(str(one.message) for one in caught if issubclass(one.category, UserWarning)):
        if show:
            echo(f"rpim: warning: {as_options(' '.join(message.split()))}", err=True)


def as_options(message: str) -> str:
    """Translate an estimator's message: parameter names become options.

    >>> as_options("Give n_classes=5, or None to have it estimated.")
    'Give --n-classes 5, or leave it out to have it estimated.'
    >>> as_options("n_members=900 is too many (stability_ says which).")
    '--n-members 900 is too many (rpim classes RUN says which).'
    >>> as_options("beta=0.2 contradicts preset='paper': leave beta out, or use preset='default'.")
    '--beta 0.2 contradicts --preset paper: leave --beta out, or use --preset default.'
    """
    said = re.sub(r"\bn_(classes|members)=(\d+)", r"--n-\1 \2", message)
    said = re.sub(r"\bn_(classes|members)\b", r"--n-\1", said)
    said = re.sub(r"\bpreset='(\w+)'", r"--preset \1", said)
    said = re.sub(r"\bbeta=([\d.]*\d)", r"--beta \1", said).replace("leave beta out", "leave --beta out")
    said = said.replace("or None to have", "or leave it out to have")
    return said.replace("stability_ says", "rpim classes RUN says")


@contextlib.contextmanager
def written(output: Path) -> Iterator[None]:
    """The output is complete: Ctrl-C only stops the printing."""
    try:
        yield
    except KeyboardInterrupt:
        echo(f"rpim: interrupted, but {output} is complete.", err=True)
        raise typer.Exit(INTERRUPTED) from None


RunFeatures = Annotated[
    Path | None, typer.Option("--features", metavar="FILE", help="Features of the run, if they have moved.")
]
Images = Annotated[
    Path | None, typer.Option("--images", metavar="FOLDER", help="Folder of the images, if they have moved.")
]
Source = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Features (.npz, .npy, .parquet, .csv, a folder of these, a PIM folder), or images or texts to embed.",
    ),
]
LabelsFile = Annotated[
    Path | None,
    typer.Option("--labels", metavar="FILE", help="Read the labels from this file: .npy, .csv, .txt, .json."),
]
LabelColumn = Annotated[str | None, typer.Option(metavar="C", help="Column (or .npz key) with the labels.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder written by rpim discover.")]
FeatureColumn = Annotated[
    str | None, typer.Option(metavar="C", help=".parquet column (or .npz key) with the embeddings.")
]
New = Annotated[
    Path,
    typer.Argument(metavar="NEW", help="New rows: features, images or texts, in any format that rpim discover reads."),
]
AnyEncoder = Annotated[
    bool, typer.Option("--any-encoder", help="Skip the check that the rows come from the run's encoder.")
]
Version = Annotated[
    int | None,
    typer.Option(
        "--version",
        min=0,
        metavar="N",
        help="Version of the run: 0 is the first fit, 1 its first refit (default: the current one).",
    ),
]
AsFound = Annotated[
    bool, typer.Option("--as-found", help="Without the decisions made in rpim explore; the first fit unless --version.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output once the new one is complete.")]
RawCsv = Annotated[
    bool,
    typer.Option("--raw-csv", help="In a .csv, no quote before texts that a spreadsheet would run as formulas."),
]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Random seed.")]


RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Distribute with Ray: on this machine, or on the cluster at HOST:PORT (or auto).",
    ),
]
Workers = Annotated[int | None, typer.Option(min=1, metavar="N", help="Number of Ray workers (default: one per core).")]


def check_workers(ray: str | None, workers: int | None) -> None:
    """Raise if --workers is given without --ray."""
    if ray is None and workers is not None:
        raise InputError("--workers is the number of Ray workers, but --ray is not given: add --ray, or leave it out.")
