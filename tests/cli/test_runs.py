"""Commands on a run: an extended run can be used like any other."""

import contextlib
import csv
import dataclasses
import io
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rpim import RPIM, Discovery, FeatureSet
from rpim._common.files import replacing
from rpim.cli import terminal
from rpim.cli.summary import print_next_steps
from rpim.core.checkpoint import Checkpoint, pack, unpack
from rpim.data.formats.csv_file import CsvFile
from rpim.estimators.objective import SCHEDULES
from rpim.explorer.refit import plan, refit_run, write_job
from rpim.explorer.workbench import Workbench
from rpim.runs.decisions import Rename
from rpim.runs.run_folder import features_of


@pytest.fixture
def extended(animals, animals_features, command):
    """A run with 30 more rows, one of them labelled."""
    new = FeatureSet.from_arrays(
        animals_features.X[:30] + 0.01,
        labels=["ant", *[""] * 29],
        ids=[f"later-{i}" for i in range(30)],
        texts=[f"later {i}" for i in range(30)],
        columns={"price": np.arange(30)},
    )
    new.write("later.npz")
    assert command("extend", animals, "later.npz", "-o", "run2", "--quiet") == (0, "", "")
    return Path("run2")


def test_an_extended_run_has_the_features_of_all_its_rows(extended, animals_features):
    features = features_of(extended)
    np.testing.assert_array_equal(features.ids, Discovery.load(extended).ids)
    np.testing.assert_allclose(features.X[:120], animals_features.X, rtol=1e-6)
    np.testing.assert_allclose(features.X[120:], animals_features.X[:30] + 0.01, rtol=1e-6)
    assert features.labels[120] == "ant"
    assert features.texts[-1] == "later 29"
    assert list(features.columns) == ["price"], "those that both have"
    assert sorted(os.listdir()) == ["animals.npz", "later.npz", "run", "run2"]


def test_an_extended_run_is_explored_refitted_and_reported_with_a_map(extended, command, monkeypatch):
    bench = Workbench(extended)
    try:
        assert len(bench) == 150
        state = bench.versions.state()
        write_job(Path("job.npz"), plan(state, bench.labelled, bench.versions[0].confidence), 0, 1)
    finally:
        bench.versions.store.close()
    refit_run(extended, Path("job.npz"), extended / "refits" / "0001")
    assert len(Discovery.load(extended / "refits" / "0001")) == 150
    np.save(extended / "map.npy", np.random.RandomState(0).normal(size=(150, 2)).astype(np.float32))
    assert command("report", extended, "--as-found")[0] == 0
    assert 'id="map-data"' in (extended / "report.html").read_text()


def test_an_extended_run_is_extended_again(extended, animals_features, command):
    FeatureSet.from_arrays(animals_features.X[40:60] - 0.01, ids=[f"last-{i}" for i in range(20)]).write("last.npz")
    assert command("extend", extended, "last.npz", "-o", "run3", "--quiet")[0] == 0
    assert len(features_of(Path("run3"))) == len(Discovery.load("run3")) == 170


def test_without_the_first_features_the_run_is_written_and_the_command_says_what_is_missing(
    animals, animals_features, command
):
    X = FeatureSet.read("animals.npz").X
    Path("animals.npz").unlink()
    np.save("later.npy", X[:30] + 0.01)
    code, _, err = command("extend", animals, "later.npy", "-o", "run2", "--quiet")
    assert code == 0
    assert re.match(
        "rpim: the extended run has no features of its rows, so .* no longer .*: give --features FILE.\n$", err
    )
    assert len(Discovery.load("run2")) == 150
    animals_features.write("moved.npz")
    assert command("extend", animals, "later.npy", "-o", "run3", "--features", "moved.npz", "-q") == (0, "", "")
    assert len(features_of(Path("run3"))) == 150


def test_tables_use_the_width_of_the_terminal(animals, animals_features, command, monkeypatch):
    long = " and many more words about it"
    texts = [f"number {i}{long}" for i in range(120)]
    FeatureSet.from_arrays(animals_features.X, labels=animals_features.labels, texts=texts).write("long.npz")
    options = ("--n-classes", 5, "--n-members", 1, "--no-report")
    for width, is_whole in ((200, True), (80, False)):
        monkeypatch.setenv("COLUMNS", str(width))
        out = command("discover", "long.npz", "-o", f"run-{width}", *options)[1]
        assert (long in out) == is_whole
        out = command("classes", f"run-{width}")[1]
        assert (long in out) == is_whole
        assert max(map(len, out.splitlines()[:6])) <= width


