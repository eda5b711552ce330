"""The explorer in a real browser: decisions by mouse and by keys, two tabs, a killed server, a new fit, an export."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rpim import Discovery
from rpim.explorer.background import RUNNING
from rpim.explorer.from_python import Service, listen
from rpim.explorer.jobs import is_held
from rpim.explorer.workbench import Workbench

playwright = pytest.importorskip("playwright.sync_api")
pytest.importorskip("fastapi")
expect = playwright.expect


class ServerHere:
    """The same server in a thread, for tests that do not kill it: a process imports torch for seconds."""

    def __init__(self, run: Path) -> None:
        self.run, self.port = run, 0
        self.closing = contextlib.ExitStack()

    def start(self) -> str:
        """Its address."""
        bench = self.closing.enter_context(contextlib.closing(Workbench(self.run)))
        service = Service(bench, listen(self.port))
        self.port = service.port
        thread = threading.Thread(target=service.run, daemon=True)
        thread.start()
        self.closing.callback(thread.join, 30)
        self.closing.callback(setattr, service.server, "should_exit", True)
        return service.address(token=service.token)


class Server:
    """``rpim explore`` in a process of its own, at the same port every time."""

    def __init__(self, run: Path, environment: dict[str, str]) -> None:
        self.run, self.environment = run, environment
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        """The address that it prints."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rpim.cli.main", "explore", self.run, "--no-browser", "--port", str(self.port)],
            env={**self.environment, "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        return next(line.strip() for line in self.process.stdout if line.startswith("http"))

    def kill(self) -> None:
        """As a power cut would."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def fit_is_running(self) -> bool:
        """Whether a new fit lives, with or without its server."""
        return is_held(self.run / "refits" / RUNNING)

    def kill_fit(self) -> None:
        """The same for a new fit."""
        if self.fit_is_running():
            os.kill(int((self.run / "refits" / RUNNING / "pid").read_text()), signal.SIGKILL)
        while self.fit_is_running():  # the system takes a moment
            time.sleep(0.01)


@pytest.fixture
def mapped(animals):
    """The run with a map that is there already: the one by UMAP would take the test's time."""
    bench = Workbench(animals)
    np.save(animals / "map.npy", bench.map)
    bench.versions.store.close()
    return animals


@pytest.fixture
def server(mapped):
    running = ServerHere(mapped)
    with running.closing:
        yield running


@pytest.fixture
def process(mapped, environment):
    running = Server(mapped, environment)
    yield running
    running.kill()
    running.kill_fit()


def open_page(context, address, problems):
    """A tab; whatever its console complains of, and whatever it asks of another host, is collected."""
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if "Content Security" in message.text else None)
    page.on(
        "request",
        lambda request: None if request.url.startswith(("http://127.0.0.1", "blob:")) else problems.append(request.url),
    )
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    return page


def open_class(page, name):
    page.locator("#class-filter").fill(name)
    page.locator("#class-list .class").first.click()
    expect(page.locator("#detail-title")).to_have_text(name)
    page.locator("#class-filter").fill("")
    page.locator("#items .item").first.focus()


def saved(page, text):
    expect(page.locator(".message", has_text=text).last).to_be_visible()


def row_names(page):
    return page.locator("#class-list li:not(.aside) .name").all_inner_texts()


