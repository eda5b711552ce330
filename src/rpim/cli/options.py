"""Arguments and options that several commands share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rpim._common.errors import BAD_INPUT, InputError

Data = Annotated[
    Path, typer.Argument(metavar="DATA", help="Features: .npz, .npy, .parquet, .csv, or a PIM feature folder.")
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
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output once the new one is complete.")]
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


@contextlib.contextmanager
def resumable_parts(output: Path) -> Iterator[None]:
    """On Ctrl-C, say that the same command resumes."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"rpim: interrupted; the same command resumes from {output}.parts.", err=True)
        raise typer.Exit(BAD_INPUT) from None
