"""``rpim embed``, and what other commands do with images and texts: parse, call, print."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpim._common.errors import InputError
from rpim.cli.options import RayAddress, kept_in_parts

if TYPE_CHECKING:
    from rpim.data.feature_set import FeatureSet
    from rpim.embedding.embed import EmbeddingReport
    from rpim.embedding.encoders import Encoder
    from rpim.embedding.items import Items

MAX_LISTED = 10

EncoderName = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="Of images: dinov2-vits14, dino-vitb16 (the paper's), dinov3-vitb16, clip-vitb16, siglip-vitb16, …, any "
        "of timm's, or an .onnx file. Of texts: all-MiniLM-L6-v2, any of sentence-transformers', or a folder.",
    ),
]
Weights = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="The encoder's weights, without network: .safetensors, .pth; of texts a folder."),
]
TextColumn = Annotated[str | None, typer.Option(metavar="C", help="The column with the texts.")]


def embed(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of images, a .csv, .jsonl or .parquet with texts, or a Hugging Face dataset on disk.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FEATURES", help=".parquet or .npz; with --ray a folder.")
    ],
    encoder: EncoderName = None,
    weights: Weights = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labels by id; of an image by its path within SOURCE.")
    ] = None,
    label_column: Annotated[str | None, typer.Option(metavar="C", help="The column with the labels.")] = None,
    no_labels: Annotated[bool, typer.Option("--no-labels", help="Take no labels from SOURCE.")] = False,
    text_column: TextColumn = None,
    views: Annotated[int, typer.Option(min=0, help="Augmented views of each image besides; 2 for uno, orca …")] = 0,
    image_size: Annotated[int | None, typer.Option(min=8, help="Of an .onnx file that does not say.")] = None,
    mean: Annotated[str | None, typer.Option(metavar="R,G,B", help="Of an .onnx file; ImageNet's if left out.")] = None,
    std: Annotated[str | None, typer.Option(metavar="R,G,B", help="Of an .onnx file; ImageNet's if left out.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Items at once.")] = None,
    ray: RayAddress = None,
    workers: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Processes that decode images, half the cores; with --ray, that embed."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the augmented views.")] = 0,
    device: Annotated[str | None, typer.Option(help="A torch device; a GPU where there is one.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Turn images or texts into features; stopped, it goes on where it was when called again."""
    from rpim.embedding.sources import read_source

    if ray is not None:
        from rpim.data.ray_shards import check_folder

        check_folder(output, overwrite)
    elif output.exists() and not overwrite:
        raise InputError(f"{output} exists already: choose another name, or say --overwrite.")
    items = read_source(source, labels=labels, label_column=label_column, text_column=text_column)
    if no_labels:
        items = dataclasses.replace(items, labels=None)
    from rpim.embedding.embed import embed as embed_items
    from rpim.embedding.encoders import open_encoder

    opened = _adjusted(open_encoder(items.kind, encoder, weights, device), image_size, mean, std)
    how: dict[str, Any] = {
        "views": views,
        "batch_size": batch_size,
        "seed": seed,
        "overwrite": overwrite,
        "verbose": not quiet,
    }
    if ray is None:
        report = embed_items(items, opened, output, workers=workers, **how)
    else:
        from rpim._common.ray import connected
        from rpim.embedding.on_ray import embed_on_ray

        with kept_in_parts(output), connected(ray, workers) as n_workers:
            report = embed_on_ray(items, opened, output, n_workers, device=device, **how)
    tell(items, report, opened.identity, quiet)
    if not quiet:
        typer.echo(f"Next: rpim discover {output} -o RUN")


def tell(items: Items, report: EmbeddingReport, encoder: str, quiet: bool = False) -> None:
    """Say what was embedded, how fast, and what was left out and why."""
    if report.skipped:
        n = len(report.skipped)
        typer.echo(f"rpim: {n:,} of the {items.kind} could not be used, and the others were embedded:", err=True)
        for name, reason in report.skipped[:MAX_LISTED]:
            typer.echo(f"  {name}: {reason}", err=True)
        if n > MAX_LISTED:
            typer.echo(f"  … and {n - MAX_LISTED:,} more, listed in the metadata of the features", err=True)
    if quiet:
        return
    before = f", after {report.resumed:,} that were done before" if report.resumed else ""
    speed = ""
    if report.embedded and report.seconds > 0:
        share = report.encoder_seconds / report.seconds
        speed = f" ({report.embedded / report.seconds:.1f} a second, {share:.0%} of the time in the encoder)"
    typer.echo(f"{report.embedded:,} {items.kind} embedded by {encoder}{speed}{before}.")


