"""Embedding by workers: the same features as without them, whatever happens to a worker."""

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rpim._common.errors import InputError
from rpim.data.feature_set import FeatureSet
from rpim.data.ray_shards import check_folder
from rpim.embedding import on_ray as embedding
from rpim.embedding.embed import embed
from rpim.embedding.encoders import Encoder
from rpim.embedding.items import Items
from rpim.embedding.on_ray import embed_on_ray
from rpim.embedding.pictures import Preprocessing, Unusable
from rpim.embedding.sources import read_source


class Colours(Encoder):
    """The mean of each channel."""

    kind = "images"
    name, weights, weights_hash = "colours", None, "0" * 64
    batch_size = 3

    def __init__(self):
        self.prepare = Preprocessing(size=8, crop=1.0)

    def encode(self, prepared):
        return np.asarray(prepared, dtype=np.float32).mean(axis=(2, 3))

    def describe(self):
        return {}


class Lengths(Encoder):
    """How long a text is. Notes what it encodes, and dies of "poison" as often as it is told to."""

    kind = "texts"
    name, weights, weights_hash = "lengths", None, "1" * 64
    batch_size = 1

    def __init__(self, notes=None, deaths=0):
        self.notes, self.deaths = notes, deaths

    def prepare(self, text):
        if not text:
            raise Unusable("the text is empty")
        return text

    def encode(self, prepared):
        if self.notes is not None:
            with open(self.notes, "a") as file:
                file.writelines(f"{text}\n" for text in prepared)
            if "poison" in prepared and Path(self.notes).read_text().count("poison") <= self.deaths:
                os.kill(os.getpid(), signal.SIGKILL)
        return np.array([[len(text), 1.0] for text in prepared], dtype=np.float32)

    def describe(self):
        return {}


@pytest.fixture(autouse=True)
def small_files(ray_here, monkeypatch):
    """Tests start as few workers as they can: each imports torch for seconds."""
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import it
    monkeypatch.setattr(embedding, "LEAST", 4)
    monkeypatch.setattr(embedding, "FILES", 3)


