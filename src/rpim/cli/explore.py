"""``rpim explore``: open a run in the browser."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpim._common.errors import INTERRUPTED, InputError
from rpim.cli.embed import Weights
from rpim.cli.terminal import Images, RunFeatures, echo

if TYPE_CHECKING:
    from rpim.explorer.workbench import Workbench


def explore(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder written by rpim discover.")],
    features: RunFeatures = None,
    images: Images = None,
    weights: Weights = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address; do not open a browser.")] = False,
) -> None:
    """Open a run in the browser: search, filter, rename, merge, split and correct its classes, refit, export.

    Rows are found by words, by meaning (the encoder of the run embeds what you type) and by charts of metadata columns.
    """
    from rpim.explorer.from_python import check_installed, listen

    check_installed()
    if images is not None and not images.is_dir():
        raise InputError(f"--images {images} is not a folder: give the folder of the images.")
    listening = listen(port)
    from rpim.explorer.workbench import Workbench

    echo(f"Opening {run} …")
    with contextlib.closing(Workbench(run, features, images, weights or ())) as bench:
        if bench.pictures.missing():
            echo("The images have moved: give --images FOLDER to show them.")
        bench.versions.numbers()
        for number, problem in bench.versions.problems.items():
            echo(f"Refit {number} is left out: {problem}")
        serve(bench, listening, open_browser=not no_browser)


def serve(bench: Workbench, listening: socket.socket, *, open_browser: bool) -> None:
    """Serve until Ctrl-C."""
    from rpim.explorer.from_python import Service

    service = Service(bench, listening)
    for name in ("SIGTERM", "SIGHUP"):  # after a clean end too, uvicorn sends itself the signal that it got
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _end)
    try:
        echo(f"{service.address(token=service.token)}\nEvery decision is saved immediately. Press Ctrl-C to stop.")
        if open_browser:
            code = service.guard.new_code()
            threading.Thread(target=webbrowser.open, args=(service.address(code=code),), daemon=True).start()
        service.run()
    except KeyboardInterrupt:
        echo(f"Stopped. The decisions are in {bench.versions.store.path}.")
        raise typer.Exit(INTERRUPTED) from None


def _end(number: int, frame: Any) -> None:
    """End as the signal asks, but close the database before."""
    raise SystemExit(128 + number)
