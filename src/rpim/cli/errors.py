"""What a command says when it cannot go on: one line on standard error, and an exit code."""

from __future__ import annotations

import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from rpim._common.errors import BAD_INPUT, FAILURE, InputError
from rpim._common.ray import LOCAL, is_address


class OneLineErrors(TyperGroup):
    """Every error is one line on standard error: exit code 2 for bad input, 1 for a failure; --debug shows it all."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typed, but for a ``--ray`` without an address, which typer's options cannot be."""
        return list(super().parse_args(ctx, _with_address(args)))

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt) as error:
            # What typer itself raises, such as a wrong option, knows its exit code; a closed pipe is no error.
            if hasattr(error, "exit_code") or isinstance(error, typer.Abort | BrokenPipeError):
                raise
            if ctx.params.get("debug"):
                traceback.print_exc()
            message, code = _in_one_line(error)
            typer.echo(f"rpim: {message}", err=True)
            raise typer.Exit(code) from error


def _with_address(args: list[str]) -> list[str]:
    """
    >>> _with_address(["discover", "--ray", "rows.npy", "-o", "run"])
    ['discover', '--ray=local', 'rows.npy', '-o', 'run']
    >>> _with_address(["discover", "rows.npy", "--ray", "10.0.0.1:6379"])
    ['discover', 'rows.npy', '--ray', '10.0.0.1:6379']
    """
    following = [*args[1:], ""]
    return [
        f"--ray={LOCAL}" if arg == "--ray" and not is_address(after) else arg
        for arg, after in zip(args, following, strict=True)
    ]


def _in_one_line(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; nothing was written.", BAD_INPUT
    if isinstance(error, InputError):
        return " ".join(str(error).split()), BAD_INPUT
    from rpim._common.files import disk_is_full

    if disk_is_full(error):
        return "no space left on the disk, so nothing was written: free some of it.", BAD_INPUT
    reason = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {reason} (run rpim --debug … to see where)", FAILURE
