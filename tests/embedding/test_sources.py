"""What a folder or a table holds, and what is said where it holds nothing of use."""

import gzip
import json
import os
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpim._common.errors import InputError
from rpim.data.feature_set import FeatureSet
from rpim.embedding.items import path_of_text
from rpim.embedding.sources import is_source, read_source


@pytest.fixture
def folder(tmp_path):
    """Make empty files of these names: images are not opened yet."""

    def make(*names):
        for name in names:
            (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "images" / name).write_bytes(b"")
        return tmp_path / "images"

    return make


def test_labels_come_from_the_first_folder(folder):
    items = read_source(folder("cat/a.jpg", "cat/young/b.PNG", "dog/c.webp", "unlabelled/d.jpg", "e.jpeg", "notes.txt"))
    assert items.kind == "images"
    assert dict(zip(items.ids.tolist(), items.labels.tolist(), strict=True)) == {
        "cat/a.jpg": "cat",
        "cat/young/b.PNG": "cat",
        "dog/c.webp": "dog",
        "unlabelled/d.jpg": "",
        "e.jpeg": "",
    }
    assert items.n_labelled == 3
    assert items.split is None


def test_images_in_one_heap_have_no_labels(folder):
    items = read_source(folder("b.jpg", "a.jpg", ".hidden.jpg", ".cache/c.jpg"))
    assert items.ids.tolist() == ["a.jpg", "b.jpg"]
    assert items.labels is None


def test_folders_called_train_and_test_are_splits(folder):
    items = read_source(folder("train/cat/a.jpg", "test/cat/b.jpg", "train/c.jpg"))
    assert items.ids.tolist() == ["test/cat/b.jpg", "train/c.jpg", "train/cat/a.jpg"]
    assert items.split.tolist() == ["test", "train", "train"]
    assert items.labels.tolist() == ["cat", "", "cat"]


def test_links_to_folders_are_read_once(folder, tmp_path):
    images = folder("cat/a.jpg", "dog/b.jpg")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "c.jpg").touch()
    (images / "again").symlink_to(images)
    (images / "cat" / "up").symlink_to(images)
    (images / "bird").symlink_to(tmp_path / "more")
    (images / "zebra").symlink_to(tmp_path / "more")
    items = read_source(images)
    assert items.ids.tolist() == ["bird/c.jpg", "cat/a.jpg", "dog/b.jpg"]
    assert items.skipped == [
        (name, "it is a link to a folder that is read already") for name in ("again", "cat/up", "zebra")
    ]
    assert items.paths[0] == str(images.resolve() / "bird" / "c.jpg"), "within the folder, though it is a link"
    assert items.part(slice(0, 1)).paths == items.paths[:1]


def test_what_is_no_regular_file_is_skipped(folder):
    images = folder("a.jpg")
    os.mkfifo(images / "pipe.png")
    (images / "itself.png").symlink_to("itself.png")
    (images / "gone.png").symlink_to("nowhere.png")
    (images / "link.png").symlink_to("a.jpg")
    items = read_source(images)
    assert items.ids.tolist() == ["a.jpg", "link.png"]
    assert items.skipped == [
        ("gone.png", "it is a link to nothing"),
        ("itself.png", "it is a link to itself"),
        ("pipe.png", "it is no regular file"),
    ]
    for name in ("a.jpg", "link.png"):
        (images / name).unlink()
    with pytest.raises(InputError, match=r"3 were skipped, gone.png: it is a link to nothing\): give a folder"):
        read_source(images)


def test_names_that_are_not_utf_8_are_kept(folder, tmp_path):
    images = folder("cat/a.jpg")
    odd = os.fsencode(images) + b"/caf\xe9"
    os.mkdir(odd)
    for name in (b"\xff.jpg", b"\\xff.jpg"):
        with open(odd + b"/" + name, "wb") as file:
            file.write(name)
    items = read_source(images)
    assert items.ids.tolist() == ["caf\\xe9/\\x5cxff.jpg", "caf\\xe9/\\xff.jpg", "cat/a.jpg"]
    assert items.labels.tolist() == ["caf\\xe9", "caf\\xe9", "cat"]
    features = FeatureSet.from_arrays(np.eye(3), ids=items.ids, labels=items.labels, paths=items.paths)
    for name in ("f.parquet", "f.npz"):
        features.write(tmp_path / name)
        paths = FeatureSet.read(tmp_path / name).paths
        assert [path_of_text(path).read_bytes() for path in paths] == [b"\\xff.jpg", b"\xff.jpg", b""]


