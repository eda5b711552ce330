"""The command line: parse, call, print.

torch takes seconds to import, so everything that needs it is imported inside the command that does.
"""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rpim._common.errors import BAD_INPUT, FAILURE, INTERRUPTED, InputError, MissingColumn
from rpim._common.ray import LOCAL, is_address
from rpim._version import __version__
from rpim.cli.benchmark import benchmark
from rpim.cli.classes import classes
from rpim.cli.discover import demo, discover
from rpim.cli.embed import embed
from rpim.cli.estimate import estimate
from rpim.cli.explore import explore
from rpim.cli.export import export
from rpim.cli.finetune import finetune
from rpim.cli.report import report
from rpim.cli.runs import evaluate, extend, predict
from rpim.cli.suggest import suggest
from rpim.cli.terminal import echo

_TYPED = "rpim.typed"
"""The key of the arguments as they were typed."""


class OneLineErrors(TyperGroup):
    """Print errors as one line on stderr; --debug adds the traceback.

    The exit code is 2 for bad input, 1 for failures and 130 for Ctrl-C.
    """

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; wrong usage is one line too, in the place of typer's box."""
        if not extra.get("standalone_mode", True):
            return super().main(*args, **extra)
        try:
            code = super().main(*args, **{**extra, "standalone_mode": False})
        except Exception as error:
            # Newer versions of typer have their own copy of click, so the class may not be that of click.
            if not hasattr(error, "format_message"):
                raise
            if type(error).__name__ != "NoArgsIsHelpError":  # rpim without a command has printed its help
                echo(f"rpim: {_usage_error(error)}", err=True)
            sys.exit(BAD_INPUT)
        sys.exit(code)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; ``--ray`` without an address becomes ``--ray=local``, which typer cannot express."""
        ctx.meta[_TYPED] = args
        return list(super().parse_args(ctx, _with_address(args)))

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt) as error:
            # Errors raised by typer carry their exit code; a closed pipe is not an error.
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort | BrokenPipeError):
                raise
            if ctx.params.get("debug"):
                echo(traceback.format_exc().rstrip(), err=True)
            message, code = _in_one_line(error)
            if isinstance(error, MissingColumn):
                message = _with_command(message, error.options, ctx)
            echo(f"rpim: {message}", err=True)
            raise typer.Exit(code) from error


def _usage_error(error: Any) -> str:
    """What is wrong with the arguments, and where the right ones are listed."""
    said = " ".join(error.format_message().split()).rstrip(".?")
    context = getattr(error, "ctx", None)
    command = f"rpim {context.info_name}" if context is not None and context.parent is not None else "rpim"
    return f"{said}{'?' if 'Did you mean' in said else '.'} See {command} --help."


def _with_address(args: list[str]) -> list[str]:
    """
    >>> _with_address(["discover", "--ray", "rows.npy", "-o", "run"])
    ['discover', '--ray=local', 'rows.npy', '-o', 'run']
    >>> _with_address(["discover", "rows.npy", "--ray", "10.0.0.1:6379"])
    ['discover', 'rows.npy', '--ray', '10.0.0.1:6379']
    """
    following = [*args, ""][1:]
    return [
        f"--ray={LOCAL}" if arg == "--ray" and not is_address(after) else arg
        for arg, after in zip(args, following, strict=True)
    ]


def _with_command(message: str, options: Mapping[str, str], ctx: Any) -> str:
    """Add the command as it was typed with these options, as far as it has them; the message as it is without any."""
    typed = ctx.meta[_TYPED]
    command = ctx.command.get_command(ctx, ctx.invoked_subcommand)
    has = {name for parameter in command.params for name in parameter.opts}
    wanted = {name: value for name, value in options.items() if name in has and name not in typed}
    if "--labels" in typed:
        wanted.pop("--label-column", None)
    if not wanted:
        return message
    words = [word for pair in wanted.items() for word in pair]
    return f"{message.removesuffix('.')}, such as {shlex.join(['rpim', *typed, *words])}"


def _in_one_line(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        from rpim._common.work_folder import resumable_work

        kept = " and ".join(map(str, resumable_work()))
        return (
            f"interrupted; {f'the same command resumes from {kept}' if kept else 'no file was written'}.",
            INTERRUPTED,
        )
    if isinstance(error, InputError):
        return " ".join(str(error).split()), BAD_INPUT
    from rpim._common.files import disk_is_full

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
    help="Generalized category discovery: assign partly labelled embeddings to known and new classes.",
)


def main() -> None:
    """The ``rpim`` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a label that the terminal cannot show must not end the command
            stream.reconfigure(errors="backslashreplace")
    app()


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"rpim {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
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
    suggest,
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
