"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Data = Annotated[Path, typer.Argument(metavar="DATA", help=".npz, .npy, .parquet, .csv, or PIM's folder.")]
Source = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="Features: .npz, .npy, .parquet, a folder of those, .csv, PIM's. Or images or texts, as rpim embed takes.",
    ),
]
LabelsFile = Annotated[
    Path | None,
    typer.Option("--labels", metavar="FILE", help="Labels from a file of their own: .npy, .csv, .txt, .json."),
]
LabelColumn = Annotated[str | None, typer.Option(metavar="C", help="The column or key with the labels.")]
Run = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that rpim discover wrote.")]
FeatureColumn = Annotated[
    str | None, typer.Option(metavar="C", help="The .parquet column or .npz key with the embeddings.")
]
New = Annotated[
    Path, typer.Argument(metavar="NEW", help="New rows, in any format that discover reads, images and texts too.")
]
AnyEncoder = Annotated[
    bool, typer.Option("--any-encoder", help="Go on where the rows look like those of another encoder.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there, once the new one is complete.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Makes the run repeatable.")]
