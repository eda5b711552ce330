"""``rpim embed``, and embedding inside other commands: parse, call, print."""

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
from rpim._common.work_folder import is_reused
from rpim.cli.terminal import RayAddress, echo, one_line_warnings

if TYPE_CHECKING:
    from rpim.data.feature_set import FeatureSet
    from rpim.data.formats.tables import CsvFile
    from rpim.embedding.embed import EmbeddingReport
    from rpim.embedding.encoders import Encoder
    from rpim.embedding.items import Items

MAX_LISTED = 10

EncoderNames = Annotated[
    list[str] | None,
    typer.Option(
        "--encoder",
        metavar="NAME",
        help="Images: dinov2-vits14, dino-vitb16 (the paper), dinov3-vitb16, clip-vitb16, siglip-vitb16, …, any timm "
        "model (timm.list_models lists them), or an .onnx file. Texts: all-MiniLM-L6-v2, any sentence-transformers "
        "model, or a folder. Give it several times to use several encoders together.",
    ),
]
Weights = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Local weights of the encoder: .safetensors or .pth for images, a folder for texts. With several "
        "encoders, one for each, in the same order.",
    ),
]
TextColumn = Annotated[str | None, typer.Option(metavar="C", help="Column with the texts.")]


def embed(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A folder of images, a .csv, .tsv, .json, .jsonl or .parquet file of texts, or a Hugging Face "
            "dataset on disk.",
        ),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FEATURES", help=".parquet or .npz; with --ray a folder.")
    ],
    encoder: EncoderNames = None,
    weights: Weights = None,
    labels: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Labels by id; the id of an image is its path within SOURCE.")
    ] = None,
    label_column: Annotated[str | None, typer.Option(metavar="C", help="Column with the labels.")] = None,
    no_labels: Annotated[bool, typer.Option("--no-labels", help="Ignore the labels in SOURCE.")] = False,
    text_column: TextColumn = None,
    views: Annotated[
        int,
        typer.Option(
            min=0, help="Number of augmented views per image to embed as well; uno, orca and rankstats use 2."
        ),
    ] = 0,
    image_size: Annotated[
        int | None, typer.Option(min=8, help="Input size of an .onnx file that does not declare it.")
    ] = None,
    mean: Annotated[
        str | None, typer.Option(metavar="R,G,B", help="Channel means of an .onnx file (default: ImageNet).")
    ] = None,
    std: Annotated[
        str | None, typer.Option(metavar="R,G,B", help="Channel deviations of an .onnx file (default: ImageNet).")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Batch size.")] = None,
    ray: RayAddress = None,
    workers: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Processes that decode images (default: half the cores); with --ray, Ray workers."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the augmented views.")] = 0,
    device: Annotated[str | None, typer.Option(help="torch device (default: a GPU if available).")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors.")] = False,
) -> None:
    """Embed images or texts into a feature file; an interrupted run resumes."""
    from rpim._common.files import check_writable
    from rpim.embedding.sources import read_source

    if ray is not None:
        from rpim.data.ray_shards import check_folder

        check_folder(output, overwrite)
    else:
        check_writable(output, overwrite)
    items = read_source(source, labels=labels, label_column=label_column, text_column=text_column)
    if no_labels:
        items = dataclasses.replace(items, labels=None)
    from rpim.embedding.embed import embed as embed_items
    from rpim.embedding.open_encoder import open_encoders

    with one_line_warnings(show=not quiet):
        opened = _adjusted(open_encoders(items.kind, encoder or (), weights or (), device), image_size, mean, std)
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

        with connected(ray, workers) as n_workers:
            report = embed_on_ray(items, opened, output, n_workers, device=device, **how)
    print_report(items, report, opened.identity, quiet)
    if not quiet:
        echo(f"Next: rpim discover {output} -o RUN")


def print_report(items: Items, report: EmbeddingReport, encoder: str, quiet: bool = False) -> None:
    """Print what was embedded, how fast, and which items were skipped and why."""
    if report.skipped:
        n = len(report.skipped)
        echo(f"rpim: {n:,} of the {items.kind} could not be read and were skipped:", err=True)
        for name, reason in report.skipped[:MAX_LISTED]:
            echo(f"  {name}: {reason}", err=True)
        if n > MAX_LISTED:
            echo(f"  … and {n - MAX_LISTED:,} more, listed in the metadata of the features", err=True)
    if quiet:
        return
    before = f"; {report.resumed:,} were resumed from a checkpoint" if report.resumed else ""
    speed = ""
    if report.embedded and report.seconds > 0:
        share = report.encoder_seconds / report.seconds
        speed = f" ({report.embedded / report.seconds:.1f} a second, {share:.0%} of the time in the encoder)"
    echo(f"{report.embedded:,} {items.kind} embedded by {encoder}{speed}{before}.")