def read_data(
    path: Path,
    labels: Path | None,
    *,
    label_column: str | None,
    feature_column: str | None,
    text_column: str | None,
    encoder: str | None,
    weights: Path | None,
    memory: int | None = None,
) -> FeatureSet | Items:
    """The features in a file, or the images or texts that have to be embedded first."""
    from rpim.data.feature_set import FeatureSet
    from rpim.embedding.sources import is_source, read_source

    if not is_source(path, text_column):
        if path.exists() and (encoder is not None or weights is not None):
            raise InputError(f"--encoder and --weights are for images and texts, not for {path}: leave them out.")
        return FeatureSet.read(path, labels, label_column=label_column, feature_column=feature_column, memory=memory)
    if feature_column is not None:
        raise InputError(f"--feature-column is for features, but {path} has none yet: leave it out.")
    return read_source(path, labels=labels, label_column=label_column, text_column=text_column)


def embed_for_run(
    items: Items, run: Path, encoder: str | None, weights: Path | None, device: str | None, *, quiet: bool
) -> Path:
    """Features beside a run folder that is yet to be written; those of an earlier, interrupted call are taken."""
    from rpim.embedding.embed import embed as embed_items
    from rpim.embedding.encoders import open_encoder

    opened = open_encoder(items.kind, encoder, weights, device)
    place = run.with_name(f"{run.name}.features.parquet")
    report = embed_items(items, opened, place, reuse=True, verbose=not quiet)
    tell(items, report, opened.identity, quiet)
    return place


@contextlib.contextmanager
def features_of_new(
    path: Path,
    run: Path,
    output: Path | None,
    *,
    labels: Path | None = None,
    label_column: str | None = None,
    text_column: str | None = None,
    weights: Path | None = None,
    quiet: bool = False,
    workers: int | None = None,
) -> Iterator[Path]:
    """The path of features: `path`, or where it holds images or texts, their features by the encoder of the run.

    So many `workers` of a cluster embed them, where it is said; else this process does. Their features are gone when
    all is done; if it is interrupted, what is embedded stays beside the output to be gone on with.
    """
    from rpim.embedding.sources import is_source, read_source

    if not is_source(path, text_column):
        yield path
        return
    from rpim.embedding.embed import embed as embed_items
    from rpim.embedding.encoders import encoder_of
    from rpim.runs.run_folder import read_run_file

    items = read_source(path, labels=labels, label_column=label_column, text_column=text_column)
    encoder = encoder_of(read_run_file(run)["provenance"]["data"]["metadata"], weights)
    if workers is not None and output is not None:
        from rpim.embedding.on_ray import embed_on_ray

        place = output.with_name(f"{output.name}.features")
        report = embed_on_ray(items, encoder, place, workers, reuse=True, verbose=not quiet)
        tell(items, report, encoder.identity, quiet=True)
        yield place
        shutil.rmtree(place, ignore_errors=True)
        return
    with contextlib.ExitStack() as stack:
        if output is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpim-"))) / "features.parquet"
        else:
            place = output.with_name(f"{output.name}.features.parquet")
        tell(items, embed_items(items, encoder, place, reuse=True, verbose=not quiet), encoder.identity, quiet=True)
        yield place
        place.unlink(missing_ok=True)


def _adjusted(encoder: Encoder, size: int | None, mean: str | None, std: str | None) -> Encoder:
    """An .onnx file with what is said of its preprocessing; every other encoder knows its own."""
    said = {"size": size, "mean": _three("--mean", mean), "std": _three("--std", std)}
    given: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    if not given:
        return encoder
    from rpim.embedding.onnx_file import OnnxEncoder

    if not isinstance(encoder, OnnxEncoder):
        raise InputError(f"--image-size, --mean and --std are for .onnx files, not for {encoder.name}: leave them out.")
    return OnnxEncoder(Path(encoder.weights), dataclasses.replace(encoder.prepare, **given))


def _three(option: str, said: str | None) -> tuple[float, ...] | None:
    if said is None:
        return None
    try:
        values = tuple(float(value) for value in said.split(","))
    except ValueError:
        values = ()
    if len(values) != 3 or (option == "--std" and min(values) <= 0):
        raise InputError(f"{option} is {said!r}: give three numbers, for red, green and blue, such as 0.5,0.5,0.5.")
    return values
