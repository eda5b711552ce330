"""Damaged and hostile files of every kind: each is read or refused in one line, and nothing else happens."""

import importlib.util
import os
import queue
import subprocess
import sys
import threading

import pytest

if sys.platform != "linux":
    pytest.skip("the limits of the process are those of Linux", allow_module_level=True)
if not all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime", "PIL", "timm")):
    pytest.skip("a library that writes one of the formats is not installed", allow_module_level=True)

import fuzzing
from fuzz_work import KINDS, ROUND


@pytest.mark.slow
def test_damaged_and_hostile_files(tmp_path):
    """The same cases in every run; how many depends on the time (RPIM_FUZZ_SECONDS)."""
    seconds = float(os.environ.get("RPIM_FUZZ_SECONDS", 30))
    outcome = fuzzing.fuzz(tmp_path / "fuzz", seconds, 0, ROUND, tmp_path / "findings")
    print(outcome.table())
    assert set(outcome.counts) == set(KINDS)
    assert outcome.findings == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "hangs"),
    [
        ("time.sleep(60)", True),
        ("while True: pass", True),
        ("while time.monotonic() < start + 4:\n    sum(range(100_000)); time.sleep(0.05)", False),
    ],
    ids=["waits", "works", "is slow"],
)
def test_a_process_that_is_slow_on_a_busy_machine_does_not_hang(monkeypatch, script, hangs):
    monkeypatch.setattr("fuzzing.PATIENCE", 2)
    script = f"import time\nstart = time.monotonic()\n{script}\nprint('end')"
    lines = queue.Queue()
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as process:
        threading.Thread(target=fuzzing._pass_on, args=(process, lines), daemon=True).start()
        try:
            if hangs:
                with pytest.raises(queue.Empty):
                    fuzzing._next(lines, process.pid)
            else:
                assert fuzzing._next(lines, process.pid) == "end\n"
        finally:
            process.kill()
