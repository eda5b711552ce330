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

from rpim._common.errors import InputError
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
    """Serve until Ctrl-C or another signal to end."""
    from rpim.explorer.from_python import Service

    service = Service(bench, listening)
    received: list[int] = []

    def stop(number: int, frame: Any) -> None:
        # No exception: Python drops one that is raised while a callback of the garbage collector runs.
        received.append(number)
        service.server.should_exit = True

    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]  # nohup ignores SIGHUP
    before = {number: signal.signal(number, stop) for number in heeded}
    try:
        echo(f"{service.address(token=service.token)}\nEvery decision is saved immediately. Press Ctrl-C to stop.")
        if open_browser:
            code = service.guard.new_code()
            threading.Thread(target=webbrowser.open, args=(service.address(code=code),), daemon=True).start()
        service.run()  # uvicorn, too, handles Ctrl-C and SIGTERM; at its end it sends them again
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
    if received:
        if received[0] == signal.SIGINT:  # after the others the terminal may be gone
            echo(f"Stopped. The decisions are in {bench.versions.store.path}.")
        raise typer.Exit(128 + received[0])
