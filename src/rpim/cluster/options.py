"""The options of every command that can be spread over a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

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