@pytest.mark.parametrize("column", ["id", "path", "filename"])
def test_labels_of_images_may_come_from_a_file(folder, tmp_path, column):
    (tmp_path / "labels.csv").write_text(f"{column},label\nx/b.jpg,owl\n")
    items = read_source(folder("x/a.jpg", "x/b.jpg"), labels=tmp_path / "labels.csv")
    assert items.labels.tolist() == ["", "owl"]


def test_tables_of_texts(tmp_path):
    (tmp_path / "t.csv").write_text('id,text,label,truth\nq1,"Hi, there",greeting,greeting\nq2,Bye,,farewell\n')
    (tmp_path / "t.jsonl").write_text(
        '{"id": "q1", "text": "Hi, there", "label": "greeting", "truth": "greeting"}\n\n'
        '{"id": "q2", "text": "Bye", "label": null, "truth": "farewell"}\n'
    )
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {
        "id": ["q1", "q2"],
        "text": ["Hi, there", "Bye"],
        "label": ["greeting", None],
        "truth": ["greeting", "farewell"],
    }
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet")
    for name in ("t.csv", "t.jsonl", "t.parquet"):
        assert is_source(tmp_path / name)
        items = read_source(tmp_path / name)
        assert items.kind == "texts"
        assert items.texts == ["Hi, there", "Bye"]
        assert items.ids.tolist() == ["q1", "q2"]
        assert items.labels.tolist() == ["greeting", ""]
        assert items.truth.tolist() == ["greeting", "farewell"]


def test_semicolons_tabs_and_marks_of_excel(tmp_path):
    (tmp_path / "t.csv").write_text("\ufefftext;label\nHallo;1\nTschüss;\n", encoding="utf-8")
    assert read_source(tmp_path / "t.csv").labels.tolist() == [1, -1]
    (tmp_path / "t.csv").write_text("text\tlabel\nHallo, Welt\ta\n")
    assert read_source(tmp_path / "t.csv").texts == ["Hallo, Welt"]


def test_a_column_of_another_name_is_named(tmp_path):
    (tmp_path / "t.csv").write_text("question,topic\nWhere?,place\nWhen?,\n")
    assert is_source(tmp_path / "t.csv"), "rpim says that no column is called text"
    assert is_source(tmp_path / "t.csv", "question")
    items = read_source(tmp_path / "t.csv", text_column="question", label_column="topic")
    assert items.texts == ["Where?", "When?"]
    assert items.labels.tolist() == ["place", ""]


def test_texts_in_the_formats_that_people_have(tmp_path):
    records = [{"text": "Where?", "label": "place"}, {"text": "When?\tNow", "label": ""}]
    (tmp_path / "t.tsv").write_text('text\tlabel\nWhere?\tplace\n"When?\tNow"\t\n')
    (tmp_path / "t.json").write_text(json.dumps(records))
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (tmp_path / "t.jsonl").write_text(lines)
    (tmp_path / "t.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    for name in ("t.tsv", "t.json", "t.jsonl", "t.jsonl.gz"):
        assert is_source(tmp_path / name)
        items = read_source(tmp_path / name)
        assert (items.texts, items.labels.tolist()) == (["Where?", "When?\tNow"], ["place", ""]), name


def test_json_that_is_no_list_of_objects(tmp_path, refused):
    (tmp_path / "t.json").write_text('{"text": ["Where?"]}')
    refused("is not a list of JSON objects: give one object per text", tmp_path / "t.json")
    (tmp_path / "t.jsonl.gz").write_bytes(b"no gzip")
    refused("t.jsonl.gz cannot be read", tmp_path / "t.jsonl.gz")


def test_features_are_no_source(tmp_path):
    features = FeatureSet.from_arrays(np.eye(3), texts=["a", "b", "c"])
    features.write(tmp_path / "f.parquet")
    (tmp_path / "f.csv").write_text("text,f0,f1\na,1.0,2.0\n")
    (tmp_path / "maps").mkdir()
    np.save(tmp_path / "maps" / "all_feats.npy", np.eye(3))
    for name in ("f.parquet", "f.csv", "maps", "gone.csv"):
        assert not is_source(tmp_path / name)


@pytest.fixture
def dataset(tmp_path):
    """A dataset of Hugging Face's library, saved to disk."""
    datasets = pytest.importorskip("datasets", reason="the datasets are made by Hugging Face's library")

    def save(columns, features, parts=("train",)):
        made = datasets.Dataset.from_dict(columns, features=datasets.Features(features))
        if len(parts) > 1:
            made = datasets.DatasetDict(dict.fromkeys(parts, made))
        made.save_to_disk(tmp_path / "saved")
        return tmp_path / "saved"

    return save, datasets


def test_a_dataset_of_texts(dataset):
    save, datasets = dataset
    kinds = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])}
    items = read_source(save({"text": ["a", "b", "c"], "label": [1, 0, -1]}, kinds))
    assert items.texts == ["a", "b", "c"]
    assert items.labels.tolist() == ["yes", "no", ""]
    assert items.split is None


