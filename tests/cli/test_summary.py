"""The terminal summary: its tables in a narrow terminal, and the next steps."""

import dataclasses
import io

import numpy as np
import pytest
from rich.console import Console

from rpim import Discovery, FeatureSet
from rpim.cli.summary import print_next_steps, print_summary


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


@pytest.mark.parametrize(
    ("stability", "sentence"),
    [
        (
            [0.9, 0.4],
            "1 of 2 new classes is unstable (below 60%): the members of the committee disagree about its rows.",
        ),
        (
            [0.3, 0.4],
            "2 of 2 new classes are unstable (below 60%): the members of the committee disagree about their rows.",
        ),
    ],
)
def test_unstable_classes_are_counted_in_the_summary(animals, stability, sentence):
    discovery = dataclasses.replace(Discovery.load(animals), stability=np.array([1.0, 1.0, 1.0, *stability]))
    console = Console(record=True, width=200, file=io.StringIO())
    print_summary(console, discovery)
    assert sentence in console.export_text()
