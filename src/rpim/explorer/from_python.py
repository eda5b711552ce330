"""``rpim.explore`` opens a discovery in the browser or in a notebook cell; and the server of an open run, which
``rpim explore`` runs too.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import secrets
import socket
import sys
import tempfile
import threading
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rpim._common.errors import InputError, first_line
from rpim._common.files import RUN_FILE, StrPath, full_path
from rpim.data.feature_set import FeatureSet
from rpim.report.pictures import check_rows
from rpim.runs.run_folder import (
    FEATURES_FILE,
    read_assignments,
    read_run_file,
    recorded_features_path,
)

if TYPE_CHECKING:
    import uvicorn

    from rpim.explorer.background import Background
    from rpim.explorer.guard import Guard
    from rpim.explorer.workbench import Workbench
    from rpim.runs.discovery import Discovery

_LIBRARIES = ("fastapi", "uvicorn", "PIL")
_START_SECONDS = 30.0
_STOP_SECONDS = 10.0
_HEIGHT = 720


def explore(
    discovery: Discovery | StrPath,
    run: StrPath | None = None,
    *,
    features: FeatureSet | StrPath | None = None,
    images: StrPath | None = None,
    port: int = 0,
    open_browser: bool | None = None,
) -> Explorer:
    """Open a discovery in the explorer: in a notebook as the output of the cell, otherwise in the browser.

    The explorer works on a run folder. A discovery that was neither saved nor loaded is saved first, to `run` or to a
    temporary folder, and a line says where. The server runs in a thread, until `close` or the end of Python.

    Parameters
    ----------
    discovery : Discovery or path
        The discovery, or its run folder.
    run : path, optional
        The folder to save the discovery in. If it holds this discovery already, it is opened with its decisions.
    features : FeatureSet or path, optional
        The rows of the fit, if the discovery does not hold them and its run folder does not record them.
    images : path, optional
        The folder of the images, if they have moved.
    port : int
        The port to listen on; 0 picks a free one.
    open_browser : bool, optional
        Open the browser; by default unless in a notebook.

    Returns
    -------
    Explorer
        The open explorer: `url`, `decisions()`, `close()`; also a context manager.

    Raises
    ------
    InputError
        If the extra `explore` is not installed, the features are not found, or the folder holds something else.
    """
    check_installed()
    if images is not None and not Path(images).is_dir():
        raise InputError(f"images={os.fspath(images)!r} is not a folder: give the folder of the images.")
    folder = _run_folder(discovery, run, features)
    rows = None if features is None or isinstance(features, FeatureSet) else Path(features)
    listening = listen(port)
    try:
        from rpim.explorer.workbench import Workbench

        bench = Workbench(folder, rows, None if images is None else Path(images))
    except BaseException:
        listening.close()
        raise
    opened = Explorer(bench, listening)
    if not _in_notebook() if open_browser is None else open_browser:
        threading.Thread(target=webbrowser.open, args=(opened.one_time_url(),), daemon=True).start()
    return opened


class Explorer:
    """A run that is open in the explorer.

    `explore` opens one. It is a context manager, and the output of a notebook cell shows the page.

    Parameters
    ----------
    bench : Workbench
        The open run.
    listening : socket
        Where to serve it.

    Attributes
    ----------
    run : Path
        The run folder, which holds the decisions.
    """

    def __init__(self, bench: Workbench, listening: socket.socket) -> None:
        self.run = bench.run
        self._bench = bench
        self._service = Service(bench, listening, framed=True)
        self._thread = threading.Thread(target=self._service.run, name="explorer", daemon=True)
        self._thread.start()
        self._is_open = True
        atexit.register(self.close)
        end = time.monotonic() + _START_SECONDS
        while not self._service.server.started and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.01)

    @property
    def url(self) -> str:
        """The address with its key, which allows decisions about the run until `close`."""
        return self._service.address(token=self._service.token)

    def one_time_url(self, host: str = "127.0.0.1") -> str:
        """Make an address that works once.

        Parameters
        ----------
        host : str
            127.0.0.1 or localhost.

        Returns
        -------
        str
            The address.
        """
        return self._service.address(host, code=self._service.guard.new_code())

    def decisions(self) -> Any:
        """Return all rows with the decisions about them: the table of ``rpim export --decisions``.

        Returns
        -------
        pandas.DataFrame
            One line per row of the active version: its final `label`, the class that was `found`, and more.
        """
        from rpim.explorer.exports import Decided
        from rpim.runs.discovery_tables import data_frame
        from rpim.runs.versions import Versions

        versions = Versions(self.run)
        with contextlib.closing(versions.store):
            decided = Decided.of(versions, metadata=self._bench.metadata)
        states = {"label": decided.state, "found": decided.version.state}
        classes = {name: [info.name for info in state.classes.values()] for name, state in states.items()}
        return data_frame(decided.columns(), classes)

    def close(self) -> None:
        """Stop the server; a refit in progress continues, and the decisions stay in the run folder."""
        if self._is_open:
            self._is_open = False
            atexit.unregister(self.close)
            self._service.server.should_exit = True
            self._thread.join(_STOP_SECONDS)
            self._bench.close()

    def __enter__(self) -> Explorer:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Explorer({str(self.run)!r}, {self._service.address() if self._is_open else 'closed'})"

    def _repr_html_(self) -> str:
        """The page in a frame, for notebooks, below a link to it."""
        if not self._is_open:
            return "<p>The explorer is closed. Its decisions are in the run folder.</p>"
        name = f"rpim-{secrets.token_hex(8)}"
        return _FRAME.format(
            name=name, height=_HEIGHT, link=self.one_time_url(), page=self.one_time_url(), port=self._service.port
        )


# The page has the host name of the notebook, or else the browser would not send it its cookie. Notebooks of other
# machines, or of an editor, keep the link: they cannot show the page of a server on this machine.
_FRAME = """<div id="{name}">
<p><a href="{link}" target="_blank" rel="noopener">Open the explorer in a tab</a></p>
<iframe title="Explorer" hidden style="width: 100%; height: {height}px; border: 1px solid #8888"></iframe>
<script>
(() => {{
  const host = location.hostname, place = document.getElementById("{name}");
  if (location.protocol !== "http:" || !["localhost", "127.0.0.1"].includes(host)) return;
  const here = (address) => address.replace("//127.0.0.1:", `//${{host}}:`);
  const link = place.querySelector("a"), page = place.querySelector("iframe");
  link.href = here(link.href);
  page.src = here("{page}");
  page.hidden = false;
}})();
</script>
</div>"""


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and hasattr(shell, "kernel")


def _run_folder(discovery: Discovery | StrPath, run: StrPath | None, features: FeatureSet | StrPath | None) -> Path:
    """The run folder of a discovery, which is saved if it has none."""
    from rpim.runs.current_version import choose_version
    from rpim.runs.discovery import Discovery

    if not isinstance(discovery, Discovery):
        if run is not None:
            raise InputError(f"{discovery} is a run folder, so run={os.fspath(run)!r} is not needed: leave it out.")
        opened = choose_version(discovery).run
        if not isinstance(features, FeatureSet):
            return opened
        discovery = Discovery.load(opened)
    rows = features if isinstance(features, FeatureSet) else discovery.features
    if rows is not None:
        check_rows(discovery, rows)
    folder = None  # of the run, if it is saved
    if run is None and discovery.folder is not None:
        folder = choose_version(discovery.folder).run
    elif run is not None and (full_path(run) / RUN_FILE).is_file():
        folder = full_path(run)
        _check_same(discovery, folder)
    is_recorded = _features_are_recorded(folder, discovery.provenance)
    if not is_recorded and features is None and rows is None:
        what = "The discovery" if folder is None else folder
        raise InputError(
            f"{what} does not record where its features are, or they have moved: give features=, the rows of the fit."
        )
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="rpim-")) / "run" if run is None else full_path(run)
        discovery.save(folder)
        kept = "a temporary folder: give run= to choose another" if run is None else "with all decisions about it"
        print(f"The discovery was saved to {folder}, {kept}.")
    if not is_recorded and rows is not None and (features is None or isinstance(features, FeatureSet)):
        rows.write(folder / FEATURES_FILE)
    return folder


def _features_are_recorded(folder: Path | None, provenance: dict[str, Any]) -> bool:
    """Whether the features are in the run folder, or where the run or the unsaved discovery says."""
    if folder is None:
        path = provenance.get("data", {}).get("path")
        return "extends" not in provenance and path is not None and Path(path).exists()
    try:
        recorded_features_path(folder, provenance)
    except InputError:
        return False
    return True


def _check_same(discovery: Discovery, folder: Path) -> None:
    """Raise if a folder holds another discovery."""
    facts = read_run_file(folder)
    kept = read_assignments(folder, facts)
    if not np.array_equal(kept.ids, discovery.ids) or not np.array_equal(
        kept.labels.astype(str), discovery.labels.astype(str)
    ):
        raise InputError(
            f"{folder} holds another discovery, which is not replaced: give another run=, or open it with "
            f"rpim.explore({str(folder)!r})."
        )


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
