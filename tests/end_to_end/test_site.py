"""The documentation site is built without a warning, its links lead somewhere, and it needs no other host."""

import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
GALLERY = sorted((ROOT / "examples" / "gallery").glob("plot_*.py"))


class Page(HTMLParser):
    """The links of a page, the files that it loads, and its anchors."""

    def __init__(self, path):
        super().__init__()
        self.links, self.loaded, self.anchors = set(), set(), {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.add(values.get("id"))
        if tag == "a" and values.get("href"):
            self.links.add(values["href"])
        if tag in ("link", "script", "img", "iframe", "source"):
            self.loaded |= {values[name] for name in ("href", "src") if values.get(name)}


@pytest.fixture(scope="module")
def site(environment, tmp_path_factory):
    """The pages by their path, of a site that was built without running the gallery."""
    pytest.importorskip("sphinx", reason="the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("generated", "__pycache__"))
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, folder)
    build = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-D", "plot_gallery=0", "docs", "html"]
    done = subprocess.run(build, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return {path: Page(path) for path in (folder / "html").rglob("*.html")}


@pytest.mark.slow
def test_links_and_anchors_lead_somewhere(site):
    broken = []
    for path, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file() or (target in site and unquote(parts.fragment) not in site[target].anchors):
                broken.append(f"{path.name}: {link}")
    assert broken == []


@pytest.mark.slow
def test_nothing_is_loaded_from_other_hosts(site):
    assert {link for page in site.values() for link in page.loaded if urlsplit(link).netloc} == set()


@pytest.mark.slow
def test_doctests_are_shown_as_code(site):
    guide = next(path for path in site if path.name == "guide.html").read_text(encoding="utf-8")
    assert guide.count("highlight-pycon") > 10
    assert not re.search(r"<blockquote>\s*<div><blockquote>", guide)


@pytest.mark.slow
def test_commands_are_shown_as_code(site):
    """An indented command after a list is a paragraph of the list."""
    as_text = re.compile(r"<p>(python|rpim|pip|make) [^<]*--[^<]*</p>")
    assert [path.name for path in site if as_text.search(path.read_text(encoding="utf-8"))] == []


def test_a_gallery_script_is_short_and_draws_a_figure():
    assert len(GALLERY) >= 12
    for script in GALLERY:
        text = script.read_text(encoding="utf-8")
        assert len(text.splitlines()) < 60, script.name
        assert "plt.show()" in text, script.name
        assert text.startswith('"""\n'), script.name
