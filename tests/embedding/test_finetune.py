"""Tuning an encoder: what changes and what does not, a killed run that goes on, bad input, and the whole command."""

import copy
import json
import math
import types
from importlib.util import find_spec

import numpy as np
import pytest
import torch

pytest.importorskip("PIL")
if find_spec("timm") is None:  # imported by the tests alone: that takes seconds
    pytest.skip("timm is not installed", allow_module_level=True)

from safetensors import safe_open
from safetensors.torch import load_file, save_file

from rpim._common.errors import InputError
from rpim._common.progress import Progress
from rpim.data.feature_set import FeatureSet
from rpim.embedding.encoders import Encoder
from rpim.embedding.finetune import finetune, readable_images
from rpim.embedding.images import TimmEncoder, read_header
from rpim.embedding.items import Items
from rpim.embedding.pictures import Preprocessing
from rpim.embedding.tuning import Losses, State, Tuning, batches, self_supervised_terms, supervised_terms
from rpim.embedding.views import FreshViews, LastBlock, ViewBank
from rpim.embedding.weights import library

QUICK = {"epochs": 3, "batch_size": 8, "learning_rate": 0.05, "views": 2}


def make_encoder(folder, name, size=None):
    """With random weights, and batch norms that have seen something, so that rows are of a usual size."""
    torch.manual_seed(0)
    file = folder / f"{name}.safetensors"
    model = library("timm").create_model(name, num_classes=0)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # the mean of all that it has seen
    with torch.no_grad():
        model.train()(torch.randn(8, 3, 160, 160))
    save_file(model.state_dict(), file)
    return TimmEncoder(name, file, preprocessing=None if size is None else Preprocessing(size, 1.0))


@pytest.fixture(autouse=True)
def _small_projection(monkeypatch):
    """What is tested does not depend on its width, and most of the time would go there."""
    monkeypatch.setattr("rpim.embedding.tuning.HIDDEN", 32)


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    return make_encoder(tmp_path_factory.mktemp("vit"), "test_vit")


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory):
    """At a small size, which costs little; only networks of convolutions take any."""
    return make_encoder(tmp_path_factory.mktemp("cnn"), "test_efficientnet", 32)


@pytest.fixture
def items(tmp_path):
    """Three kinds of stripes, two of them with labels."""
    random = np.random.default_rng(0)
    pictures = []
    for row in range(18):
        picture = random.integers(0, 60, (20, 20, 3), dtype=np.uint8)
        picture[:: 2 + row % 3] += 150
        pictures.append(picture)
    labels = [("thin", "thick", "")[row % 3] if row < 12 else "" for row in range(18)]
    return Items.of("images", pictures, tmp_path, labels=labels)


def weights(encoder):
    return {name: value.clone() for name, value in encoder.model.state_dict().items()}


def changed(before, after):
    return {name for name in before if not torch.equal(before[name], after[name])}


# The last block -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("test_vit", "blocks.5"),
        ("test_vit3", "blocks.8"),
        ("test_efficientnet", "blocks.4"),
        ("test_resnet", "layer4"),
        ("test_convnext", "stages.3"),
        ("test_byobnet", "stages.2"),
    ],
)
def test_both_parts_together_are_the_encoder(name, block):
    torch.manual_seed(0)
    model = library("timm").create_model(name, num_classes=0).eval()
    last_block = LastBlock(model, 160)
    pictures = torch.randn(3, 3, 160, 160)
    with torch.no_grad():
        rows = last_block.rows(last_block.entering(pictures))
        torch.testing.assert_close(rows, model(pictures), rtol=1e-4, atol=1e-5)
    assert last_block.name == block
    assert last_block.n_features == rows.shape[1]


