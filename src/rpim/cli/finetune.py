"""``rpim finetune``: parse, call, print."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpim._common.errors import InputError, choose, plural
from rpim.cli.embed import MAX_LISTED
from rpim.cli.terminal import echo, one_line_warnings

if TYPE_CHECKING:
    from rpim.embedding.items import Items


def finetune(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="TUNED", help="Fine-tuned encoder to write: .safetensors.")
    ],
    source: Annotated[
        Path | None,
        typer.Argument(metavar="SOURCE", help="Images, some of them labelled, in any format that rpim embed reads."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=FOLDER",
            help="In place of SOURCE: one of the paper's data sets, with the labels that its protocol gives.",
        ),
    ] = None,
    splits: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Known classes for --data: .json, GCD's .pkl, or a folder of these."),
    ] = None,
    labelled_half: Annotated[
        str, typer.Option(metavar="per-class|gcd", help="How --data draws labelled rows, as in rpim benchmark.")
    ] = "per-class",
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Image encoder, as for rpim embed: dinov2-vits14, …")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Local weights of the encoder: .safetensors, .pth.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labels by id; the id of an image is its path within SOURCE.")
    ] = None,
    label_column: Annotated[str | None, typer.Option(metavar="C", help="Column with the labels.")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Number of epochs.")] = 50,
    batch_size: Annotated[int, typer.Option(min=4, help="Images per batch; half of them are labelled.")] = 128,
    learning_rate: Annotated[float, typer.Option(help="Initial learning rate (cosine schedule).")] = 0.1,
    supervised_weight: Annotated[
        float, typer.Option(help="Weight of the supervised contrastive loss; GCD uses 0.35.")
    ] = 0.1,
    views: Annotated[
        int,
        typer.Option(
            help="Augmented views per image, computed once and cached on disk; 0 draws new ones in every epoch."
        ),
    ] = 8,
    seed: Annotated[
        int, typer.Option(min=0, max=2**32 - 1, help="Random seed; with --data it draws the labelled rows, too.")
    ] = 0,
    device: Annotated[str | None, typer.Option(help="torch device (default: a GPU if available).")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace existing output once the new one is complete.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Fine-tune the last block of an image encoder with GCD's contrastive losses; an interrupted run resumes."""
    if encoder is not None and encoder.lower().endswith(".onnx"):
        raise InputError(f"{encoder} cannot be fine-tuned: give a timm image encoder, not an .onnx file.")
    from rpim.embedding.finetune import check_output
    from rpim.embedding.finetune import finetune as tune

    check_output(output, overwrite)
    from rpim.embedding.images import read_header
    from rpim.embedding.open_encoder import open_encoder

    if data is not None:
        items = _by_protocol(data, source, splits, seed, labelled_half, labels or label_column)
    else:
        items = _from_source(source, labels, label_column, splits)
    with one_line_warnings(show=not quiet):
        opened = open_encoder("images", encoder, weights, device)
    tune(
        items,
        opened,
        output,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=learning_rate,
        supervised_weight=supervised_weight,
        views=views,
        seed=seed,
        overwrite=overwrite,
        verbose=not quiet,
    )
    tuning = read_header(output)["tuning"]
    if tuning["skipped"]:
        _tell_skipped(tuning["skipped"])
    if not quiet:
        benchmark = None if data is None else _benchmark(data, splits, labelled_half, seed)
        echo(_summary(output, tuning, benchmark))


def _by_protocol(
    data: str, source: Path | None, splits: Path | None, seed: int, labelled_half: str, labels: Any
) -> Items:
    from rpim.benchmark.protocol import HALVES
    from rpim.benchmark.raw_images import protocol_items

    if source is not None or labels is not None:
        raise InputError("--data brings its own images and labels: leave out SOURCE, --labels and --label-column.")
    choose("--labelled-half", labelled_half, HALVES)
    return protocol_items(data, splits, seed, labelled_half)


def _from_source(source: Path | None, labels: Path | None, label_column: str | None, splits: Path | None) -> Items:
    from rpim.embedding.sources import read_source

    if source is None:
        raise InputError("No images are given: give SOURCE, or --data NAME=FOLDER.")
    if splits is not None:
        raise InputError("--splits is for --data NAME=FOLDER: leave it out.")
    items = read_source(source, labels=labels, label_column=label_column)
    if items.n_labelled == len(items):
        echo(
            f"rpim: every image of {source} is labelled, and all labels are used. To fine-tune on a benchmark as its "
            "protocol asks, give --data NAME=FOLDER in place of SOURCE.",
            err=True,
        )
    return items


def _tell_skipped(skipped: list[tuple[str, str]]) -> None:
    n = len(skipped)
    echo(f"rpim: {n:,} image{'s' if n > 1 else ''} could not be read:", err=True)
    for name, reason in skipped[:MAX_LISTED]:
        echo(f"  {name}: {reason}", err=True)
    if n > MAX_LISTED:
        echo(f"  … and {n - MAX_LISTED:,} more", err=True)


def _benchmark(data: str, splits: Path | None, labelled_half: str, seed: int) -> str:
    """The command that uses the same labels; with others, it would measure rows whose labels the encoder has seen."""
    words = ["rpim", "benchmark", "--data", data]
    words += [] if splits is None else ["--splits", str(splits)]
    words += ["--seeds", str(seed)] if labelled_half == "per-class" else ["--labelled-half", labelled_half]
    return shlex.join(words)


def _summary(output: Path, tuning: dict[str, Any], benchmark: str | None) -> str:
    first, last = tuning["losses"][0], tuning["losses"][-1]
    command, result = ("rpim embed SOURCE", "FEATURES") if benchmark is None else (benchmark, "OUT")
    epochs = plural(len(tuning["losses"]), "epoch")
    lines = [
        f"{tuning['images']:,} images, {tuning['labelled']:,} of them with a label ({tuning['classes']} classes).",
        f"Losses, first and last of {epochs}: self-supervised {first[0]:.3f} and {last[0]:.3f}, "
        f"supervised {first[1]:.3f} and {last[1]:.3f}.",
        f"Next: {command} --encoder {shlex.quote(str(output))} -o {result}",
    ]
    return "\n".join(lines)
