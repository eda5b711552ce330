"""``rpim export``: write the rows of a run to a table, or for another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rpim._common.errors import InputError, choose
from rpim.cli.terminal import AsFound, Images, Overwrite, RawCsv, Run, Version, chosen_version, echo


def export(
    run: Run,
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help=".csv or .parquet; --format and others write more."),
    ],
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="For another tool: label-studio (a .json), fiftyone, huggingface or imagefolder (folders).",
        ),
    ] = None,
    decisions: Annotated[
        bool,
        typer.Option(
            "--decisions",
            help="Export the decisions made in rpim explore: .csv, .parquet, .jsonl, Label Studio .json, or a folder.",
        ),
    ] = False,
    hierarchy: Annotated[
        bool, typer.Option("--hierarchy", help="Export the tree of the classes: .json, or .nwk (Newick).")
    ] = False,
    images: Images = None,
    link: Annotated[
        bool,
        typer.Option("--link", help="Hard links in a folder of images instead of copies; they share their content."),
    ] = False,
    version: Version = None,
    as_found: AsFound = False,
    raw_csv: RawCsv = False,
    overwrite: Overwrite = False,
) -> None:
    """Write the class of every row, its confidence and the runner-up to one file, or all rows for another tool."""
    from rpim._common.files import check_export
    from rpim.data.formats import tables

    if link and not decisions and form != "imagefolder":
        raise InputError("--link is for a folder of images: add --format imagefolder, or leave --link out.")
    if hierarchy and (decisions or form is not None):
        other = "--decisions" if decisions else "--format"
        raise InputError(f"{other} and --hierarchy are two exports: give one of them.")
    if hierarchy:
        check_export(output, overwrite, (".json", ".nwk"))
        chosen_version(run, version, as_found)[0].hierarchy().write(output, overwrite=overwrite)
        echo(f"The tree of the classes is in {output}.")
        return
    if decisions or form is not None:
        from rpim.explorer.exports import FORMATS, export_run

        if form is not None:
            choose("--format", form, FORMATS)
        if decisions and as_found:
            raise InputError("--decisions exports the decisions, which --as-found leaves out: give one of them.")
        if overwrite and output.is_dir():
            raise InputError(f"{output} exists already, and --overwrite replaces only files: choose another name.")
        with tables.raw_csv(raw_csv):
            echo(
                export_run(
                    run,
                    output,
                    images,
                    form=form,
                    version=version,
                    as_found=as_found,
                    link=link,
                    overwrite=overwrite,
                )
            )
        return
    check_export(output, overwrite)
    discovery, _ = chosen_version(run, version, as_found)
    with tables.raw_csv(raw_csv):
        discovery.export(output, overwrite=overwrite)
    echo(f"The classes of the rows are in {output}.")
