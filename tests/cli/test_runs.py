"""``rpim predict``, ``extend`` and ``evaluate``: extended runs, true classes, and outputs that cannot be written."""

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rpim import Discovery, FeatureSet
from rpim._common.files import replacing
from rpim.explorer.background import plan, refit_run, write_job
from rpim.explorer.workbench import Workbench
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.parametrize("name", ["truth.csv", "truth.parquet"])
def test_true_classes_under_another_name_are_asked_for(animals, refused, command, name):
    truth = pd.DataFrame({"id": Discovery.load(animals).ids, "class": "ant"})
    truth.to_csv(name, index=False) if name.endswith("csv") else truth.to_parquet(name)
    message = f"{name} has no column truth, targets or label among id, class: name one with --truth-column."
    refused(message, "evaluate", animals, "--truth", name)
    code, out, _ = command("evaluate", animals, "--truth", name, "--truth-column", "class")
    assert (code, out[:4]) == (0, "85 u")


def test_a_run_folder_holds_no_true_classes(animals, refused):
    message = f"{animals} is a run folder: give a file with the true classes, such as a .csv with id,label."
    refused(message, "evaluate", animals, "--truth", animals)


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