def test_the_last_block_of_a_vit_is_trained_with_the_norm_behind_it_and_nothing_before_it():
    model = library("timm").create_model("test_vit", num_classes=0)
    names = set(LastBlock(model, 160).parameters)
    assert {name for name in names if not name.startswith("blocks.5.")} == {"norm.weight", "norm.bias"}
    assert names == {name for name, value in model.named_parameters() if value.requires_grad}
    assert {name for name, _ in model.blocks[5].named_parameters(prefix="blocks.5")} <= names


def test_the_gradient_of_the_parts_is_that_of_the_whole():
    torch.manual_seed(0)
    model = library("timm").create_model("test_vit", num_classes=0).eval()
    last_block = LastBlock(model, 160)
    pictures, to = torch.randn(2, 3, 160, 160), torch.randn(2, 64)
    trained = list(last_block.parameters.values())
    of_parts = torch.autograd.grad((last_block.rows(last_block.entering(pictures)) * to).sum(), trained)
    of_whole = torch.autograd.grad((model(pictures) * to).sum(), trained)
    for one, other in zip(of_parts, of_whole, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_model_that_cannot_be_divided_is_refused():
    with pytest.raises(InputError, match="Linear cannot be divided before its last block"):
        LastBlock(torch.nn.Linear(3, 3), 8)


# Batches and the schedule ---------------------------------------------------------------------------------------------


def test_half_of_every_batch_has_labels():
    codes = np.array([0, 1, 0, *[-1] * 17])
    drawn = list(batches(codes, 4, np.random.default_rng(0)))
    assert [len(rows) for rows in drawn] == [4] * 5
    assert all((codes[rows] >= 0).sum() == 2 for rows in drawn)
    unlabelled = [row for rows in drawn for row in rows if codes[row] < 0]
    assert len(set(unlabelled)) == 10  # none comes again before all others have come
    labelled = [row for rows in drawn for row in rows if codes[row] >= 0]
    assert all(set(labelled[i : i + 3]) == {0, 1, 2} for i in (0, 3, 6))


def test_without_unlabelled_rows_every_row_of_a_batch_has_a_label():
    drawn = list(batches(np.array([0, 1, 0, 1, 1]), 128, np.random.default_rng(0)))
    assert [sorted(rows) for rows in drawn] == [[0, 1, 2, 3, 4]]


def test_the_learning_rate_falls_along_a_cosine(convolutions):
    last_block = LastBlock(convolutions.model, 32)
    tuning = Tuning(last_block, torch.device("cpu"), 0.2, epochs=4, seed=0, supervised_weight=0.1)
    rates = []
    for epoch in range(4):
        tuning.begin(epoch)
        rates.append(tuning._optimiser.param_groups[0]["lr"])
    # 0.2 * (0.001 + 0.999 * (1 + cos(pi e / 4)) / 2)
    np.testing.assert_allclose(rates, [0.2, 0.170738, 0.1001, 0.029462], rtol=1e-4)


def test_a_step_gives_both_losses_of_the_batch_and_goes_down_their_weighted_sum(convolutions):
    model = copy.deepcopy(convolutions.model)
    last_block = LastBlock(model, 32)
    tuning = Tuning(last_block, torch.device("cpu"), 1e-3, epochs=4, seed=0, supervised_weight=0.35)
    tuning.begin(0)
    rows, codes = np.arange(6), np.array([0, 1, 0, -1, -1, -1])
    pairs = last_block.entering(torch.randn(12, 3, 32, 32)).reshape(2, 6, -1, 2, 2)

    def losses():
        first, second = tuning._head(last_block.rows(pairs.flatten(0, 1))).chunk(2)
        return (
            self_supervised_terms(first, second, torch.arange(6), 1.0).mean(),
            supervised_terms(first[:3], second[:3], torch.tensor([0, 1, 0]), 0.07).mean(),
        )

    before = losses()
    total = 0.65 * before[0] + 0.35 * before[1]
    trained = list(tuning._trained.values())
    gradients = torch.autograd.grad(total, trained)
    length = torch.sqrt(sum(gradient.square().sum() for gradient in gradients))
    assert length > 1  # so that it is cut
    wanted = [
        value.detach() - 1e-3 * (gradient / length + 5e-5 * value.detach())
        for value, gradient in zip(trained, gradients, strict=True)
    ]
    np.testing.assert_allclose(tuning.step(pairs, rows, codes), [loss.item() for loss in before], rtol=1e-5)
    for value, right in zip(trained, wanted, strict=True):
        torch.testing.assert_close(value.detach(), right, rtol=1e-5, atol=1e-7)


# Views ----------------------------------------------------------------------------------------------------------------


def test_a_bank_gives_two_different_views_of_each_image(convolutions, items, tmp_path):
    last_block = LastBlock(convolutions.model, 32)
    fresh = FreshViews(items.content, convolutions, last_block)
    bank = ViewBank(fresh, len(items), 3, 0, tmp_path)
    bank.fill(Progress())
    kept = np.load(tmp_path / "views.npy").reshape(18, 3, -1)
    rows = np.array([4, 0, 17] * 20)
    pairs = bank.pairs(rows, np.random.default_rng(0)).flatten(2).numpy()  # (2, b, ...)
    for place, row in enumerate(rows):
        one, other = ([np.array_equal(view, pairs[which, place]) for view in kept[row]].index(True) for which in (0, 1))
        assert one != other
    again = fresh.entering(np.array([4]), [np.random.default_rng([0, 4, 2])])
    np.testing.assert_allclose(again.flatten().numpy(), kept[4, 2], rtol=2e-3, atol=2e-3)  # in float16


@pytest.mark.slow
def test_an_interrupted_bank_goes_on_where_it_was(convolutions, items, tmp_path, monkeypatch):
    monkeypatch.setattr("rpim.embedding.views._AT_ONCE", 8)
    monkeypatch.setattr("rpim.embedding.views._SECONDS_BETWEEN_NOTES", 0.0)
    fresh = FreshViews(items.content, convolutions, LastBlock(convolutions.model, 32))
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        folder.mkdir()
    ViewBank(fresh, len(items), 2, 0, whole).fill(Progress())
    make, calls = fresh.entering, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return make(*arguments)

    monkeypatch.setattr(fresh, "entering", interrupted)
    with pytest.raises(KeyboardInterrupt):
        ViewBank(fresh, len(items), 2, 0, killed).fill(Progress())
    ViewBank(fresh, len(items), 2, 0, killed).fill(Progress())
    assert len(calls) == 4 + 3  # of five blocks, two were there; the first was made twice, for its shape
    np.testing.assert_array_equal(np.load(killed / "views.npy"), np.load(whole / "views.npy"))


def test_fresh_views_are_new_every_time_and_the_same_for_a_seed(convolutions, items):
    fresh = FreshViews(items.content, convolutions, LastBlock(convolutions.model, 32))
    rng, rows = np.random.default_rng(0), np.array([1, 2])
    pairs, later = fresh.pairs(rows, rng), fresh.pairs(rows, rng)
    assert not torch.equal(pairs[0], pairs[1])
    assert not torch.equal(pairs, later)
    assert torch.equal(pairs, fresh.pairs(rows, np.random.default_rng(0)))


def test_views_that_do_not_fit_on_the_disk_are_refused(convolutions, items, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda _: types.SimpleNamespace(free=1000))
    with pytest.raises(InputError, match=r"2 views of 18 images take 0.0 GB beside the output, where 0.0 GB are free"):
        finetune(items, convolutions, tmp_path / "t.safetensors", **QUICK)


# The whole of it ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_only_the_last_block_and_what_follows_it_change(vit, items, tmp_path):
    before = weights(vit)
    tuned = finetune(items, vit, tmp_path / "tuned.safetensors", **{**QUICK, "epochs": 1})
    moved = changed(before, weights(tuned))
    assert {"blocks.5.attn.qkv.weight", "blocks.5.mlp.fc2.weight", "norm.weight"} <= moved
    assert all(name.startswith(("blocks.5.", "norm.")) for name in moved)
    assert not changed(before, weights(vit))  # the encoder that was given is as it was
    assert tuned.weights_hash != vit.weights_hash
    assert list(tmp_path.iterdir()) == [tmp_path / "tuned.safetensors"]


@pytest.mark.slow
def test_both_losses_fall(convolutions, items, tmp_path):
    finetune(items, convolutions, tmp_path / "tuned.safetensors", **{**QUICK, "epochs": 20, "batch_size": 18})
    losses = np.array(read_header(tmp_path / "tuned.safetensors")["tuning"]["losses"])
    assert losses.shape == (20, 2)
    assert (losses[-3:].mean(0) < losses[:3].mean(0)).all()


@pytest.mark.slow
@pytest.mark.parametrize("views", [0, 2])
def test_a_killed_run_goes_on_and_ends_with_the_same_weights(convolutions, items, tmp_path, monkeypatch, views):
    hyperparameters = {**QUICK, "views": views}
    whole = finetune(items, convolutions, tmp_path / "whole.safetensors", **hyperparameters)
    step, steps = Tuning.step, []

    def killed(self, *arguments):
        steps.append(1)
        if len(steps) == 4:  # in the second epoch of two steps each
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(Tuning, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        finetune(items, convolutions, tmp_path / "killed.safetensors", **hyperparameters)
    assert not (tmp_path / "killed.safetensors").exists()
    gone_on = finetune(items, convolutions, tmp_path / "killed.safetensors", **hyperparameters)
    assert len(steps) == 4 + 4  # the first epoch was not done again
    assert not changed(weights(whole), weights(gone_on))
    said = [read_header(tmp_path / f"{name}.safetensors")["tuning"]["losses"] for name in ("whole", "killed")]
    assert said[0] == said[1]
    assert not (tmp_path / "killed.safetensors.checkpoint").exists()


@pytest.mark.slow
def test_the_seed_decides_the_weights(convolutions, items, tmp_path):
    made = [
        finetune(items, convolutions, tmp_path / "tuned.safetensors", overwrite=True, seed=seed, **QUICK).weights_hash
        for seed in (0, 0, 1)
    ]
    assert made[0] == made[1] != made[2]


def test_a_checkpoint_of_other_settings_is_refused(convolutions, items, tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Tuning, "step", killed)
    with pytest.raises(KeyboardInterrupt):
        finetune(items, convolutions, tmp_path / "t.safetensors", **QUICK)
    with pytest.raises(
        InputError, match=r"t.safetensors.checkpoint holds the checkpoint of another fine-tuning \(other epochs, seed"
    ):
        finetune(items, convolutions, tmp_path / "t.safetensors", **{**QUICK, "epochs": 9}, seed=1)
    (tmp_path / "t.safetensors.checkpoint" / "plan.json").write_text("{")
    with pytest.raises(InputError, match="holds the checkpoint of another fine-tuning"):
        finetune(items, convolutions, tmp_path / "t.safetensors", **QUICK)


def test_a_damaged_state_is_named(convolutions, items, tmp_path, monkeypatch):
    """And a failure of the training is not blamed on it."""
    step, steps = Tuning.step, []

    def failing(self, *arguments):
        steps.append(1)
        if len(steps) >= 4:  # in the second epoch of two steps each
            raise RuntimeError("out of memory")
        return step(self, *arguments)

    monkeypatch.setattr(Tuning, "step", failing)
    output = tmp_path / "t.safetensors"
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of memory"):
            finetune(items, convolutions, output, **QUICK)
    file = tmp_path / "t.safetensors.checkpoint" / "state.safetensors"
    tensors = load_file(file)
    with safe_open(file, "pt") as opened:
        notes = json.loads(opened.metadata()["notes"])
    name = min(tensors)
    for changed_tensors, changed_notes, said in [
        ({name: tensors[name][:0]}, {}, "has shape"),
        ({name: tensors[name].double()}, {}, "has dtype torch.float64 and not torch.float32"),
        ({name: tensors[name] * torch.nan}, {}, "is not finite"),
        ({"other": torch.ones(1)}, {}, "its tensors are"),
        ({}, {"losses": [["x", 1.0]]}, "its losses are not those of its epochs"),
        ({}, {"losses": []}, "its losses are not those of its epochs"),
        ({}, {"epoch": None}, "int"),
    ]:
        save_file({**tensors, **changed_tensors}, file, {"notes": json.dumps({**notes, **changed_notes})})
        with pytest.raises(InputError, match=rf"state\.safetensors is damaged \(.*{said}.*\): remove .*\.checkpoint"):
            finetune(items, convolutions, output, **QUICK)


# Bad input ------------------------------------------------------------------------------------------------------------


def test_unreadable_images_and_those_of_the_test_split_are_left_out(tmp_path):
    black = np.zeros((8, 8, 3), np.uint8)
    pictures = [black, b"no picture", black, black]
    given = Items.of(
        "images",
        pictures,
        tmp_path,
        ["a", "b", "c", "d"],
        labels=["x", "x", "y", ""],
        split=["train", "train", "test", "train"],
        skipped=[("e", "it is empty")],
    )
    kept = readable_images(given)
    assert kept.ids.tolist() == ["a", "d"]
    assert kept.labels.tolist() == ["x", ""]
    assert kept.skipped == [("e", "it is empty"), ("b", "it is no picture")]


@pytest.mark.parametrize(
    ("labels", "message"),
    [(None, r"labels of 0 class\(es\)"), (["a"] * 6 + [""] * 12, r"labels of 1 class\(es\)")],
)
def test_labels_of_two_classes_are_needed(convolutions, items, tmp_path, labels, message):
    given = Items.of("images", items.content, tmp_path, labels=labels)
    with pytest.raises(InputError, match=message):
        finetune(given, convolutions, tmp_path / "t.safetensors", **QUICK)


def test_one_image_is_refused(convolutions, items, tmp_path):
    given = Items.of("images", items.content[:1], tmp_path, labels=["a"])
    with pytest.raises(InputError, match=r"holds 1 readable image\(s\): give at least two"):
        finetune(given, convolutions, tmp_path / "t.safetensors")


def test_texts_are_refused(convolutions, tmp_path):
    texts = Items.of("texts", ["one", "two"], tmp_path / "chat.csv", labels=["a", "b"])
    with pytest.raises(InputError, match=r"chat.csv holds texts, and only encoders of images can be tuned"):
        finetune(texts, convolutions, tmp_path / "t.safetensors")


def test_an_encoder_that_is_not_of_timm_is_refused(items, tmp_path):
    class Other(Encoder):
        kind, name = "images", "net.onnx"

        def encode(self, prepared):
            raise NotImplementedError

        def describe(self):
            raise NotImplementedError

    with pytest.raises(InputError, match=r"net\.onnx cannot be fine-tuned"):
        finetune(items, Other(), tmp_path / "t.safetensors")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"epochs": 0}, "epochs is 0: give at least 1"),
        ({"batch_size": 2}, "batch_size is 2: give at least 4"),
        ({"views": 1}, "views is 1: give at least 2"),
        ({"learning_rate": float("nan")}, "learning_rate is nan"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_numbers_out_of_range_are_refused(convolutions, items, tmp_path, wrong, message):
    with pytest.raises(InputError, match=message):
        finetune(items, convolutions, tmp_path / "t.safetensors", **wrong)


def test_a_loss_that_is_not_finite_ends_it_and_leaves_nothing(convolutions, items, tmp_path):
    with pytest.raises(InputError, match=r"no longer finite in epoch \d+: give a smaller --learning-rate than 1e\+25"):
        finetune(items, convolutions, tmp_path / "t.safetensors", **{**QUICK, "learning_rate": 1e25})
    assert not list(tmp_path.iterdir())


def test_an_encoder_that_makes_all_images_alike_is_not_written(convolutions, items, tmp_path, monkeypatch):
    # Two views of eight images, four with labels: at one point, a view has a fifteenth and a seventh of the others.
    alike = Losses(math.log(15), math.log(7))
    monkeypatch.setattr(Tuning, "step", lambda *_: alike)
    monkeypatch.setattr(Tuning, "state", lambda *_: State(1, {}, {}))
    with pytest.raises(
        InputError, match=r"all images have the same embedding: give a smaller --learning-rate than 0\.05"
    ):
        finetune(items, convolutions, tmp_path / "t.safetensors", **QUICK)
    assert not list(tmp_path.iterdir())


# The command ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def source(items, tmp_path):
    """The stripes in a folder, those with labels in folders of their own, and one file that is no picture."""
    for row, (picture, label) in enumerate(zip(items.content, items.labels, strict=True)):
        file = tmp_path / "images" / (str(label) or "unlabelled") / f"{row}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        library("PIL.Image").fromarray(picture).save(file)
    (tmp_path / "images" / "broken.jpg").write_bytes(b"no picture")


@pytest.mark.slow
def test_the_command_writes_an_encoder_that_embed_takes(command, source, items, tmp_path):
    make_encoder(tmp_path, "test_efficientnet")
    run = (
        "finetune",
        "images",
        "--encoder",
        "test_efficientnet",
        "--weights",
        "test_efficientnet.safetensors",
        "--epochs",
        2,
        "--batch-size",
        8,
        "--views",
        2,
        "-o",
        "tuned.safetensors",
    )
    code, out, err = command(*run)
    assert code == 0
    assert err == "rpim: 1 image could not be read:\n  broken.jpg: it is no picture\n"
    lines = out.splitlines()
    assert lines[0] == "18 images, 8 of them with a label (2 classes)."
    assert lines[-1] == "Next: rpim embed SOURCE --encoder tuned.safetensors -o FEATURES"
    code, out, err = command("embed", "images", "--encoder", "tuned.safetensors", "-o", "features.npz", "--workers", 0)
    assert code == 0, err
    features = FeatureSet.read("features.npz")
    assert features.rows(normalize=False).shape == (18, 256)
    assert features.metadata["encoder"] == TimmEncoder("tuned.safetensors").identity

    code, out, err = command(*run)
    assert (code, out) == (2, "")
    assert "tuned.safetensors exists already" in err
    (tmp_path / "images" / "broken.jpg").unlink()
    code, out, err = command(*run, "--overwrite", "--quiet")
    assert (code, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "tuned.pth"), "tuned.pth has the suffix '.pth': an encoder is written as .safetensors."),
        (("-o", "no/tuned.safetensors"), "because no is not a folder: create it first."),
        (("-o", "tuned.safetensors", "--encoder", "net.onnx"), "net.onnx cannot be fine-tuned"),
        (("-o", "tuned.safetensors", "--encoder", "test_vit", "--weights", "no.pth"), "no.pth is not there"),
    ],
)
def test_the_command_refuses_in_one_line(refused, source, arguments, message):
    refused(message, "finetune", "images", *arguments)


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(command, source, tmp_path, monkeypatch):
    make_encoder(tmp_path, "test_efficientnet")

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(Tuning, "step", killed)
    code, out, err = command(
        "finetune",
        "images",
        "--encoder",
        "test_efficientnet",
        "--weights",
        "test_efficientnet.safetensors",
        "--views",
        2,
        "-o",
        "tuned.safetensors",
    )
    assert (code, out) == (130, "")
    assert err == "rpim: interrupted; the same command resumes from tuned.safetensors.checkpoint.\n"
