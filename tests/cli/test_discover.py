"""``rpim discover``: fits that cannot be resumed, rows without labels, and tables that are read once."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from rpim import Discovery, FeatureSet
from rpim.core.checkpoint import Checkpoint, pack, unpack
from rpim.data.formats.tables import CsvFile
from rpim.estimators.objective import SCHEDULES
from rpim.explorer.background import plan, refit_run, write_job
from rpim.explorer.workbench import Workbench
from rpim.runs.decisions import Rename


@pytest.fixture
def interrupted_fit(animals_features, command, monkeypatch):
    """A command to which a checkpoint belongs, in its training on all rows."""
    animals_features.write("f.npz")
    monkeypatch.setitem(SCHEDULES, "default", {"learning_rate": 5e-3, "max_iter": 30, "tol": 0.0})
    single = ("--n-members", 1, "--trade-off", 0.1)
    fit = ("discover", "f.npz", "-o", "run", "--n-classes", 5, *single, "--no-report", "-q")
    with monkeypatch.context() as patch:
        patch.setattr("rpim.core.checkpoint.SAVE_EVERY", -1.0)
        patch.setattr(Checkpoint, "remove", lambda checkpoint: None)
        assert command(*fit) == (0, "", "")
    shutil.rmtree("run")
    return fit


@pytest.mark.parametrize(
    ("name", "odd", "said"),
    [
        ("start", "generator", "generator has shape (0,) and not (5056,)"),
        ("start", "head.prototypes", "head.prototypes has shape (0, 6) and not (5, 6)"),
        ("start", "hyperparameters", "its facts are damaged, "),
        ("training", "prototypes.mean", "prototypes.mean has shape (0, 6) and not (5, 6)"),
        ("training", "history", "its history is not a list of M, C, L_R, CE, L_S, objective, confident"),
    ],
)
def test_a_fit_that_cannot_be_resumed_is_one_sentence(interrupted_fit, command, refused, name, odd, said):
    """Its checkpoint was not written by a fit like it; found by fuzzing."""
    file = Path(f"run.checkpoint/{name}.safetensors")
    tensors, facts = unpack(file.read_bytes())
    if odd in tensors:
        tensors[odd] = tensors[odd][:0]
    else:
        facts = {**facts, odd: "warm"} if isinstance(facts, dict) else "warm"
    file.write_bytes(pack(tensors, facts))
    message = refused(f"{file} cannot be read ({said}", *interrupted_fit)
    assert message.endswith("): remove run.checkpoint, and the fit begins again.\n")
    assert not Path("run").exists()
    shutil.rmtree("run.checkpoint")
    assert command(*interrupted_fit) == (0, "", "")


@pytest.mark.parametrize("kind", [RuntimeError, ValueError, TypeError])
def test_a_failure_of_a_resumed_fit_is_not_blamed_on_its_checkpoint(interrupted_fit, command, monkeypatch, kind):
    def fail(*_):
        raise kind("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr("rpim.core.training.gradient", fail)
        code, _, err = command(*interrupted_fit)
    assert code == 1
    assert "out of memory" in err
    assert "run.checkpoint" not in err
    assert command(*interrupted_fit) == (0, "", "")


@pytest.mark.slow
def test_rows_without_labels_become_groups_that_are_named_and_refitted(command):
    """From nothing labelled to named classes: discover, name two groups, refit."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(4), 30)
    X = np.eye(8)[truth] + random.normal(scale=0.1, size=(120, 8))
    texts = [f"{['apple', 'boat', 'cloud', 'drum'][c]} number {i}" for i, c in enumerate(truth)]
    FeatureSet.from_arrays(X, texts=texts).write("rows.npz")
    code, out, err = command("discover", "rows.npz", "-o", "run", "--n-members", 2)
    assert (code, err) == (0, "")
    assert "120 rows, none of them labelled, in 4 groups." in out
    assert "estimated without labels" in out
    assert "Without labels its accuracy is unknown" in out
    assert "known class" not in out
    assert "nearest known" not in out
    page = Path("run/report.html").read_text()
    assert "None of 120 rows is labelled." in page
    assert "Known classes" not in page
    assert "new class" not in re.sub(r"(?s)<(script|style).*?</\1>", "", page)
    bench = Workbench(Path("run"))
    try:
        for number, name in enumerate(("fruit", "vehicle")):
            bench.versions.timeline.decide(0, lambda _, number=number, name=name: Rename(number, name), name)
        made = plan(bench.versions.state(), bench.labelled, bench.versions[0].confidence)
        write_job(Path("job.npz"), made, 0, 1)
    finally:
        bench.versions.store.close()
    refit_run(Path("run"), Path("job.npz"), Path("run/refits/0001"))
    refitted = Discovery.load("run/refits/0001")
    assert refitted.model.known_classes_.tolist() == ["fruit", "vehicle"]
    assert len(refitted.classes) == 4


def test_labels_are_ignored_on_request(animals_features, command):
    animals_features.write("f.npz")
    code, out, _ = command("discover", "f.npz", "-o", "run", "--no-labels", "--n-classes", 4, "--n-members", 2)
    assert code == 0
    assert "none of them labelled, in 4 groups" in out
    assert Discovery.load("run").classes.tolist() == ["group-1", "group-2", "group-3", "group-4"]


@pytest.mark.parametrize(
    "arguments", [["predict", "run", "new.csv", "-o", "out.csv"], ["extend", "run", "new.csv", "-o", "run2", "--quiet"]]
)
def test_a_csv_is_sniffed_once(animals, animals_features, command, monkeypatch, arguments):
    rows = "".join(f"x{k}," + ",".join(map(str, row)) + "\n" for k, row in enumerate(animals_features.X[:9].tolist()))
    Path("new.csv").write_text("id," + ",".join(f"f{k}" for k in range(6)) + "\n" + rows)
    sniffed, sniff = [], CsvFile.__init__

    def count(self, path):
        sniffed.append(os.fspath(path))
        sniff(self, path)

    monkeypatch.setattr(CsvFile, "__init__", count)
    code, _, err = command(*arguments)
    assert (code, sniffed) == (0, ["new.csv"]), err


def test_a_fit_that_another_process_works_on_is_refused(refused, animals):
    with contextlib.closing(Checkpoint(Path("run2"), {"rows": "a"})) as checkpoint:
        before = sorted(checkpoint.folder.iterdir())
        refused(
            f"run2.checkpoint is in use by process {os.getpid()} on ",
            *["discover", "animals.npz", "-o", "run2", "--n-members", "1", "--quiet", "--overwrite"],
        )
        assert sorted(checkpoint.folder.iterdir()) == before
    assert not Path("run2").exists()
