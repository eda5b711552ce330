"""How fast rpim embed is beside the encoder's own forward pass, and whether rows depend on the batch.

    python benchmarks/embedding.py

Images are JPEGs of 1000 x 750 pixels made here, texts are lines of this project's documents. The weights of the image
encoders are drawn at random, which changes no time. Prints for each encoder the share of the time that its forward pass
takes with no process beside it that decodes and with one, the least cosine between rows of batches of 1 and of 32, and
how long onnxruntime takes for the same pass.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from rpim.data.feature_set import FeatureSet
from rpim.embedding.embed import embed
from rpim.embedding.images import IMAGE_ENCODERS, TimmEncoder
from rpim.embedding.items import Items
from rpim.embedding.open_encoder import open_encoder
from rpim.embedding.sources import read_source
from rpim.embedding.weights import library


def photographs(folder: Path, n: int) -> Items:
    """JPEGs as large as pictures on the web, of smooth colours with noise."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(n):
        coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3)).astype(np.uint8)).resize((1000, 750), Image.BICUBIC)
        noisy = np.asarray(coarse, dtype=int) + rng.integers(-20, 20, (750, 1000, 1))
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / f"{number}.jpg", quality=90)
    return read_source(folder)


def lines(n: int) -> Items:
    """Lines of the documents, as often as it takes."""
    documents = Path(__file__).parents[1].glob("docs/*.md")
    found = [line for path in sorted(documents) for line in path.read_text().splitlines() if len(line) > 40]
    return Items.of("texts", [found[i % len(found)] for i in range(n)], Path("docs"))


def cosine(one: FeatureSet, other: FeatureSet) -> float:
    """The least cosine between the rows of two sets."""
    return float((one.rows() * other.rows()).sum(axis=1).min())


def onnx_ratio(encoder: TimmEncoder, place: Path) -> float:
    """How many times as long torch takes as onnxruntime for the same pass, at best of three."""
    size = encoder.prepare.size
    torch.onnx.export(
        encoder.model,
        (torch.zeros(2, 3, size, size),),
        place,
        dynamo=True,
        verbose=False,
        dynamic_shapes=({0: torch.export.Dim("n", min=1, max=64)},),
    )
    prepared = np.random.default_rng(0).integers(0, 256, (16, 3, size, size)).astype(np.uint8)
    best = []
    for one in (encoder, open_encoder("images", str(place))):
        times = []
        for _ in range(4):
            start = time.perf_counter()
            one.encode(prepared)
            times.append(time.perf_counter() - start)
        best.append(min(times[1:]))
    return best[0] / best[1]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=96)
    parser.add_argument("--texts", type=int, default=1024)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        images = photographs(place / "images", arguments.images)
        for name in ("dino-vits16", "dino-vitb16", "tf_efficientnet_lite0"):
            weights = place / f"{name}.safetensors"
            model = IMAGE_ENCODERS[name].model if name in IMAGE_ENCODERS else name
            save_file(library("timm").create_model(model).state_dict(), weights)
            encoder = TimmEncoder(name, weights)
            shares = []
            for workers in (0, 1):
                done = embed(images, encoder, place / f"{name}-{workers}.npz", workers=workers)
                shares.append(f"{done.encoder_seconds / done.seconds:.1%}")
            embed(images, encoder, place / f"{name}-one.npz", batch_size=1)
            least = cosine(*(FeatureSet.read(place / f"{name}-{kind}.npz") for kind in ("1", "one")))
            print(
                f"{name}: {done.embedded / done.seconds:.1f} images a second; in the encoder {shares[0]} of the time "
                f"without another process, {shares[1]} with one; batches of 1 and 32 agree to a cosine of {least:.6f}; "
                f"onnxruntime is {onnx_ratio(encoder, place / f'{name}.onnx'):.2f} times as fast",
                flush=True,
            )
        encoder = open_encoder("texts")
        done = embed(lines(arguments.texts), encoder, place / "texts.npz")
        embed(lines(arguments.texts), encoder, place / "one.npz", batch_size=1)
        least = cosine(FeatureSet.read(place / "texts.npz"), FeatureSet.read(place / "one.npz"))
        print(
            f"{encoder.name}: {done.embedded / done.seconds:.1f} texts a second; in the encoder "
            f"{done.encoder_seconds / done.seconds:.1%} of the time; batches of 1 and 64 agree to a cosine of "
            f"{least:.6f}"
        )


if __name__ == "__main__":
    main()
