"""Prediction spread over a cluster: each worker loads the model once, and takes one span of rows after the other.

Ray Data hands out the spans. The result is a folder of .parquet files, with the columns that ``rpim predict`` writes.
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path

from rpim._common.files import RUN_FILE, StrPath
from rpim.data.feature_stream import FeatureSpans
from rpim.data.ray_shards import ShardResult, Shards, Span, check_folder, write_shards
from rpim.runs.predictor import Predictor
from rpim.runs.run_folder import MODEL_FILE

FILES = 64
MOST = 16
"""Blocks of rows a file: so that there are some 64 files to share out, but no huge ones."""


def predict_on_ray(
    run: StrPath,
    new: StrPath,
    output: Path,
    workers: int,
    *,
    feature_column: str | None = None,
    probabilities: bool = False,
    refined: bool = False,
    any_encoder: bool = False,
    overwrite: bool = False,
    verbose: bool = False,
) -> None:
    """`Predictor.assign_file` by the workers of the cluster that this process has joined, into a folder.

    What is done is kept in ``OUTPUT.parts`` until all of it is: called again with the same arguments, it goes on.

    Parameters
    ----------
    run : path of the run folder
    new : path of an .npy or .parquet file, or of a folder of either
        As run and output on a disk that all machines share.
    output : path of the folder to write
    workers : int
        How many.
    feature_column, probabilities, refined, any_encoder, overwrite, verbose
        As in `Predictor.assign_file`.

    Raises
    ------
    InputError
        If rows are of another width or encoder, or cannot be used, or the cluster fails.
    """
    check_folder(output, overwrite)
    run = Path(run).resolve()
    predictor = Predictor.load(run)
    spans = FeatureSpans(new, feature_column)
    predictor.check(next(spans.blocks(0, spans.block_rows)), any_encoder=any_encoder)
    blocks = -(-len(spans) // spans.block_rows)
    size = min(max(1, -(-blocks // FILES)), MOST) * spans.block_rows
    told = {"probabilities": probabilities, "refined": refined}
    plan = {"run": _state_of_run(run), "rows": spans.rows.state(), "feature_column": feature_column, **told}
    shards = Shards(output, plan, len(spans), size, "prediction (another run, or other rows)", overwrite)
    write_shards(shards, partial(_Assigner, run, spans, told), workers, doing="predicting", verbose=verbose)
    shards.finish()


class _Assigner:
    """The model of a worker, and where the rows are."""

    def __init__(self, run: Path, spans: FeatureSpans, told: dict[str, bool]) -> None:
        self._predictor, self._spans, self._told = Predictor.load(run), spans, told

    def write(self, span: Span, file: Path) -> ShardResult:
        """Write the classes of the rows of a span."""
        with self._predictor.new_table(file) as table:
            for block in self._spans.blocks(span.start, span.stop):
                table.append(self._predictor.columns(block, **self._told, in_lists=True))
        return ShardResult(span.stop - span.start)


def _state_of_run(run: Path) -> str:
    digest = hashlib.sha256()
    for name in (MODEL_FILE, RUN_FILE):
        digest.update((run / name).read_bytes())
    return digest.hexdigest()
