"""Fine-tune the last block of an image encoder with GCD's contrastive losses (Vaze et al., CVPR 2022)."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim._common.files import StrPath, check_writable
from rpim._common.progress import Progress
from rpim.data.labels import encode_labels
from rpim.embedding.encoders import Encoder
from rpim.embedding.images import TimmEncoder
from rpim.embedding.items import Items
from rpim.embedding.pictures import Unusable, open_picture
from rpim.embedding.tuning import IntArray, Losses, Tuning, TuningCheckpoint, batches, losses_of_one_point
from rpim.embedding.views import FreshViews, LastBlock, ViewBank

SUPERVISED_WEIGHT = 0.1
"""Weight of the supervised loss; GCD uses 0.35, which found fewer new classes (docs/results.md)."""


def finetune(
    items: Items,
    encoder: Encoder,
    output: StrPath,
    *,
    epochs: int = 50,
    batch_size: int = 128,
    learning_rate: float = 0.1,
    supervised_weight: float = SUPERVISED_WEIGHT,
    views: int = 8,
    seed: int = 0,
    overwrite: bool = False,
    verbose: bool = False,
) -> TimmEncoder:
    """Fine-tune the last block of an image encoder.

    The loss is GCD's weighted sum of a self-supervised contrastive loss (two augmented views of every image) and a
    supervised one (labelled images). The other blocks stay frozen. `encoder` itself is not changed.

    Parameters
    ----------
    items : Items
        Images, some of them labelled. Those of the split "test" are excluded, so that they stay unseen.
    encoder : TimmEncoder
        The encoder to start from.
    output : path of the .safetensors file to write
        A self-contained encoder. An interrupted training resumes from ``OUTPUT.checkpoint``.
    epochs : int
        Number of epochs.
    batch_size : int
        Images per batch; half of them are labelled.
    learning_rate : float
        Initial learning rate (cosine schedule).
    supervised_weight : float
        Weight of the supervised loss, in [0, 1). A larger weight separates known classes better, and pulls new classes
        towards them.
    views : int
        Augmented views per image, computed once up to the last block and cached on disk. 0 draws new views in every
        epoch, which costs a pass through the whole encoder.
    seed : int
        Of the batches and the augmented views.
    overwrite : bool
        Whether `output`, and a checkpoint with other hyperparameters, may be replaced.
    verbose : bool
        Show progress on a terminal.

    Returns
    -------
    TimmEncoder
        The fine-tuned encoder, on the device of `encoder`. `read_header` of the file returns the hyperparameters, the
        losses of each epoch, and the skipped images.

    Raises
    ------
    InputError
        If there are no images, no two labelled classes, or the encoder cannot be tuned; if a number is out of its
        range, or the loss stops being finite or says that all images have become alike.
    """
    target = check_output(output, overwrite)
    _check_numbers(epochs, batch_size, learning_rate, supervised_weight, views, seed)
    if not isinstance(encoder, TimmEncoder):
        raise InputError(f"{encoder.name} cannot be fine-tuned: give a timm image encoder, not an .onnx file.")
    images = readable_images(items, verbose)
    codes, classes = _classes(images)
    tuned = copy.copy(encoder)
    tuned.model = copy.deepcopy(encoder.model)
    hyperparameters = {
        "encoder": encoder.name,
        "weights": encoder.weights_hash,
        "preprocessing": encoder.prepare.as_dict(),
        "data": _fingerprint(images.ids, codes),
        "epochs": epochs,
        "batch_size": batch_size,
        "learning_rate": learning_rate,
        "supervised_weight": supervised_weight,
        "views": views,
        "seed": seed,
    }
    with contextlib.closing(TuningCheckpoint(target, hyperparameters, overwrite)) as checkpoint:
        losses = _train(tuned, images, codes, checkpoint, hyperparameters, verbose)
        facts = {
            **hyperparameters,
            "images": len(images),
            "labelled": int((codes >= 0).sum()),
            "classes": len(classes),
            "skipped": images.skipped,
            "losses": losses,
        }
        tuned.save(target, {"tuning": facts})
        checkpoint.remove()
    return TimmEncoder(str(target), device=str(encoder.device))


def _train(
    tuned: TimmEncoder,
    images: Items,
    codes: IntArray,
    checkpoint: TuningCheckpoint,
    hyperparameters: dict[str, Any],
    verbose: bool,
) -> list[Losses]:
    """Train the last block of `tuned` in place; return the losses of every epoch."""
    seed, epochs, batch_size = hyperparameters["seed"], hyperparameters["epochs"], hyperparameters["batch_size"]
    smaller = f"give a smaller --learning-rate than {hyperparameters['learning_rate']:g}."
    last_block = LastBlock(tuned.model, tuned.prepare.size)
    views = _views(tuned, images, last_block, hyperparameters, checkpoint.folder, verbose)
    tuning = Tuning(
        last_block, tuned.device, hyperparameters["learning_rate"], epochs, seed, hyperparameters["supervised_weight"]
    )
    state = checkpoint.load(tuning.untrained())
    losses: list[Losses] = []
    if state is not None:
        tuning.restore(state)
        losses = [Losses(*pair) for pair in state.notes["losses"]]
    with Progress(verbose, "Tuning (2 of 2)") as progress:
        progress.expect(epochs)
        progress.advance(len(losses))
        for epoch in range(len(losses), epochs):
            rng = np.random.default_rng([seed, epoch])
            tuning.begin(epoch)
            of_batches = []
            for rows in batches(codes, batch_size, rng):
                of_batches.append(tuning.step(views.pairs(rows, rng), rows, codes[rows]))
                progress.advance(len(rows) / len(codes))
            losses.append(Losses(*np.mean(of_batches, axis=0).tolist()))
            if not all(map(math.isfinite, losses[-1])):
                checkpoint.remove()
                raise InputError(f"The loss is no longer finite in epoch {epoch + 1}: {smaller}")
            checkpoint.save(tuning.state(epoch + 1, {"losses": losses}))
    if np.allclose(losses[-1], losses_of_one_point(codes, batch_size), rtol=0, atol=1e-3):
        checkpoint.remove()
        raise InputError(f"The fine-tuning has collapsed, all images have the same embedding: {smaller}")
    return losses


def _views(
    tuned: TimmEncoder,
    images: Items,
    last_block: LastBlock,
    hyperparameters: dict[str, Any],
    folder: Path,
    verbose: bool,
) -> FreshViews | ViewBank:
    fresh = FreshViews(images.content, tuned, last_block)
    if not hyperparameters["views"]:
        return fresh
    bank = ViewBank(fresh, len(images), hyperparameters["views"], hyperparameters["seed"], folder)
    with Progress(verbose, "Drawing views (1 of 2)") as progress:
        bank.fill(progress)
    return bank


def check_output(output: StrPath, overwrite: bool = False) -> Path:
    """Check, before any work, that the encoder may be written; return its path."""
    target = Path(output)
    if target.suffix != ".safetensors":
        raise InputError(f"{output} has the suffix {target.suffix!r}: an encoder is written as .safetensors.")
    return check_writable(output, overwrite)


def readable_images(items: Items, verbose: bool = False) -> Items:
    """The readable images without the split "test"; `skipped` lists the others with reasons."""
    if items.kind != "images":
        raise InputError(f"{items.source} holds {items.kind}, and only encoders of images can be tuned: give images.")
    kept, skipped = [], list(items.skipped)
    with Progress(verbose, "Reading images") as progress:
        progress.expect(len(items))
        for row in range(len(items)):
            progress.advance(1)
            if items.split is not None and items.split[row] == "test":
                continue
            try:
                open_picture(items.content[row])
                kept.append(row)
            except Unusable as error:
                skipped.append((str(items.ids[row]), str(error)))
    return dataclasses.replace(
        items,
        content=_Chosen(items.content, kept),
        ids=items.ids[kept],
        labels=None if items.labels is None else items.labels[kept],
        truth=None,
        split=None,
        columns={},
        skipped=skipped,
    )


class _Chosen(Sequence[Any]):
    """A lazy subset of a sequence."""

    def __init__(self, content: Sequence[Any], rows: Sequence[int]) -> None:
        self._content, self._rows = content, rows

    def __getitem__(self, place: Any) -> Any:
        return self._content[self._rows[place]]

    def __len__(self) -> int:
        return len(self._rows)


def _classes(images: Items) -> tuple[IntArray, NDArray[Any]]:
    """The class code of each image, -1 for unlabelled, and the classes."""
    if len(images) < 2:
        raise InputError(f"{images.source} holds {len(images)} readable image(s): give at least two.")
    codes, classes = encode_labels(np.full(len(images), -1) if images.labels is None else images.labels)
    if len(classes) < 2:
        raise InputError(
            f"{images.source} has labels of {len(classes)} class(es), and fine-tuning needs at least two: "
            "label images of another class."
        )
    return codes, classes


def _check_numbers(
    epochs: int, batch_size: int, learning_rate: float, supervised_weight: float, views: int, seed: int
) -> None:
    for name, value, least in (("epochs", epochs, 1), ("batch_size", batch_size, 4), ("seed", seed, 0)):
        if value < least:
            raise InputError(f"{name} is {value}: give at least {least}.")
    if not (math.isfinite(learning_rate) and learning_rate > 0):
        raise InputError(f"learning_rate is {learning_rate}: give a number above 0, such as 0.1.")
    if not 0 <= supervised_weight < 1:
        raise InputError(f"supervised_weight is {supervised_weight}: give a share from 0 on and below 1.")
    if views < 0 or views == 1:
        raise InputError(f"views is {views}: give at least 2 to draw pairs from, or 0 for new ones every time.")


def _fingerprint(ids: NDArray[Any], codes: IntArray) -> str:
    digest = hashlib.sha256(codes.tobytes())
    for one in ids.tolist():
        digest.update(f"{one}\n".encode())
    return digest.hexdigest()
