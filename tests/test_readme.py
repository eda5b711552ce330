"""README.md: one screen, links that lead somewhere, code that runs; docs/install.md: every extra."""

import re
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def slug(heading):
    """The anchor of a heading, as GitHub and MyST write it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_it_is_one_screen_and_begins_with_the_two_commands():
    assert len(README.splitlines()) <= 50
    first = re.search(r"```sh\n(.*?)```", README, re.DOTALL)[1]
    assert [line.split("#")[0].strip() for line in first.splitlines()] == ["make demo", "make test"]


def test_its_links_lead_somewhere():
    links = re.findall(r"\]\((?!https?:)([^)]*)\)", README)
    assert len(links) > 15
    for link in links:
        path, _, anchor = link.partition("#")
        assert (ROOT / path).exists(), link
        headings = re.findall(r"^#+ (.*)", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE) if anchor else [""]
        assert anchor in map(slug, headings), link


def test_its_python_runs(clusters):
    X, y = clusters
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names = {"X": X, "y": y, "X_new": X[:5]}
    exec(code, names)
    assert len(names["model"].labels_) == len(X)


@pytest.fixture
def clusters():
    """Four clusters, two of them known."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(4), 30)
    X = random.randn(4, 12)[truth] * 4 + random.randn(120, 12)
    return X, np.where((truth < 2) & (np.arange(120) % 2 == 0), truth, -1)


def test_the_table_of_extras_is_complete():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = re.search(r"^\[project.optional-dependencies\]\n(.*?)^\[", project, re.DOTALL | re.MULTILINE)[1]
    extras = re.findall(r"^([a-z-]+) = \[", section, re.MULTILINE)
    assert len(extras) > 10
    rows = re.findall(r"^\| `([a-z-]+)` \|", (ROOT / "docs" / "install.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(extras)