def same(spread, unspread):
    a, b = FeatureSet.read(spread), FeatureSet.read(unspread)
    for one, other in zip((a.X, *a.views), (b.X, *b.views), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    for field in ("ids", "labels", "truth", "split"):
        one, other = getattr(a, field), getattr(b, field)
        assert (one is None) == (other is None)
        assert one is None or (one.dtype == other.dtype and one.tolist() == other.tolist())
    assert (a.texts, a.paths, a.metadata) == (b.texts, b.paths, b.metadata)
    assert {name: values.tolist() for name, values in a.columns.items()} == {
        name: values.tolist() for name, values in b.columns.items()
    }


def test_images_with_views_and_a_damaged_one(ray_here, tmp_path):
    for shade in range(10):
        place = tmp_path / "pictures" / ("even" if shade % 2 == 0 else "unlabelled")
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(shade).integers(0, 255, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{shade}.png")
    (tmp_path / "pictures" / "unlabelled" / "9.png").write_bytes(b"damaged")
    items = read_source(tmp_path / "pictures")
    report = embed_on_ray(items, Colours(), tmp_path / "spread", 2, open_encoder=Colours, views=2)
    embed(items, Colours(), tmp_path / "unspread.parquet", views=2, workers=0)
    same(tmp_path / "spread", tmp_path / "unspread.parquet")
    assert len(FeatureSet.read(tmp_path / "spread").views) == 2
    assert (report.embedded, report.resumed) == (9, 0)
    assert report.skipped == [("unlabelled/9.png", "it is no picture")]
    assert sorted(file.name for file in (tmp_path / "spread").iterdir()) == [f"part-0000{i}.parquet" for i in range(3)]
    assert not list(tmp_path.glob("*.checkpoint"))


def texts(n=12, **others):
    return Items.of(
        "texts",
        [others.get(f"t{i}", "x" * (i + 1)) for i in range(n)],
        Path("t.csv"),
        [f"row-{i}" for i in range(n)],
        labels=[i % 3 if i % 2 else None for i in range(n)],
        columns={"price": [i / 2 for i in range(n)], "from": ["web" if i % 4 else "" for i in range(n)]},
    )


def test_a_worker_that_is_killed_costs_no_row_and_doubles_none(ray_here, tmp_path):
    """Nor does a file that would have no rows, the first one, which has the facts about all."""
    items, notes = texts(t5="poison", t0="", t1="", t2="", t3=""), tmp_path / "notes"
    report = embed_on_ray(items, Lengths(), tmp_path / "spread", 2, open_encoder=partial(Lengths, notes, deaths=1))
    assert notes.read_text().split().count("poison") == 2  # once in vain
    embed(items, Lengths(), tmp_path / "unspread.parquet")
    same(tmp_path / "spread", tmp_path / "unspread.parquet")
    assert sorted(FeatureSet.read(tmp_path / "spread").columns) == ["from", "price"]
    assert report.embedded == 8
    assert sorted(file.name for file in (tmp_path / "spread").iterdir()) == ["part-00000.parquet", "part-00001.parquet"]


def test_rows_that_kill_every_worker_are_named_and_the_rest_is_not_made_again(ray_here, tmp_path):
    items, notes, out = texts(t5="poison"), tmp_path / "notes", tmp_path / "spread"
    with pytest.raises(InputError, match="3 workers were lost over the rows 4 to 7"):
        embed_on_ray(items, Lengths(), out, 1, open_encoder=partial(Lengths, notes, deaths=99))
    assert not out.exists()
    done = [json.loads(note.read_text())["n_rows"] for note in Path(f"{out}.checkpoint").glob("part-*.json")]
    assert done
    notes.write_text("")
    report = embed_on_ray(items, Lengths(), out, 1, open_encoder=partial(Lengths, notes))
    assert (report.embedded, report.resumed) == (12 - sum(done), sum(done))
    assert len(notes.read_text().split()) == 12 - sum(done)
    embed(items, Lengths(), tmp_path / "unspread.parquet")
    same(out, tmp_path / "unspread.parquet")


def test_nothing_that_can_be_used_leaves_nothing(ray_here, tmp_path):
    with pytest.raises(InputError, match=r"None of the 2 texts of t\.csv can be used"):
        embed_on_ray(Items.of("texts", ["", ""], Path("t.csv")), Lengths(), tmp_path / "no", 1, open_encoder=Lengths)
    assert not list(tmp_path.iterdir())


def test_what_is_not_ours_is_left_alone(ray_here, tmp_path):
    out = tmp_path / "spread"
    Path(f"{out}.checkpoint").mkdir()
    (tmp_path / "spread.checkpoint" / "plan.json").write_text('{"items": "others"}')
    (tmp_path / "spread.checkpoint" / "part-00000.json").write_text("{}")
    with pytest.raises(InputError, match=r"spread\.checkpoint holds the checkpoint of another embedding"):
        embed_on_ray(texts(), Lengths(), out, ray_here, open_encoder=Lengths)
    out.mkdir()
    (out / "part-00000.parquet").write_bytes(b"old")
    check_folder(out, overwrite=True)
    (out / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="holds more than shards of rows"):
        check_folder(out, overwrite=True)


def test_the_commands_from_texts_to_classes(ray_here, command):
    words = {
        "card": "my bank card was lost or stolen",
        "rate": "what is the exchange rate of the dollar",
        "pin": "I forgot the PIN code",
    }
    lines = [
        {"text": f"{text}{' please' * i}", "label": name if name != "pin" and i < 3 else None, "id": f"{name}-{i}"}
        for name, text in words.items()
        for i in range(5)
    ]
    Path("t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"text": " ", "id": "none"}\n')
    code, out, err = command("embed", "t.jsonl", "-o", "spread", "--ray", "--workers", 1)
    assert code == 0
    assert "15 texts embedded by all-MiniLM-L6-v2@" in out
    assert out.endswith("Next: rpim discover spread -o RUN\n")
    assert err.splitlines()[1:] == ["  none: the text is empty"]
    assert command("embed", "t.jsonl", "-o", "unspread.parquet", "-q")[0] == 0
    a, b = FeatureSet.read("spread"), FeatureSet.read("unspread.parquet")
    assert ((a.rows() * b.rows()).sum(axis=1) >= 0.99999).all()
    assert (a.ids.tolist(), a.labels.tolist(), a.texts) == (b.ids.tolist(), b.labels.tolist(), b.texts)
    assert a.metadata == b.metadata
    assert pq.read_schema("spread/part-00000.parquet").equals(pq.read_schema("unspread.parquet"))
    code, _, _ = command("discover", "spread", "-o", "run", "--n-classes", 3, "--n-members", 1, "--no-report", "-q")
    assert code == 0
    Path("new.csv").write_text("text\nWhat is the exchange rate of the euro?\nwhere is my stolen bank card\n")
    written = "The classes of the rows are in classes.\n"
    assert command("predict", "run", "new.csv", "-o", "classes", "--ray", "--workers", 1) == (0, written, "")
    assert pq.read_table("classes")["label"].to_pylist() == ["rate", "card"]
    assert not list(Path().glob("classes.*"))


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("exists already", ["-o", "there", "--ray"]),
        ("is the name of a file, but --ray writes a folder", ["-o", "x.parquet", "--ray"]),
        ("is not a folder: create it first", ["-o", "no/where", "--ray"]),
        ("0 workers were asked for", ["-o", "out", "--ray", "--workers", 0]),
        ("workers were asked for: ask for fewer", ["-o", "out", "--ray", "--workers", 999]),
    ],
)
def test_bad_input_is_said_before_the_work(ray_here, refused, message, arguments):
    Path("there").mkdir()
    Path("t.csv").write_text("text\nhello\n")
    refused(message, "embed", "t.csv", *arguments)
    assert sorted(path.name for path in Path().iterdir()) == ["t.csv", "there"]
