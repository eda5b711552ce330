"""Names decided in the explorer, in the report and in the tables of classes."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3

import numpy as np
import pytest

from rpim import Discovery
from rpim.runs.decisions import Accept, Junk, Merge, Rename
from rpim.runs.versions import Versions, decided_names

WHOLE = "2 classes were renamed in rpim explore"


@pytest.fixture
def versions(animals):
    opened = Versions(animals)
    yield opened
    opened.store.close()


@pytest.fixture
def decide(versions):
    def make(*decisions, version=0):
        for decision in decisions:
            number = versions.store.current(version)
            versions.timeline.decide(version, lambda state, made=decision: made, f"key-{version}-{number}")

    return make


def contents(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir() if path.is_file()}


def test_the_last_name_counts_and_what_is_undone_does_not(animals, versions, decide):
    assert decided_names(animals).names == {}
    decide(Rename(3, "elks"), Rename(3, "<b>elk</b>"), Rename(0, "ants"), Accept(0))
    found = decided_names(animals)
    assert (dict(found.names), found.others, found.problem) == ({3: "<b>elk</b>", 0: "ants"}, 0, "")
    versions.timeline.undo(0, "undo-accept")
    versions.timeline.undo(0, "undo-rename")
    assert dict(decided_names(animals).names) == {3: "<b>elk</b>"}


def test_a_name_that_is_the_runs_again_is_not_told(animals, decide):
    decide(Rename(3, "elk"), Rename(3, "new-1"))
    table = Discovery.load(animals).classes_table()
    found = decided_names(animals)
    assert [one.decided_name for one in found.given_to(table)] == [""] * 5
    assert found.notes(table) == []


def test_other_decisions_are_counted_and_pointed_to(animals, decide):
    decide(Rename(3, "elk"), Merge((0, 1)), Junk(np.array([5], dtype=np.int32)))
    found = decided_names(animals)
    said = found.notes(found.given_to(Discovery.load(animals).classes_table()))
    assert said[0].startswith("1 class was renamed in rpim explore: the decided name comes first")
    assert "2 other decisions (merge, split, move, junk)" in said[1]
    assert said[1].endswith(f"rpim export {animals} -o FILE --decisions.")


def test_a_later_fit_has_names_of_its_own(animals, versions, decide):
    shutil.copytree(animals, animals / "refits" / "0001", ignore=shutil.ignore_patterns("decisions*", "refits"))
    decide(Rename(3, "elk"))
    decide(Rename(4, "dog"), version=1)
    assert dict(decided_names(animals).names) == {3: "elk"}
    later = decided_names(animals / "refits" / "0001")
    assert (dict(later.names), later.run) == ({4: "dog"}, animals.resolve())


def test_reading_changes_nothing_whoever_writes(animals, versions, decide):
    decide(Rename(3, "elk"))  # still in the log beside the database, as after a kill
    assert (animals / "decisions.sqlite-wal").stat().st_size > 0
    before = contents(animals)
    writer = sqlite3.connect(animals / "decisions.sqlite", isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    assert dict(decided_names(animals).names) == {3: "elk"}
    writer.execute("ROLLBACK")
    writer.close()
    after = contents(animals)
    for either in (before, after):
        del either["decisions.sqlite-shm"]  # where the writer keeps its locks
    assert after == before


def test_where_nobody_has_decided_no_database_is_made(animals):
    before = contents(animals)
    assert decided_names(animals).names == {}
    assert contents(animals) == before


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(b"nonsense" * 2000), "file is not a database"),
        (lambda path: sqlite3.connect(path).execute("PRAGMA user_version = 99").connection.close(), "a newer version"),
        (
            lambda path: sqlite3.connect(path).execute("CREATE TABLE t (a)").connection.close(),
            "not a database of decisions",
        ),
    ],
)
def test_a_database_that_cannot_be_read_is_said_and_no_more(animals, command, spoil, message):
    spoil(animals / "decisions.sqlite")
    before = contents(animals)
    code, out, err = command("classes", animals)
    assert (code, err.count("\n")) == (0, 1)
    assert err.startswith("rpim: Names from rpim explore are not shown: ")
    assert message in err
    assert f"{animals}/decisions.sqlite" in err
    assert "new-1" in out
    assert command("report", animals, "-o", "page.html")[0] == 0
    assert contents(animals)["decisions.sqlite"] == before["decisions.sqlite"]


def test_the_tables_of_classes_have_them(animals, decide, command):
    decide(Rename(3, "elk"), Rename(0, "formic"))
    code, out, _ = command("classes", animals)
    assert code == 0
    assert "elk (new-1)" in " ".join(out.split())
    assert "formic (ant)" in " ".join(out.split())
    assert WHOLE in out
    for name in ("c.csv", "c.json"):
        assert command("classes", animals, "-o", name)[0] == 0
    with open("c.json") as file:
        assert [row["decided_name"] for row in json.load(file)] == ["formic", "", "", "elk", ""]
    with open("c.csv", newline="") as file:
        assert [row["decided_name"] for row in csv.DictReader(file)] == ["formic", "", "", "elk", ""]


def test_the_report_has_them(animals, decide, command):
    decide(Rename(3, "<script>elk"), Rename(0, "formic"), Merge((1, 2)))
    assert command("report", animals, "-o", "page.html")[0] == 0
    with open("page.html") as file:
        page = file.read()
    assert "<script>elk" not in page
    assert '<h3><bdi>&lt;script&gt;elk</bdi></h3><span class="run-name"><bdi>new-1</bdi></span>' in page
    assert '<bdi>formic</bdi> <span class="run-name"><bdi>ant</bdi></span>' in page
    assert page.count(WHOLE) == 1
    assert page.count("1 other decision (merge, split, move, junk)") == 1
    data = json.loads(page.split('id="map-data">')[1].split("</script>")[0])
    assert data["titles"][3] == "<script>elk"
    assert data["names"][3] == "new-1"
