"""The command line: parse, call, print.

torch takes seconds to import, so everything that needs it is imported inside the command that does.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rpim._version import __version__
from rpim.cli.benchmark import benchmark
from rpim.cli.discover import demo, discover, estimate
from rpim.cli.embed import embed
from rpim.cli.errors import OneLineErrors
from rpim.cli.explore import explore
from rpim.cli.finetune import finetune
from rpim.cli.report import report
from rpim.cli.runs import classes, evaluate, export, extend, predict

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


for command in (
    demo,
    discover,
    estimate,
    predict,
    extend,
    evaluate,
    classes,
    export,
    explore,
    report,
    embed,
    finetune,
    benchmark,
):
    app.command()(command)


if __name__ == "__main__":
    main()