@pytest.fixture
def hostile(tmp_path):
    """A run whose labels, ids and texts would clear the screen, or be run by a spreadsheet."""
    rng = np.random.default_rng(0)
    X = np.repeat(np.eye(4), 10, axis=0) + rng.normal(scale=0.01, size=(40, 4))
    names = np.array(["=HYPERLINK(1)", "ant\x1b[2J\x07", "new", "new"])[np.repeat(np.arange(4), 10)]
    features = FeatureSet.from_arrays(
        X,
        labels=np.where((np.arange(40) % 2 == 0) & (names != "new"), names, ""),
        ids=[f"@{i}\x9b" for i in range(40)],
        texts=[f"-text {i}\x1b]0;title\x07" for i in range(40)],
    )
    features.write(tmp_path / "f.npz")
    model = RPIM(4, n_members=2, max_iter=10, random_state=0).fit(features.rows(), features.labels)
    Discovery.from_fit(model, features, source=tmp_path / "f.npz").save(tmp_path / "run")
    return tmp_path / "run"


def test_no_command_prints_control_characters(hostile, command, monkeypatch):
    np.savez("odd\x1b[2J.npz", **{"key\x1b[2J": np.eye(3), "key\x9b": np.eye(3)})
    for arguments in (
        ("classes", hostile),
        ("discover", "odd\x1b[2J.npz", "-o", "run2"),
        ("--debug", "discover", "odd\x1b[2J.npz", "-o", "run2"),
        ("discover", "f.npz", "-o", "run2", "--n-classes", 4, "--n-members", 1, "--no-report"),
        ("extend", hostile, "f.npz", "-o", "run3", "--no-report"),
        ("classes", hostile, "--accept", "no\x1b[2J"),
    ):
        _, out, err = command(*arguments)
        assert out + err
        assert not [one for one in out + err if one in "\x07\x1b\x9b\r"], arguments


def test_the_parts_of_the_command_line_print_by_one_function():
    """`typer.echo` would print control characters."""
    files = Path(terminal.__file__).parent.glob("*.py")
    uses = {file.name: file.read_text().count("typer.echo(") for file in files}
    assert {name: n for name, n in uses.items() if n} == {"terminal.py": 1}


def test_formulas_in_csv_files_are_guarded(hostile, command):
    exports = (
        ("export", hostile, "-o", "rows.csv"),
        ("export", hostile, "-o", "decided.csv", "--decisions"),
        ("predict", hostile, "f.npz", "-o", "new.csv"),
        ("classes", hostile, "-o", "classes.csv"),
    )
    for arguments in exports:
        file = Path(arguments[arguments.index("-o") + 1])
        assert command(*arguments)[0] == 0
        cells = [cell for row in csv.reader(io.StringIO(file.read_text())) for cell in row]
        assert "'=HYPERLINK(1)" in cells
        assert not [cell for cell in cells if cell.startswith(("=", "@", "-t"))]
        assert command(*arguments, "--raw-csv", "--overwrite")[0] == 0
        cells = [cell for row in csv.reader(io.StringIO(file.read_text())) for cell in row]
        assert "=HYPERLINK(1)" in cells
        assert not [cell for cell in cells if cell.startswith("'")]


@pytest.mark.parametrize("options", [(), ("--raw-csv",), ("--decisions",)])
def test_our_own_csv_file_is_read_back(hostile, command, options):
    assert command("export", hostile, "-o", "rows.csv", *options)[0] == 0
    assert ("'=HYPERLINK(1)" in Path("rows.csv").read_text()) == (options != ("--raw-csv",))
    code, out, err = command("evaluate", hostile, "--truth", "rows.csv", "--truth-column", "label")
    assert (code, err) == (0, "")
    assert "All 100.0%" in out
    assert command("export", hostile, "-o", "rows.parquet")[0] == 0
    assert "=HYPERLINK(1)" in pq.read_table("rows.parquet").column("label").to_pylist()


