"""Pictures for the documentation: the report on BANKING77 with half of its intents known, and a page of rpim benchmark.

    python benchmarks/screenshots_report.py --data FOLDER docs/images

FOLDER holds ``features/*.npz`` (see benchmarks/protocol.py); cells of the benchmark are in benchmarks/results. Needs
the extra `dev` and a chromium; takes minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import shutil
import tempfile
from pathlib import Path

import numpy as np
from playwright.sync_api import Page, sync_playwright

from paper import kept_cells, studies
from protocol import DATA_SETS
from rpim import RPIM, Discovery, FeatureSet, write_report
from rpim.benchmark.protocol import make_case, split_features
from rpim.benchmark.studies import of_study
from rpim.benchmark.tables import render, tables
from rpim.report.pictures import careful_map

SET, SEED = "banking77", 0
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def make_page(folder: Path, target: Path) -> None:
    """Discover the intents that have no label, and write the report."""
    path = folder / "features" / f"{DATA_SETS[SET]}.npz"
    case = make_case(split_features(FeatureSet.read(path)), SEED)
    with np.load(path, allow_pickle=False) as stored:
        names = stored["label_names"]
    features = dataclasses.replace(
        case.features, labels=np.where(case.y < 0, "", names[case.y]), truth=names[case.truth], split=None
    )
    model = RPIM(random_state=SEED).fit(features.rows(), features.labels)
    discovery = Discovery.from_fit(model, features, source=f"{SET}.npz")
    write_report(discovery, target, features=features, on_map=careful_map(discovery, features))


def make_table(target: Path) -> None:
    """The page of ``rpim benchmark``, from the stored cells."""
    [study] = studies("main")
    study = dataclasses.replace(study, paper=())  # without the columns of the paper it fits the page
    cells = of_study(study, kept_cells())
    target.write_text(render(tables([study], cells), cells), encoding="utf-8")


def at_the_map(page: Page) -> None:
    """The pointer on a row of a new class."""
    page.locator("#map").evaluate("one => one.scrollIntoView({behavior: 'instant'})")
    box = page.locator("#map-canvas").bounding_box()
    assert box is not None
    for down in range(30, 70, 2):
        for across in range(30, 70):
            page.mouse.move(box["x"] + box["width"] * across / 100, box["y"] + box["height"] * down / 100)
            if "new class, 8" in page.locator("#map-tip").inner_text():
                return


def at(section: str) -> str:
    """Go there at once."""
    return f"document.querySelector('{section}').scrollIntoView({{behavior: 'instant'}})"


def main() -> None:
    """Write them to the folder that is given."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        place = Path(folder) / "report.html"
        make_page(given.data, place)
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, width, height, scheme in (
            ("report", 1280, 1200, "light"),
            ("report-map", 1280, 900, "dark"),
            ("report-classes", 1280, 900, "light"),
            ("report-phone", 390, 844, "dark"),
        ):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            page.goto(place.as_uri())
            if name == "report-map":
                at_the_map(page)
            elif name != "report":
                page.evaluate(at("#new" if name == "report-classes" else ".cards"))
            page.wait_for_timeout(800)
            picture = given.target / f"{name}.png"
            page.screenshot(path=picture)
            print(f"{picture}: {picture.stat().st_size / 1000:.0f} kB")
            context.close()
        make_table(place)
        page = browser.new_page(viewport={"width": 1700, "height": 1000})
        page.goto(place.as_uri())
        page.add_style_tag(content="section { padding: 0 1rem 1rem }")
        page.locator("section").nth(1).screenshot(path=given.target / "benchmark.png")
        browser.close()


if __name__ == "__main__":
    main()
