"""The report in a real browser: offline, without a word on the console, hostile names, hovering, finding, contrast."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from rpim import RPIM, Discovery, FeatureSet, write_report

playwright = pytest.importorskip("playwright.sync_api")

EVIL = "</script></title><script>alert(1)</script><img src=https://evil.example/x onerror=alert(2)>'\"{{7*7}}"
RTL = "\u202eعربي"
LONG = "long_" * 60
MIDDLE = """(one) => {
  const copy = new OffscreenCanvas(48, 48).getContext("2d", { willReadFrequently: true });
  copy.drawImage(one, 0, 0);
  return [...copy.getImageData(24, 24, 1, 1).data].slice(0, 3);
}"""


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A page of 240 rows whose names and texts are as bad as they come."""
    X, truth = make_blobs(240, n_features=6, centers=6, cluster_std=0.6, random_state=3)
    names = np.array([EVIL, RTL, LONG, "dog", "elk", "fox"])[truth]
    labels = np.where((truth < 3) & (np.arange(240) % 2 == 0), names, "")
    labels[[i for k in (0, 1) for i in np.flatnonzero((truth == k) & (labels != ""))[:2]]] = LONG  # look wrong
    texts = [f"{EVIL} {name[:40]} {i}" for i, name in enumerate(names)]
    features = FeatureSet.from_arrays(X, labels=labels, texts=texts, truth=names)
    model = RPIM(6, n_members=8, random_state=0)
    discovery = Discovery.from_fit(model.fit(features.rows(), features.labels), features)
    assert discovery.label_issues()
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(discovery, path, features=features)
    return path.as_uri()


