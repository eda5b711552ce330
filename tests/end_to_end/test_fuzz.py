"""Damaged and hostile files of every kind: each is read or refused in one line, and nothing else happens."""

import importlib.util
import os
import sys

import pytest

if sys.platform != "linux":
    pytest.skip("the limits of the process are those of Linux", allow_module_level=True)
if not all(importlib.util.find_spec(name) for name in ("onnx", "onnxruntime", "PIL", "timm")):
    pytest.skip("a library that writes one of the formats is not installed", allow_module_level=True)


@pytest.mark.slow
def test_damaged_and_hostile_files(tmp_path):
    """The same cases in every run; how many depends on the time (RPIM_FUZZ_SECONDS)."""
    from fuzz_work import KINDS, ROUND
    from fuzzing import fuzz

    seconds = float(os.environ.get("RPIM_FUZZ_SECONDS", 60))
    outcome = fuzz(tmp_path / "fuzz", seconds, 0, ROUND, tmp_path / "findings")
    print(outcome.table())
    assert set(outcome.counts) == set(KINDS)
    assert outcome.findings == []
