"""The server of an open run: its socket, its keys, and its background jobs."""

from __future__ import annotations

import importlib.util
import secrets
import socket
from typing import TYPE_CHECKING

from rpim._common.errors import InputError, first_line

if TYPE_CHECKING:
    import uvicorn

    from rpim.explorer.background import Background
    from rpim.explorer.guard import Guard
    from rpim.explorer.workbench import Workbench

_LIBRARIES = ("fastapi", "uvicorn", "PIL")


class Service:
    """The server of an open run, ready to run in some thread.

    Parameters
    ----------
    bench : Workbench
        The open run.
    listening : socket
        Where to serve it.
    framed : bool
        Whether notebooks may show the page.

    Attributes
    ----------
    token : str
        The key of the address.
    port : int
        The port of the socket.
    """

    def __init__(self, bench: Workbench, listening: socket.socket, *, framed: bool = False) -> None:
        import uvicorn

        from rpim.explorer.background import Background
        from rpim.explorer.guard import Connection
        from rpim.explorer.server import make_app

        self._listening = listening
        self.token, self.port = secrets.token_urlsafe(32), int(listening.getsockname()[1])
        self.background: Background = Background(bench)
        self.guard: Guard = make_app(
            bench, self.background, self.token, self.port, lambda: self.server.should_exit, framed=framed
        )
        self.server: uvicorn.Server = uvicorn.Server(
            uvicorn.Config(
                self.guard, http=Connection, log_level="warning", access_log=False, timeout_graceful_shutdown=3
            )
        )

    def address(self, host: str = "127.0.0.1", **key: str) -> str:
        """The address of the page, with a token or a code."""
        query = "".join(f"?{name}={value}" for name, value in key.items())
        return f"http://{host}:{self.port}/{query}"

    def run(self) -> None:
        """Serve, with the background jobs, until the server should exit."""
        try:
            self.background.map()
            self.background.suggest_names()
            self.server.run(sockets=[self._listening])
        finally:
            self.background.end()


def check_installed() -> None:
    """Raise if the extra `explore` is not installed."""
    missing = [name for name in _LIBRARIES if importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"The explorer needs {', '.join(missing)}, which is not installed: pip install 'rpim[explore]'."
        )


def listen(port: int) -> socket.socket:
    """A socket on localhost at this port; 0 picks a free one."""
    # IPPROTO_TCP is explicit, because asyncio sets TCP_NODELAY only on sockets that declare it.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()
    except (OSError, OverflowError) as error:
        listening.close()
        raise InputError(
            f"Port {port} cannot be used ({first_line(error).split('] ')[-1]}): give another --port, or leave it out."
        ) from error
    return listening
