"""Whole commands on small data: what they print, what they write, and what they say to bad input."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.datasets import make_blobs
from typer.testing import CliRunner

import rpim
from rpim import Discovery, FeatureSet
from rpim.cli.main import app
from rpim.runs.run_folder import features_of

FAST = ("--n-classes", "6", "--trade-off", "0.1", "--weight-decay", "0.01", "--beta", "0.2")
X, TRUTH = make_blobs(300, n_features=8, centers=6, random_state=0)
X = X.astype(np.float32)
HALF = np.arange(300) % 2 == 0
WORDS = np.array(["ant", "bee", "cat", "dog", "elk", "fox"])[TRUTH]
LABELS = np.where((TRUTH < 4) & HALF, WORDS, "")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    """Partly labelled features without truth, as a user has them."""
    path = tmp_path_factory.mktemp("data") / "animals.npz"
    texts = [f"[red]{word}[/red] number {i}" for i, word in enumerate(WORDS)]
    FeatureSet.from_arrays(X, labels=LABELS, ids=[f"r{i}" for i in range(300)], texts=texts).write(path)
    return path


@pytest.fixture(scope="module")
def finished(data, environment) -> tuple[Path, str, str]:
    """A run of the real command, in a process of its own, with what it printed."""
    run = data.with_name("run")
    done = subprocess.run(
        [sys.executable, "-m", "rpim.cli.main", "discover", data, "-o", run, *FAST],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return run, done.stdout, done.stderr


@pytest.fixture(scope="module")
def run(data, rpim_command) -> Path:
    """A run of the same command in this process, which has its libraries imported."""
    folder = data.with_name("run-here")
    with pytest.raises(SystemExit) as end:
        rpim_command([str(part) for part in ("discover", data, "-o", folder, *FAST, "--quiet")])
    assert not end.value.code
    return folder


@pytest.mark.slow
def test_discover_says_what_it_found_in_words(finished):
    run, out, err = finished
    assert err == ""  # quiet when not a terminal
    discovery = Discovery.load(run)
    unlabelled = LABELS == ""
    to_known = int((discovery.known & unlabelled).sum())
    assert f"300 rows, {int((~unlabelled).sum())} of them labelled (4 known classes)." in out
    assert (
        f"Of the {unlabelled.sum()} unlabelled rows, {to_known} were assigned to known classes and "
        f"{unlabelled.sum() - to_known} to 2 new classes."
    ) in " ".join(out.split())
    for row in discovery.classes_table():
        if not row.known:
            numbers = rf"{row.rows} +{row.mean_confidence:.0%} +{row.stability:.0%} +{row.nearest_known}"
            assert re.search(rf"^{row.name} +{numbers} ", out, re.MULTILINE)
    assert "[red]" in out  # a user's text is never markup
    assert "Known classes and their rows: ant" in out
    assert f"rpim export {run} -o rows.csv" in out
    assert f"rpim classes {run}" in out
    assert f"rpim predict {run} NEW.npz" in out
    accuracy = discovery.model.expected_accuracy_
    assert (
        f"A committee of 16 fits: expected accuracy on known classes {accuracy:.0%} (estimated on held-out labels)."
    ) in " ".join(out.split())
    assert "None of 105 labels is probably wrong." in out
    assert "nan" not in out.lower().split()
    assert "Accuracy on the unlabelled rows" not in out
    assert json.loads((run / "run.json").read_text())["provenance"]["command"][:2] == ["rpim", "discover"]


def test_discover_finds_the_blobs_and_keeps_given_labels(run):
    discovery = Discovery.load(run)
    assert discovery.classes.tolist() == ["ant", "bee", "cat", "dog", "new-1", "new-2"]
    np.testing.assert_array_equal(discovery.labels[LABELS != ""], LABELS[LABELS != ""])
    facts = json.loads((run / "run.json").read_text())
    assert facts["parameters"]["objective"]["trade_off"] == 0.1


@pytest.mark.slow
def test_the_same_seed_gives_the_same_model(finished, data, command):
    assert command("discover", data, "-o", "again", *FAST, "--quiet") == (0, "", "")
    assert Path("again/model.safetensors").read_bytes() == (finished[0] / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_integer_labels_pim_and_truth(command):
    np.savez("data.npz", features=X, labels=np.where((TRUTH < 4) & HALF, TRUTH, -1), truth=TRUTH)
    code, out, err = command(
        "discover",
        "data.npz",
        "-o",
        "run",
        "--method",
        "pim",
        "--n-classes",
        6,
        "--trade-off",
        0.1,
        "--weight-decay",
        0.01,
        "--no-normalize",
        "--device",
        "cpu",
    )
    assert (code, err) == (0, "")
    assert re.search(r"Accuracy on the unlabelled rows: All [\d.]+%  Known [\d.]+%  Unknown ", out)
    discovery = Discovery.load("run")
    assert discovery.classes.tolist() == [0, 1, 2, 3, 4, 5]
    assert discovery.model.normalize is False


@pytest.mark.slow
def test_labels_from_a_file_of_their_own(command):
    np.save("x.npy", X)
    Path("labels.csv").write_text("id,label\n" + "".join(f"{i},{w}\n" for i, w in enumerate(LABELS) if w))
    assert command("discover", "x.npy", "-o", "run", "--labels", "labels.csv", *FAST, "-q")[0] == 0
    np.testing.assert_array_equal(Discovery.load("run").given, LABELS)


@pytest.mark.slow
def test_a_labels_file_takes_the_place_of_the_labels_in_the_data(command):
    np.savez("data.npz", features=X, labels=TRUTH)  # every row labelled, in another type
    Path("labels.txt").write_text("".join(f"{word}\n" for word in LABELS))
    assert command("discover", "data.npz", "-o", "run", "--labels", "labels.txt", *FAST, "-q") == (0, "", "")
    np.testing.assert_array_equal(Discovery.load("run").given, LABELS)


def test_predict_to_the_screen_and_to_files(run, command):
    np.save("new.npy", X[:20])
    code, out, err = command("predict", run, "new.npy")
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    expected = Discovery.load(run).predict(X[:20]).tolist()
    assert [row["label"] for row in rows] == expected
    assert list(rows[0]) == ["id", "label", "known", "confidence", "runner_up", "runner_up_confidence", "outlier"]
    assert command("predict", run, "new.npy", "-o", "new.csv") == (0, "The classes of the rows are in new.csv.\n", "")
    assert Path("new.csv").read_text() == out
    assert command("predict", run, "new.npy", "-o", "new.parquet") == (
        0,
        "The classes of the rows are in new.parquet.\n",
        "",
    )
    assert pq.read_table("new.parquet").column("label").to_pylist() == expected
    code, _, err = command("predict", run, "new.npy", "-o", "new.csv")
    assert (code, err) == (
        2,
        "rpim: new.csv exists already: choose another name, or say --overwrite (overwrite=True).\n",
    )
    assert command("predict", run, "new.npy", "-o", "new.csv", "--overwrite")[0] == 0


def test_classes_to_the_screen_and_to_files(run, command):
    code, out, err = command("classes", run)
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines()]
    assert " ".join(lines[0]) == "class rows labelled confidence stability about typical"
    first = dict(zip(Discovery.load(run).ids.tolist(), Discovery.load(run).assignments.texts, strict=True))
    typical = {row.name: first[row.typical[0]] for row in Discovery.load(run).classes_table()}
    for line in out.splitlines()[1:-1]:
        assert typical[line.split()[0]][:12] in line, "a text, not the number of a row"
    assert [line[0] for line in lines[1:-1]] == ["ant", "bee", "cat", "dog", "new-1", "new-2"], "a line a class"
    assert out.splitlines()[-1] == "None of 105 labels is probably wrong."
    assert max(map(len, out.splitlines())) <= 80
    assert command("classes", run, "-o", "classes.json") == (0, "The classes are in classes.json.\n", "")
    table = json.loads(Path("classes.json").read_text())
    assert [row["name"] for row in table] == ["ant", "bee", "cat", "dog", "new-1", "new-2"]
    discovery = Discovery.load(run)
    for row in table:
        assert 0 <= row["stability"] <= 1
        typical, doubtful = (np.isin(discovery.ids, row[name]) for name in ("typical", "doubtful"))
        assert (discovery.labels[typical | doubtful] == row["name"]).all()
        assert discovery.confidence[typical].min() >= discovery.confidence[doubtful].max() - 0.01
    assert command("classes", run, "-o", "classes.csv") == (0, "The classes are in classes.csv.\n", "")
    assert len(Path("classes.csv").read_text().splitlines()) == 7
    code, _, err = command("classes", run, "-o", "classes.csv")
    assert (code, "classes.csv exists already" in err) == (2, True)


@pytest.fixture(scope="module")
def mislabelled(tmp_path_factory) -> tuple[Path, list[int]]:
    """A run in which six rows have the label of another class, and these rows."""
    folder = tmp_path_factory.mktemp("mislabelled")
    bad = [int(row) for k in (0, 1) for row in np.flatnonzero((k == TRUTH) & HALF)[:3]]
    labels = LABELS.copy()
    labels[bad] = np.where(labels[bad] == "ant", "bee", "ant")
    FeatureSet.from_arrays(
        X, labels=labels, ids=[f"r{i}" for i in range(300)], texts=[f"[b]{word}, {i}" for i, word in enumerate(WORDS)]
    ).write(folder / "a.npz")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done = CliRunner().invoke(app, ["discover", "a.npz", "-o", "run", "--n-classes", "6", "--no-report"])
    assert done.exit_code == 0
    n = len(Discovery.load(folder / "run").label_issues())
    assert n > 1
    assert f"{n} of 105 labels are probably wrong: rpim classes run --label-issues lists them." in done.stdout
    return folder / "run", bad


@pytest.mark.slow
def test_label_issues_to_the_screen_and_to_files(mislabelled, command):
    run, bad = mislabelled
    issues = Discovery.load(run).label_issues()
    rows_of_issues = sorted(issue.row for issue in issues)
    assert set(rows_of_issues) & set(bad)
    code, out, err = command("classes", run, "--label-issues")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["id", "label", "suggested", "quality", "text"]
    for line, issue in zip(lines[1 : 1 + len(issues)], issues, strict=True):
        assert line.split()[:3] == [f"r{issue.row}", issue.label, issue.suggested]
        assert f"{issue.label_quality:.1%}" in line
        assert f"[b]{WORDS[issue.row]}, {issue.row}" in line
    assert lines[-2].startswith(f"To accept a suggestion: rpim classes {run} --accept ID (or all)")
    assert lines[-1] == f"{len(issues)} of 105 labels are probably wrong."
    assert command("classes", run, "--label-issues", "-o", "issues.csv") == (
        0,
        "The label issues are in issues.csv.\n",
        "",
    )
    with open("issues.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["id", "label", "suggested", "label_quality", "confidence", "text"]
    assert [row["id"] for row in rows] == [f"r{issue.row}" for issue in issues]
    assert command("classes", run, "--label-issues", "-o", "issues.json") == (
        0,
        "The label issues are in issues.json.\n",
        "",
    )
    stored = json.loads(Path("issues.json").read_text())
    assert [(row["label"], row["suggested"]) for row in stored] == [(one.label, one.suggested) for one in issues]
    assert [row["confidence"] for row in stored] == [one.confidence for one in issues]
    code, _, err = command("classes", run, "--label-issues", "-o", "issues.csv")
    assert (code, "issues.csv exists already" in err) == (2, True)
    code, _, err = command("classes", run, "--label-issues", "-o", "issues.txt")
    assert (code, "give .csv or .json" in err) == (2, True)
    assert command("classes", run)[1].splitlines()[-1] == (
        f"{len(issues)} of 105 labels are probably wrong: rpim classes {run} --label-issues lists them."
    )
    assert command("export", run, "-o", "rows.csv") == (0, "The classes of the rows are in rows.csv.\n", "")
    with open("rows.csv", newline="") as file:
        assert [row["id"] for row in csv.DictReader(file) if row["suggested"]] == [f"r{row}" for row in rows_of_issues]


@pytest.mark.slow
def test_suggestions_are_accepted_by_id_or_all_at_once(mislabelled, command, tmp_path):
    shutil.copytree(mislabelled[0], tmp_path / "run")
    first, *others = Discovery.load(tmp_path / "run").label_issues()
    code, _, err = command("classes", "run", "--accept", f"r{first.row}", "--accept", "nowhere")
    assert code == 2
    assert err.startswith("rpim: 'nowhere' is not the id of a row with an undecided label issue: rpim classes run")
    assert command("classes", "run", "--accept", f"r{first.row}") == (
        0,
        "1 suggestion accepted. rpim explore run lists and undoes decisions.\n",
        "",
    )
    assert command("classes", "run", "--accept", f"r{first.row}")[0] == 2  # is decided
    assert command("classes", "run", "--accept", "all")[1].startswith(f"{len(others)} suggestion")
    assert command("classes", "run", "--accept", "all")[1].startswith("0 suggestions accepted")
    assert command("export", "run", "-o", "decided.csv", "--decisions")[0] == 0
    with open("decided.csv", newline="") as file:
        final = {row["id"]: row["label"] for row in csv.DictReader(file)}
    assert [final[f"r{one.row}"] for one in (first, *others)] == [one.suggested for one in (first, *others)]


def test_without_label_issues_one_sentence_says_so(run, command):
    assert command("classes", run, "--label-issues") == (0, "None of 105 labels is probably wrong.\n", "")
    assert command("classes", run, "--label-issues", "-o", "none.csv") == (
        0,
        "The label issues are in none.csv.\n",
        "",
    )
    assert Path("none.csv").read_text() == "id,label,suggested,label_quality,confidence,text\n"
    assert command("classes", run, "--label-issues", "-o", "none.json") == (
        0,
        "The label issues are in none.json.\n",
        "",
    )
    assert json.loads(Path("none.json").read_text()) == []


@pytest.mark.parametrize(
    ("options", "what_to_do"),
    [(("--n-members", 1), "fit with --n-members 16."), (("--method", "gcd"), "fit with --method rpim instead of gcd.")],
)
def test_a_single_fit_says_that_nothing_was_checked(data, command, options, what_to_do):
    code, out, err = command("discover", data, "-o", "run", "--n-classes", 6, "--no-report", *options)
    assert (code, err) == (0, "")
    assert "This is a single fit: its confidence is not calibrated, and usually too high." in out
    for part in ("committee", "probably wrong", "expected accuracy"):
        assert part not in out
    sentence = f"The labels of run were not checked, because the fit has no committee: {what_to_do}"
    assert command("classes", "run", "--label-issues") == (2, "", f"rpim: {sentence}\n")
    code, out, err = command("classes", "run")
    assert (code, err, out.splitlines()[-1]) == (0, "", sentence)
    assert command("classes", "run", "--label-issues", "-o", "issues.csv")[0] == 2
    assert not Path("issues.csv").exists()


def one_label_a_class() -> np.ndarray:
    labels = np.full(300, "", dtype=LABELS.dtype)
    for word in ("ant", "bee", "cat", "dog"):
        labels[np.flatnonzero(word == WORDS)[0]] = word
    return labels


@pytest.mark.slow
def test_one_labelled_row_a_class_is_said_to_be_too_few_to_check(command):
    save("d.npz", labels=one_label_a_class())
    code, out, err = command("discover", "d.npz", "-o", "run", "--n-classes", 6, "--no-report")
    assert code == 0
    assert err.startswith("rpim: warning: No known class has more than one labelled row")
    assert err.count("\n") == 1
    assert "A committee of 16 fits; its expected accuracy could not be estimated." in out
    assert "No label could be checked: a class needs at least two labelled rows." in out
    assert "nan" not in out.lower()
    assert np.isnan(Discovery.load("run").model.expected_accuracy_)
    code, out, _ = command("classes", "run", "--label-issues")
    assert (code, out) == (0, "No label could be checked: a class needs at least two labelled rows.\n")


@pytest.mark.slow
def test_classes_of_a_single_row(command):
    labels = LABELS.copy()
    labels[-6:] = [f"only-{k}" for k in range(6)]
    save("d.npz", labels=labels)
    code, out, err = command("discover", "d.npz", "-o", "run", "--n-classes", 12, "--no-report")
    assert code == 0
    assert all(line.startswith("rpim: warning: ") for line in err.splitlines())
    assert "nan" not in out.lower()
    assert "Traceback" not in err


@pytest.mark.slow
def test_warnings_of_a_fit_are_a_line_each_in_the_words_of_the_command(command):
    few = np.eye(8, dtype=np.float32)[np.arange(300) % 3]
    labels = np.where((np.arange(300) % 3 < 2) & HALF, np.array(["ant", "bee", ""])[np.arange(300) % 3], "")
    save("d.npz", few, labels)
    code, out, err = command("discover", "d.npz", "-o", "run", "--n-classes", 5, "--no-report")
    assert code == 0
    assert err.splitlines()[0] == (
        "rpim: warning: Only 3 of 300 rows are different, fewer than there are classes (5), and rows that are the same "
        "get the same class: check how the rows were made, or give a smaller --n-classes."
    )
    assert err.splitlines()[-1].startswith("rpim: warning: ")
    assert err.splitlines()[-1].endswith(
        "classes ended without a row: there may be fewer classes. Give --n-classes 3, or leave it out to have it "
        "estimated."
    )
    assert all(line.startswith("rpim: warning: ") for line in err.splitlines())
    assert "UserWarning" not in out + err
    assert command("discover", "d.npz", "-o", "quiet", "--n-classes", 5, "--no-report", "-q") == (0, "", "")


@pytest.mark.slow
def test_abstain_from_discover_to_predict_evaluate_and_export(data, command):
    code, out, err = command("discover", data, "-o", "run", *FAST, "--abstain", 0.1, "--n-members", 1)
    assert (code, err) == (0, "")
    n_out = round(0.1 * (LABELS == "").sum())
    assert f"{n_out} rows were rejected as outliers." in out
    discovery = Discovery.load("run")
    assert (discovery.labels == "").sum() == n_out
    assert discovery.stability is None
    np.savetxt("truth.txt", WORDS, fmt="%s")
    code, out, _ = command("evaluate", "run", "--truth", "truth.txt")
    assert f"({n_out} rejected rows excluded)" in out
    assert json.loads(command("evaluate", "run", "--truth", "truth.txt", "--json")[1])["left_out"] == n_out
    assert command("export", "run", "-o", "rows.csv")[0] == 0
    with open("rows.csv", newline="") as file:
        assert sum(row["label"] == "" for row in csv.DictReader(file)) == n_out
    np.save("new.npy", np.concatenate([X[:5], -X[LABELS != ""].sum(axis=0, keepdims=True)]))
    code, out, _ = command("predict", "run", "new.npy")
    rows = list(csv.DictReader(io.StringIO(out)))
    expected = discovery.model.predict(np.load("new.npy"))
    assert [row["label"] for row in rows] == expected.tolist()
    assert (expected[:5] != "").any()
    assert all((float(row["outlier"]) > discovery.model.outlier_threshold_) == (row["label"] == "") for row in rows)


def test_predict_refuses_rows_of_another_encoder(run, command):
    np.save("new.npy", X[:20, :5])
    code, out, err = command("predict", run, "new.npy")
    assert (code, out) == (2, "")
    assert err == (
        "rpim: The rows have 5 features but the model was fitted on rows of 8: embed them with the same encoder.\n"
    )


def test_evaluate_in_words_and_as_json(run, command):
    Path("truth.txt").write_text("\n".join(WORDS) + "\n")
    code, out, err = command("evaluate", run, "--truth", "truth.txt")
    assert (code, err) == (0, "")
    assert re.search(r"All [\d.]+%  Known [\d.]+%  Unknown [\d.]+%\nNMI [\d.]+  ARI [\d.]+\n$", out)
    Path("truth.csv").write_text("id,truth\n" + "".join(f"r{i},{w}\n" for i, w in reversed(list(enumerate(WORDS)))))
    results = {}
    for metric in ("v2", "v1", "orca"):
        code, out, _ = command("evaluate", run, "--truth", "truth.csv", "--metric", metric, "--json")
        results[metric] = json.loads(out)
        assert code == 0
    assert results["v2"]["rows"] == int((LABELS == "").sum())
    assert results["v2"]["all"] <= results["v1"]["all"]
    assert set(results["orca"]) == {"metric", "rows", "left_out", "all", "known", "unknown", "nmi", "ari"}
    code, _, err = command("evaluate", run, "--truth", "truth.txt", "--metric", "v3")
    assert (code, err) == (2, "rpim: --metric 'v3' is unknown: did you mean v2?\n")


def test_export(run, command):
    assert command("export", run, "-o", "all.csv") == (0, "The classes of the rows are in all.csv.\n", "")
    with open("all.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["label"] for row in rows] == Discovery.load(run).labels.tolist()
    assert rows[0]["id"] == "r0"
    assert rows[0]["text"].endswith(" number 0")
    assert command("export", run, "-o", "all.parquet")[0] == 0
    code, _, err = command("export", run, "-o", "all.json")
    assert (code, "which cannot be written: give .csv or .parquet" in err) == (2, True)
    assert sorted(os.listdir()) == ["all.csv", "all.parquet"]


def save(name: str, x=X, labels=LABELS, **more) -> str:
    np.savez(name, features=x, **({} if labels is None else {"labels": labels}), **more)
    return name


def with_value(row: int, value: float):
    x = X.copy()
    x[row] = value
    return x


def truncated(path: str) -> str:
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[: len(whole) // 2])
    return path


def parquet(path: str) -> str:
    FeatureSet.from_arrays(X, labels=LABELS).write(path)
    return path


def short_labels() -> tuple[str, ...]:
    np.save("x.npy", X)
    Path("labels.txt").write_text("\n".join(LABELS[:-1].tolist()) + "\n")
    return "x.npy", "--labels", "labels.txt"


def of_one_class():
    return np.where(LABELS == "ant", LABELS, "")


BAD_INPUT = {
    "NaN": (lambda: save("d.npz", with_value(7, np.nan)), r"X has NaN, missing or infinite values in 1 row \(7\)"),
    "inf": (lambda: save("d.npz", with_value(9, np.inf)), r"X has NaN, missing or infinite values in 1 row \(9\)"),
    "one dimension": (lambda: save("d.npz", X[:, 0]), r"X has shape \(300,\), not two dimensions"),
    "three dimensions": (lambda: save("d.npz", X.reshape(300, 4, 2)), r"X has shape \(300, 4, 2\)"),
    "zero rows": (lambda: save("d.npz", X[:0], LABELS[:0]), r"X has shape \(0, 8\), so it has no rows"),
    "all-zero row": (lambda: save("d.npz", with_value(3, 0.0)), r"1 row \(3\) of zeros only"),
    "nothing unlabelled": (lambda: save("d.npz", labels=WORDS), "Every row of d.npz is labelled, so there is nothing"),
    "one known class": (lambda: save("d.npz", labels=of_one_class()), "have only one class, 'ant': label rows"),
    "n_classes": (
        lambda: (save("d.npz"), "--n-classes", "3"),
        "--n-classes 3 is smaller than the number of known classes, 4: give at least 4",
    ),
    "n_classes too many": (
        lambda: (save("d.npz"), "--n-classes", "301"),
        "--n-classes 301 is larger than the number of rows of d.npz (300): give fewer, or leave it out to have it est",
    ),
    "weight_decay": (lambda: (save("d.npz"), "--weight-decay", "nan"), "--weight-decay nan is out of its range"),
    "duplicate ids": (lambda: save("d.npz", ids=np.zeros(300, dtype=int)), "ids has 0 more than once"),
    "labels of the wrong length": (short_labels, "labels.txt: labels has 299 values but X has 300 rows"),
    "mixed labels": (lambda: save("d.npz", labels=np.array([1.5, 2, *[-1] * 298])), "continuous values"),
    "truncated npz": (lambda: truncated(save("d.npz")), "d.npz is not an .npz file, or is truncated"),
    "truncated parquet": (lambda: truncated(parquet("d.parquet")), "d.parquet cannot be read"),
    "object array": (lambda: save("d.npz", X.astype(object)), "d.npz holds pickled objects, which are never loaded"),
    "missing file": (lambda: "nowhere.npz", "nowhere.npz is not there or not a file"),
    "unknown method": (lambda: (save("d.npz"), "--method", "rpin"), "--method 'rpin' is unknown: did you mean rpim?"),
    "unknown settings": (lambda: (save("d.npz"), "--preset", "x"), "--preset 'x' is unknown: choose among"),
    "trade_off": (
        lambda: (save("d.npz"), "--trade-off", "-1"),
        "--trade-off -1 is out of its range: give a number above 0, or leave",
    ),
    "beta": (
        lambda: (save("d.npz"), "--beta", "2"),
        "--beta 2 is out of its range: give a number at least 0 and at most 1",
    ),
    "beta for PIM": (lambda: (save("d.npz"), "--method", "pim"), "--beta is not for --method pim: leave it out."),
    "against the preset": (
        lambda: (save("d.npz"), "--preset", "paper"),
        "--beta 0.2 contradicts --preset paper, which has --beta 0.05: leave --beta out, or use --preset default.",
    ),
    "abstain": (
        lambda: (save("d.npz"), "--abstain", "1.5"),
        "--abstain 1.5 is out of its range: give a number at least 0 and below 1",
    ),
    "abstain for GCD": (
        lambda: (save("d.npz"), "--method", "gcd", "--abstain", "0.1"),
        "--abstain is not for --method gcd: leave it out.",
    ),
    "no members": (
        lambda: (save("d.npz"), "--n-members", "0"),
        "--n-members 0 is too few: give 1 for a single fit, or 16 for a committee.",
    ),
    "too many members": (
        lambda: (save("d.npz"), "--n-members", "100000"),
        "--n-members 100000 is larger than the number of rows (300): give fewer, such as 16.",
    ),
    "identical rows": (
        lambda: save("d.npz", np.ones_like(X)),
        "All 300 rows are the same, so no class can be told from another: check how they were made.",
    ),
    "rows of one direction": (
        lambda: save("d.npz", np.arange(1, 301, dtype=np.float32)[:, None] * np.ones(8)),
        "All 300 rows are the same",
    ),
    "device": (lambda: (save("d.npz"), "--device", "abacus"), "--device 'abacus' is not there"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, refused):
    make, message = BAD_INPUT[case]
    made = make()
    arguments = (made,) if isinstance(made, str) else made
    before = sorted(os.listdir())
    err = refused("", "discover", arguments[0], "-o", "run", *FAST, *arguments[1:])
    assert re.search(message if "\\" in message else re.escape(message), err)
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("labels", [None, np.full(300, "")])
@pytest.mark.parametrize("option", ["--method gcd", "--preset paper"])
def test_what_needs_labels_is_refused_without(labels, option, refused):
    save("d.npz", labels=labels)
    message = f"d.npz has no labelled row, and {option} needs some: label rows of at least two classes, give --labels"
    refused(message, "discover", "d.npz", "-o", "run", *option.split())


def test_members_are_not_for_methods_without_committee(command):
    save("d.npz")
    end = command("discover", "d.npz", "-o", "run", "--n-classes", 6, "--method", "gcd", "--n-members", 4)
    assert end == (2, "", "rpim: --n-members is not for --method gcd: leave it out.\n")
    assert os.listdir() == ["d.npz"]


def test_rows_that_are_all_the_same_have_no_number_of_classes(command):
    save("d.npz", np.ones_like(X))
    code, out, err = command("estimate", "d.npz")
    assert (code, out) == (2, "")
    assert err.startswith("rpim: All 300 rows are the same")


@pytest.mark.slow
def test_an_output_that_exists(command):
    save("d.npz")
    os.mkdir("thesis")
    code, _, err = command("discover", "d.npz", "-o", "thesis", *FAST, "--overwrite")
    assert code == 2
    assert err == "rpim: thesis exists and is not a run folder (it has no run.json): choose another name.\n"
    assert command("discover", "d.npz", "-o", "run", *FAST, "-q")[0] == 0
    created = Path("run/run.json").read_bytes()
    code, _, err = command("discover", "d.npz", "-o", "run", *FAST)
    assert code == 2
    assert err == "rpim: run exists already: choose another name, or say --overwrite (overwrite=True).\n"
    assert Path("run/run.json").read_bytes() == created
    assert command("discover", "d.npz", "-o", "run", *FAST, "-q", "--overwrite", "--seed", "1")[0] == 0
    assert Discovery.load("run").provenance["seed"] == 1
    assert sorted(os.listdir()) == ["d.npz", "run", "thesis"]
    code, _, err = command("discover", "d.npz", "-o", "no/such/run", *FAST)
    assert (code, "is not a folder: create it first" in err) == (2, True)
    code, _, err = command("demo", "-o", "run")
    assert (code, "run exists already" in err) == (2, True)


@pytest.mark.slow
def test_a_full_disk(command, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    save("d.npz")
    with monkeypatch.context() as patch:
        patch.setattr("rpim.runs.assignments.Assignments.write_parquet", full)
        code, out, err = command("discover", "d.npz", "-o", "run", *FAST)
    assert (code, out, err) == (2, "", "rpim: run was not written, no space left on its disk: free some of it.\n")
    monkeypatch.setattr(FeatureSet, "read", full)
    code, _, err = command("discover", "d.npz", "-o", "run", *FAST)
    assert (code, err) == (2, "rpim: no space left on the disk, so nothing was written: free some of it.\n")
    assert os.listdir() == ["d.npz"]


def test_a_failure_is_one_line_and_debug_shows_where(command, monkeypatch):
    def broken(*args, **kwargs):
        raise ZeroDivisionError("division by zero\nsecond line")

    monkeypatch.setattr(FeatureSet, "read", broken)
    code, _, err = command("discover", "d.npz", "-o", "run")
    assert (code, err) == (1, "rpim: ZeroDivisionError: division by zero (run rpim --debug … to see where)\n")
    code, _, err = command("--debug", "discover", "d.npz", "-o", "run")
    assert code == 1
    assert "Traceback" in err
    assert ", in broken" in err


def test_debug_shows_the_traceback_of_bad_input_as_well(command):
    code, _, err = command("--debug", "discover", "nowhere.npz", "-o", "run")
    assert code == 2
    assert "Traceback" in err


@pytest.mark.parametrize("arguments", [("discover",), ("discover", "d.npz", "-o", "r", "--n-classes", "x"), ("fly",)])
def test_usage_errors_exit_with_2(command, arguments):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert "Traceback" not in err


@pytest.mark.slow
def test_ctrl_c_while_fitting_leaves_nothing(tmp_path, interrupt):
    save(str(tmp_path / "d.npz"))
    script = """