def test_a_person_decides_and_nothing_is_lost(animals, process, server, browser):
    found = Discovery.load(animals)
    final = dict(zip(found.ids.tolist(), found.labels.tolist(), strict=True))  # kept up to date by hand below
    problems: list[str] = []
    context = browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
    page = open_page(context, process.start(), problems)
    assert "token" not in page.url
    assert sorted(row_names(page)) == ["ant", "bee", "cat", "new-1", "new-2"]

    # Find a class and look at its rows, whose markup is text.
    open_class(page, "new-1")
    expect(page.locator("#items .item").first).to_contain_text("<b>")
    page.get_by_role("tab", name="Typical").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Doubtful", selected=True)).to_be_focused()
    expect(page.get_by_role("tabpanel", name="Doubtful").locator(".item").first).to_be_visible()
    rows_of_new_1 = {name for name, label in final.items() if label == "new-1"}
    assert page.locator("#items .item").count() == len(rows_of_new_1)

    # Name it, by keys alone; another tab hears of it.
    other = open_page(context, f"http://127.0.0.1:{process.port}/", problems)
    page.bring_to_front()
    page.locator("#items .item").first.focus()
    page.keyboard.press("r")
    page.keyboard.type("<script>fox</script>")
    page.keyboard.press("Enter")
    saved(page, "Saved: new-1 is now <script>fox</script>")
    expect(other.locator("#class-list .name", has_text="fox")).to_have_text("<script>fox</script>")
    final = {name: "<script>fox</script>" if label == "new-1" else label for name, label in final.items()}

    # A killed server: the page says so, refuses what is decided meanwhile, and loses nothing.
    process.kill()
    expect(page.locator("#offline")).to_contain_text("Connection lost, reconnecting")
    page.locator("#accept").click()
    saved(page, "Not saved")
    server.port = process.port
    address = server.start()
    expect(page.locator("#offline")).to_contain_text("restarted with a new key", timeout=60_000)
    page.goto(address)
    page.wait_for_selector("body[data-ready]")
    expect(page.locator("#class-list .name", has_text="fox")).to_be_visible()

    # Merge two by their boxes, split them again, and take the split back.
    for name in ("new-2", "cat"):
        page.get_by_label(f"Select {name} for merging").check()
    page.locator("#merge-checked").click()
    page.locator("#dialog").get_by_label(re.compile("new-2")).check()
    page.keyboard.press("Enter")
    saved(page, "Saved: 2 classes are now new-2")
    expect(page.locator("#class-list .class", has_text="new-2")).to_be_focused()
    assert sorted(row_names(page)) == ["<script>fox</script>", "ant", "bee", "new-2"]
    open_class(page, "new-2")
    page.keyboard.press("d")
    page.keyboard.press("Enter")
    saved(page, "is split into 2")
    expect(page.locator("#items .item").first).to_be_focused()  # where the dialog was opened
    assert "new-2 (2)" in row_names(page)
    page.locator("#undo").click()
    saved(page, "Undone: split new-2 into 2")
    assert "new-2 (2)" not in row_names(page)
    page.keyboard.press("Control+y")
    saved(page, "Redone")
    page.keyboard.press("Control+z")
    expect(page.locator("#class-list .name", has_text="new-2 (2)")).to_have_count(0)
    final = {name: "new-2" if label == "cat" else label for name, label in final.items()}

    # Move the first two rows of a class by keys, and mark a third as junk.
    open_class(page, "ant")
    page.locator("#items .item").first.focus()
    ids = page.evaluate("[...document.querySelectorAll('#items .item')].map((one) => Number(one.dataset.row))")
    page.keyboard.press("Space")
    page.keyboard.press("Shift+ArrowDown")
    expect(page.locator("#selection-count")).to_have_text("2 selected")
    page.keyboard.press("m")
    page.keyboard.type("be")
    expect(page.locator("#dialog .fresh")).to_have_text("Make a new class “be”")
    expect(page.locator("#pick-hint")).to_have_text("Enter takes bee.")
    page.keyboard.type("tle")
    page.keyboard.press("Enter")  # no class matches, and a new one is made by its button alone
    expect(page.locator("#dialog")).to_be_visible()
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.keyboard.press("Backspace")
    page.keyboard.press("Enter")
    saved(page, "Saved: 2 rows moved to bee")
    expect(page.locator("#items .item")).to_have_count(len(ids) - 2)
    expect(page.locator("#items .item").nth(1)).to_be_focused()  # in the place of the row that was moved
    page.locator("#items .item").first.focus()
    page.keyboard.press("x")
    saved(page, "Saved: 1 row marked as junk")
    page.locator("#junk-rows").click()
    expect(page.locator("#items .item")).to_have_count(1)
    expect(page.locator("#junk")).to_have_text("Not junk")
    page.keyboard.press("Escape")
    for row in ids[:2]:
        final[f"row-{row}"] = "bee"
    final[f"row-{ids[2]}"] = ""

    # Draw around everything on the map, left of its buttons.
    page.locator("#zoom-out").click()
    box = page.locator("#over").bounding_box()
    corners = [(6, 6), (box["width"] - 70, 6), (box["width"] - 70, box["height"] - 6), (6, box["height"] - 6)]
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 6, box["y"] + 6)
    page.mouse.down()
    for x, y in corners[1:]:
        page.mouse.move(box["x"] + x, box["y"] + y, steps=4)
    page.mouse.up()
    page.keyboard.up("Shift")
    expect(page.locator("#selection-count")).to_have_text("120 selected")
    page.keyboard.press("Escape")

    # The export has all of it, row by row, after a reload.
    page.reload()
    page.wait_for_selector("body[data-ready]")
    page.locator("#export").click()
    with page.expect_download() as waiting:
        page.locator("#dialog").get_by_role("button", name=re.compile("^CSV")).click()
    with open(waiting.value.path(), newline="") as file:
        exported = {row["id"]: row["label"] for row in csv.DictReader(file)}
    assert exported == final

    # A new fit in the background; then what it changed, and back to the version before.
    page.locator("#refit").click()
    page.locator("#dialog").get_by_role("button", name="Refit").click()
    expect(page.locator("#notice")).to_contain_text("Refitting")
    expect(page.locator("#version")).to_have_value("1", timeout=60_000)
    past = page.locator("#history-list .past")
    expect(past.first).to_contain_text(re.compile(r"The refit changed the class of \d+ of 119 rows"))
    expect(past.nth(1).locator("li").first).to_contain_text("mark 1 row as junk")
    expect(past.nth(1).locator("li").last).to_contain_text("rename new-1 to <script>fox</script>")
    refitted = Discovery.load(animals / "refits" / "0001")
    assert sorted(row_names(page)) == sorted(refitted.classes.tolist())
    assert {"<script>fox</script>", "bee", "new-2"} <= set(refitted.model.known_classes_.tolist())
    page.locator("#version").select_option("0")
    expect(page.locator("#undo")).to_have_attribute("title", "Undo: mark 1 row as junk")
    assert problems == []


