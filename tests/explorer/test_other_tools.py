"""Exports for other tools, read by these tools where they are installed, and labels from there and back."""

from __future__ import annotations

import dataclasses
import json
import posixpath
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from PIL import Image

from rpim import Discovery, FeatureSet
from rpim.explorer.exports import Decided
from rpim.explorer.other_tools import label_studio_config, label_studio_tasks
from rpim.runs.decisions import Junk, Move, Rename
from rpim.runs.run_folder import features_of
from rpim.runs.versions import Versions


def decide(run, *decisions):
    versions = Versions(run)
    for number, decision in enumerate(decisions):
        versions.timeline.decide(0, lambda state, made=decision: made, f"decision-{number}")
    versions.store.close()


@pytest.fixture
def decided_run(animals):
    """new-1 is called a "fox", row 5 is junk, row 7 is a cat."""
    import numpy as np

    one_row = {row: np.array([row], dtype=np.int32) for row in (5, 7)}
    decide(animals, Rename(3, 'a "fox" & <co>'), Junk(one_row[5]), Move(one_row[7], 2))
    return animals


def given_and_decided(run):
    """The rows with a label, by id: given ones and that of row 7; not the junk."""
    given = Discovery.load(run).given
    labels = {f"row-{row}": label for row, label in enumerate(given.tolist()) if label}
    labels.pop("row-5", None)
    return {**labels, "row-7": "cat"}


def labels_of(run, file, **options):
    features = features_of(run)
    features.write(run.parent / "rows.npz", overwrite=True)
    found = FeatureSet.read(run.parent / "rows.npz", file, **options)
    return {name: label for name, label in zip(found.ids.tolist(), found.labels.tolist(), strict=True) if label}


# Label Studio. label-studio-sdk is not installed with the others; `test_label_studio_accepts_them` runs where it is.


@pytest.fixture
def label_studio(decided_run, command):
    code, out, err = command("export", decided_run, "-o", "tasks.json", "--format", "label-studio")
    assert (code, err) == (0, "")
    assert out == "119 rows of version 0 written to tasks.json. The labelling configuration is in tasks.xml.\n"
    return json.loads(Path("tasks.json").read_text(encoding="utf-8")), Path("tasks.xml").read_text(encoding="utf-8")


def test_label_studio_tasks_have_predictions_and_what_people_said_as_annotations(label_studio, decided_run):
    tasks, config = label_studio
    assert len(tasks) == 119
    choices = [one.get("value") for one in ET.fromstring(config).iter("Choice")]
    assert choices == ["ant", "bee", "cat", 'a "fox" & <co>', "new-2"]
    annotated = {}
    for task in tasks:
        assert set(task) <= {"data", "meta", "predictions", "annotations"}
        assert task["data"]["text"].startswith("<b>")
        (prediction,) = task["predictions"]
        assert 0 <= prediction["score"] <= 1
        assert task["meta"]["city <i>"] in ("<b>Bern</b>", "Ulm")
        assert task["meta"]["runner_up"] in ("ant", "bee", "cat", "new-1", "new-2")
        for one in [prediction, *task.get("annotations", [])]:
            (region,) = one["result"]
            assert (region["from_name"], region["to_name"], region["type"]) == ("class", "item", "choices")
            assert region["value"]["choices"][0] in choices
        if "annotations" in task:
            annotated[task["data"]["id"]] = task["annotations"][0]["result"][0]["value"]["choices"][0]
    assert annotated == given_and_decided(decided_run)


def test_label_studio_labels_come_back(label_studio, decided_run, command):
    tasks, _ = label_studio
    for task in tasks:
        if task["data"]["id"] == "row-9":  # somebody labels one more
            task["annotations"] = [{"result": task["predictions"][0]["result"]}]
            label = task["predictions"][0]["result"][0]["value"]["choices"][0]
    Path("annotated.json").write_text(json.dumps(tasks), encoding="utf-8")
    assert labels_of(decided_run, "annotated.json") == {**given_and_decided(decided_run), "row-9": label}
    fast = ("--n-classes", "5", "--n-members", "1", "--no-report", "-q")
    arguments = (decided_run.parent / "animals.npz", "-o", "run2", "--labels", "annotated.json", *fast)
    assert command("discover", *arguments)[0] == 0
    assert Discovery.load("run2").assignments.labelled.sum() == len(given_and_decided(decided_run)) + 1


