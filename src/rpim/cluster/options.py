"""The options of every command that can be spread over a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from rpim.errors import InputError

RayAddress = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="[ADDRESS]",
        help="Spread the work by Ray: over this machine's cores, or over the cluster at HOST:PORT, ray://HOST:PORT or "
        "auto.",
    ),
]
Workers = Annotated[int | None, typer.Option(min=1, metavar="N", help="With --ray: how many; else one a core.")]


def check_workers(ray: str | None, workers: int | None) -> None:
    """Raise where workers are asked for without a cluster."""
    if ray is None and workers is not None:
        raise InputError("--workers says how many workers --ray is to use: say --ray as well, or leave it out.")