def test_the_focus_goes_back_to_where_it_was(server, browser):
    problems: list[str] = []
    page = open_page(browser.new_context(viewport={"width": 1280, "height": 800}), server.start(), problems)
    charts = page.locator("#chart-list")
    assert charts.locator(".chart").count() == 3
    assert charts.evaluate("(list) => list.scrollWidth <= list.clientWidth")  # all of them can be seen

    # A rename by keys, from a row and from the list of classes; a name that is kept, and one that is given.
    open_class(page, "new-1")
    page.locator("#items .item").nth(1).focus()
    page.keyboard.press("r")
    expect(page.locator("#detail-head input")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator("#items .item[tabindex='0']")).to_be_focused()
    page.locator("#class-list .class", has_text="new-1").focus()
    page.keyboard.press("r")
    page.keyboard.type("fox")
    page.keyboard.press("Enter")
    saved(page, "Saved: new-1 is now fox")
    expect(page.locator("#class-list .class", has_text="fox")).to_be_focused()
    page.locator("#rename").click()
    page.locator("#detail-head").get_by_role("button", name="Cancel").click()
    expect(page.locator("#rename")).to_be_focused()

    # The class that another became part of is shown.
    open_class(page, "new-2")
    page.keyboard.press("g")
    page.keyboard.type("fox")
    page.keyboard.press("Enter")
    saved(page, "Saved: 2 classes are now fox")
    expect(page.locator("#detail-title")).to_have_text("fox")
    expect(page.locator("#detail-title")).to_be_focused()

    for name in ("ant", "bee"):
        page.get_by_label(f"Select {name} for merging").check()
    page.locator("#merge-none").click()
    expect(page.locator("#class-list .class", has_text="fox")).to_be_focused()
    assert problems == []


def start_refit(page, server):
    """Begin a new fit, and wait until it says how far it is."""
    page.locator("#refit").click()
    page.locator("#dialog").get_by_role("button", name="Refit").click()
    expect(page.locator("#notice")).to_be_visible()
    expect(page.locator("#notice progress")).to_have_attribute("value", re.compile(r"^0\.\d+$"), timeout=60_000)
    assert server.fit_is_running()