def test_labels_of_another_tool_become_decisions(label_studio, decided_run, command, refused):
    tasks, _ = label_studio
    before = Versions(decided_run).state()
    said = {"row-9": "emu", "row-11": "emu", "row-13": before.names()[13]}  # a new class, and one that is right
    for task in tasks:
        if task["data"]["id"] in said:
            result = json.loads(json.dumps(task["predictions"][0]["result"]))
            result[0]["value"]["choices"] = [said[task["data"]["id"]]]
            task["annotations"] = [{"result": result}]
    Path("annotated.json").write_text(json.dumps(tasks), encoding="utf-8")
    code, out, _ = command("classes", decided_run, "--labels", "annotated.json")
    assert (code, out.partition(";")[0]) == (0, "3 labels taken as decisions")
    after = Versions(decided_run).state()
    changed = [row for row in range(120) if after.names()[row] != before.names()[row]]
    assert (changed, after.names()[9], after.names()[11]) == ([9, 11], "emu", "emu")
    assert after.by_hand[[7, 9, 11, 13]].all()
    assert command("classes", decided_run, "--labels", "annotated.json")[1].startswith("0 labels taken")
    Path("long.csv").write_text(f"id,label\nrow-15,ant\nrow-17,{'x' * 300}\n")
    refused("The name is empty or too long", "classes", decided_run, "--labels", "long.csv")
    assert Versions(decided_run).state().names() == after.names()
    refused("--label-column is for the file of --labels", "classes", decided_run, "--label-column", "a")
    refused("give one of them", "classes", decided_run, "--labels", "long.csv", "--accept", "all")


@pytest.mark.parametrize("path", ["/data/a b.jpg", "/data/50% & more #1+2?.jpg", "/data/ключ/ü.png"])
def test_label_studio_finds_a_local_file_by_its_address(animals, path):
    versions = Versions(animals)
    versions.rows = dataclasses.replace(versions.rows, paths=[path] * 120)
    decided = Decided.of(versions)
    versions.store.close()
    address = urlsplit(next(label_studio_tasks(decided))["data"]["image"])
    assert address.path == "/data/local-files/"
    told = parse_qs(address.query)["d"][-1]  # decoded once, and joined to the document root
    assert "/" + posixpath.normpath(told).lstrip("/") == path
    assert '<Image name="item" value="$image"/>\n  <Text name="text" value="$text"/>' in label_studio_config(decided)


def test_label_studio_accepts_them(label_studio):
    interface = pytest.importorskip("label_studio_sdk.label_interface", reason="label-studio-sdk is not installed")
    tasks, config = label_studio
    checked = interface.LabelInterface(config)
    checked.validate()
    for task in tasks:
        assert checked.validate_prediction(task["predictions"][0], return_errors=True) == []
        assert all(checked.validate_annotation(one) for one in task.get("annotations", []))
    task["predictions"][0]["result"][0]["value"]["choices"] = ["no such class"]
    assert not checked.validate_prediction(task["predictions"][0])


# FiftyOne needs a MongoDB, so it is not installed with the others.


def test_a_fiftyone_dataset_has_the_images_where_they_are_and_its_labels_come_back(pictured, command):
    import numpy as np

    decide(pictured, Rename(3, "fox"), Junk(np.array([5], dtype=np.int32)))
    code, out, _ = command("export", pictured, "-o", "fo", "--format", "fiftyone")
    assert (code, out) == (0, "118 rows of version 0 written to fo. Left out: 1 not found; 1 junk.\n")
    samples = json.loads(Path("fo/samples.json").read_text(encoding="utf-8"))["samples"]
    facts = json.loads(Path("fo/metadata.json").read_text(encoding="utf-8"))
    described = {field["db_field"] for field in facts["sample_fields"]}
    found = Discovery.load(pictured)
    for sample in samples:
        assert set(sample) <= described
        assert Path(sample["filepath"]).is_file()
        row = found.ids.tolist().index(sample["rpim_id"])
        name = {"new-1": "fox"}.get(found.labels[row], found.labels[row])
        assert sample["prediction"]["label"] == name
        assert sample["prediction"]["confidence"] == pytest.approx(found.confidence[row], abs=1e-6)
        assert sample["tags"] == ["known" if found.known[row] else "new"]
    assert len({sample["_id"]["$oid"] for sample in samples}) == 118
    given = {f"row-{row}": label for row, label in enumerate(found.given.tolist()) if label and row not in (1, 5)}
    assert labels_of(pictured, "fo/samples.json") == given
    assert len(labels_of(pictured, "fo/samples.json", label_column="prediction")) == 118


# Hugging Face datasets


