"""The command line: parse, call, print.

torch takes seconds to import, so everything that needs it is imported inside the command that does.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from rpim._version import __version__
from rpim.benchmark.command import benchmark
from rpim.discover_command import demo, discover, estimate
from rpim.embed.command import embed
from rpim.embed.finetune_command import finetune
from rpim.explorer.command import explore
from rpim.one_line_errors import OneLineErrors
from rpim.report.command import report
from rpim.run_commands import classes, evaluate, export, extend, predict

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
    demo, discover, estimate, predict, extend, evaluate, classes, export, explore, report, embed, finetune, benchmark,
):  # fmt: skip
    app.command()(command)


if __name__ == "__main__":
    main()