def test_a_new_fit_outlives_a_killed_server_and_can_be_cancelled(animals, process, server, browser):
    facts = json.loads((animals / "run.json").read_text())
    facts["parameters"] |= {"max_iter": 200_000, "preset": "paper"}  # minutes
    (animals / "run.json").write_text(json.dumps(facts))
    problems: list[str] = []
    page = open_page(browser.new_context(), process.start(), problems)
    start_refit(page, process)
    process.kill()
    expect(page.locator("#offline")).to_contain_text("Connection lost")
    page.goto(process.start())
    page.wait_for_selector("body[data-ready]")
    expect(page.locator("#notice")).to_contain_text("Refitting")
    expect(page.locator("#refit")).to_be_disabled()
    before = float(page.locator("#notice progress").get_attribute("value"))
    expect(page.locator("#notice progress")).not_to_have_attribute("value", str(before), timeout=60_000)
    page.locator("#cancel-refit").click()
    saved(page, "The refit was cancelled")
    expect(page.locator("#refit")).to_be_enabled()
    assert not (animals / "refits" / "0001").exists()

    # One that dies with its server is offered again.
    start_refit(page, process)
    process.kill()
    process.kill_fit()
    page.goto(server.start())
    saved(page, "it was stopped before the end")
    page.locator("#messages").get_by_role("button", name="Refit…").click()
    expect(page.locator("#dialog")).to_be_visible()
    assert problems == []


def test_the_map_is_coloured_by_a_column_of_the_data(server, browser):
    problems: list[str] = []
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = open_page(context, server.start(), problems)
    colours = "[...new Set(rpim.colouring().colours)].length"
    page.locator("#colour").select_option(label="city <i>")
    expect(page.locator("#legend .field")).to_have_text(["Ulm", "<b>Bern</b>"])
    assert page.evaluate(colours) == 2
    page.locator("#colour").select_option(label="price")
    expect(page.locator("#legend")).to_have_text("0118none")  # the ends, shades between them, and what is infinite
    assert page.evaluate(colours) > 40
    open_class(page, "ant")
    expect(page.locator("#items .said").first).to_have_text(re.compile(r"^price: \d+$"))
    row = int(page.locator("#items .item").first.get_attribute("data-row"))
    x, y = page.evaluate(f"rpim.pixelOf({row})")
    page.locator("#over").hover(position={"x": x, "y": y})
    expect(page.locator("#tip .said").first).to_have_text(re.compile(r"^price: \d+$"))
    expect(page.locator("#tip .said").nth(1)).to_have_text(re.compile("^city <i>: (Ulm|<b>Bern</b>)$"))
    assert problems == []


@pytest.fixture
def checked_labels(animals):
    """The run as if it were a committee of 8, to which the labels of two ants look wrong: the rows of these labels."""
    table = pq.read_table(animals / "assignments.parquet")
    ants = [row for row, label in enumerate(table.column("given").to_pylist()) if label == "ant"][:2]
    facts = json.loads((animals / "run.json").read_text())
    facts["fitted"] |= {"n_members_": 8, "expected_accuracy_": 0.917}
    (animals / "run.json").write_text(json.dumps(facts))
    columns = {
        "label_quality": dict.fromkeys(ants, 0.04),
        "suggested": dict(zip(ants, ("bee", "new-1"), strict=True)),
        "suggested_confidence": dict(zip(ants, (0.9, 0.8), strict=True)),
    }
    for name, values in columns.items():
        table = table.append_column(name, [[values.get(row) for row in range(len(table))]])
    pq.write_table(table, animals / "assignments.parquet")
    return ants