@pytest.mark.parametrize("name", ["truth.csv", "truth.parquet"])
def test_true_classes_under_another_name_are_asked_for(animals, refused, command, name):
    truth = pd.DataFrame({"id": Discovery.load(animals).ids, "class": "ant"})
    truth.to_csv(name, index=False) if name.endswith("csv") else truth.to_parquet(name)
    message = f"{name} has no column truth, targets or label among id, class: name one with --truth-column."
    refused(message, "evaluate", animals, "--truth", name)
    code, out, _ = command("evaluate", animals, "--truth", name, "--truth-column", "class")
    assert (code, out[:4]) == (0, "85 u")


def test_every_class_is_listed_on_one_line_of_a_narrow_terminal(animals_features, animals_model, command, monkeypatch):
    paths = [f"a-long-folder-name/picture-{i:05d}.jpg" for i in range(120)]
    pictures = dataclasses.replace(animals_features, texts=None, ids=np.array(paths))
    Discovery.from_fit(animals_model, pictures).save("pictures")
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = command("classes", "pictures")
    header, *lines = out.splitlines()[:6]
    assert header.split() == ["class", "rows", "labelled", "confidence", "stability", "typical", "doubtful"]
    assert [line.split()[0] for line in lines] == ["ant", "bee", "cat", "new-1", "new-2"]
    assert all(".jpg" in line for line in lines)
    monkeypatch.setenv("COLUMNS", "160")
    assert "nearest" in command("classes", "pictures")[1].splitlines()[0]


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


@pytest.mark.parametrize(
    ("path", "kind", "new"),
    [
        ("/data/rows.parquet", None, "NEW.parquet"),
        ("/data/v1.2/rows.v2.npz", None, "NEW.npz"),
        ("/data/shards", None, "NEW"),
        (None, None, "NEW.npz"),
        ("/data/t.jsonl.gz", "texts", "NEW.jsonl.gz"),
        ("/data/photos", "images", "NEW_IMAGES"),
    ],
)
def test_the_next_steps_name_files_of_the_kind_that_the_run_was_made_from(animals, path, kind, new):
    discovery = Discovery.load(animals)
    discovery.provenance["duration_seconds"] = 1.0
    discovery.provenance["data"] |= {"path": path, "metadata": {"embedding": {"kind": kind}}}
    console = Console(record=True, width=200, file=io.StringIO())
    print_next_steps(console, discovery, animals)
    assert console.export_text().splitlines()[-1].split()[3] == new


def test_a_folder_of_exported_images_is_not_replaced(animals, refused):
    Path("images").mkdir()
    Path("images/mine.txt").touch()
    message = "images exists already, and --overwrite replaces only files: choose another name."
    refused(message, "export", animals, "-o", "images", "--decisions", "--overwrite")
    assert os.listdir("images") == ["mine.txt"]


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


def test_of_two_predictions_with_one_output_the_second_is_refused(refused, animals, animals_features):
    np.save("new.npy", animals_features.X[:9])
    with replacing(Path("out.csv")) as file:
        file.write(b"mine")
        refused("out.csv is in use by process ", "predict", "run", "new.npy", "-o", "out.csv")
    assert Path("out.csv").read_text() == "mine"
    refused("out.csv exists already", "predict", "run", "new.npy", "-o", "out.csv")


def test_an_output_that_is_a_link_to_itself(refused, animals, tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    refused("loop is a link to itself: remove it", "discover", tmp_path / "animals.npz", "--n-classes", 5, "-o", "loop")


def test_the_number_of_groups_is_estimated_without_labels(command, refused):
    X = np.repeat(np.eye(5), 30, axis=0) + np.random.RandomState(0).normal(scale=0.1, size=(150, 5))
    FeatureSet.from_arrays(X, labels=np.repeat(list("abcde"), 30)).write("rows.npz")
    code, out, _ = command("estimate", "rows.npz", "--no-labels", "--plot", "curve.png")
    assert (code, out.split(",")[0]) == (0, "5 groups")
    assert "agreement of two halves" in out
    assert "95 %" not in out
    assert Path("curve.png").stat().st_size > 1000
    refused(
        "rows.npz has no labelled row, and --method max-acc needs some: leave it out.",
        *("estimate", "rows.npz", "--no-labels", "--method", "max-acc"),
    )
