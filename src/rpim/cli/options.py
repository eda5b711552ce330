"""Arguments and options that several commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rpim._common.errors import BAD_INPUT, InputError

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


RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Spread the work by Ray: over this machine's cores, or over the cluster at HOST:PORT or auto.",
    ),
]
Workers = Annotated[int | None, typer.Option(min=1, metavar="N", help="With --ray: how many; else one a core.")]


def check_workers(ray: str | None, workers: int | None) -> None:
    """Raise where workers are asked for without a cluster."""
    if ray is None and workers is not None:
        raise InputError("--workers says how many workers --ray is to use: say --ray as well, or leave it out.")


@contextlib.contextmanager
def kept_in_parts(output: Path) -> Iterator[None]:
    """Say at a Ctrl-C that what is done of a folder is not lost."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(
            f"rpim: interrupted; what is done is in {output}.parts, and the same command goes on from there.", err=True
        )
        raise typer.Exit(BAD_INPUT) from None
