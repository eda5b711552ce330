"""Decisions on disk: what is acknowledged is there after a kill, undo and redo, and databases that cannot be used."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpim import InputError
from rpim.runs.decision_store import KEPT, Store, Timeline
from rpim.runs.decisions import Junk, Merge, Move, Rename, State
from rpim.runs.run_folder import check_target


def beginning(version: int = 0) -> State:
    return State.of_classes(np.array(["a", "a", "b", "c"]), np.array(["a", "b", "c"]), n_known=1)


@pytest.fixture
def timeline(tmp_path):
    store = Store(tmp_path)
    yield Timeline(store, beginning)
    store.close()


def rename(timeline, name, key, number=0):
    timeline.decide(0, lambda state: Rename(number, name), key)


def name(timeline):
    return timeline.state(0).classes[0].name


@pytest.mark.parametrize("end", ["", "-wal", "-shm", "-journal"])
def test_a_link_is_no_database(tmp_path, end):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / f"decisions.sqlite{end}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is a link, so decisions would be outside of the run: remove it"):
        Store(tmp_path / "run")
    assert not (tmp_path / "elsewhere").exists()


def test_undo_and_redo_go_back_and_forth(timeline):
    rename(timeline, "x", "1")
    rename(timeline, "y", "2")
    assert (name(timeline), timeline.undo_description(0), timeline.redo_description(0)) == ("y", "rename x to y", None)
    timeline.undo(0, "3")
    assert (name(timeline), timeline.undo_description(0), timeline.redo_description(0)) == (
        "x",
        "rename a to x",
        "rename x to y",
    )
    timeline.undo(0, "4")
    assert (name(timeline), timeline.undo_description(0)) == ("a", None)
    timeline.redo(0, "5")
    timeline.redo(0, "6")
    assert name(timeline) == "y"
    with pytest.raises(InputError, match="nothing to redo"):
        timeline.redo(0, "7")


def test_a_decision_after_undo_begins_a_branch_and_the_log_keeps_the_other(timeline, tmp_path):
    rename(timeline, "x", "1")
    timeline.undo(0, "2")
    rename(timeline, "z", "3")
    assert timeline.redo_description(0) is None
    timeline.undo(0, "4")
    assert timeline.redo_description(0) == "rename a to z"
    assert sqlite3.connect(tmp_path / "decisions.sqlite").execute("SELECT count(*) FROM decisions").fetchone() == (2,)


def test_a_request_that_is_repeated_is_done_once(timeline):
    rename(timeline, "x", "same")
    rename(timeline, "y", "same")
    assert name(timeline) == "x"
    rename(timeline, "y", "2")
    timeline.undo(0, "3")
    timeline.undo(0, "3")
    assert name(timeline) == "x"


def test_a_decision_that_is_refused_leaves_nothing(timeline):
    with pytest.raises(InputError, match="already called b"):
        rename(timeline, "b", "1")
    assert timeline.store.current(0) == 0
    rename(timeline, "x", "1")  # the key was not used up
    assert name(timeline) == "x"


def test_versions_have_decisions_of_their_own(timeline):
    rename(timeline, "x", "1")
    timeline.decide(1, lambda state: Merge((0, 1)), "2")
    assert name(timeline) == "x"
    assert sorted(timeline.state(1).classes) == [0, 2]
    timeline.undo(0, "3")
    assert sorted(timeline.state(1).classes) == [0, 2]
    timeline.store.activate(1)
    assert timeline.store.active == 1


def test_two_servers_see_each_other_and_cannot_overwrite_each_other(timeline, tmp_path):
    other = Timeline(Store(tmp_path), beginning)
    stamp = other.store.stamp()
    rename(timeline, "x", "1")
    assert name(other) == "x"
    assert other.store.stamp() != stamp
    with pytest.raises(InputError, match="at the same time"):
        other.store.add(0, Rename(0, "y"), "2", before=0)
    other.store.close()


@given(st.lists(st.sampled_from(["rename", "move", "junk", "undo", "redo"]), max_size=KEPT + 40))
@settings(max_examples=15, deadline=None)
def test_reading_the_log_again_gives_the_same_state(steps):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        timeline = Timeline(store, beginning)
        for k, step in enumerate(steps):
            row = np.array([k % 4], dtype=np.int32)
            made = {"rename": Rename(0, f"name {k}"), "move": Move(row, k % 3), "junk": Junk(row, junk=k % 2 == 0)}
            if step in made:
                timeline.decide(0, lambda _, step=step, made=made: made[step], str(k))
            elif (timeline.undo_description(0) if step == "undo" else timeline.redo_description(0)) is not None:
                getattr(timeline, step)(0, str(k))
        here = timeline.state(0)
        again = Timeline(store, beginning).state(0)
        store.close()
    assert again.names() == here.names()
    assert again.classes == here.classes
    np.testing.assert_array_equal(again.by_hand, here.by_hand)


@pytest.mark.slow
def test_what_was_acknowledged_survives_a_kill(tmp_path, environment):
    script = """