def test_charts_filter_the_map_the_classes_and_the_rows(server, browser):
    problems: list[str] = []
    page = open_page(browser.new_context(viewport={"width": 1280, "height": 800}), server.start(), problems)
    page.locator("#class-list .class").first.focus()
    expect(page.locator("#charts")).to_be_visible()
    page.locator("#charts .bar", has_text="<b>Bern</b>").click()
    expect(page.locator("#passing")).to_have_text("40 of 120 rows pass")
    assert page.evaluate("rpim.model.mask.reduce((a, b) => a + b)") == 40
    totals = page.locator("#class-list li:not(.aside) .size > span:last-child").all_inner_texts()
    assert sum(int(said.split(" / ")[0]) for said in totals) == 40
    assert sum(int(said.split(" / ")[1]) for said in totals) == 120

    # The first two bins of the prices, by keys alone: 0 to 10, of which 0, 3, 6 and 9 are from Bern.
    page.locator("#histogram-own-1").focus()
    for key in ("Home", "Shift+ArrowRight", "Enter"):
        page.keyboard.press(key)
    expect(page.locator("#passing")).to_have_text("4 of 120 rows pass")
    expect(page.locator("#histogram-own-1")).to_be_focused()
    assert page.locator('#histogram-own-1 [aria-selected="true"]').count() == 2
    shown = page.evaluate("[...rpim.model.codes].flatMap((code, row) => (rpim.model.mask[row] ? [code] : []))")
    page.locator(f'#class-list li[data-number="{shown[0]}"] .class').click()
    expect(page.locator("#items .item")).to_have_count(shown.count(shown[0]))
    page.locator("#histogram-own-1").focus()
    page.keyboard.press("Escape")
    expect(page.locator("#passing")).to_have_text("40 of 120 rows pass")
    page.locator("#clear-filters").click()
    expect(page.locator("#passing")).to_have_text("120 rows")
    page.keyboard.press("f")
    expect(page.locator("#charts")).to_be_hidden()
    assert problems == []


def test_rows_like_a_row_become_a_class(server, browser):
    problems: list[str] = []
    page = open_page(browser.new_context(viewport={"width": 1280, "height": 800}), server.start(), problems)
    open_class(page, "new-1")
    first = page.locator("#items .item").first.get_attribute("data-row")
    page.keyboard.press("Enter")
    expect(page.locator("#detail-title")).to_have_text("Rows like this one")
    expect(page.locator("#items .item").first).to_contain_text("similarity 1.00")
    assert page.locator("#items .item").first.get_attribute("data-row") == first
    assert page.evaluate("rpim.model.found.length") == 50
    page.locator("#rank-count").fill("3")
    page.locator("#select-ranked").click()
    expect(page.locator("#selection-count")).to_have_text("3 selected")
    expect(page.locator('#items .item[aria-selected="true"]')).to_have_count(3)
    page.locator("#move").click()
    page.keyboard.type("fox")
    page.locator("#dialog .fresh").click()
    saved(page, "Saved: 3 rows moved to the new class fox")
    expect(page.locator("#class-list .class", has_text="fox").locator(".size")).to_have_text(re.compile("3$"))

    page.select_option("#search-how", "meaning")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_have_text("The search is empty: type what the rows should be about.")
    page.keyboard.type("foxes")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_contain_text("were not embedded by rpim")
    assert problems == []


def test_labels_that_look_wrong_are_decided_by_keys(checked_labels, server, browser):
    first, second = checked_labels
    problems: list[str] = []
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = open_page(context, server.start(), problems)
    expect(page.locator("#run-facts")).to_contain_text("committee of 8, expected accuracy on known classes 92%")
    expect(page.locator("#detail-head")).to_contain_text("Fitted by a committee of 8 members.")
    expect(page.locator("#show-label-issues")).to_contain_text("2")
    page.locator("#show-label-issues").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#detail-title")).to_be_focused()
    cards = page.locator("#label-issues .label-issue")
    expect(cards).to_have_count(2)
    expect(cards.first).to_contain_text(f"<b>ant</b> number {first}")  # markup is text
    expect(cards.first.locator(".labels")).to_have_text("LabelantSuggestedbeelabel quality 4%")

    # Accept the first: an ordinary move. The focus goes to the same button of the next one.
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    saved(page, "Saved: 1 row moved to bee")
    expect(cards).to_have_count(1)
    expect(page.locator("#undo")).to_have_attribute("title", "Undo: move 1 row to bee")
    expect(cards.first.get_by_role("button", name=re.compile("^Accept suggestion"))).to_be_focused()

    # Keep the second label; then nothing is left to decide.
    page.keyboard.press("Tab")
    page.keyboard.press("Space")
    saved(page, "Saved: the label ant is kept")
    expect(page.locator("#label-issues")).to_have_text("No label issues left.")
    expect(page.locator("#show-label-issues")).to_be_hidden()
    expect(page.locator("#detail-title")).to_be_focused()

    # Both can be undone, and are there after a reload.
    page.keyboard.press("Control+z")
    expect(cards).to_have_count(1)
    assert int(cards.first.get_attribute("data-row")) == second
    page.reload()
    page.wait_for_selector("body[data-ready]")
    expect(page.locator("#show-label-issues")).to_contain_text("1")
    page.keyboard.press("Control+z")
    expect(page.locator("#show-label-issues")).to_contain_text("2")

    # A class that is opened takes the place of the list.
    page.locator("#show-label-issues").click()
    open_class(page, "ant")
    expect(page.locator("#label-issues")).to_be_hidden()
    expect(page.locator("#items")).to_be_visible()
    assert problems == []


