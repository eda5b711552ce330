"""What the commands print, and when."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rpim.errors import BAD_INPUT

if TYPE_CHECKING:
    from rich.console import Console

    from rpim.discovery import Discovery
    from rpim.features import FeatureSet


def console_of_output() -> Console:
    """Where commands print."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def print_findings(console: Console, discovery: Discovery, features: FeatureSet) -> None:
    """What was found, and how it compares with the truth where the features have it."""
    from rpim.evaluation import evaluate as compare
    from rpim.summary import print_plainly, print_summary

    print_summary(console, discovery)
    if features.truth is not None:
        console.print()
        print_plainly(console, f"Against the truth, on the rows without a label: {compare(discovery, features.truth)}")


@contextlib.contextmanager
def written(output: Path) -> Iterator[None]:
    """From here on a Ctrl-C ends the printing alone."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"rpim: interrupted, but {output} is complete.", err=True)
        raise typer.Exit(BAD_INPUT) from None
