"""The cells of a benchmark as tasks: the same records, one copy of the rows, and none that stops another."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rpim.benchmark.cells import CellFile, planned_cells
from rpim.benchmark.entries import Set
from rpim.benchmark.plan import make_plan
from rpim.benchmark.runner import run_cells, run_cells_on_ray
from six_classes import save

FAST = {"max_iter": 10, "n_members": 1, "n_init": 1, "trade_off": 0.1, "weight_decay": 0.01}


def config(**methods):
    Path("config.json").write_text(json.dumps({"methods": methods, "seeds": [0]}))
    return Path("config.json")


def without_costs(record):
    return {name: value for name, value in record.items() if name not in ("seconds", "peak_mb")}


def test_records_are_those_of_processes_bit_for_bit_and_rows_are_read_once(ray_here, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = make_plan([save("birds.npz")], config(kmeans={}, rpim={**FAST, "beta": 0.2}))
    cells = planned_cells(plan)
    alone, spread = CellFile(tmp_path / "alone"), CellFile(tmp_path / "spread")
    run_cells(cells, alone, 2)
    read, reads = Set.read, []

    def read_and_remove(self):
        reads.append(self.name)
        found = read(self)
        self.path.unlink()  # no task reads it again
        return found

    monkeypatch.setattr(Set, "read", read_and_remove)
    run_cells_on_ray(cells, spread, ray_here)
    assert reads == ["birds"]
    for cell in cells:
        assert without_costs(spread.find(cell)) == without_costs(alone.find(cell))
        assert spread.find(cell)["all"] > 0.5
        assert spread.find(cell)["seconds"] > 0
        assert 50 < spread.find(cell)["peak_mb"] < 2000
    outcomes = [sorted((tmp_path / name / "outcomes").iterdir()) for name in ("alone", "spread")]
    assert [file.name for file in outcomes[0]] == [file.name for file in outcomes[1]] != []
    lines = spread.path.read_bytes()
    run_cells_on_ray(cells, spread, ray_here)
    assert spread.path.read_bytes() == lines  # nothing was run again


def told(cell, threads):
    """A cell that says which it is; one fails, one dies."""
    if cell.method.name == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if cell.method.name == "fails":
        return {**cell.facts, "error": "as it should"}
    return {**cell.facts, "threads": threads, "pid": os.getpid()}


def test_a_cell_that_fails_or_dies_stops_no_other(ray_here, tmp_path, monkeypatch):
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    monkeypatch.chdir(tmp_path)
    names = ("dies", "a", "fails", "b")
    methods = {name: {"method": "kmeans", "n_init": 1 + place} for place, name in enumerate(names)}
    cells = planned_cells(make_plan([save("birds.npz")], config(**methods)))
    kept = CellFile(tmp_path / "out")
    run_cells_on_ray(cells, kept, ray_here, work=told)
    assert [kept.find(cell).get("error") for cell in cells] == [
        "its process was ended, for want of memory perhaps",
        None,
        "as it should",
        None,
    ]
    assert kept.find(cells[1])["pid"] != kept.find(cells[3])["pid"]
    assert kept.find(cells[1])["threads"] == max(1, int(ray.cluster_resources()["CPU"]) // 2)


def test_the_command(ray_here, benchmark):
    code, out, err = benchmark(save("birds.npz"), "--config", config(kmeans={}), "-o", "out", "--ray", "--workers", 2)
    assert (code, err) == (0, "")
    assert out == Path("out/results.md").read_text()
    assert "kmeans" in out


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("--jobs is for one machine", ["--ray", "--jobs", 2]),
        ("--workers is the number of Ray workers", ["--workers", 2]),
        ("workers were asked for: ask for fewer", ["--ray", "--workers", 999]),
    ],
)
def test_bad_input_is_said_before_the_work(message, arguments, ray_here, benchmark_refused):
    benchmark_refused(message, save("birds.npz"), *arguments)


@pytest.mark.ray
def test_an_interruption_ends_the_tasks(tmp_path, environment, monkeypatch):
    pytest.importorskip("ray", reason="ray is not installed")
    monkeypatch.chdir(tmp_path)
    endless = {**FAST, "max_iter": 10**9, "preset": "paper"}
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "rpim.cli.main",
            "benchmark",
            save("birds.npz"),
            "--config",
            str(config(kmeans={}, pim=endless)),
            "-o",
            "out",
            "--ray",
            "--workers",
            "1",
        ],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        deadline = time.monotonic() + 300
        while not Path("out/cells.jsonl").exists() or not Path("out/cells.jsonl").read_bytes():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(1.0)  # let the endless cell begin
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=180)
    finally:
        process.kill()
    assert (process.returncode, out) == (130, "")
    assert err == "rpim: interrupted with 1 of 2 cells done; the same command resumes.\n"