from rpim.cli.main import main
from rpim.estimators import infomax
discover = infomax.InfoMaxEstimator._discover
def endless(self, problem):
    self.max_iter = 10**9
    print("fitting", flush=True)
    return discover(self, problem)
infomax.InfoMaxEstimator._discover = endless
main()
"""
    end = interrupt(script, "discover", "d.npz", "-o", "run", *FAST, says="fitting")
    assert end == (130, "rpim: interrupted; no file was written.\n")
    assert os.listdir(tmp_path) == ["d.npz"]


@pytest.mark.slow
def test_help_and_version_do_without_torch(environment):
    script = (
        "import sys\nfrom rpim.cli.main import app\n"
        "try:\n    app(sys.argv[1:])\nexcept SystemExit as end:\n    assert not end.code\n"
        "heavy = {'torch', 'sklearn', 'scipy', 'pyarrow'} & set(sys.modules)\nassert not heavy, heavy"
    )
    for arguments in (["--help"], ["--version"], ["discover", "--help"]):
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments], env=environment, capture_output=True, text=True, timeout=180
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_version(command):
    assert command("--version") == (0, f"rpim {rpim.__version__}\n", "")


@pytest.mark.slow
def test_demo(command):
    code, out, err = command("demo")
    assert (code, err) == (0, "")
    assert "1,797 rows, 450 of them labelled (5 known classes)." in out
    assert "to 5 new classes." in " ".join(out.split())
    accuracy = re.search(r"All ([\d.]+)%  Known ([\d.]+)%  Unknown ([\d.]+)%", out)
    assert accuracy is not None
    assert float(accuracy[1]) > 80
    mostly = set(re.findall(r"^new-\d +\d+ +\d+% +([a-z]+) *$", out, re.MULTILINE))
    assert {"six", "seven"} <= mostly <= {"five", "six", "seven", "eight", "nine"}
    assert sorted(path.name for path in Path().iterdir()) == ["rpim-demo"]
    assert features_of(Path("rpim-demo")).n_features == 64  # as rpim explore, the first of the next steps, needs them
    assert Discovery.load("rpim-demo").classes.tolist() == [
        "four",
        "one",
        "three",
        "two",
        "zero",
        "new-1",
        "new-2",
        "new-3",
        "new-4",
        "new-5",
    ]
