"""The tables of docs/results.md are those that the command writes from the cells in benchmarks/results."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

import pytest

from rpim.benchmark.studies import STUDIES
from rpim.benchmark.tables import markdown

ROOT = Path(__file__).parents[2]


@pytest.fixture
def paper(monkeypatch):
    """benchmarks/paper.py as a module."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    spec = importlib.util.spec_from_file_location("paper_cells", ROOT / "benchmarks" / "paper.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def documented() -> list[tuple[dict[str, str], list[str]]]:
    """The options of each command of a paper's table, and the tables from there to the next command or heading."""
    found: list[tuple[dict[str, str], list[str]]] = []
    parts = re.split(r"^(    rpim benchmark .*|#+ .*)$", (ROOT / "docs" / "results.md").read_text(), flags=re.MULTILINE)
    for line, text in zip(parts[1::2], parts[2::2], strict=True):
        options = dict(re.findall(r"--([a-z]+) (\S+)", line))
        if options.get("paper") in STUDIES:
            found.append((options, re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)))
    return found


def test_the_documented_tables_come_from_the_cells(paper):
    for options, tables in documented():
        seeds = [int(seed) for seed in options.get("seeds", "").split(",") if seed]
        studies = paper.studies(options["paper"], options.get("preset", "default"), seeds)
        written = markdown(studies, paper.kept_cells())
        assert tables, options
        for table in tables:
            assert table in written, options


def test_every_table_of_the_paper_is_documented():
    assert {options["paper"] for options, _ in documented()} == {*STUDIES}


def test_no_cell_is_kept_twice(paper):
    cells = paper.kept_cells()
    keys = [
        json.dumps([cell[name] for name in ("estimator", "parameters", "set", "seed")], sort_keys=True)
        for cell in cells
    ]
    assert sorted(keys) == sorted({*keys})
    assert not any("error" in cell for cell in cells)