def test_rows_to_label_are_asked_one_after_the_other(server, browser):
    problems: list[str] = []
    page = open_page(browser.new_context(viewport={"width": 1280, "height": 800}), server.start(), problems)
    progress, asked, title = page.locator("#queue-progress"), page.locator("#queue .asked"), page.locator("#undo")
    page.keyboard.press("q")
    expect(page.locator("#detail-title")).to_have_text("What to label next")
    expect(page.locator("#queue")).to_be_focused()
    expect(progress).to_have_text("1 of 50")
    rows = [int(asked.get_attribute("data-row"))]
    expect(asked).to_contain_text(f"number {rows[0]}")
    expect(page.locator("#queue .guess").first).to_have_text(re.compile("^Predictednew-"))
    assert page.evaluate("rpim.model.asked") == rows[0]

    # Confirm, take the runner-up, skip, choose another class, and make a new one: ordinary moves.
    predicted, runner_up = page.locator("#queue .guess b").all_inner_texts()
    page.keyboard.press("Enter")
    expect(progress).to_have_text("2 of 50")
    expect(title).to_have_attribute("title", f"Undo: move 1 row to {predicted}")
    predicted, runner_up = page.locator("#queue .guess b").all_inner_texts()
    rows.append(int(asked.get_attribute("data-row")))
    page.keyboard.press("2")
    expect(progress).to_have_text("3 of 50")
    expect(title).to_have_attribute("title", f"Undo: move 1 row to {runner_up}")
    page.keyboard.press("s")
    expect(progress).to_have_text("4 of 50")
    page.keyboard.press("m")
    page.keyboard.type("bee")
    page.keyboard.press("Enter")
    expect(progress).to_have_text("5 of 50")
    expect(title).to_have_attribute("title", "Undo: move 1 row to bee")
    page.locator("#queue").get_by_role("button", name="Another class…").click()
    page.keyboard.type("fox")
    page.locator("#dialog .fresh").click()
    expect(progress).to_have_text("6 of 50")
    assert page.evaluate("rpim.model.state.classes.map((one) => one.name)")[-1] == "fox"

    # Back over all of them, skipped and answered.
    for k in (5, 4, 3, 2):
        page.keyboard.press("u")
        expect(progress).to_have_text(f"{k} of 50")
    assert int(asked.get_attribute("data-row")) == rows[1]
    expect(title).to_have_attribute("title", re.compile("^Undo: move 1 row to new-"))

    # Another list, and back: it goes on where it was. After a reload, the answered row is not asked again.
    open_class(page, "ant")
    expect(page.locator("#queue")).to_be_hidden()
    assert page.evaluate("rpim.model.asked") is None
    page.locator("#show-queue").click()
    expect(progress).to_have_text("2 of 50")
    page.reload()
    page.wait_for_selector("body[data-ready]")
    page.keyboard.press("q")
    expect(progress).to_have_text("1 of 50")
    assert int(asked.get_attribute("data-row")) != rows[0]
    assert problems == []


