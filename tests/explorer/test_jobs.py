"""A new fit whose server was killed: the next server takes it over, gets its result, or cancels it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import weakref
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
import typer

from rpim import InputError
from rpim.cli.explore import serve
from rpim.explorer.background import RUNNING, Background
from rpim.explorer.from_python import listen
from rpim.explorer.jobs import STOPPED, Job, held, is_held
from rpim.explorer.workbench import Workbench
from rpim.runs.decision_store import Store
from rpim.runs.decisions import Rename

SERVER = """
import os, signal, sys, time
from pathlib import Path
from rpim.explorer import jobs
from rpim.explorer.background import Background
from rpim.explorer.workbench import Workbench

run = Path(sys.argv[1])
background = Background(Workbench(run))

def killed(folder, clear, finished, process):  # before it waits for the fit, which may be quick
    while not jobs.is_held(folder) and process.poll() is None:
        time.sleep(0.01)
    if sys.argv[2] == "pause":
        process.send_signal(signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGKILL)

jobs.Child = killed
background.refit(0)
"""


def wait_until(holds, seconds=180):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def slow(animals):
    """The same run, whose next fit takes minutes."""
    facts = json.loads((animals / "run.json").read_text())
    facts["parameters"] |= {"max_iter": 200_000, "preset": "paper"}
    (animals / "run.json").write_text(json.dumps(facts))
    return animals


@contextmanager
def next_server(run):
    bench = Workbench(run)
    background = Background(bench)
    try:
        yield bench, background.refitting, background
    finally:
        bench.versions.store.close()


@pytest.fixture
def killed_while_fitting(environment):
    """The number of the process that fits, or is paused, once the server that started it was killed by the system."""

    def number(run, pause=""):
        ended = subprocess.run([sys.executable, "-c", SERVER, run, pause], env=environment, timeout=180, check=False)
        assert ended.returncode == -signal.SIGKILL
        return int((run / "refits" / RUNNING / "pid").read_text())

    return number


def is_gone(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{number}/stat")
    return stat.is_file() and stat.read_text().rsplit(")", 1)[1].split()[0] == "Z"  # dead, and nobody waits for it here


@pytest.mark.slow
def test_the_next_server_shows_a_fit_that_goes_on_and_can_cancel_it(slow, killed_while_fitting):
    number = killed_while_fitting(slow)
    with next_server(slow) as (bench, job, background):
        assert job.status == "running"
        wait_until(lambda: job.progress().get("share", 0) > 0)
        seen = job.progress()["share"]
        wait_until(lambda: job.progress()["share"] > seen)
        with pytest.raises(InputError, match="A refit is already running"):
            background.refit(0)
        job.cancel()
        assert job.status == "cancelled"
        wait_until(lambda: is_gone(number))
        wait_until(lambda: not (slow / "refits" / RUNNING).exists())
        assert bench.versions.numbers() == [0]
        background.refit(0)  # there may be another now
        job.cancel()
    with next_server(slow) as (_, job, _):
        wait_until(lambda: job.status != "running")


@pytest.mark.slow
def test_it_gets_the_result(animals, killed_while_fitting):
    number = killed_while_fitting(animals, "pause")  # so that the next server comes before its end
    with next_server(animals) as (bench, job, _):
        assert job.status == "running"
        assert bench.versions.active == 0
        os.kill(number, signal.SIGCONT)
        wait_until(lambda: job.status != "running")
        assert job.status == "done"
        assert "unseen" not in job.progress()
        assert (bench.versions.active, bench.versions.numbers()) == (1, [0, 1])
    assert not (animals / "refits" / RUNNING).exists()


@pytest.mark.slow
def test_a_result_that_came_while_no_server_was_there_is_taken_and_told(animals, killed_while_fitting):
    killed_while_fitting(animals)
    wait_until(lambda: not is_held(animals / "refits" / RUNNING))
    with next_server(animals) as (bench, job, _):
        wait_until(lambda: job.status != "running")
        assert job.progress()["status"] == "done"
        assert job.progress()["unseen"] is True
        assert bench.versions.active == 1
    with next_server(animals) as (bench, job, _):  # and that once
        assert (job.status, bench.versions.active) == ("idle", 1)


@pytest.mark.slow
def test_a_fit_that_died_with_its_server_is_offered_again(slow, killed_while_fitting):
    os.kill(killed_while_fitting(slow), signal.SIGKILL)
    wait_until(lambda: not is_held(slow / "refits" / RUNNING))
    with next_server(slow) as (bench, job, _):
        wait_until(lambda: job.status != "running")
        said = job.progress()  # with the last stage that it reached, if it came so far as to say one
        assert (said["status"], said["error"], said["unseen"]) == ("failed", STOPPED, True)
        assert bench.versions.numbers() == [0]


@pytest.mark.slow
def test_a_folder_is_held_as_long_as_its_process_lives(tmp_path):
    assert not is_held(tmp_path)
    with held(tmp_path):
        assert is_held(tmp_path)
        job = Job("fit", tmp_path)
        with pytest.raises(InputError, match="A fit is already running: wait for it, or cancel it"):
            job.start("nothing", lambda folder: [], lambda folder: None)
    assert not is_held(tmp_path)


@pytest.mark.slow
def test_of_two_servers_that_start_a_refit_one_is_refused_and_can_still_cancel_it(slow):
    with next_server(slow) as (_, job, background), next_server(slow) as (_, other_job, other):
        refused = []

        def start(one):
            try:
                one.refit(0)
            except InputError as error:
                refused.append(str(error))

        threads = [threading.Thread(target=start, args=(one,)) for one in (background, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(refused) == 1
        assert re.fullmatch("(A refit is already running|Another rpim explore is starting a refit): .*", refused[0])
        idle, its_job = (other, other_job) if job.status == "running" else (background, job)
        with pytest.raises(InputError, match="A refit is already running: wait for it, or cancel it"):
            idle.refit(0)
        assert its_job.status == "running"
        its_job.cancel()
        wait_until(lambda: job.status != "running" and other_job.status != "running")
        wait_until(lambda: not (slow / "refits" / RUNNING).exists())
    assert sorted(os.listdir(slow / "refits")) == []


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            "import os; os.kill(os.getpid(), 9)",
            "the system ended it with signal 9, probably because the memory ran out",
        ),
        ("import os; os.kill(os.getpid(), 6)", "the system ended it with signal 6. Refit to repeat it."),
        ("raise MemoryError('no more')", "it ended with exit code 1 (MemoryError: no more)."),
    ],
)
def test_a_child_that_dies_says_why(tmp_path, monkeypatch, script, says):
    (tmp_path / "dying.py").write_text(script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job = Job("refit", tmp_path / "refits" / RUNNING)
    job.start("dying", lambda folder: [], lambda folder: None)
    wait_until(lambda: job.status != "running")
    for _ in range(2):
        assert job.progress()["status"] == "failed"
        assert job.progress()["error"].startswith(says)


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_ended_server_leaves_all_decisions_in_one_file(animals, environment, sent):
    if sent != signal.SIGINT:  # there is a map, so that none is being made; one of the three may pay for that
        np.save(animals / "map.npy", np.zeros((120, 2), dtype=np.float32))
    process = subprocess.Popen(
        [sys.executable, "-c", "from rpim.cli.main import main; main()", "explore", animals, "--no-browser"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(sent, signal.SIG_DFL),  # nohup, for one, ignores SIGHUP
    )
    try:
        while "127.0.0.1" not in process.stdout.readline():
            assert process.poll() is None
        store = Store(animals)
        store.add(0, Rename(0, "beetle"), "key-0001", 0)
        store._database.close()  # as a process that was killed; the server is still there
        process.send_signal(sent)
        process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 128 + sent
    assert sorted(file.name for file in animals.glob("decisions*")) == ["decisions.sqlite"]
    with sqlite3.connect(animals / "decisions.sqlite") as database:
        assert database.execute("SELECT count(*) FROM decisions").fetchone() == (1,)


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_in_a_callback_of_the_garbage_collector_is_not_lost(animals, monkeypatch, sent):
    """Python drops an exception that a signal handler raises there."""

    def run(server, sockets):
        rows = {1, 2}
        weakref.finalize(rows, signal.raise_signal, sent)
        assert not server.should_exit
        del rows
        assert server.should_exit

    monkeypatch.setattr("uvicorn.Server.run", run)
    monkeypatch.setattr("rpim.explorer.background.Background.map", lambda self: None)
    if signal.getsignal(sent) is signal.SIG_IGN:  # under nohup, which the server respects
        signal.signal(sent, signal.SIG_DFL)
    before = signal.getsignal(sent)
    with closing(Workbench(animals)) as bench, closing(listen(0)) as listening, pytest.raises(typer.Exit) as end:
        serve(bench, listening, open_browser=False)
    assert end.value.exit_code == 128 + sent
    assert signal.getsignal(sent) is before


def test_nohup_keeps_the_server(animals, monkeypatch):
    monkeypatch.setattr("uvicorn.Server.run", lambda server, sockets: signal.raise_signal(signal.SIGHUP))
    monkeypatch.setattr("rpim.explorer.background.Background.map", lambda self: None)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with closing(Workbench(animals)) as bench, closing(listen(0)) as listening:
            serve(bench, listening, open_browser=False)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_refused_start_leaves_no_database(animals, command):
    (animals.parent / "animals.npz").unlink()
    assert command("explore", animals, "--no-browser")[0] == 2
    assert list(animals.glob("decisions*")) == []


def test_a_damaged_refit_is_left_out_and_the_others_stay(animals, command):
    for number in (1, 2, 3):
        shutil.copytree(animals, animals / "refits" / f"{number:04}", ignore=lambda folder, names: ["refits"])
    (animals / "refits" / "0002" / "assignments.parquet").write_bytes(b"PAR1")
    (animals / "refits" / "0003" / "run.json").write_text('{"format": 1}')
    with next_server(animals) as (bench, _, _):
        assert bench.versions.numbers() == [0, 1]
        assert bench.versions.active == 1
        assert [one["number"] for one in bench.summary()["versions"]] == [0, 1]
        bench.suggest_names()
        assert sorted(bench.versions.problems) == [2, 3]
        bench.versions.activate(0)
        assert bench.versions.active == 0
    code, _, err = command("classes", animals, "--version", 2)
    assert code == 2
    assert "give --version 0 for the first fit, or refit" in err
    assert command("classes", animals, "--version", 1)[0] == 0
