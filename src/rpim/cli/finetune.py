"""``rpim finetune``: parse, call, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rpim._common.errors import BAD_INPUT, InputError
from rpim.cli.embed import MAX_LISTED


def finetune(
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="Images as rpim embed reads them, some of them with labels.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="TUNED", help="The encoder to write, as .safetensors.")
    ],
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of images, as rpim embed has them: dinov2-vits14, …")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The encoder's weights, without network: .safetensors, .pth.")
    ] = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labels by id; of an image by its path within SOURCE.")
    ] = None,
    label_column: Annotated[str | None, typer.Option(metavar="C", help="The column with the labels.")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="How often as many images as there are are looked at.")] = 50,
    batch_size: Annotated[int, typer.Option(min=4, help="Images at once; half of them have labels.")] = 128,
    learning_rate: Annotated[float, typer.Option(help="At the start; it falls along a cosine.")] = 0.1,
    supervised_weight: Annotated[float, typer.Option(help="The share of the labels' loss; GCD has 0.35.")] = 0.1,
    views: Annotated[
        int, typer.Option(help="Random views of an image, drawn once and kept on disk meanwhile; 0: always new ones.")
    ] = 8,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Makes the run repeatable.")] = 0,
    device: Annotated[str | None, typer.Option(help="A torch device; a GPU where there is one.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace what is there, once the new one is complete.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Tune the last block of an image encoder to your images, by the labels of some; the same command goes on."""
    if encoder is not None and encoder.lower().endswith(".onnx"):
        raise InputError(f"{encoder} cannot be tuned: give an image encoder of timm's, not an .onnx file.")
    from rpim.embedding.finetune import check_output
    from rpim.embedding.finetune import finetune as tune

    check_output(output, overwrite)
    from rpim.embedding.encoders import open_encoder
    from rpim.embedding.images import read_header
    from rpim.embedding.sources import read_source

    items = read_source(source, labels=labels, label_column=label_column)
    try:
        tune(
            items,
            open_encoder("images", encoder, weights, device),
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
    except KeyboardInterrupt:
        typer.echo("rpim: interrupted; the same command goes on after the last whole epoch.", err=True)
        raise typer.Exit(BAD_INPUT) from None
    tuning = read_header(output)["tuning"]
    if tuning["skipped"]:
        _tell_skipped(tuning["skipped"])
    if not quiet:
        typer.echo(_in_words(output, tuning))


def _tell_skipped(skipped: list[tuple[str, str]]) -> None:
    n = len(skipped)
    typer.echo(f"rpim: {n:,} image{'s' if n > 1 else ''} could not be used:", err=True)
    for name, reason in skipped[:MAX_LISTED]:
        typer.echo(f"  {name}: {reason}", err=True)
    if n > MAX_LISTED:
        typer.echo(f"  … and {n - MAX_LISTED:,} more", err=True)


def _in_words(output: Path, tuning: dict[str, Any]) -> str:
    first, last = tuning["losses"][0], tuning["losses"][-1]
    lines = [
        f"{tuning['images']:,} images, {tuning['labelled']:,} of them with a label ({tuning['classes']} classes).",
        f"Losses, first and last of {len(tuning['losses'])} epochs: self-supervised {first[0]:.3f} and {last[0]:.3f}, "
        f"supervised {first[1]:.3f} and {last[1]:.3f}.",
        f"The tuned encoder: rpim embed SOURCE --encoder {output} -o FEATURES",
    ]
    return "\n".join(lines)
