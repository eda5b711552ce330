"""Work resumes from a checkpoint of the same plan; that of another plan is refused, and never removed silently."""

import contextlib
import json
import os
import subprocess
import sys

import pytest

from rpim._common.errors import InputError
from rpim._common.work_folder import WorkFolder, is_reused, resumable_work

PLAN = {"rows": "a", "sizes": (1, 2)}  # a tuple comes back from JSON as a list

HOLDER = """
import sys
from pathlib import Path
from rpim._common.work_folder import WorkFolder

work = WorkFolder(Path(sys.argv[1]), {"rows": "a"}, "fit")
(work.path / "part").write_text("1")
(work.path / ".0123456789abcdef.tmp").write_text("half")
print("ready", flush=True)
sys.stdin.readline()
assert (work.path / "part").read_text() == "1"
"""


def opened(tmp_path, plan=PLAN, overwrite=False):
    return WorkFolder(tmp_path / "out", plan, "embedding", overwrite)


def left(folder):
    return sorted(file.name for file in folder.iterdir() if file.name != "lock")


def add(work, name="part"):
    (work.path / name).write_text("1")
    work.close()


@pytest.fixture
def other_process(environment, tmp_path):
    """Another process that works in the folder; it ends without an error if its files are still there."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path / "out"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    yield process
    process.kill()
    process.communicate()


def test_a_new_folder_says_what_it_is_of(tmp_path):
    work = opened(tmp_path)
    assert work.path == tmp_path / "out.checkpoint"
    assert json.loads((work.path / "plan.json").read_text()) == {"rows": "a", "sizes": [1, 2]}
    assert not work.has_work()


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_same_plan_resumes(tmp_path, overwrite):
    add(opened(tmp_path))
    work = opened(tmp_path, overwrite=overwrite)
    assert work.has_work()
    assert (work.path / "part").read_text() == "1"


def test_another_plan_is_refused_unless_it_may_overwrite(tmp_path):
    add(opened(tmp_path))
    message = (
        r"out\.checkpoint holds the checkpoint of another embedding \(other rows, sizes\): say --overwrite, choose "
        r"another output, or remove it\."
    )
    with pytest.raises(InputError, match=message):
        opened(tmp_path, {"rows": "b"})
    assert left(tmp_path / "out.checkpoint") == ["part", "plan.json"]
    work = opened(tmp_path, {"rows": "b"}, overwrite=True)
    assert left(work.path) == ["plan.json"]


def test_files_without_a_plan_are_of_another_work_and_an_empty_folder_of_any(tmp_path):
    folder = tmp_path / "out.checkpoint"
    folder.mkdir()
    (folder / "plan.json").write_text('{"rows": "b"}')  # killed before it had done anything
    opened(tmp_path).close()
    folder.mkdir()
    (folder / "part").write_text("1")
    with pytest.raises(InputError, match="holds the checkpoint of another embedding"):
        opened(tmp_path)
    assert left(folder) == ["part"]


def test_a_folder_without_work_leaves_nothing_and_one_with_work_stays(tmp_path):
    opened(tmp_path).close()
    assert list(tmp_path.iterdir()) == []
    add(opened(tmp_path))
    assert left(tmp_path / "out.checkpoint") == ["part", "plan.json"]
    opened(tmp_path).remove()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("overwrite", [False, True])
def test_the_folder_of_a_living_process_is_refused_and_not_touched(tmp_path, other_process, overwrite):
    message = rf"out\.checkpoint is in use by process {other_process.pid} on .+ since .+: wait for it, or choose"
    with pytest.raises(InputError, match=message):
        opened(tmp_path, {"rows": "b"}, overwrite=overwrite)
    assert left(tmp_path / "out.checkpoint") == [".0123456789abcdef.tmp", "part", "plan.json"]
    other_process.communicate("end\n")
    assert other_process.returncode == 0


def test_that_of_a_killed_process_is_resumed_without_its_half_written_files(tmp_path, other_process):
    other_process.kill()
    other_process.wait()
    work = opened(tmp_path, {"rows": "a"})
    assert left(work.path) == ["part", "plan.json"]


def test_what_the_same_command_resumes_from(tmp_path):
    def here():
        return [path for path in resumable_work() if tmp_path in path.parents]

    work = opened(tmp_path)
    assert here() == []
    (work.path / "part").write_text("1")
    (tmp_path / "features").write_text("1")
    is_reused(tmp_path / "features")
    assert here() == [tmp_path / "features", work.path]
    work.remove()
    (tmp_path / "features").unlink()
    assert here() == []


def test_a_pipe_in_place_of_the_plan_is_no_plan(tmp_path):
    folder = tmp_path / "out.checkpoint"
    folder.mkdir()
    os.mkfifo(folder / "plan.json")
    with contextlib.closing(WorkFolder(tmp_path / "out", {"a": 1}, "fit", overwrite=True)) as work:
        assert (work.path / "plan.json").is_file()
