"""The public names of the package, and the sections of their docstrings."""

import inspect
import re
from pathlib import Path

import pytest

import rpim

CHECKS = {
    "GL01", "GL02", "GL03", "GL05", "GL06", "GL07", "GL08",  # a docstring, its lines and its sections
    "SS01", "SS03", "SS04", "SS05", "SS06",  # a summary: one line, a sentence
    "PR01", "PR02", "PR03", "PR05", "PR06", "PR07", "PR10",  # the parameters: all, no other, in order, described
    "RT01", "RT03",  # what is returned
    "YD01",
}  # fmt: skip
NAMES = [name for name in rpim.__all__ if name != "__version__"]


def members(name):
    """The public methods and properties of a class that this package documents, as ``rpim.CLASS.MEMBER``."""
    owner = getattr(rpim, name)
    for member, value in inspect.getmembers(owner) if inspect.isclass(owner) else []:
        function = value.fget if isinstance(value, property) else inspect.unwrap(value) if callable(value) else None
        if not member.startswith("_") and (getattr(function, "__module__", None) or "").startswith("rpim"):
            yield f"rpim.{name}.{member}"


@pytest.mark.parametrize("name", NAMES)
def test_docstrings_have_the_sections_of_numpydoc(name):
    numpydoc_validate = pytest.importorskip("numpydoc.validate")  # imports Sphinx
    problems = [
        f"{path}: {code} {message}"
        for path in [f"rpim.{name}", *members(name)]
        for code, message in numpydoc_validate.validate(path)["errors"]
        if code in CHECKS
    ]
    assert problems == []


def test_the_reference_lists_every_public_name_once():
    page = (Path(__file__).parents[1] / "docs" / "api.rst").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^   (\w+)$", page, flags=re.MULTILINE)) == sorted(NAMES)
