"""The explorer under load: first paint, frames a second on the map, decisions a second while a fit runs.

    python benchmarks/explorer.py
    python benchmarks/explorer.py search

The second measures the search by meaning and the charts alone, by requests to the application, with the encoder of the
extra `text-offline`.

Needs the extra `dev` and a chromium. Frames are counted twice: those that the page is asked for, by
requestAnimationFrame, and those that chromium has displayed, by its tracing. A headless chromium without a graphics
card draws WebGL on the processor, so that the frames a second are a lower bound for a real screen.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
from playwright.sync_api import Browser, Page, sync_playwright

from opened import CHROMIUM, explorer, synthetic_run
from rpim import Discovery
from rpim.explorer.workbench import MAP_FILE

FRAMES = """
async () => {
  const times = [];
  await new Promise((done) => {
    const frame = (now) => {
      times.push(now);
      rpim.pan(times.length % 60 < 30 ? 4 : -4, times.length % 60 < 30 ? 2 : -2); // there and back
      times.length < 240 ? requestAnimationFrame(frame) : done();
    };
    requestAnimationFrame(frame);
  });
  return times.slice(1).map((time, k) => time - times[k]);
}"""


DISPLAYED = "Display::FrameDisplayed"


def with_map(run: Path) -> Path:
    """A map that is there, so that none is made in the background of what is measured: a round cloud a class."""
    random = np.random.RandomState(0)
    classes = np.unique(Discovery.load(run).labels, return_inverse=True)[1]
    positions = 40 * random.rand(classes.max() + 1, 2)[classes] + random.randn(len(classes), 2)
    np.save(run / MAP_FILE, positions.astype(np.float32))
    return run


def open_page(browser: Browser, address: str) -> tuple[Page, float, float]:
    """The page, and the seconds to its list of classes and to its map."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    start = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_selector("#class-list .class", timeout=60_000)
    listed = time.perf_counter() - start
    page.wait_for_function("document.body.dataset.ready && rpim.mapFacts.frames > 0", timeout=60_000)
    return page, listed, time.perf_counter() - start


class Frames:
    """Frames a second while the map is moved to and fro.

    Attributes
    ----------
    asked, slowest : float
        By requestAnimationFrame: the mean, and that of the slowest 5 %.
    displayed : float
        By tracing: what the compositor has put on the screen.
    """

    def __init__(self, browser: Browser, page: Page) -> None:
        browser.start_tracing(page=page, categories=["viz"])
        pauses = page.evaluate(FRAMES)
        trace = json.loads(browser.stop_tracing())
        times = sorted(one["ts"] for one in trace["traceEvents"] if one["name"] == DISPLAYED)  # microseconds
        self.asked = 1000 / statistics.mean(pauses)
        self.slowest = 1000 / sorted(pauses)[int(0.95 * len(pauses))]
        self.displayed = 1e6 * (len(times) - 1) / (times[-1] - times[0])


def decisions_per_second(address: str, seconds: float = 5.0, *, while_fitting: bool = False) -> tuple[float, bool]:
    """Renames one after the other, each acknowledged; and whether the fit was running to the end."""
    base = "{0.scheme}://{0.netloc}".format(urlsplit(address))
    with httpx.Client(base_url=base, headers={"origin": base}, follow_redirects=True, timeout=30) as client:
        client.get(address)
        if while_fitting:
            client.post("/api/refit", json={"key": "refit-benchmark", "version": 0})
            time.sleep(6)  # until it has imported torch
        start, done = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            key = f"benchmark-{time.time_ns()}"
            asked = {"key": key, "version": 0, "kind": "rename", "number": 150, "name": f"n{done}"}
            client.post("/api/decisions", json=asked).raise_for_status()
            done += 1
        rate = done / (time.perf_counter() - start)
        if not while_fitting:
            return rate, False
        running = client.post("/api/refit/cancel", json={"key": "cancel-benchmark"}).status_code == 200
        return rate, running


def run_with_metadata(folder: Path, n_rows: int) -> Path:
    """Rows as wide as those of all-MiniLM-L6-v2, with its name and hash, a date, a category and a number."""
    from rpim.embedding.open_encoder import open_encoder

    random = np.random.RandomState(0)
    days = (np.datetime64("2020-01-01") + random.randint(0, 2000, n_rows)).astype(str)
    columns = {
        "day": days.tolist(),
        "city": random.choice(["Bern", "Ulm", "Graz", "Linz"], n_rows).tolist(),
        "price": random.gamma(2, 10, n_rows),
    }
    return synthetic_run(folder, n_rows, 20, 384, open_encoder("texts").metadata(), columns)


def search(n_rows: int = 100_000, times: int = 20) -> None:
    """Milliseconds of a search by words, by a row and by a selection, and of charts with three filters."""
    from starlette.testclient import TestClient

    from rpim.explorer.background import Background
    from rpim.explorer.server import make_app
    from rpim.explorer.workbench import Workbench

    base = "http://127.0.0.1:8000"
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Workbench(with_map(run_with_metadata(Path(folder), n_rows)))) as bench,
        TestClient(make_app(bench, Background(bench), "key", 8000), base_url=base, headers={"origin": base}) as client,
    ):
        client.get("/", params={"token": "key"})
        filters = json.dumps({"own-0": list(range(10)), "own-1": [0, 1], "own-2": list(range(12))})
        asked = {
            "words": lambda k: client.post("/api/rank", json={"words": f"a question about kind {k}"}),
            "a row": lambda k: client.post("/api/rank", json={"rows": [k]}),
            "100 rows": lambda k: client.post("/api/rank", json={"rows": list(range(k, k + 100))}),
            "three filters": lambda k: client.get("/api/charts", params={"filters": filters}),
        }
        for name, ask in asked.items():
            taken, busy = [], []
            for k in range(times + 1):
                start = time.perf_counter(), time.process_time()
                ask(k).raise_for_status()
                taken.append(1000 * (time.perf_counter() - start[0]))
                busy.append(1000 * (time.process_time() - start[1]))
            print(
                f"{n_rows:,} rows, by {name}: the first {taken[0]:.0f} ms, then {statistics.median(taken[1:]):.0f} ms "
                f"(median of {times}; {statistics.median(busy[1:]):.0f} ms of processor time); "
                f"load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        runs = {n: with_map(synthetic_run(Path(folder), n)) for n in (50_000, 100_000, 200_000)}
        for n, run in runs.items():
            with explorer(run) as address:
                page, listed, mapped = open_page(browser, address)
                some = Frames(browser, page)
                kind, share = page.evaluate("[rpim.mapFacts.renderer, rpim.mapFacts.share]")
                page.evaluate("rpim.mapFacts.least = 1")
                every = Frames(browser, page)
                print(
                    f"{n:,} rows: classes after {listed:.2f} s, map after {mapped:.2f} s; panning by {kind} "
                    f"{some.displayed:.0f} frames a second displayed, {some.asked:.0f} asked for (slowest 5 %: "
                    f"{some.slowest:.0f}) with {share:.0%} of the points drawn while it moves; with all "
                    f"{every.displayed:.0f} and {every.asked:.0f}; "
                    f"load {os.getloadavg()[0]:.1f}",
                    flush=True,
                )
                page.close()
                if n == 100_000:
                    alone, _ = decisions_per_second(address)
                    fitting, running = decisions_per_second(address, while_fitting=True)
                    during = "while a fit runs" if running else "while a fit ran for part of it"
                    print(f"{n:,} rows: {alone:.0f} decisions a second, {fitting:.0f} {during}", flush=True)
        browser.close()


if __name__ == "__main__":
    search() if sys.argv[1:] == ["search"] else main()