def read_data(
    path: Path,
    labels: Path | None,
    *,
    label_column: str | None,
    feature_column: str | None,
    text_column: str | None,
    encoder: list[str] | None,
    weights: list[Path] | None,
    memory: int | None = None,
) -> FeatureSet | Items:
    """The features in a file, or the images or texts to embed first."""
    from rpim.data.feature_set import FeatureSet
    from rpim.data.formats.tables import CsvFile
    from rpim.embedding.sources import is_source, read_source

    table = CsvFile.sniff(path)
    if not is_source(table, text_column):
        if path.exists() and (encoder or weights):
            raise InputError(f"--encoder and --weights are for images and texts, not for {path}: leave them out.")
        return FeatureSet.read(table, labels, label_column=label_column, feature_column=feature_column, memory=memory)
    if feature_column is not None:
        raise InputError(f"--feature-column is for feature files, but {path} holds images or texts: leave it out.")
    return read_source(table, labels=labels, label_column=label_column, text_column=text_column)


def embed_for_run(
    items: Items, run: Path, encoder: list[str] | None, weights: list[Path] | None, device: str | None, *, quiet: bool
) -> Path:
    """Embed the items of a run next to its folder; an interrupted embedding is resumed."""
    from rpim.embedding.embed import embed as embed_items
    from rpim.embedding.open_encoder import open_encoders

    with one_line_warnings(show=not quiet):
        opened = open_encoders(items.kind, encoder or (), weights or (), device)
    place = run.with_name(f"{run.name}.features.parquet")
    report = embed_items(items, opened, place, reuse=True, verbose=not quiet)
    is_reused(place)
    print_report(items, report, opened.identity, quiet)
    return place


def embedded(items: Items, encoder: list[str] | None, weights: list[Path] | None, *, quiet: bool) -> FeatureSet:
    """The features of the items, which are not kept on disk."""
    from rpim.data.feature_set import FeatureSet

    with tempfile.TemporaryDirectory(prefix="rpim-") as folder:
        return FeatureSet.read(embed_for_run(items, Path(folder) / "run", encoder, weights, None, quiet=quiet))


@contextlib.contextmanager
def features_of_new(
    path: Path,
    run: Path,
    output: Path | None,
    *,
    labels: Path | None = None,
    label_column: str | None = None,
    text_column: str | None = None,
    weights: list[Path] | None = None,
    quiet: bool = False,
    workers: int | None = None,
) -> Iterator[Path | CsvFile]:
    """The path of the features: `path` itself, or the features of its images or texts by the run's encoders.

    With `workers`, that many Ray workers embed them. The features are removed at the end; after an interruption they
    stay next to the output, and the same command resumes.
    """
    from rpim.data.formats.tables import CsvFile
    from rpim.embedding.sources import is_source, read_source

    table = CsvFile.sniff(path)
    if not is_source(table, text_column):
        yield table
        return
    from rpim.embedding.embed import embed as embed_items
    from rpim.embedding.open_encoder import encoders_of
    from rpim.runs.run_folder import read_run_file

    items = read_source(table, labels=labels, label_column=label_column, text_column=text_column)
    encoder = encoders_of(read_run_file(run)["provenance"]["data"]["metadata"], weights or ())
    if workers is not None and output is not None:
        from rpim.embedding.on_ray import embed_on_ray

        place = output.with_name(f"{output.name}.features")
        report = embed_on_ray(items, encoder, place, workers, reuse=True, verbose=not quiet)
        is_reused(place)
        print_report(items, report, encoder.identity, quiet=True)
        yield place
        shutil.rmtree(place, ignore_errors=True)
        return
    with contextlib.ExitStack() as stack:
        if output is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpim-"))) / "features.parquet"
        else:
            place = output.with_name(f"{output.name}.features.parquet")
        print_report(
            items, embed_items(items, encoder, place, reuse=True, verbose=not quiet), encoder.identity, quiet=True
        )
        is_reused(place)
        yield place
        place.unlink(missing_ok=True)


def _adjusted(encoder: Encoder, size: int | None, mean: str | None, std: str | None) -> Encoder:
    """Apply the preprocessing options to an .onnx encoder; every other encoder has its own preprocessing."""
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
