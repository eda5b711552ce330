"""Distributed embedding: each Ray worker loads the encoder once and embeds spans of items.

Ray Data schedules the spans. The result is a folder of .parquet files that is read as one feature set.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.progress import Progress
from rpim._common.ray import explain_ray_errors, import_ray
from rpim.data.formats.feature_files import with_metadata
from rpim.data.ray_shards import ShardResult, Shards, Span, check_folder, write_shards
from rpim.embedding.embed import (
    EmbeddingLoop,
    EmbeddingReport,
    all_skipped,
    feature_set,
    is_embedded,
    metadata_of,
    none_usable,
    plan_of,
)
from rpim.embedding.encoders import Encoder, prepared_batches
from rpim.embedding.items import Items
from rpim.embedding.open_encoder import JointEncoder, encoders_of

FILES = 64
LEAST, MOST = 64, 4096
"""Minimum and maximum items per file; about 64 files are written."""


def embed_on_ray(
    items: Items,
    encoder: Encoder,
    output: Path,
    workers: int,
    *,
    open_encoder: Callable[[], Encoder] | None = None,
    views: int = 0,
    batch_size: int | None = None,
    seed: int = 0,
    device: str | None = None,
    overwrite: bool = False,
    reuse: bool = False,
    verbose: bool = False,
) -> EmbeddingReport:
    """Embed items on the workers of the connected Ray cluster, into a folder of .parquet files.

    Finished files are kept in ``OUTPUT.checkpoint`` until the end; a call with the same arguments resumes.

    Parameters
    ----------
    items : Items
        Files must be on a disk that all machines share.
    encoder : Encoder
    output : path of the folder, on a disk that all machines share
    workers : int
        Number of workers; with GPUs, at most one per GPU.
    open_encoder : callable, optional
        Opens the encoder on a worker (default: by its name and weights).
    device : str, optional
        Device of the workers (default: a GPU if available).
    views, batch_size, seed, overwrite, reuse, verbose
        As in `rpim.embedding.embed.embed`.

    Raises
    ------
    InputError
        If `output` may not be written, no item can be used, or the cluster fails.
    """
    plan = plan_of(items, encoder, views, seed)
    if reuse and is_embedded(output, plan, overwrite):
        return EmbeddingReport(0, len(items), [], 0.0, 0.0)
    check_folder(output, overwrite or reuse)
    size = min(max(LEAST, -(-len(items) // FILES)), MOST)
    shards = Shards(output, plan, len(items), size, "embedding", overwrite)
    before = shards.done()
    ray = import_ray()
    gpus = int(ray.cluster_resources().get("GPU", 0)) if device is None or device.startswith("cuda") else 0
    workers = min(workers, gpus) if gpus else workers
    with explain_ray_errors():  # each in an object of its own, so that a worker holds no more than it works on
        todo = [span for span in shards.spans if span not in before]
        parts = {span.number: ray.put(items.part(slice(span.start, span.stop))) for span in todo}
    singles = encoder.encoders if isinstance(encoder, JointEncoder) else (encoder,)
    weights = [Path(one.weights) for one in singles if one.weights is not None]
    start = time.monotonic()
    seconds = write_shards(
        shards,
        partial(
            _Embedder,
            open_encoder or partial(encoders_of, encoder.metadata(), weights, device),
            parts,
            metadata_of(plan, items, []),
            1 + views,
            batch_size,
            seed,
        ),
        workers,
        gpus=bool(gpus),
        doing="embedding",
        verbose=verbose,
    )
    taken = time.monotonic() - start
    made = shards.done()
    skipped = [*items.skipped, *((name, reason) for each in made.values() for name, reason in each.skipped)]
    with_rows = [span for span in shards.spans if made[span].n_rows]
    if not with_rows:
        shards.remove()
        raise none_usable(items, skipped)
    if skipped:  # the first file has the facts about all
        with_metadata(shards.file(with_rows[0]), metadata_of(plan, items, skipped))
    shards.finish()
    resumed = sum(span.stop - span.start for span in before)
    embedded = sum(made[span].n_rows for span in made if span not in before)
    return EmbeddingReport(embedded, resumed, skipped, taken, seconds / workers)


class _Embedder:
    """A worker: the encoder and references to the items of each span."""

    def __init__(
        self,
        open_encoder: Callable[[], Encoder],
        parts: dict[int, Any],
        metadata: dict[str, Any],
        views: int,
        batch_size: int | None,
        seed: int,
    ) -> None:
        self._encoder = open_encoder()
        if batch_size is not None:
            self._encoder.batch_size = batch_size
        self._parts, self._metadata, self._views, self._seed = parts, metadata, views, seed

    def write(self, span: Span, file: Path) -> ShardResult:
        """Embed the items of a span."""
        items: Items = import_ray().get(self._parts[span.number])
        positions: list[int] = []
        rows: list[NDArray[np.float32]] = []
        reasons: dict[int, str] = {}

        def keep(embedded: list[int], their_rows: NDArray[np.float32], left_out: dict[int, str]) -> None:
            positions.extend(embedded)
            reasons.update(left_out)
            if embedded:
                rows.append(their_rows)

        work = EmbeddingLoop(keep, self._encoder, self._views)
        batches = prepared_batches(
            items, range(len(items)), self._encoder, views=self._views, workers=0, seed=self._seed, first=span.start
        )
        work.run(batches, Progress())
        if positions:
            together = np.concatenate(rows)  # (n, V, D)
            matrices = [np.ascontiguousarray(together[:, view]) for view in range(self._views)]
            features = feature_set(items, np.asarray(positions), matrices, self._metadata)
            features.write(file, overwrite=True)
        return ShardResult(len(positions), tuple(all_skipped(items, reasons)), work.encoder_seconds)