def test_classes_are_merged_in_the_tree(server, browser):
    problems: list[str] = []
    page = open_page(browser.new_context(viewport={"width": 1280, "height": 800}), server.start(), problems)
    page.keyboard.press("c")
    expect(page.locator("#detail-title")).to_have_text("Tree of the classes")
    expect(page.locator("#tree summary")).to_have_count(4)
    expect(page.locator("#tree .leaf")).to_have_count(5)
    pair = page.locator("#tree .merge", has_text="Merge these 2 classes…").first
    names = pair.locator("xpath=..").locator(".leaf .name").all_inner_texts()
    pair.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#dialog-title")).to_have_text("Merge 2 classes")
    assert sorted(page.locator("#dialog .choice").all_inner_texts()[k].split("\n")[0] for k in (0, 1)) == sorted(names)
    page.keyboard.press("Enter")
    saved(page, "Saved: 2 classes are now")
    expect(page.locator("#tree .leaf")).to_have_count(4)

    # What was closed stays closed after a decision; a leaf opens its class.
    page.locator("#tree summary").first.click()
    expect(page.locator("#tree .leaf").first).to_be_hidden()
    page.keyboard.press("Control+z")
    expect(page.locator("#tree .leaf")).to_have_count(5)
    expect(page.locator("#tree .leaf").first).to_be_hidden()
    page.locator("#tree summary").first.click()
    page.locator("#tree .leaf", has_text="ant").click()
    expect(page.locator("#detail-title")).to_have_text("ant")
    expect(page.locator("#tree")).to_be_hidden()
    assert problems == []


def test_names_on_the_map_are_the_suggested_ones_and_do_not_overlap(server, browser):
    problems: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = open_page(context, server.start(), problems)
    page.wait_for_function("rpim.mapFacts.names.some((one) => one.name.startsWith('elk'))")
    names = page.evaluate("rpim.mapFacts.names")
    assert sorted(one["name"].split()[0] for one in names) == ["ant", "bee", "cat", "dog", "elk"]
    boxes = [one["box"] for one in names]
    for k, (x0, y0, x1, y1) in enumerate(boxes):
        assert not any(x0 < c and x1 > a and y0 < d and y1 > b for a, b, c, d in boxes[:k])
    # Around each name there is room: fewer points than at the middle of its class.
    covered = """(box) => [...Array(120).keys()].map(rpim.pixelOf)
      .filter(([x, y]) => x > box[0] && x < box[2] && y > box[1] && y < box[3]).length"""
    assert [page.evaluate(covered, box) for box in boxes] == [0] * 5
    assert problems == []


def test_without_the_key_the_page_says_what_to_do(server, browser):
    problems: list[str] = []
    server.start()
    page = browser.new_context(viewport={"width": 390, "height": 844}, color_scheme="dark").new_page()
    page.on("console", lambda message: problems.append(message.text) if "Content Security" in message.text else None)
    page.goto(f"http://127.0.0.1:{server.port}/")
    expect(page.get_by_role("heading")).to_have_text("Open the address that rpim explore printed")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 20, 22)"  # it has its styles
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert problems == []


CLIPPED = """[...document.querySelectorAll("button, select, input, h2")]
  .filter((one) => one.checkVisibility({ visibilityProperty: true }) && !one.closest(".hidden"))
  .filter((one) => {
    const box = one.getBoundingClientRect();
    return box.left < 0 || box.right > innerWidth || one.scrollWidth > one.clientWidth + 1;
  })
  .map((one) => one.outerHTML)"""


def test_on_a_phone_nothing_is_clipped_and_the_map_is_drawn_without_webgl(checked_labels, server, browser):
    problems: list[str] = []
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = open_page(context, server.start(), problems)
    page.goto(f"http://127.0.0.1:{server.port}/?renderer=canvas")
    page.wait_for_selector("body[data-ready]")
    assert page.evaluate(CLIPPED) == []
    page.locator("#class-list .class").first.click()
    page.locator("#items .item").first.click()
    expect(page.locator("#selection-count")).to_be_visible()
    assert page.evaluate(CLIPPED) == []
    page.locator("#move").click()
    assert page.evaluate(CLIPPED) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Map", exact=True).click()
    assert page.evaluate(CLIPPED) == []
    assert page.evaluate("rpim.mapFacts.renderer") == "canvas"
    drawn = "[...document.getElementById('points').getContext('2d').getImageData(0, 0, 390, 400).data].some((v) => v)"
    end = time.monotonic() + 30
    while not page.evaluate(drawn):
        assert time.monotonic() < end
    assert problems == []
