"""A real browser."""

import shutil

import pytest


@pytest.fixture(scope="module")
def browser():
    """The system's Chromium, started once for a file of tests; what a test leaves open in it is closed."""
    playwright = pytest.importorskip("playwright.sync_api")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no chromium on the PATH")
    playwright.expect.set_options(timeout=30_000)  # the usual five seconds are too few on a busy machine
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture(autouse=True)
def close_contexts(request):
    yield
    if "browser" in request.fixturenames:
        for context in request.getfixturevalue("browser").contexts:
            context.close()
