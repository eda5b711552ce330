"""Several encoders as one: rows side by side, each encoder's identity kept, from images or texts to new predictions."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import rpim
from rpim.data.feature_set import FeatureSet
from rpim.embedding.embed import embed
from rpim.embedding.encoders import Encoder
from rpim.embedding.open_encoder import JointEncoder, encoders_of, open_encoders
from rpim.embedding.pictures import Preprocessing
from rpim.embedding.sources import read_source
from rpim.embedding.weights import library


class Means(Encoder):
    """The mean of each channel of the first pixels, at a size of its own."""

    kind = "images"
    weights = None
    batch_size = 4

    def __init__(self, size, n_features):
        self.name, self.weights_hash = f"means-{size}", str(size) * 64
        self.prepare = Preprocessing(size=size, crop=1.0)
        self.n_features, self.seen, self.stop_after = n_features, -1, None  # a blank picture comes first

    def encode(self, prepared):
        pixels = np.asarray(prepared, dtype=np.float32)
        assert pixels.shape[1:] == (3, self.prepare.size, self.prepare.size)
        self.seen += len(pixels)
        if self.stop_after is not None and self.seen > self.stop_after:
            raise KeyboardInterrupt
        return pixels.mean(axis=(2, 3))[:, : self.n_features]

    def describe(self):
        return {"preprocessing": self.prepare.as_dict()}


def two():
    return Means(8, 3), Means(6, 2)


@pytest.fixture
def pictures(tmp_path):
    """Seven one-coloured images, one of them damaged."""
    (tmp_path / "pictures").mkdir()
    for shade in range(7):
        Image.new("RGB", (20, 20), (10 * shade, 100, 0)).save(tmp_path / "pictures" / f"{shade}.png")
    (tmp_path / "pictures" / "2.png").write_bytes(b"damaged")
    return read_source(tmp_path / "pictures")


@pytest.mark.parametrize("workers", [0, 1])
def test_rows_of_images_are_side_by_side_whatever_size_an_encoder_takes(pictures, tmp_path, workers):
    report = embed(pictures, JointEncoder(two()), tmp_path / "f.npz", views=1, workers=workers)
    assert [name for name, _ in report.skipped] == ["2.png"]
    features = FeatureSet.read(tmp_path / "f.npz")
    assert features.embeddings == {"means-8@888888888888": 3, "means-6@666666666666": 2}
    assert features.X.tolist() == [[10.0 * i, 100.0, 0.0, 10.0 * i, 100.0] for i in (0, 1, 3, 4, 5, 6)]
    np.testing.assert_allclose(features.views[0][:, :2], features.views[0][:, 3:], atol=1.0)  # of the same view
    assert features.metadata["encoder"] == "means-8@888888888888 + means-6@666666666666"
    assert [one["weights_sha256"][0] for one in features.metadata["embeddings"]] == ["8", "6"]


def test_an_interrupted_embedding_resumes(pictures, tmp_path):
    first, second = two()
    second.stop_after = 3
    with pytest.raises(KeyboardInterrupt):
        embed(pictures, JointEncoder((first, second)), tmp_path / "f.npz", batch_size=2, workers=0)
    again = two()
    report = embed(pictures, JointEncoder(again), tmp_path / "f.npz", batch_size=2, workers=0)
    assert report.resumed == 4  # the damaged one too
    assert [encoder.seen for encoder in again] == [3, 3]
    assert embed(pictures, JointEncoder(two()), tmp_path / "f.npz", reuse=True).resumed == 7
    with pytest.raises(rpim.InputError, match="those of another encoder"):
        embed(pictures, JointEncoder(two()[::-1]), tmp_path / "f.npz", reuse=True)


def test_an_encoder_given_twice_is_refused():
    with pytest.raises(rpim.InputError, match="The encoder means-8@888888888888 is given twice"):
        JointEncoder([Means(8, 3), Means(8, 3)])


WORDS = ["[UNK]", "card", "lost", "rate", "dollar", "pin", "code"]


def text_model(folder, *, shift=0):
    """A small model of sentence-transformers: a row for each word, the same words in other columns by `shift`."""
    folder.mkdir()
    module = {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.StaticEmbedding"}
    (folder / "modules.json").write_text(json.dumps([module]))
    tokenizers = library("tokenizers")
    words = {word: number for number, word in enumerate(WORDS)}
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.save(str(folder / "tokenizer.json"))
    rows = torch.eye(len(WORDS), len(WORDS) + shift).roll(shift, dims=1) + 0.05
    save_file({"embedding.weight": rows.contiguous()}, folder / "model.safetensors")
    return folder


@pytest.fixture
def models(tmp_path):
    return text_model(tmp_path / "one"), text_model(tmp_path / "two", shift=2)


def test_the_encoders_of_a_run_are_reopened_with_the_weights_that_are_given(models, raises_input_error):
    encoder = open_encoders("texts", list(map(str, models)))
    assert encoder.encode([encoder.prepare("card")]).shape == (1, 16)
    said = encoder.metadata()
    assert encoders_of(said, models).identity == encoder.identity == said["encoder"]
    raises_input_error(encoders_of, f"give --weights {models[0]} if you trust them", said)
    raises_input_error(encoders_of, "There are 1 --weights, but the run has 2 encoders", said, models[:1])
    raises_input_error(encoders_of, "differ from those of the run", said, models[::-1])
    raises_input_error(open_encoders, "There are 1 --weights for 2 encoders", "texts", ["a", "b"], models[:1])
    raises_input_error(open_encoders, "The encoder a is given twice", "texts", ["a", "b", "a"])


@pytest.mark.slow
def test_from_texts_to_classes_and_new_rows(command, refused, models):
    lines = ["text,label"]
    for kind, (a, b) in {"card": ("card", "lost"), "rate": ("rate", "dollar"), "": ("pin", "code")}.items():
        for i in range(16):
            lines.append(f"{a} {b} {' '.join([a] * (i % 4))},{kind if i % 2 else ''}")
    Path("t.csv").write_text("\n".join(lines) + "\n")
    encoders = [argument for model in models for argument in ("--encoder", model)]
    weights = [argument for model in models for argument in ("--weights", model)]
    code, out, err = command("discover", "t.csv", "-o", "run", *encoders, "--n-classes", 3, "--n-members", 4)
    assert (code, err) == (0, "")
    assert "48 texts embedded by one@" in out
    assert f"NEW.csv --weights {models[0]} --weights {models[1]}" in out
    discovery = rpim.Discovery.load("run")
    assert discovery.model.widths_ == FeatureSet.read("run/features.parquet").widths == (7, 9)
    assert "Encoders" in Path("run/report.html").read_text()
    Path("new.csv").write_text("text\npin code\nrate dollar\n")
    code, out, _ = command("predict", "run", "new.csv", *weights)
    assert code == 0
    assert [line.split(",")[1] for line in out.splitlines()[1:]] == ["new-1", "rate"]
    code, _, err = command("extend", "run", "new.csv", "-o", "run2", *weights, "--quiet")
    assert (code, err) == (0, "")
    assert FeatureSet.read("run2/features.parquet").widths == (7, 9)
    assert command("embed", "t.csv", "-o", "f.npz", *encoders, "-q") == (0, "", "")
    assert command("embed", "t.csv", "-o", "one.npz", *encoders[:2], "-q") == (0, "", "")
    assert command("estimate", "f.npz")[0] == 0
    assert command("predict", "run", "f.npz", "-o", "all.csv")[0] == 0
    refused("The rows have 7 features but the model was fitted on rows of 16", "predict", "run", "one.npz")
    refused("is given twice: give each encoder once", "embed", "t.csv", "-o", "g.npz", *encoders, *encoders[:2])
    refused("There are 1 --weights for 2 encoders", "discover", "t.csv", "-o", "g", *encoders, *weights[:2])
    refused("with local weights: give one for each of these", "predict", "run", "new.csv", *weights[:2])
    assert not list(Path().glob("g*"))