@pytest.fixture
def visit(browser, address):
    """Open the page, and see to it that it says and asks for nothing."""
    contexts, heard = [], []

    def open_page(scheme="light", width=1200, where=address, script="", **more):
        context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, offline=True, **more
        )
        contexts.append(context)
        page = context.new_page()
        page.add_init_script(script)
        page.on("console", lambda message: heard.append(message.text))
        page.on("pageerror", lambda error: heard.append(str(error)))
        page.on("dialog", lambda dialog: (heard.append(f"dialog {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda one: heard.append(one.url) if not one.url.startswith(("data:", where)) else None)
        page.goto(where)
        page.wait_for_load_state("load")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert heard == []


def test_bad_names_are_shown_and_not_obeyed(visit):
    page = visit()
    assert page.evaluate("document.querySelector('#map-canvas').width") > 300
    assert EVIL in page.locator("#known-table").inner_text()
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 1  # the confusion
    page.fill("#find", "</script>")
    assert page.locator("#known-table tbody tr:visible").count() == 1


DRAWN = """
  window.drawn = { points: [], names: [] };
  const { arc, clearRect, fillText } = CanvasRenderingContext2D.prototype;
  CanvasRenderingContext2D.prototype.clearRect = function (...given) {
    window.drawn = { points: [], names: [] };
    clearRect.apply(this, given);
  };
  CanvasRenderingContext2D.prototype.arc = function (x, y, ...given) {
    window.drawn.points.push([x, y]);
    arc.call(this, x, y, ...given);
  };
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    window.drawn.names.push({ text, x, y, wide: this.measureText(text).width });
    fillText.call(this, text, x, y);
  };
"""


def drawn_on(page):
    """The points of the map, and the boxes of its names."""
    found = page.evaluate("drawn")
    boxes = [(n["x"] - n["wide"] / 2, n["y"] - 6, n["x"] + n["wide"] / 2, n["y"] + 6) for n in found["names"]]
    return np.array(found["points"]), np.array(boxes)


def test_pointing_at_a_row_tells_of_it_and_a_click_goes_to_its_class(visit):
    page = visit()
    page.locator("#map-canvas").scroll_into_view_if_needed()
    box = page.locator("#map-canvas").bounding_box()
    tip = page.locator("#map-tip")
    assert tip.is_hidden()
    steps = (
        (box["x"] + x, box["y"] + y) for y in range(20, int(box["height"]), 7) for x in range(20, int(box["width"]), 7)
    )
    for place in steps:
        page.mouse.move(*place)
        if tip.is_visible() and "new class" in tip.inner_text():
            break
    said = tip.inner_text()
    assert "% confidence" in said
    assert "<script>alert(1)" in said
    page.mouse.click(*place)
    number = page.evaluate("location.hash").removeprefix("#class-")
    card = page.locator(f"#class-{number}")
    playwright.expect(card).to_be_in_viewport()
    assert card.locator(".run-name").inner_text() in said
    page.mouse.move(2, 2)
    assert tip.is_hidden()


def test_pointing_at_a_row_shows_its_picture_though_it_is_on_no_card(visit, tmp_path):
    X, truth = make_blobs(120, n_features=6, centers=3, random_state=0)
    shades = [(200, 30, 30), (30, 200, 30), (30, 30, 200)]
    pictures = [np.full((64, 64, 3), shades[k], np.uint8) for k in truth]
    features = FeatureSet.from_arrays(X, labels=np.where((truth < 2) & (np.arange(120) % 2 == 0), truth, -1))
    model = RPIM(3, n_members=1, n_init=1, max_iter=12, random_state=0)
    discovery = Discovery.from_fit(model.fit(features.rows(), features.labels), features)
    write_report(discovery, tmp_path / "p.html", features=features, pictures=pictures)
    page = visit(script=DRAWN, where=(tmp_path / "p.html").as_uri())
    page.locator("#map-canvas").scroll_into_view_if_needed()
    box = page.locator("#map-canvas").bounding_box()
    seen: dict[int, list[int]] = {}
    for x, y in drawn_on(page)[0][::7]:
        page.mouse.move(box["x"] + x, box["y"] + y)
        canvas = page.locator("#map-tip:visible canvas")
        if canvas.count():
            seen[int(page.locator("#map-tip div").inner_text().removeprefix("row "))] = canvas.evaluate(MIDDLE)
        if len(seen) == 5:
            break
    assert len(seen) == 5
    for row, colour in seen.items():
        assert np.abs(np.array(colour) - shades[truth[row]]).max() < 12


@pytest.mark.parametrize("width", [390, 1200])
def test_names_on_the_map_cover_no_rows_and_no_other_names(visit, width):
    points, boxes = drawn_on(visit(script=DRAWN, width=width))
    assert (len(points), len(boxes)) == (240, 6)
    for k, (x0, y0, x1, y1) in enumerate(boxes):
        x, y = points.T
        assert not ((x > x0) & (x < x1) & (y > y0) & (y < y1)).any()
        a, b, c, d = boxes[:k].T
        assert not ((x0 < c) & (x1 > a) & (y0 < d) & (y1 > b)).any()


def test_a_name_at_the_edge_of_the_map_is_shifted_into_it(visit, tmp_path, monkeypatch):
    """On a phone, a class with a long name at the right edge, and beside it a wall of rows."""
    wall = [(x, y) for x in range(120, 162, 8) for y in range(150, 330, 6)]
    wall += [(x, 0) for x in range(0, 307, 6)] + [(0, y) for y in range(0, 477, 6)]  # so that no gap is shortened
    places = np.array([*wall, *((300, y) for y in range(230, 250))], dtype=np.float32)
    name = np.array(["wall"] * len(wall) + [LONG] * 20)
    X = np.where(name == LONG, 9.0, -9.0)[:, None] + np.random.default_rng(0).normal(size=(len(name), 4))
    labels = np.where(np.arange(len(name)) % 2 == 0, name, "")
    features = FeatureSet.from_arrays(X, labels=labels)
    discovery = Discovery.from_fit(RPIM(2, n_members=1, random_state=0).fit(X, labels), features)
    assert discovery.labels.tolist() == name.tolist()
    monkeypatch.setattr("rpim.report.pictures.quick_places", lambda rows, seed=0: places)
    write_report(discovery, tmp_path / "edge.html", features=features)
    page = visit(script=DRAWN, width=390, where=(tmp_path / "edge.html").as_uri())
    points, boxes = drawn_on(page)
    x0, y0, x1, y1 = boxes[np.argmax(boxes[:, 2] - boxes[:, 0])]
    x, y = points.T
    assert x1 <= page.locator("#map-canvas").bounding_box()["width"]
    assert not ((x > x0) & (x < x1) & (y > y0) & (y < y1)).any()


def test_the_map_zooms(visit):
    page = visit(script=DRAWN)

    def drawn():
        return drawn_on(page)

    points = drawn()[0]
    # By keys, by buttons, and by the wheel with Ctrl, which leaves what is under the pointer where it is.
    canvas = page.locator("#map-canvas")
    canvas.focus()
    page.keyboard.press("+")
    np.testing.assert_allclose(np.ptp(drawn()[0], axis=0), 1.4 * np.ptp(points, axis=0), rtol=1e-4)
    page.keyboard.press("0")
    np.testing.assert_allclose(drawn()[0], points, atol=0.01)
    page.locator("#zoom-in").click()
    page.locator("#zoom-all").click()
    np.testing.assert_allclose(drawn()[0], points, atol=0.01)
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + points[0, 0], box["y"] + points[0, 1])
    said = page.locator("#map-tip").inner_text()
    before = drawn()[0]  # the class under the pointer is drawn last
    at = np.abs(before - points[0]).sum(axis=1).argmin()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.mouse.move(box["x"] + points[0, 0], box["y"] + points[0, 1] + 1)
    playwright.expect(page.locator("#map-tip")).to_have_text(said, use_inner_text=True)
    near = drawn()[0]
    np.testing.assert_allclose(near[at], before[at], atol=4)  # a pointer is at whole pixels
    assert np.ptp(near, axis=0).max() > 2 * np.ptp(before, axis=0).max()

    # Dragging moves it, and is no click.
    page.mouse.down()
    page.mouse.move(box["x"] + points[0, 0] - 40, box["y"] + points[0, 1] + 1, steps=4)
    page.mouse.up()
    assert page.evaluate("location.hash") == ""
    assert page.locator("#map-tip").is_hidden()
    assert (drawn()[0] != near).any()


@pytest.mark.parametrize("width", [390, 1280])
def test_labels_that_look_wrong_lead_to_the_class_that_is_suggested(visit, width):
    page = visit(width=width)
    rows = page.locator("table.label-issues tbody tr")
    assert rows.count() >= 1
    link = rows.first.locator("a")
    box = link.bounding_box()
    assert 0 <= box["x"] < box["x"] + box["width"] <= width  # nobody has to scroll sideways to see it
    link.click()
    place = page.evaluate("location.hash")
    playwright.expect(page.locator(place)).to_be_in_viewport()


def test_known_classes_are_sorted_by_what_is_clicked(visit):
    page = visit()

    def column():
        return [float(one) for one in page.locator("#known-table tbody tr td:nth-child(2)").all_inner_texts()]

    button = page.locator("#known-table thead button", has_text="rows")
    button.click()
    assert column() == sorted(column(), reverse=True)
    button.press("Enter")
    assert column() == sorted(column())
    assert page.locator("#known-table th[aria-sort]").get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(visit, scheme):
    """WCAG's contrast of 4.5 for all text on the page, in both schemes."""
    page = visit(scheme)
    found = page.evaluate("""() => {
      const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
      const light = (rgb) => { const [r, g, b] = rgb.map((v) => v / 255)
        .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
      const ground = (one) => { for (; one; one = one.parentElement) {
        const colour = numbers(getComputedStyle(one).backgroundColor);
        if (colour.length < 4 || colour[3] > 0.99) return colour; }
        return [255, 255, 255]; };
      const out = [];
      for (const one of document.querySelectorAll("body *")) {
        const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || ["SCRIPT", "STYLE", "NOSCRIPT", "OPTION"].includes(one.tagName) || !one.offsetParent) continue;
        const [a, b] = [light(numbers(getComputedStyle(one).color).slice(0, 3)), light(ground(one).slice(0, 3))];
        out.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), one.outerHTML.slice(0, 80)]);
      }
      return out;
    }""")
    assert len(found) > 100
    assert [where for contrast, where in found if contrast < 4.5] == []
    red = int(page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0]"))
    assert (red > 240) == (scheme == "light")
    assert (red < 40) == (scheme == "dark")


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_sticks_out_sideways(visit, width):
    page = visit(width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_without_scripts_everything_but_the_map_is_there(visit):
    page = visit(java_script_enabled=False)
    assert page.locator(".card:visible").count() == 3
    assert page.locator("noscript .warning").is_visible()
    assert page.locator("#map-canvas").is_hidden()
