"""An interrupted fit resumes from its checkpoint, and ends with the same bits."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from rpim import PIM, RPIM
from rpim._common.errors import InputError
from rpim.core import checkpoint as module
from rpim.core import training
from rpim.core.checkpoint import Checkpoint, TrainingState, pack, unpack
from rpim.core.head import Head
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import Schedule, train
from rpim.core.transforms import TRANSFORMS


@pytest.fixture
def at_once(monkeypatch):
    """Save at every opportunity, however short the fit."""
    monkeypatch.setattr(module, "SAVE_EVERY", 0.0)


@pytest.fixture
def problem(blobs):
    x, truth = blobs([30] * 8, 16, spread=0.6)
    y = np.where((truth.numpy() < 5) & (np.arange(len(x)) % 2 == 0), truth.numpy(), -1)
    return x.numpy(), y


class Stop(Exception):
    pass


class InPlace:
    """Checkpoints in memory."""

    def __init__(self):
        self.states = []

    def last(self, like):
        return TrainingState.from_bytes(self.states[-1], like) if self.states else None

    def due(self):
        return True

    def save(self, state):
        self.states.append(state.to_bytes())


@pytest.mark.parametrize("tol", [0.0, 1e-3])
@pytest.mark.parametrize(
    ("h", "pipelined"), [("none", False), ("semantic-bias", False), ("semantic-bias", True), ("linear", False)]
)
def test_a_training_that_is_stopped_at_any_step_resumes_with_the_same_bits(blobs, h, pipelined, tol):
    x, truth = blobs([40] * 4, 12, spread=0.8)

    def head():
        prototypes = x[::40][:4].clone()
        return Head(prototypes, TRANSFORMS[h].initial(prototypes), 5.0)

    def trained_history(trained, checkpoints, on_step=None):
        rows = InMemoryBlocks(x, truth[:60], 4)
        objective = Objective(pipelined=pipelined)
        return train(rows, trained, objective, Schedule(max_iter=75, tol=tol), on_step, checkpoints)

    whole = head()
    history = trained_history(whole, None)
    assert len(history) > 27
    for stop_at in (1, 5, 10, 27, 30):
        if stop_at >= len(history):
            continue
        checkpoints = InPlace()

        def stop(step, _, at=stop_at):
            if step == at:
                raise Stop

        with pytest.raises(Stop):
            trained_history(head(), checkpoints, stop)
        seen = []
        trained = head()
        again = trained_history(trained, checkpoints, lambda step, value, seen=seen: seen.append(step))
        assert again == history
        assert seen == list(range(len(history)))  # what was done before the stop counts as progress
        assert len(checkpoints.states) >= stop_at, "every step is saved"
        for name, value in whole.parameters.items():
            assert value.equal(trained.parameters[name])


@pytest.mark.parametrize("pipelined", [False, True])
@pytest.mark.parametrize("stop_at", [1, 19, 20, 21, 35, 39, 40, 50])
def test_a_training_that_starts_again_resumes_with_the_same_bits(blobs, monkeypatch, pipelined, stop_at):
    """Stopped in its first, second or last attempt."""
    x, truth = blobs([40] * 4, 12, spread=0.8)
    monkeypatch.setattr(training, "CLASSES_LOST", -0.1)  # as if classes had always lost their rows
    monkeypatch.setattr(training, "MOST_HALVINGS", 2)
    schedule = Schedule(max_iter=20, weight_decay=0.01, keep_classes=True)
    rows = InMemoryBlocks(x, truth[:60], 4)
    start = Head(x[::40][:4], TRANSFORMS["semantic-bias"].initial(x[::40][:4]), 5.0)

    def trained(checkpoints, on_step=None):
        head = start.copy()
        return head, train(rows, head, Objective(pipelined=pipelined), schedule, on_step, checkpoints)

    whole, history = trained(None)
    assert {step["weight_decay"] for step in history} == {0.0025}
    plain = start.copy()
    train(rows, plain, Objective(pipelined=pipelined), Schedule(max_iter=20, weight_decay=0.0025))
    checkpoints, steps = InPlace(), []

    def stop(step, _):
        steps.append(step)
        if len(steps) == stop_at:
            raise Stop

    with pytest.raises(Stop):
        trained(checkpoints, stop)
    again, resumed = trained(checkpoints)
    assert len(history) == 20
    assert resumed == history
    for name, value in whole.parameters.items():
        assert value.equal(again.parameters[name])
        assert value.equal(plain.parameters[name]), "as if it had begun with the last weight decay"


@pytest.mark.parametrize("method", [PIM, RPIM])
def test_a_fit_that_is_stopped_in_its_training(problem, tmp_path, at_once, monkeypatch, method):
    x, y = problem
    given = {"n_classes": 8, "n_members": 1, "random_state": 3}
    whole = method(**given).fit(x, y)
    checkpoint = Checkpoint(tmp_path / "run", {"seed": 3})
    monkeypatch.setattr(Checkpoint, "due", _due_until(1))
    with pytest.raises(Stop):
        method(**given).fit(x, y, checkpoint=checkpoint)
    assert checkpoint.exists
    checkpoint.close()
    monkeypatch.undo()
    calls = []
    monkeypatch.setattr(method, "_start", lambda *_: calls.append("start"))
    again = Checkpoint(tmp_path / "run", {"seed": 3})
    assert len(unpack((again.folder / module.TRAINING_FILE).read_bytes())[1]) == 1
    resumed = method(**given).fit(x, y, checkpoint=again)
    assert calls == []
    assert resumed.history_ == whole.history_
    assert resumed.head_.prototypes.equal(whole.head_.prototypes)
    assert (resumed.search_, resumed.n_members_, resumed.calibration_) == (whole.search_, 1, 1.0)
    np.testing.assert_array_equal(resumed.predict_proba(x), whole.predict_proba(x))
    again.remove()
    assert list(tmp_path.iterdir()) == []


def _due_until(n_saves):
    """Says that it is time, so many times after the start; then the fit is stopped."""
    asked = []

    def due(self):
        asked.append(1)
        if len(asked) > n_saves + 1:
            raise Stop
        return True

    return due


def test_a_short_fit_leaves_nothing(problem, tmp_path):
    x, y = problem
    PIM(n_classes=8, random_state=0).fit(x, y, checkpoint=Checkpoint(tmp_path / "run", {}))
    assert list(tmp_path.iterdir()) == []


def test_the_checkpoint_of_another_fit_is_refused_and_never_deleted_silently(tmp_path, at_once):
    first = Checkpoint(tmp_path / "run", {"rows": "a"})
    first.save_start({"prototypes": torch.ones(2, 2)}, {"x": 1})
    with pytest.raises(InputError, match=r"run\.checkpoint is in use by process \d+ on .*: wait for it, or choose"):
        Checkpoint(tmp_path / "run", {"rows": "b"}, overwrite=True)
    first.close()
    assert Checkpoint(tmp_path / "run", {"rows": "a"}).start()[1] == {"x": 1}
    message = (
        r"run\.checkpoint holds the checkpoint of another fit \(other rows\): say --overwrite, choose another output, "
        r"or remove it\."
    )
    with pytest.raises(InputError, match=message):
        Checkpoint(tmp_path / "run", {"rows": "b"})
    assert Checkpoint(tmp_path / "run", {"rows": "a"}).start()[1] == {"x": 1}
    assert Checkpoint(tmp_path / "run", {"rows": "a"}, overwrite=True).start()[1] == {"x": 1}, "it is this fit's own"
    assert Checkpoint(tmp_path / "run", {"rows": "b"}, overwrite=True).start() is None
    assert not (tmp_path / "run.checkpoint").exists()


def test_a_checkpoint_without_a_readable_plan_is_refused(tmp_path, at_once):
    Checkpoint(tmp_path / "run", {}).save_start({"prototypes": torch.ones(2, 2)}, {})
    (tmp_path / "run.checkpoint" / "plan.json").write_text("{")
    with pytest.raises(InputError, match="holds the checkpoint of another fit"):
        Checkpoint(tmp_path / "run", {})
    assert (tmp_path / "run.checkpoint" / "start.safetensors").is_file()


def test_members_are_saved_from_the_first_half_minute_on(tmp_path, monkeypatch):
    checkpoint = Checkpoint(tmp_path / "run", {})
    checkpoint.save_member(3, b"three")
    assert not checkpoint.exists
    monkeypatch.setattr(module, "SAVE_EVERY", 0.0)
    checkpoint.save_member(11, b"eleven")
    monkeypatch.undo()
    checkpoint.save_member(0, b"zero")
    folder = tmp_path / "run.checkpoint"
    assert {path.name: path.read_bytes() for path in folder.glob("member-*")} == {
        "member-0.safetensors": b"zero",
        "member-3.safetensors": b"three",
        "member-11.safetensors": b"eleven",
    }


def test_members_of_the_same_fit_come_back(tmp_path, at_once):
    data = pack({"w": torch.ones(2)}, {"x": 1})
    Checkpoint(tmp_path / "run", {"rows": "a"}).save_member(2, data)
    assert Checkpoint(tmp_path / "run", {"rows": "a"}).members() == {2: data}
    with pytest.raises(InputError, match="holds the checkpoint of another fit"):
        Checkpoint(tmp_path / "run", {"rows": "b"})
    assert Checkpoint(tmp_path / "run", {"rows": "b"}, overwrite=True).members() == {}
    assert not (tmp_path / "run.checkpoint").exists()


def test_members_of_a_resumed_fit_are_saved_at_once(tmp_path, at_once, monkeypatch):
    data = pack({"w": torch.ones(2)}, {})
    Checkpoint(tmp_path / "run", {}).save_member(0, data)
    monkeypatch.undo()
    Checkpoint(tmp_path / "run", {}).save_member(1, data)
    assert Checkpoint(tmp_path / "run", {}).members() == {0: data, 1: data}


def test_a_damaged_member_is_named(tmp_path, at_once):
    Checkpoint(tmp_path / "run", {}).save_member(0, pack({"w": torch.ones(2)}, {}))
    path = tmp_path / "run.checkpoint" / "member-0.safetensors"
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(InputError, match=r"member-0\.safetensors cannot be read .* and the fit begins again"):
        Checkpoint(tmp_path / "run", {}).members()


def test_a_damaged_file_is_named(tmp_path, at_once):
    first = Checkpoint(tmp_path / "run", {})
    first.save_start({"prototypes": torch.ones(2, 2)}, {})
    first.close()
    path = tmp_path / "run.checkpoint" / "start.safetensors"
    for data in (b"", path.read_bytes()[:-3], json.dumps([1]).encode()):
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"start\.safetensors cannot be read .* and the fit begins again"):
            first.start()
    with pytest.raises(ValueError, match="not written by this program"):
        unpack((2).to_bytes(8, "little") + b"{}")


KILLED_AFTER_A_SAVE = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have had it ignored
from rpim.core import checkpoint
checkpoint.SAVE_EVERY = 0.0
save, save_member = checkpoint.Checkpoint.save, checkpoint.Checkpoint.save_member
def save_and_die(self, state):
    save(self, state)
    if len(state.history) >= 20:
        os.kill(os.getpid(), signal.{0})
def keep_and_die(self, number, data):
    save_member(self, number, data)
    if len(list(self.folder.glob("member-*"))) == 2:
        os.kill(os.getpid(), signal.{0})
checkpoint.Checkpoint.save = save_and_die
checkpoint.Checkpoint.save_member = keep_and_die
from rpim.cli.main import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("n_members", [1, 4])
@pytest.mark.parametrize("signal_name", ["SIGKILL", "SIGINT"])
def test_the_command_resumes_after_a_kill(command, problem, tmp_path, monkeypatch, environment, signal_name, n_members):
    """And writes the run of an uninterrupted one, bit for bit."""
    monkeypatch.chdir(tmp_path)
    x, y = problem
    np.savez("rows.npz", X=x, y=y)
    arguments = ["discover", "rows.npz", "--n-classes", "8", "--no-report", "--n-members", n_members]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_AFTER_A_SAVE.format(signal_name), *map(str, arguments), "-o", "run"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.npz", "run.checkpoint"]
    assert len(list(Path("run.checkpoint").glob("member-*"))) == (2 if n_members > 1 else 0)
    if signal_name == "SIGINT":
        assert killed.returncode == 130
        assert killed.stderr == "rpim: interrupted; the same command resumes from run.checkpoint.\n"
        assert "Traceback" not in killed.stderr
    code, _, err = command(*arguments, "-o", "run")
    assert code == 0
    assert err.startswith("Resuming the fit in")
    assert not Path("run.checkpoint").exists()
    command(*arguments, "-o", "whole")
    for name in ("model.safetensors", "assignments.parquet", "history.json"):
        assert Path("run", name).read_bytes() == Path("whole", name).read_bytes()


def test_the_command_refuses_the_checkpoint_of_other_parameters(command, problem, at_once):
    x, y = problem
    np.savez("rows.npz", X=x, y=y)
    Checkpoint(Path("run"), {"rows": "other"}).save_member(0, pack({"w": torch.ones(2)}, {}))
    arguments = ["discover", "rows.npz", "--n-classes", "8", "--n-members", "1", "--no-report", "--quiet", "-o", "run"]
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert "run.checkpoint holds the checkpoint of another fit (other rows, rpim, RPIM): say --overwrite" in err
    assert Path("run.checkpoint", "member-0.safetensors").is_file()
    assert command(*arguments, "--overwrite")[0] == 0
    assert Path("run").is_dir()
    assert not Path("run.checkpoint").exists()