def test_a_hugging_face_dataset_of_texts(decided_run, command, monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    code, out, _ = command("export", decided_run, "-o", "hf", "--format", "huggingface")
    assert (code, out) == (0, "119 rows of version 0 written to hf. Left out: 1 junk.\n")
    loaded = datasets.load_dataset("hf", split="train", cache_dir=str(tmp_path / "cache"))
    kind = loaded.features["label"]
    assert isinstance(kind, datasets.ClassLabel)
    assert kind.names == ["ant", "bee", "cat", 'a "fox" & <co>', "new-2"]
    state = Versions(decided_run).state()
    expected = {f"row-{row}": name for row, name in enumerate(state.names()) if name}
    assert {row["id"]: kind.int2str(row["label"]) for row in loaded} == expected
    assert loaded[3]["text"].startswith("<b>")
    assert loaded[0]["city <i>"] == "<b>Bern</b>"
    assert loaded.features["confidence"].dtype == "float32"
    (file,) = Path("hf").rglob("*.parquet")
    assert labels_of(decided_run, file) == expected  # names, not their numbers


def test_a_hugging_face_dataset_of_images_holds_them(pictured, command, monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    code, out, _ = command("export", pictured, "-o", "hf", "--format", "huggingface")
    assert (code, out) == (0, "120 rows of version 0 written to hf. Left out: 1 images (not found).\n")
    shutil.rmtree(pictured.parent / "old")
    loaded = datasets.load_dataset("hf", split="train", cache_dir=str(tmp_path / "cache"))
    assert isinstance(loaded.features["image"], datasets.Image)
    assert loaded[1]["image"] is None
    assert (loaded[40]["image"].size, loaded[40]["image"].getpixel((0, 0))) == ((400, 200), (40, 0, 0))


# Folders of images


def test_a_folder_of_images_is_read_by_other_libraries(pictured, command, monkeypatch, tmp_path):
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_OFFLINE", True)
    code, out, _ = command("export", pictured, "-o", "deep/classes", "--format", "imagefolder", "--link")
    assert (code, out) == (0, "119 images written to deep/classes. Left out: 1 not found.\n")
    loaded = datasets.load_dataset("imagefolder", data_dir="deep/classes", split="train", cache_dir=str(tmp_path / "c"))
    assert loaded.features["label"].names == ["ant", "bee", "cat", "new-1", "new-2"]
    assert len(loaded) == 119
    assert isinstance(loaded[0]["image"], Image.Image)


# What is refused


def test_exports_as_found_leave_the_decisions_out(decided_run, command):
    assert command("export", decided_run, "-o", "a.json", "--format", "label-studio", "--as-found")[0] == 0
    assert len(json.loads(Path("a.json").read_text(encoding="utf-8"))) == 120
    assert "fox" not in Path("a.xml").read_text(encoding="utf-8")


def test_an_export_writes_nothing_into_the_run(animals, command):
    before = sorted(animals.rglob("*"))
    assert command("export", animals, "-o", "a.json", "--format", "label-studio")[0] == 0
    assert command("export", animals, "-o", "rows.csv", "--decisions")[0] == 0
    assert sorted(animals.rglob("*")) == before


def test_bad_input_is_refused_and_leaves_nothing(decided_run, refused, tmp_path):
    before = sorted(path.name for path in tmp_path.iterdir())
    refused("--format 'coco' is unknown: ", "export", decided_run, "-o", "a", "--format", "coco")
    refused("have no images: give a file", "export", decided_run, "-o", "a", "--format", "fiftyone")
    refused("have no images: give a file", "export", decided_run, "-o", "a", "--format", "imagefolder")
    refused("has the suffix '.csv'", "export", decided_run, "-o", "a.csv", "--format", "label-studio")
    refused("--link is for a folder of images", "export", decided_run, "-o", "a", "--format", "huggingface", "--link")
    refused("has no version 4", "export", decided_run, "-o", "a", "--format", "huggingface", "--version", "4")
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    Path("mine").mkdir()
    refused("mine exists already", "export", decided_run, "-o", "mine", "--format", "huggingface")
    refused("--overwrite replaces only", "export", decided_run, "-o", "mine", "--format", "huggingface", "--overwrite")
    Path("b.xml").write_text("mine")
    refused("b.xml exists already", "export", decided_run, "-o", "b.json", "--format", "label-studio")
    assert Path("b.xml").read_text() == "mine"
    assert not Path("b.json").exists()
    assert not list(Path("mine").iterdir())


def test_a_failure_in_between_leaves_no_folder(decided_run, command, monkeypatch):
    def fail(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rpim.explorer.other_tools._dtype", fail)
    code, _, err = command("export", decided_run, "-o", "hf", "--format", "huggingface")
    assert code == 2
    assert "hf was not written, no space left" in err
    assert not [path for path in Path().iterdir() if "hf" in path.name]
