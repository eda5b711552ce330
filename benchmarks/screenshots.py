"""Pictures of the explorer for the documentation, from scikit-learn's digits.

    python benchmarks/screenshots.py docs/images

Needs the extra `dev` and a chromium.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from opened import CHROMIUM, digits_run, explorer


def classes(page: Page) -> None:
    """A new class, opened."""
    page.locator('.chip[data-which="new"]').click()
    page.locator("#class-list .class").nth(1).click()


def doubtful(page: Page) -> None:
    """The doubtful rows of another, two of them selected."""
    page.locator("#class-list .class").first.click()
    page.get_by_role("tab", name="Doubtful").click()
    page.wait_for_timeout(500)
    for k in (1, 2):
        page.locator("#items .item").nth(k).click()


def confidence(page: Page) -> None:
    """The map by confidence."""
    page.get_by_role("button", name="Map", exact=True).click()
    page.select_option("#colour", "confidence")


SHOTS: list[tuple[str, Callable[[Page], None], int, int, str]] = [
    ("explorer-class", classes, 1440, 900, "light"),
    ("explorer-doubtful", doubtful, 1440, 900, "dark"),
    ("explorer-phone-map", confidence, 390, 844, "dark"),
]


def main() -> None:
    """Write them to the folder that is given."""
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/images")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as started:
        run = digits_run(Path(folder))
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with explorer(run) as address:
            for name, steps, width, height, scheme in SHOTS:
                context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
                page = context.new_page()
                page.goto(address)
                page.wait_for_selector("body[data-ready]")
                steps(page)
                page.mouse.move(0, 0)
                page.wait_for_timeout(1200)
                page.screenshot(path=target / f"{name}.png")
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
