"""The options of every command that can be spread over a cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rpim._common.errors import BAD_INPUT, InputError

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
