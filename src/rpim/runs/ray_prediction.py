"""Distributed prediction: each Ray worker loads the model once and processes spans of rows.

Ray Data schedules the spans. The result is a folder of .parquet files with the columns of ``rpim predict``.
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
"""Maximum blocks of rows per file; about 64 files are written."""


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
    """`Predictor.assign_file` on the workers of the connected Ray cluster, into a folder.

    Finished files are kept in ``OUTPUT.parts`` until the end; a call with the same arguments resumes.

    Parameters
    ----------
    run : path of the run folder
    new : path of an .npy or .parquet file, or of a folder of either
        Like `run` and `output`, on a disk that all machines share.
    output : path of the folder to write
    workers : int
        Number of workers.
    feature_column, probabilities, refined, any_encoder, overwrite, verbose
        As in `Predictor.assign_file`.

    Raises
    ------
    InputError
        If the rows have another width or encoder or are unusable, or the cluster fails.
    """
    check_folder(output, overwrite)
    run = Path(run).resolve()
    predictor = Predictor.load(run)
    spans = FeatureSpans(new, feature_column)
    predictor.check(next(spans.blocks(0, spans.block_rows)), any_encoder=any_encoder)
    blocks = -(-len(spans) // spans.block_rows)
    size = min(max(1, -(-blocks // FILES)), MOST) * spans.block_rows
    options = {"probabilities": probabilities, "refined": refined}
    plan = {"run": _state_of_run(run), "rows": spans.rows.state(), "feature_column": feature_column, **options}
    shards = Shards(output, plan, len(spans), size, "prediction (another run, or other rows)", overwrite)
    write_shards(shards, partial(_Assigner, run, spans, options), workers, doing="predicting", verbose=verbose)
    shards.finish()


class _Assigner:
    """A worker: the model and the rows."""

    def __init__(self, run: Path, spans: FeatureSpans, options: dict[str, bool]) -> None:
        self._predictor, self._spans, self._options = Predictor.load(run), spans, options

    def write(self, span: Span, file: Path) -> ShardResult:
        """Write the predictions of a span."""
        with self._predictor.new_table(file) as table:
            for block in self._spans.blocks(span.start, span.stop):
                table.append(self._predictor.columns(block, **self._options, in_lists=True))
        return ShardResult(span.stop - span.start)


def _state_of_run(run: Path) -> str:
    digest = hashlib.sha256()
    for name in (MODEL_FILE, RUN_FILE):
        digest.update((run / name).read_bytes())
    return digest.hexdigest()
