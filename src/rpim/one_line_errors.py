"""What a command says when it cannot go on: one line on standard error, and an exit code."""

from __future__ import annotations

import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from rpim.errors import BAD_INPUT, FAILURE, InputError


class OneLineErrors(TyperGroup):
    """Every error is one line on standard error: exit code 2 for bad input, 1 for a failure; --debug shows it all."""

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


def _in_one_line(error: BaseException) -> tuple[str, int]:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted; nothing was written.", BAD_INPUT
    if isinstance(error, InputError):
        return " ".join(str(error).split()), BAD_INPUT
    from rpim.files import disk_is_full

    if disk_is_full(error):
        return "no space left on the disk, so nothing was written: free some of it.", BAD_INPUT
    reason = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {reason} (run rpim --debug … to see where)", FAILURE
