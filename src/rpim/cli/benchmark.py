"""``rpim benchmark``: parse, call, print."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rpim._common.errors import FAILURE, INTERRUPTED, InputError
from rpim.cli.terminal import RayAddress, Workers, check_workers, echo

if TYPE_CHECKING:
    from rpim.benchmark.cells import Cell, CellFile
    from rpim.benchmark.studies import Study


def benchmark(
    context: typer.Context,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="OUT", help="Results folder; an existing benchmark is resumed.")
    ],
    features: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FEATURES...", help="Feature sets: PATH or NAME=PATH, in any format that rpim discover reads."
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Methods (default: rpim,pim,gcd; for nid and batches rpim).")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Seeds (default: 0,1,2, or those of the study or protocol).")
    ] = None,
    paper: Annotated[
        str | None,
        typer.Option(
            metavar="TABLE",
            help="Tables of the paper: main, ablation, transforms, eta, weight-decay, seeds, readings, or all.",
        ),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="default|paper",
            help="paper: run the published procedure of each method that has one, beside the method as shipped.",
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            metavar="gcd|nid|batches",
            help="nid: new-intent discovery, evaluated on test rows; batches: new classes in later batches.",
        ),
    ] = None,
    splits: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Known classes: .json, GCD's .pkl, nid lists, or a folder of these (default: drawn at random).",
        ),
    ] = None,
    known_share: Annotated[
        float | None, typer.Option(metavar="S", help="Share of known classes when drawn at random (default: 0.5).")
    ] = None,
    labelled_half: Annotated[
        str | None,
        typer.Option(
            metavar="per-class|gcd",
            help="How labelled rows are drawn: half of each known class, or GCD's draw from all together (seed 0).",
        ),
    ] = None,
    n_classes: Annotated[
        str | None,
        typer.Option(
            "--n-classes",
            metavar="given|estimate",
            help="Give the methods the number of classes, or let them estimate it.",
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Cells in parallel (default: half the cores).")] = None,
    ray: RayAddress = None,
    workers: Workers = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=FOLDER",
            help="Raw images of cifar10, cifar100, imagenet100, cub, cars, herbarium19 or aircraft; repeatable.",
        ),
    ] = None,
    encoder: Annotated[str | None, typer.Option(metavar="NAME", help="Image encoder for --data.")] = None,
    weights: Annotated[Path | None, typer.Option(metavar="FILE", help="Local weights of the encoder.")] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON file with methods, sets and seeds; options override it.")
    ] = None,
) -> None:
    """Compare methods over feature sets and seeds: All / Known / Unknown accuracy, confusion, time, memory."""
    from rpim.benchmark.cells import CellFile, check_output, planned_cells
    from rpim.benchmark.plan import make_plan
    from rpim.benchmark.raw_images import checked_images, embed_images
    from rpim.benchmark.tables import describe_failure, records_of, write_tables

    check_workers(ray, workers)
    if ray is not None and jobs is not None:
        raise InputError("--jobs is for one machine, but --ray is given: use --workers instead.")
    check_output(output)
    images = checked_images(data or (), encoder, weights, output)
    plan = make_plan(
        features or (),
        config,
        methods=methods,
        seeds=seeds,
        paper=paper,
        preset=preset,
        protocol=protocol,
        splits=splits,
        known_share=known_share,
        labelled_half=labelled_half,
        n_classes=n_classes,
        jobs=jobs,
        images=images,
    )
    try:
        embed_images(images, {one.name: one.split for one in plan.sets}, output)
    except KeyboardInterrupt:
        echo("rpim: interrupted while embedding images; the same command resumes.", err=True)
        raise typer.Exit(INTERRUPTED) from None
    cells = planned_cells(plan)
    with _runner(ray, workers, plan.jobs) as run:  # report a missing cluster before the folder is created
        kept = CellFile(output)
        try:
            run(cells, kept)
        except KeyboardInterrupt:
            raise _interrupted(kept, cells) from None
    try:
        records = records_of(cells, kept)
        echo(write_tables(output, plan.studies, records).removesuffix("\n"))
        _write_page(output, plan.studies, records, _as_typed(context))
    except KeyboardInterrupt:
        raise _interrupted(kept, cells) from None
    failed = [record for record in records if "error" in record]
    for record in failed:
        echo(f"rpim: {describe_failure(record)}", err=True)
    if failed:
        echo(f"rpim: {len(failed)} of {len(cells)} cells failed; the same command retries them.", err=True)
        raise typer.Exit(FAILURE)


@contextlib.contextmanager
def _runner(ray: str | None, workers: int | None, jobs: int) -> Iterator[Callable[[list[Cell], CellFile], None]]:
    """The runner of the cells: processes on this machine, or Ray tasks."""
    if ray is None:
        from rpim.benchmark.runner import run_cells

        yield partial(run_cells, jobs=jobs, verbose=True)
        return
    from rpim._common.ray import connected
    from rpim.benchmark.runner import run_cells_on_ray

    with connected(ray, workers) as n:
        yield partial(run_cells_on_ray, workers=n, verbose=True)


def _interrupted(kept: CellFile, cells: list[Cell]) -> typer.Exit:
    done = f"{kept.n_done(cells)} of {len(cells)} cells done"
    echo(f"rpim: interrupted with {done}; the same command resumes.", err=True)
    return typer.Exit(INTERRUPTED)


def _write_page(output: Path, studies: Sequence[Study], records: list[dict[str, Any]], command: str) -> None:
    from rpim.benchmark.tables import HOW_TO_GET_IT, can_be_made, write_page

    if not can_be_made():
        echo(f"rpim: {HOW_TO_GET_IT}", err=True)
        return
    page = write_page(output, studies, records, command=command, verbose=True)
    if sys.stderr.isatty():
        echo(f"HTML page with figures: {page}", err=True)


def _as_typed(context: typer.Context) -> str:
    """The command line that repeats this benchmark."""
    words = ["rpim", str(context.info_name)]
    for parameter in sorted(context.command.params, key=lambda one: one.param_type_name):  # arguments first
        value = context.params.get(str(parameter.name))
        if value is not None and value != parameter.default:
            several = [str(one) for one in value] if isinstance(value, list | tuple) else [str(value)]
            is_argument = parameter.param_type_name == "argument"
            words += several if is_argument else [word for one in several for word in (parameter.opts[0], one)]
    return shlex.join(words)
