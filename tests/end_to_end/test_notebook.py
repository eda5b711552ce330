"""A notebook in a real Jupyter kernel, and its cell with the explorer in a real browser."""

from __future__ import annotations

import functools
import http.server
import threading

import pytest

import rpim

pytest.importorskip("fastapi")

CELLS = [
    """
import numpy as np
from sklearn.datasets import make_blobs
import rpim
import rpim.explorer.background
rpim.explorer.background.Background.map = lambda self: None  # UMAP compiles for long

X, truth = make_blobs(120, n_features=6, centers=4, random_state=1)
names = np.array(["ant", "bee", "cat", "dog"])[truth]
features = rpim.FeatureSet.from_arrays(
    X, labels=np.where((truth < 2) & (np.arange(120) % 2 == 0), names, ""), columns={"price": np.arange(120.0)}
)
model = rpim.RPIM(n_classes=4, n_members=1, random_state=0).fit(features.rows(), features.labels)
discovery = rpim.Discovery.from_fit(model, features)
discovery
""",
    "discovery.to_pandas().groupby('label', observed=True)['price'].count().sum()",
    "[len(f.data) for f in (rpim.map_figure(discovery), rpim.class_sizes_figure(discovery), "
    "rpim.confidence_figure(discovery))]",
    "explorer = rpim.explore(discovery, 'run')\nexplorer",
    """
import httpx
origin = explorer.url.partition("/?")[0]
with httpx.Client(headers={"origin": origin}, follow_redirects=True) as client:
    client.get(explorer.url).raise_for_status()
    asked = {"key": "a-rename", "version": 0, "kind": "rename", "number": 2, "name": "fox"}
    client.post(f"{origin}/api/decisions", json=asked).raise_for_status()
""",
    """
decided = explorer.decisions()
explorer.close()
(decided["label"] == "fox").sum() == (decided["found"] == "new-1").sum() > 0
""",
]


@pytest.mark.slow
def test_a_notebook_fits_shows_explores_decides_and_reads_the_decision(environment, tmp_path, monkeypatch):
    nbclient, nbformat, _ = (
        pytest.importorskip(name, reason=f"{name} is not installed") for name in ("nbclient", "nbformat", "ipykernel")
    )
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # raises what a cell raises
    outputs = [cell.outputs for cell in notebook.cells]
    (shown,) = (one.data["text/html"] for one in outputs[0] if "data" in one)
    assert "<b>Discovery</b>: 120 rows" in shown
    assert outputs[1][-1].data["text/plain"].endswith("120)")
    assert outputs[2][-1].data["text/plain"] == "[4, 2, 2]"
    saved, page = outputs[3]
    assert saved.text == f"The discovery was saved to {tmp_path / 'run'}, with all decisions about it.\n"
    assert "<iframe" in page.data["text/html"]
    assert outputs[5][-1].data["text/plain"] == "np.True_"
    assert rpim.load_version(tmp_path / "run").classes.tolist() == ["ant", "bee", "fox", "new-2"]


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and prints nothing."""

    def log_message(self, *arguments):
        pass


@pytest.fixture
def notebook_server(tmp_path):
    """A folder, as a notebook server on this machine serves it: the port, for two names of the machine."""
    (tmp_path / "served").mkdir()
    handler = functools.partial(Quiet, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_cell_shows_the_explorer_to_notebooks_of_this_machine(
    browser, animals, notebook_server, tmp_path, monkeypatch, host
):
    from playwright.sync_api import expect

    monkeypatch.setattr("rpim.explorer.background.Background.map", lambda self: None)
    with rpim.explore(animals, open_browser=False) as explorer:
        cell = f"<!doctype html><title>Notebook</title>{explorer._repr_html_()}"
        (tmp_path / "served" / "cell.html").write_text(cell, encoding="utf-8")
        page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        page.goto(f"http://{host}:{notebook_server}/cell.html")
        frame = page.frame_locator("iframe")
        expect(frame.get_by_text("new-1").first).to_be_visible(timeout=60_000)
        page.reload()  # the code was used; the cookie is there
        expect(frame.get_by_text("new-1").first).to_be_visible(timeout=60_000)
        with page.context.expect_page() as opened:
            page.get_by_role("link", name="Open the explorer in a tab").click()
        expect(opened.value.get_by_text("new-1").first).to_be_visible(timeout=60_000)
        stranger = browser.new_context().new_page()
        stranger.goto(f"http://{host}:{notebook_server}/cell.html")
        key = "The key is missing or outdated"
        expect(stranger.frame_locator("iframe").get_by_text(key)).to_be_visible(timeout=60_000)
