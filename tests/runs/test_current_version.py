"""The current version of a run: names, merges and other decisions reach every command, the rows and the model."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone

from rpim import Discovery, FeatureSet, load_version
from rpim.runs.current_version import choose_version
from rpim.runs.decisions import Accept, Junk, Merge, Move, Rename, Split
from rpim.runs.run_folder import has_decisions
from rpim.runs.versions import Versions


def rows(*numbers):
    return np.array(numbers, dtype=np.int32)


@pytest.fixture
def versions(animals):
    opened = Versions(animals)
    yield opened
    opened.store.close()


@pytest.fixture
def decide(versions):
    def make(*decisions, version=0):
        for decision in decisions:
            number = versions.store.current(version)
            versions.timeline.decide(version, lambda state, made=decision: made, f"key-{version}-{number}")

    return make


@pytest.fixture
def refit(animals, animals_features, animals_model):
    """Make a refit: the same fit, without the last rows, as if these were junk."""

    def make(number, without=2):
        features = animals_features.subset(np.arange(len(animals_features) - without))
        model = clone(animals_model).fit(features.rows(), features.labels)
        (animals / "refits").mkdir(exist_ok=True)
        Discovery.from_fit(model, features).save(animals / "refits" / f"{number:04}")

    return make


@pytest.fixture(autouse=True)
def _map(animals):
    """UMAP takes seconds: a report draws the map that is there."""
    np.save(animals / "map.npy", np.random.RandomState(0).normal(size=(120, 2)).astype(np.float32))


def contents(folder):
    return {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.iterdir() if path.is_file()}


def new_file():
    """Some rows of the run as new ones."""
    features = FeatureSet.read("animals.npz")
    np.save("new.npy", features.X)
    return "new.npy"


def labels_of(text):
    return [row["label"] for row in csv.DictReader(io.StringIO(text))]


# What is read


def test_the_last_name_counts_and_what_is_undone_does_not(animals, versions, decide):
    assert choose_version(animals).is_plain
    decide(Rename(3, "elks"), Rename(3, "<b>elk</b>"), Rename(0, "ants"), Accept(0))
    assert load_version(animals).found_names == {"ants": "ant", "<b>elk</b>": "new-1"}
    versions.timeline.undo(0, "undo-accept")
    versions.timeline.undo(0, "undo-rename")
    assert load_version(animals).found_names == {"<b>elk</b>": "new-1"}


def test_a_name_that_is_the_runs_again_is_not_told(animals, decide):
    decide(Rename(3, "elk"), Rename(3, "new-1"))
    assert [one.found_name for one in load_version(animals).classes_table()] == [""] * 5


def test_reading_changes_nothing_whoever_writes(animals, versions, decide):
    decide(Rename(3, "elk"))  # still in the log beside the database, as after a kill
    assert (animals / "decisions.sqlite-wal").stat().st_size > 0
    before = contents(animals)
    writer = sqlite3.connect(animals / "decisions.sqlite", isolation_level=None)
    writer.execute("BEGIN EXCLUSIVE")
    assert "elk" in load_version(animals).classes
    writer.execute("ROLLBACK")
    writer.close()
    after = contents(animals)
    for either in (before, after):
        del either["decisions.sqlite-shm"]  # where the writer keeps its locks
    assert after == before


def test_where_nobody_has_decided_no_database_is_made(animals):
    before = contents(animals)
    assert load_version(animals).found_names == {}
    assert contents(animals) == before


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda path: path.write_bytes(b"nonsense" * 2000), "file is not a database"),
        (lambda path: sqlite3.connect(path).execute("PRAGMA user_version = 99").connection.close(), "a newer version"),
        (
            lambda path: sqlite3.connect(path).execute("CREATE TABLE t (a)").connection.close(),
            "not a database of decisions",
        ),
    ],
)
@pytest.mark.parametrize("name", ["classes", "report", "export"])
def test_decisions_that_cannot_be_read_are_left_out_only_if_asked(animals, command, refused, spoil, message, name):
    spoil(animals / "decisions.sqlite")
    before = contents(animals)
    output = {"classes": (), "report": ("-o", "page.html"), "export": ("-o", "rows.csv")}[name]
    err = refused(message, name, animals, *output)
    assert f"{animals}/decisions.sqlite" in err
    assert err.endswith(": give --as-found to leave the decisions out.\n")
    assert command(name, animals, *output, "--as-found")[0] == 0
    assert contents(animals)["decisions.sqlite"] == before["decisions.sqlite"]


# Which version


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("decisions.sqlite", "../missing"),
        ("decisions.sqlite", "../other.sqlite"),
        ("decisions.sqlite-wal", "/dev/zero"),
    ],
)
def test_decisions_that_lead_out_of_the_run_are_not_read(animals, decide, command, refused, name, target):
    """The log may be a device without an end."""
    decide(Rename(0, "beetle"))
    shutil.copy(animals / "decisions.sqlite", animals.parent / "other.sqlite")
    (animals / name).unlink(missing_ok=True)
    (animals / name).symlink_to(target)
    refused(f"{name} is a link, so decisions would be outside of the run: remove it.", "classes", animals)
    assert command("classes", animals, "--as-found")[0] == 0
    assert has_decisions(animals)
    (animals / name).unlink()
    os.mkfifo(animals / name)
    refused(f"{name} is no regular file: remove it.", "classes", animals)


def test_the_latest_refit_is_current_unless_another_was_chosen(animals, versions, refit):
    assert choose_version(animals).number == 0
    refit(1)
    assert choose_version(animals).number == versions.active == 1
    versions.activate(0)
    assert choose_version(animals).number == versions.active == 0
    shutil.copytree(animals / "refits" / "0001", animals / "refits" / "0002")
    assert choose_version(animals).number == versions.active == 2, "it came after the choice"
    assert choose_version(animals, 1).number == 1
    assert choose_version(animals, as_found=True).number == 0
    assert choose_version(animals / "refits" / "0001").number == 1
    shutil.rmtree(animals / "refits")
    assert choose_version(animals).number == versions.active == 0


def test_a_refit_has_decisions_of_its_own(animals, decide, refit):
    refit(1)
    decide(Rename(3, "elk"))
    decide(Rename(4, "dog"), version=1)
    assert load_version(animals, 0).found_names == {"elk": "new-1"}
    assert load_version(animals).found_names == {"dog": "new-2"}
    assert load_version(animals, 1, as_found=True).found_names == {}


def test_a_refit_has_all_rows_of_the_run(animals, refit):
    refit(1)
    first, later = Discovery.load(animals), load_version(animals)
    np.testing.assert_array_equal(later.ids, first.ids)
    np.testing.assert_array_equal(later.given, first.given)
    assert later.labels[-2:].tolist() == ["", ""], "rows that the refit left out"
    assert later.confidence[-2:].tolist() == [0, 0]
    np.testing.assert_array_equal(later.labels[:-2], Discovery.load(animals / "refits" / "0001").labels)


def test_a_version_that_is_not_there(animals, refused, refit):
    refused("has no version 3: it has only 0, because it was not refitted.", "classes", animals, "--version", 3)
    refit(1)
    refused("has no version 3: it has 0 to 1.", "export", animals, "-o", "rows.csv", "--version", 3)
    refused("--decisions exports", "export", animals, "-o", "rows.csv", "--decisions", "--as-found")


# What decisions do to rows and to the model


def test_merged_classes_have_the_sum_of_their_probabilities(animals, animals_features, decide):
    found = Discovery.load(animals)
    decide(Merge((4, 0)), Rename(4, "both"))
    decided = load_version(animals)
    assert decided.classes.tolist() == ["bee", "cat", "both", "new-1"], "a merge with a known class is known"
    assert decided.model.known_classes_.tolist() == ["bee", "cat", "both"]
    assert decided.found_names == {"both": "ant, new-2"}
    X = animals_features.rows()
    before, after = found.model.predict_proba(X), decided.model.predict_proba(X)
    np.testing.assert_allclose(after[:, 2], before[:, 0] + before[:, 4], atol=1e-6)
    np.testing.assert_allclose(after[:, [0, 1, 3]], before[:, [1, 2, 3]], atol=1e-6)
    np.testing.assert_array_equal(decided.model.predict(X), decided.classes[after.argmax(axis=1)])
    was = np.isin(found.labels, ["ant", "new-2"])
    assert (decided.labels[was] == "both").all()
    assert not (decided.assignments.runner_up == decided.labels).any()
    assert (decided.confidence[was] >= found.confidence[was]).all()


def test_a_merge_of_merged_classes(animals, decide):
    decide(Merge((3, 4)), Merge((0, 3)), Rename(0, "all"))
    decided = load_version(animals)
    assert decided.found_names == {"all": "ant, new-1, new-2"}
    assert decided.model.class_of_prototype_.tolist() == [0, 1, 2, 0, 0]


def test_rows_that_were_moved_split_or_junked(animals, decide, command):
    found = Discovery.load(animals)
    members = np.flatnonzero(found.labels == "new-1").astype(np.int32)
    decide(
        Move(rows(0), to=5, name="odd"),
        Junk(rows(1)),
        Split(3, members, np.arange(len(members), dtype=np.int32) % 2, first=6),
        Move(rows(2), to=1),
    )
    decided = load_version(animals)
    assert decided.labels[:3].tolist() == ["odd", "", "bee"]
    assert decided.confidence[:3].tolist() == [1, 0, 1]
    assert (decided.labels[members] == "new-1 (2)").sum() == len(members) // 2
    assert decided.model.predict_proba(FeatureSet.read("animals.npz").rows())[:, -1].max() == 0
    table = {row.name: row for row in decided.classes_table()}
    assert table["odd"].nearest_known == ""
    code, _, err = command("predict", animals, new_file(), "-o", "new.csv")
    assert code == 0
    assert err.endswith("The model does not know odd, new-1 (2) before a refit.\n")
    code, _, err = command("extend", animals, "new.npy", "-o", "run2", "--quiet")
    assert code == 2
    assert "does not know odd, new-1 (2), made by hand in the explorer: refit it there first" in err


def test_a_decided_run_can_be_saved(animals, animals_features, decide, tmp_path):
    decide(Merge((4, 0)), Rename(3, "elk"))
    decided = load_version(animals)
    decided.save(tmp_path / "final")
    again = Discovery.load(tmp_path / "final")
    X = animals_features.rows()
    np.testing.assert_array_equal(again.model.predict_proba(X), decided.model.predict_proba(X))
    np.testing.assert_array_equal(again.labels, decided.labels)
    facts = json.loads((tmp_path / "final" / "run.json").read_text())
    (tmp_path / "final" / "run.json").write_text(json.dumps({**facts, "class_of_prototype": [0, 1, 9, 2, 2]}))
    with pytest.raises(ValueError, match="classes that do not exist"):
        Discovery.load(tmp_path / "final")


# The commands


@pytest.fixture
def decided(animals, decide, command):
    """A run in which new-1 is called elk, and ant and bee are one class."""
    decide(Rename(3, "elk"), Merge((0, 1)))
    new_file()
    return animals


SAID = "rpim: Using version 0 of {} (the first fit) with 2 decisions; --version N or --as-found gives another.\n"


@pytest.mark.slow
def test_every_command_says_which_version_it_used(decided, command):
    np.savetxt("truth.txt", Discovery.load(decided).labels, fmt="%s")
    calls = {
        "predict": ("new.npy", "-o", "new.csv"),
        "export": ("-o", "rows.csv"),
        "classes": (),
        "report": ("-o", "page.html"),
        "evaluate": ("--truth", "truth.txt"),
        "extend": ("new.npy", "-o", "run2", "--quiet"),
    }
    for name, options in calls.items():
        code, out, err = command(name, decided, *options)
        assert (code, err) == (0, SAID.format(decided)), name
        if name != "extend":
            again = ("--overwrite",) if "-o" in options else ()
            code, out, err = command(name, decided, *options, *again, "--as-found")
            assert (code, " as found; --version N gives another." in err) == (0, True), name
        assert "Using" not in out


def test_names_and_merges_reach_predictions_and_exports(decided, command):
    code, out, _ = command("predict", decided, "new.npy")
    assert code == 0
    assert {"elk", "ant"} <= set(labels_of(out)) <= {"elk", "ant", "cat", "new-2"}
    as_found = command("predict", decided, "new.npy", "--as-found")[1]
    assert {"new-1", "bee"} <= set(labels_of(as_found))
    assert command("export", decided, "-o", "rows.csv")[0] == 0
    exported = labels_of(Path("rows.csv").read_text())
    assert exported == load_version(decided).labels.tolist()
    assert set(exported) == {"elk", "ant", "cat", "new-2"}
    assert command("export", decided, "-o", "rows.jsonl", "--decisions")[0] == 0
    lines = [json.loads(line) for line in Path("rows.jsonl").read_text().splitlines()]
    assert [line["label"] for line in lines] == exported, "both exports are of the same version"


def test_the_tables_of_classes_have_them(decided, command):
    code, out, _ = command("classes", decided)
    assert code == 0
    assert "elk (new-1)" in " ".join(out.split())
    assert "ant (ant, bee)" in " ".join(out.split())
    for name in ("c.csv", "c.json"):
        assert command("classes", decided, "-o", name)[0] == 0
    table = json.loads(Path("c.json").read_text())
    assert [(row["name"], row["found_name"]) for row in table] == [
        ("ant", "ant, bee"),
        ("cat", ""),
        ("elk", "new-1"),
        ("new-2", ""),
    ]
    assert sum(row["rows"] for row in table) == 120
    with open("c.csv", newline="") as file:
        assert [row["found_name"] for row in csv.DictReader(file)] == ["ant, bee", "", "new-1", ""]


def test_the_report_has_them(animals, decide, command):
    decide(Rename(3, "<script>elk"), Rename(0, "formic"), Merge((1, 2)))
    assert command("report", animals, "-o", "page.html")[0] == 0
    page = Path("page.html").read_text()
    assert "<script>elk" not in page
    assert '<h3><bdi>&lt;script&gt;elk</bdi></h3><span class="run-name"><bdi>new-1</bdi></span>' in page
    assert '<bdi>formic</bdi> <span class="run-name"><bdi>ant</bdi></span>' in page
    assert '<bdi>bee</bdi> <span class="run-name"><bdi>bee, cat</bdi></span>' in page
    assert page.count("with 3 decisions") == 1
    data = json.loads(page.split('id="map-data">')[1].split("</script>")[0])
    assert data["titles"][2] == "<script>elk"
    assert data["names"][2] == "new-1"


def test_the_known_classes_of_an_evaluation_are_those_of_the_data(animals, decide, command):
    found = Discovery.load(animals)
    np.savetxt("truth.txt", found.labels, fmt="%s")
    decide(Rename(0, "formic"), Rename(3, "elk"))
    for metric in ("v2", "v1", "orca"):
        code, out, _ = command("evaluate", animals, "--truth", "truth.txt", "--metric", metric, "--json")
        result = json.loads(out)
        assert (code, result["all"], result["known"], result["unknown"]) == (0, 1, 1, 1), metric


def test_numbers_that_became_text_are_compared_with_numbers(command, tmp_path, animals_features):
    from rpim import RPIM, InfoMaxObjective

    codes = {"": -1, "ant": 0, "bee": 1, "cat": 2}
    labels = [codes[name] for name in animals_features.labels.tolist()]
    features = FeatureSet.from_arrays(animals_features.X, labels=labels)
    objective = InfoMaxObjective(trade_off=0.1, weight_decay=0.01)
    model = RPIM(5, objective=objective, n_members=1, n_init=1, max_iter=5, random_state=0)
    found = Discovery.from_fit(model.fit(features.rows(), features.labels), features)
    found.save(tmp_path / "numbers")
    np.save("truth.npy", found.labels)
    store = Versions(tmp_path / "numbers")
    store.timeline.decide(0, lambda state: Rename(3, "elk"), "key")
    store.store.close()
    code, out, _ = command("evaluate", "numbers", "--truth", "truth.npy", "--json")
    assert (code, json.loads(out)["all"]) == (0, 1)


def test_an_extended_run_has_the_decided_classes(decided, command):
    features = FeatureSet.read("animals.npz")
    np.save("later.npy", features.X[:40] + 0.01)
    assert command("extend", decided, "later.npy", "-o", "run2", "--quiet")[0] == 0
    extended = Discovery.load("run2")
    assert extended.classes[:4].tolist() == ["ant", "cat", "elk", "new-2"]
    assert not hasattr(extended.model, "class_of_prototype_")
    before = load_version(decided)
    np.testing.assert_array_equal(extended.labels[:120], before.labels)
    assert (extended.labels[120:] == before.labels[:40]).mean() > 0.9