def test_a_dataset_of_images_in_parts(dataset):
    save, datasets = dataset
    Image = pytest.importorskip("PIL.Image")
    kinds = {"picture": datasets.Image(), "label": datasets.Value("string")}
    pictures = [Image.new("RGB", (4, 4), (shade, 0, 0)) for shade in (10, 200)]
    items = read_source(save({"picture": pictures, "label": ["dark", "light"]}, kinds, parts=("train", "test")))
    from rpim.embedding.pictures import open_picture

    assert items.kind == "images"
    assert items.split.tolist() == ["train", "train", "test", "test"]
    assert items.labels.tolist() == ["dark", "light"] * 2
    assert [np.asarray(open_picture(content))[0, 0, 0] for content in items.content] == [10, 200, 10, 200]


@pytest.fixture
def refused(raises_input_error):
    return partial(raises_input_error, read_source)


def test_what_holds_nothing_says_so(folder, tmp_path, refused):
    refused("is not there", tmp_path / "gone")
    (tmp_path / "empty").mkdir()
    refused("holds no images", tmp_path / "empty")
    (tmp_path / "empty.csv").write_text("")
    refused("is empty", tmp_path / "empty.csv", text_column="text")
    (tmp_path / "header.csv").write_text("text,label\n")
    refused("holds no texts", tmp_path / "header.csv")
    (tmp_path / "t.docx").write_text("text")
    refused("give .csv, .tsv, .json, .jsonl or .parquet", tmp_path / "t.docx")


def test_what_does_not_fit_says_so(folder, tmp_path, refused):
    (tmp_path / "t.csv").write_text("question,label\nWhere?,a\n")
    refused(r"no column called text, only question \('Where\?'\) and label \('a'\): name", tmp_path / "t.csv")
    refused("no column 'quetion'", tmp_path / "t.csv", text_column="quetion")
    refused("no column 'topic'", tmp_path / "t.csv", text_column="question", label_column="topic")
    (tmp_path / "odd.csv").write_text("text,label\nHi, there,a\n")
    refused("row 0 has 3 columns but the header has 2", tmp_path / "odd.csv")
    (tmp_path / "t.jsonl").write_text('{"text": "a"}\n{"text": \n')
    refused("line 2 is no JSON", tmp_path / "t.jsonl")
    (tmp_path / "n.jsonl").write_text(json.dumps({"text": 3}) + "\n")
    refused("column 'text' has 3 in row 0, which is not text", tmp_path / "n.jsonl")
    (tmp_path / "l.csv").write_text("id,label\nz.jpg,owl\n")
    refused("has 1 ids that the features have not", folder("a.jpg"), labels=tmp_path / "l.csv")
    refused("is a folder of images and has no columns", folder("a.jpg"), label_column="kind")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    refused("cannot be read", tmp_path / "bad.parquet", text_column="text")


def test_texts_that_grow_in_memory_are_refused(tmp_path, monkeypatch, raises_input_error):
    pq.write_table(pa.table({"text": ["the same words again"] * 10_000}), tmp_path / "t.parquet")
    monkeypatch.setattr("rpim._common.hardware.default_memory_budget", lambda: 10_000)
    raises_input_error(read_source, r"t\.parquet takes about .*: give fewer rows", tmp_path / "t.parquet")
