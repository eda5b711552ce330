"""Which outputs may be written, what is said of the others, and who writes them."""

import errno
import os
import subprocess
import sys

import filelock
import pytest

from rpim._common.errors import InputError
from rpim._common.files import check_export, check_writable, put_back, put_in_place, replacing


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").write_text("mine")
    (tmp_path / "dir.csv").mkdir()


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("there.csv", {}, "there.csv exists already: choose another name, or say --overwrite (overwrite=True)."),
        ("there.csv", {"overwrite": None}, "there.csv exists already: choose another name."),
        ("dir.csv", {}, "dir.csv exists already: choose another name, or say --overwrite (overwrite=True)."),
        ("dir.csv", {"overwrite": True}, "dir.csv exists already: choose another name, or say --overwrite (overwrite"),
        (
            "a.txt",
            {"suffixes": (".csv", ".json")},
            "a.txt has the suffix '.txt', which cannot be written: give .csv or",
        ),
        ("a", {"suffixes": [".a", ".b", ".c"]}, "a has the suffix '', which cannot be written: give .a, .b or .c."),
        ("a", {"suffixes": [".a"]}, "a has the suffix '', which cannot be written: give .a."),
        ("no/a.csv", {}, "no/a.csv cannot be written, because no is not a folder: create it first."),
        ("there.csv/a", {"is_folder": True}, "because there.csv is not a folder: create it first."),
    ],
)
def test_outputs_that_may_not_be_written(path, options, message):
    with pytest.raises(InputError) as error:
        check_writable(path, **options)
    assert message in str(error.value)


def test_an_output_that_is_a_link_to_itself(tmp_path, raises_input_error):
    (tmp_path / "run").symlink_to(tmp_path / "run")
    raises_input_error(check_writable, "run is a link to itself: remove it, or choose another name", tmp_path / "run")


def test_outputs_that_may_be_written(tmp_path):
    assert check_writable("new.csv", suffixes=[".csv"]).name == "new.csv"
    assert check_writable("NEW.CSV", suffixes=[".csv"]).name == "NEW.CSV"
    assert check_writable("there.csv", True)
    assert check_writable("dir.csv", True, is_folder=True)
    assert check_writable("no/such/folder", None, is_folder=True, parents=True)
    assert check_export(tmp_path / "new.parquet") == tmp_path / "new.parquet"


def test_a_folder_without_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match=f"because you may not write in {tmp_path}: choose another"):
        check_writable("new.csv")


KILLED = """
import os, signal, sys
from pathlib import Path
from rpim._common.files import replacing

with replacing(Path("new.csv")) as file:
    file.write(b"half")
    file.flush()
    print("writing", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def other_process(environment):
    """Another process that writes new.csv, until it is ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "writing\n"
    yield process
    process.kill()
    process.communicate()


def write(path, text, overwrite=True):
    with replacing(path, overwrite) as file:
        file.write(text)


def test_two_processes_do_not_write_the_same_file(tmp_path, other_process):
    new = tmp_path / "new.csv"
    with pytest.raises(InputError, match=rf"new\.csv is in use by process {other_process.pid} on .+: wait for it, or"):
        write(new, b"mine")
    write(tmp_path / "there.csv", b"another file")
    other_process.communicate("end\n")
    assert new.read_bytes() == b"half"  # as the other wrote it
    with pytest.raises(InputError, match=r"new\.csv exists already: choose another name, or say --overwrite"):
        write(new, b"mine", overwrite=False)
    write(new, b"mine")
    assert new.read_bytes() == b"mine"


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path, other_process):
    before = {"there.csv", "dir.csv"}
    other_process.kill()
    other_process.wait()
    assert len(set(os.listdir()) - before) == 2
    write(tmp_path / "new.csv", b"mine", overwrite=False)
    assert set(os.listdir()) == {*before, "new.csv"}


def test_a_name_may_be_as_long_as_the_disk_allows(tmp_path):
    write(tmp_path / ("x" * 251 + ".csv"), b"mine")
    assert (tmp_path / ("x" * 251 + ".csv")).read_bytes() == b"mine"


def test_a_disk_without_locks_is_written_all_the_same(tmp_path, monkeypatch):
    def acquire(*args, **kwargs):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(filelock.FileLock, "acquire", acquire)
    write(tmp_path / "new.csv", b"mine")
    assert (tmp_path / "new.csv").read_bytes() == b"mine"


def test_a_folder_whose_replacement_was_killed_is_put_back(tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def killed(*args):
        raise Killed

    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    rename = os.rename
    moves = iter((rename, killed))
    monkeypatch.setattr(os, "rename", lambda *paths: next(moves)(*paths))
    with pytest.raises(Killed):
        put_in_place(tmp_path / "new", tmp_path / "old")
    monkeypatch.undo()
    assert not (tmp_path / "old").exists()
    put_back(tmp_path / "old")
    assert os.listdir(tmp_path / "old") == ["old"]
    put_in_place(tmp_path / "new", tmp_path / "old")
    put_back(tmp_path / "old")
    assert os.listdir(tmp_path / "old") == ["new"]
    assert set(os.listdir(tmp_path)) == {"there.csv", "dir.csv", "old"}
