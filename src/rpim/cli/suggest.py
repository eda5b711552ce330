"""``rpim suggest``: which rows to label next."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from rpim.cli.terminal import AsFound, Overwrite, RawCsv, Run, RunFeatures, Version, chosen_version, echo


def suggest(
    run: Run,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help=".csv or .parquet, with an empty column label.")
    ],
    n: Annotated[int, typer.Option("-n", metavar="N", help="Number of rows.")] = 50,
    features: RunFeatures = None,
    version: Version = None,
    as_found: AsFound = False,
    raw_csv: RawCsv = False,
    overwrite: Overwrite = False,
) -> None:
    """Suggest the rows whose labels would help most: fill in their labels, and give them to discover --add-labels."""
    from rpim._common.errors import InputError, plural
    from rpim._common.files import check_export
    from rpim.data.formats import tables

    check_export(output, overwrite)
    if n < 1:  # before torch is imported
        raise InputError(f"-n {n} is too few: give at least 1.")
    from rpim.runs.run_folder import FEATURES_FILE, features_of

    discovery, chosen = chosen_version(run, version, as_found)
    try:
        rows, why = features_of(chosen.run, features), ""
    except InputError as error:
        if features is not None:
            raise
        rows, why = None, f"rpim: near-duplicates cannot be avoided without the features. {error}"
    try:
        found = discovery.suggest(n, rows, exclude=chosen.decided_ids())
    except InputError as error:
        raise InputError(str(error).replace(f"n={n}", f"-n {n}")) from error
    with tables.raw_csv(raw_csv):
        discovery.write_suggestions(found, output, overwrite=overwrite)
    if why:
        echo(why, err=True)
    n_new = len({one.predicted for one in found if not one.known})
    in_new = sum(not one.known for one in found)
    stored = chosen.run / FEATURES_FILE
    data = stored if stored.is_file() else discovery.provenance["data"]["path"] or "DATA"
    echo(f"{plural(len(found), 'row')} to label, {in_new:,} of them in {plural(n_new, 'new class')}: {output}.")
    how = shlex.join(["rpim", "discover", str(data), "--add-labels", str(output), "-o", f"{chosen.run.name}-labelled"])
    echo(f"Fill in the column label, with the names of known classes or new names (empty: not labelled). Then: {how}")
