"""A fit on Ray workers gives the result of the same fit in memory, and a killed one resumes."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from rpim import RPIM, Discovery, InfoMaxObjective
from rpim._common.errors import InputError
from rpim.core import checkpoint as checkpoint_module
from rpim.core.checkpoint import Checkpoint
from rpim.core.preprocessing import Preprocessing
from rpim.core.row_blocks import InMemoryBlocks
from rpim.data.row_files import RowFiles
from rpim.engines import base as engine_base
from rpim.engines import ray_rows as row_shards
from rpim.engines.on_disk import StreamedBlocks
from rpim.engines.ray import RayEngine
from rpim.estimators import KMeans
from rpim.estimators.objective import PRESETS, SCHEDULES

QUICK = {"objective": InfoMaxObjective(trade_off=0.1, weight_decay=0.01), "n_members": 1, "n_init": 1}


@pytest.fixture
def problem(partly_labelled, tmp_path):
    np.save(tmp_path / "y.npy", partly_labelled[1])
    return partly_labelled


@pytest.mark.parametrize(
    ("n_workers", "cuts"), [(1, [0, 480]), (2, [0, 33, 480]), (3, [0, 1, 350, 480])], ids=["one", "two", "three"]
)
def test_workers_with_uneven_shards(ray_here, problem, monkeypatch, n_workers, cuts):
    """With its start; of three workers one has a single row. Two of them are handed an array.

    The folder is named as it is called from where the driver is, which is not where the workers are.
    """
    x, y, folder = problem
    monkeypatch.chdir(folder.parent)
    monkeypatch.setattr(row_shards, "bounds", lambda *_: cuts)
    parameters = {"n_classes": 12, "n_members": 1, "random_state": 0, "n_components": 16, "abstain": 0.1}
    one = RPIM(**parameters).fit(x, y)
    rows = x.astype(np.float64) if n_workers == 2 else RowFiles(folder.name)
    other = RPIM(**parameters).fit(RayEngine(rows, n_workers), y)
    assert (one.trade_off_, one.weight_decay_, one.n_iter_) == (other.trade_off_, other.weight_decay_, other.n_iter_)
    assert np.array_equal(one.components_, other.components_)
    difference = (one.head_.prototypes - other.head_.prototypes).norm() / one.head_.prototypes.norm()
    assert float(difference) < 1e-4
    assert (one.labels_ == other.labels_).mean() >= 0.995  # which of two rows is left out may change by rounding
    assert (one.predict(x) == other.predict(x)).mean() >= 0.995
    assert [step["objective"] for step in one.history_] == pytest.approx(
        [step["objective"] for step in other.history_], rel=1e-4
    )
    assert other.outlier_threshold_ == pytest.approx(one.outlier_threshold_, rel=1e-4)


def test_several_embeddings(ray_here, problem):
    x, y, folder = problem
    parameters = {"n_classes": 12, "random_state": 0, "n_components": 8, "max_iter": 10, **QUICK}
    one = RPIM(**parameters).fit([x[:, :10], x[:, 10:]], y)
    other = RPIM(**parameters).fit(RayEngine(RowFiles(folder), 2), y, widths=[10, 14])
    assert one.widths_ == other.widths_ == (10, 14)
    np.testing.assert_allclose(one.predict_proba(x), other.predict_proba(x), atol=1e-3)


def test_a_committee_of_a_sample_is_trained_on_by_workers(ray_here, problem, monkeypatch):
    """To what the same rows give on disk: the members see a sample, the workers all rows."""
    x, y, folder = problem
    monkeypatch.setattr(engine_base, "SAMPLE_ROWS", 240)
    parameters = {"n_classes": 12, "n_members": 2, "random_state": 0, "max_iter": 20}
    one = RPIM(**parameters).fit(RowFiles(folder), y)
    other = RPIM(**parameters).fit(RayEngine(RowFiles(folder), 2), y)
    assert 1 < one.n_iter_ == other.n_iter_ <= 20
    assert one.sample_rows_ == other.sample_rows_ < len(x)
    difference = (one.head_.prototypes - other.head_.prototypes).norm() / one.head_.prototypes.norm()
    assert float(difference) < 1e-4
    assert one.calibration_ == pytest.approx(other.calibration_, rel=1e-3)
    assert one.calibration_ != 1.0
    assert (one.labels_ == other.labels_).mean() >= 0.995
    np.testing.assert_array_equal(one.label_quality_, other.label_quality_)


def test_a_shard_is_in_memory_or_read_again_as_it_fits(ray_here, problem):
    """In the order of the files but for the labelled rows, which come first."""
    x, y, folder = problem
    shard = row_shards.cut(RowFiles(folder), 2)[1]
    codes = y[shard.start : shard.stop]
    preprocess = Preprocessing(normalize=False, components=None, device=torch.device("cpu"))

    def engine(memory, cache=True):
        return shard.blocks(codes, 12, preprocess, lambda total: total, memory=memory, cache=cache)

    ample, tight, tiny = engine(10**9), engine(40_000), engine(10_000)
    assert isinstance(ample, InMemoryBlocks)
    assert (ample.cache, tight.cache, engine(10**9, cache=False).cache) == (True, False, False)
    assert isinstance(tiny, StreamedBlocks)
    rows, labelled = x[shard.start : shard.stop], codes >= 0
    np.testing.assert_array_equal(ample.x.numpy(), np.concatenate([rows[labelled], rows[~labelled]]))
    assert ample.labels.tolist() == codes[labelled].tolist()
    assert tiny.n_local_rows == len(rows)
    assert tiny.n_labelled == labelled.sum()


def test_a_worker_that_is_killed(ray_here, problem, tmp_path, monkeypatch):
    """In the middle of the training: the others start anew with it from the last checkpoint."""
    x, y, folder = problem
    monkeypatch.setattr(checkpoint_module, "SAVE_EVERY", 0.0)
    long = {**QUICK, "preset": "paper", "max_iter": 60}
    whole = RPIM(12, random_state=0, **long).fit(x, y)
    checkpoint = Checkpoint(tmp_path / "run", {})
    killed = []

    def kill():
        while not (checkpoint.folder / "workers" / "training.safetensors").exists():
            time.sleep(0.02)
        killed.append(_training_workers()[0])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    other = RPIM(12, random_state=0, **long).fit(RayEngine(RowFiles(folder), 2), y, checkpoint=checkpoint)
    killer.join(timeout=60)
    assert killed
    assert len(other.history_) == 60
    difference = (whole.head_.prototypes - other.head_.prototypes).norm() / whole.head_.prototypes.norm()
    assert float(difference) < 1e-4
    assert (other.labels_ == whole.labels_).mean() >= 0.999


def _training_workers():
    """Those of the Ray of this process, and of no other that may be running on the machine."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if b"_TrainingWorker" in (process / "cmdline").read_bytes() and os.getpid() in _ancestors(process):
                found.append(int(process.name))
    return found


