"""``rpim explore``: open a run in the browser."""

from __future__ import annotations

import contextlib
import importlib.util
import secrets
import signal
import socket
import threading
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpim._common.errors import InputError, first_line
from rpim.cli.embed import Weights
from rpim.cli.terminal import echo

if TYPE_CHECKING:
    from rpim.explorer.workbench import Workbench


def explore(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run folder written by rpim discover.")],
    features: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Features of the run, if they have moved.")
    ] = None,
    images: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder of the images, if they have moved.")
    ] = None,
    weights: Weights = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address; do not open a browser.")] = False,
) -> None:
    """Open a run in the browser: search, filter, rename, merge, split and correct its classes, refit, export.

    Rows are found by words, by meaning (the encoder of the run embeds what you type) and by charts of metadata columns.
    """
    missing = [name for name in ("fastapi", "uvicorn", "PIL") if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"rpim explore needs {', '.join(missing)}, which is not installed: pip install 'rpim[explore]'."
        )
    if images is not None and not images.is_dir():
        raise InputError(f"--images {images} is not a folder: give the folder of the images.")
    listening = listen(port)
    from rpim.explorer.workbench import Workbench

    echo(f"Opening {run} …")
    with contextlib.closing(Workbench(run, features, images, weights)) as bench:
        if bench.pictures.missing():
            echo("The images have moved: give --images FOLDER to show them.")
        bench.versions.numbers()
        for number, problem in bench.versions.problems.items():
            echo(f"Refit {number} is left out: {problem}")
        serve(bench, listening, open_browser=not no_browser)


def listen(port: int) -> socket.socket:
    """A socket on localhost at this port; 0 picks a free one."""
    # IPPROTO_TCP is explicit, because asyncio sets TCP_NODELAY only on sockets that declare it.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise InputError(
            f"Port {port} cannot be used ({first_line(error).split('] ')[-1]}): give another --port, or leave it out."
        ) from error
    return listening


def serve(bench: Workbench, listening: socket.socket, *, open_browser: bool) -> None:
    """Serve until Ctrl-C."""
    import uvicorn

    from rpim.explorer.background import Background
    from rpim.explorer.connections import Connection
    from rpim.explorer.server import make_app

    port = listening.getsockname()[1]
    token, code = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
    background = Background(bench)
    app = make_app(bench, background, token, port, lambda: server.should_exit, code)
    server = uvicorn.Server(
        uvicorn.Config(app, http=Connection, log_level="warning", access_log=False, timeout_graceful_shutdown=3)
    )
    address = f"http://127.0.0.1:{port}/"
    for name in ("SIGTERM", "SIGHUP"):  # after a clean end too, uvicorn sends itself the signal that it got
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _end)
    try:
        echo(f"{address}?token={token}\nEvery decision is saved immediately. Press Ctrl-C to stop.")
        background.map()
        background.suggest_names()
        if open_browser:
            threading.Thread(target=webbrowser.open, args=(f"{address}?code={code}",), daemon=True).start()
        server.run(sockets=[listening])
    except KeyboardInterrupt:
        echo(f"Stopped. The decisions are in {bench.versions.store.path}.")
    finally:
        background.end()


def _end(number: int, frame: Any) -> None:
    """End as the signal asks, but close the database before."""
    raise SystemExit(128 + number)