import sys, itertools
from pathlib import Path
from rpim.runs.decisions import Rename
from rpim.runs.decision_store import Store
store, before = Store(Path(sys.argv[1])), 0
for k in itertools.count():
    before = store.add(0, Rename(0, f"name {k}"), str(k), before)
    print(k, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        for line in process.stdout:
            if line == "20\n":
                process.send_signal(signal.SIGKILL)
                break
        said = [line, *process.stdout]
    finally:
        process.kill()
        process.wait()
    last = int(said[-1])
    store = Store(tmp_path)
    written = len(store.path_to(store.current(0)))
    assert written in (last + 1, last + 2)  # one more may have been written and not yet acknowledged
    store.close()


def test_a_file_that_is_no_database_is_one_sentence_and_stays(tmp_path):
    (tmp_path / "decisions.sqlite").write_bytes(b"my notes, which are no database at all")
    with pytest.raises(InputError, match=r"decisions\.sqlite cannot be used \(.*\): it was not changed"):
        Store(tmp_path)
    assert (tmp_path / "decisions.sqlite").read_bytes() == b"my notes, which are no database at all"


def test_a_newer_or_foreign_database_is_one_sentence_and_stays(tmp_path):
    database = sqlite3.connect(tmp_path / "decisions.sqlite")
    database.execute("CREATE TABLE cakes (name)")
    database.commit()
    with pytest.raises(InputError, match="not a database of decisions"):
        Store(tmp_path)
    database.execute("PRAGMA user_version = 7")
    database.close()
    with pytest.raises(InputError, match=r"newer version of rpim \(schema 7"):
        Store(tmp_path)
    assert sqlite3.connect(tmp_path / "decisions.sqlite").execute("SELECT * FROM cakes").fetchall() == []


def test_decisions_of_another_run_are_one_sentence(timeline):
    timeline.decide(0, lambda state: Move(np.array([3], dtype=np.int32), 2), "1")
    smaller = State.of_classes(np.array(["a", "b"]), np.array(["a", "b"]), n_known=1)
    with pytest.raises(InputError, match="does not belong to this run"):
        Timeline(timeline.store, lambda version: smaller).state(0)


def test_a_run_with_decisions_is_never_overwritten(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    store = Store(tmp_path / "run")
    assert check_target(tmp_path / "run", overwrite=True)  # somebody has looked at it, no more
    store.add(0, Rename(0, "x"), "1", before=0)
    store.undo(0, "2")
    store.close()
    with pytest.raises(InputError, match="never overwritten: choose another name"):
        check_target(tmp_path / "run", overwrite=True)


@pytest.mark.parametrize("what", ["refit", "unreadable"])
def test_nor_one_with_refits_or_decisions_that_cannot_be_read(tmp_path, what):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    if what == "refit":
        (tmp_path / "run" / "refits" / "0001").mkdir(parents=True)
    else:
        (tmp_path / "run" / "decisions.sqlite").write_bytes(b"?" * 100)
    with pytest.raises(InputError, match="never overwritten"):
        check_target(tmp_path / "run", overwrite=True)