def _ancestors(process):
    while (parent := int((process / "stat").read_text().rpartition(")")[2].split()[1])) > 1:
        yield parent
        process = Path("/proc", str(parent))


SHORT = {"max_iter": 60}, {"n_init": 2}
"""Of the schedule and the preset of the paper, which have 1000 steps and 100 restarts."""
COMMAND = f"""
from rpim.core import checkpoint
from rpim.estimators import objective
checkpoint.SAVE_EVERY = 0.0
objective.SCHEDULES["paper"] |= {SHORT[0]}
objective.PRESETS["paper"] |= {SHORT[1]}
from rpim.cli.main import main
main()
"""


def test_a_driver_that_is_killed(ray_here, problem, tmp_path, environment, command, monkeypatch):
    """The same command resumes from the workers' last checkpoint, and nothing of the first Ray is left running."""
    monkeypatch.setitem(SCHEDULES, "paper", SCHEDULES["paper"] | SHORT[0])
    monkeypatch.setitem(PRESETS, "paper", PRESETS["paper"] | SHORT[1])
    arguments = [
        "discover",
        "rows",
        "--labels",
        "y.npy",
        "--n-classes",
        "12",
        "--ray",
        "--workers",
        "2",
        "--preset",
        "paper",
        "--trade-off",
        "0.1",
        "--weight-decay",
        "0.01",
        "--no-report",
        "-o",
        "run",
    ]
    process = subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], env=environment, start_new_session=True)
    while not (tmp_path / "run.checkpoint" / "workers" / "training.safetensors").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not Path("run").exists()
    code, _, err = command(*arguments)
    assert (code, err.splitlines()[0]) == (0, "Resuming the fit in run.checkpoint."), err
    assert not list(tmp_path.glob("*.checkpoint"))
    found = Discovery.load("run")
    assert found.model.n_iter_ == SHORT[0]["max_iter"]
    x, y = np.concatenate([np.load(path) for path in sorted(Path("rows").iterdir())]), np.load("y.npy")
    whole = RPIM(12, preset="paper", objective=QUICK["objective"], random_state=0).fit(x, y)
    assert (found.labels == whole.labels_).mean() >= 0.999


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "2"], "--workers is the number of Ray workers"),
        (["--ray", "--n-classes", "2"], "--n-classes 2 is smaller"),
        (["--ray", "--method", "gcd"], "--method gcd cannot be distributed"),
    ],
)
def test_what_cannot_be_says_so(refused, problem, tmp_path, arguments, message):
    refused(message, "discover", "rows", "--labels", "y.npy", "--n-classes", "12", "-o", "run", *arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows", "y.npy"]


def test_bad_rows_are_named_by_their_index_among_all_rows(ray_here, problem, tmp_path):
    x, y, _ = problem
    x = x.copy()
    x[444, 3] = np.nan
    np.save(tmp_path / "broken.npy", x)
    broken = RowFiles(tmp_path / "broken.npy")
    with pytest.raises(InputError, match=r"NaN or infinity in 1 row \(444\)"):
        RPIM(12, **QUICK).fit(RayEngine(broken, 2), y)
    with pytest.raises(InputError, match="480 rows for 500 workers"):
        RPIM(12, **QUICK).fit(RayEngine(broken, 500), y)
    with pytest.raises(InputError, match="KMeans needs its rows in memory"):
        KMeans(12).fit(RayEngine(broken, 2), y)


def test_ctrl_c(ray_here, problem, tmp_path, monkeypatch):
    """The fit ends with KeyboardInterrupt and a checkpoint, and no worker is left."""
    _, y, folder = problem
    monkeypatch.setattr(checkpoint_module, "SAVE_EVERY", 0.0)
    checkpoint = Checkpoint(tmp_path / "run", {})
    saved = checkpoint.folder / "workers" / "training.safetensors"

    def interrupt():
        while not saved.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    model = RPIM(12, random_state=0, **QUICK, preset="paper", max_iter=2000)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # processes of pytest-xdist ignore it
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(RayEngine(RowFiles(folder), 2), y, checkpoint=checkpoint)
    finally:
        signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 120
    while _training_workers() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _training_workers()
    assert saved.exists()
