"""Embed items into a feature file; an interrupted embedding resumes from its checkpoint.

OUTPUT.checkpoint/
  plan.json          items and encoder: only an embedding with the same plan resumes
  part-000001.npz    positions and rows of items, and reasons for unusable items
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim._common.files import check_export, replacing, writing
from rpim._common.progress import Progress
from rpim._common.work_folder import WorkFolder
from rpim.data.feature_set import FeatureSet
from rpim.data.formats.arrays import open_npz
from rpim.embedding.encoders import Encoder, prepared_batches
from rpim.embedding.items import Items
from rpim.embedding.open_encoder import open_encoders


class EmbeddingCheckpoint:
    """The finished parts of an embedding.

    Parameters
    ----------
    output : path of the features to write
        The folder of the parts is next to it.
    plan : dict
        JSON-serializable; parts with the same plan belong together.
    n_items : int
    overwrite : bool
        Discard parts of another plan.

    Raises
    ------
    InputError
        If there are parts of another plan.
    """

    def __init__(self, output: Path, plan: dict[str, Any], n_items: int, overwrite: bool = False) -> None:
        self._work = WorkFolder(output, plan, "embedding", overwrite)
        self.folder, self._n_items, self._n_views = self._work.path, n_items, 1 + plan["views"]
        self._n_parts = max((int(path.stem[5:]) for path in self._files()), default=0)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("part-" + 6 * "[0-9]" + ".npz"))

    def add(self, positions: list[int], rows: NDArray[np.float32], skipped: dict[int, str]) -> None:
        """Store the rows (n, V, D) of items, and reasons for skipped ones; durable when this returns."""
        self._n_parts += 1
        with replacing(self.folder / f"part-{self._n_parts:06d}.npz") as file:
            np.savez(file, positions=np.array(positions, np.int64), rows=rows, reasons=np.array(json.dumps(skipped)))

    def __iter__(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float32], dict[int, str]]]:
        """Positions (n,), rows (n, V, D) and reasons of each part."""
        n_features = 0
        for path in self._files():
            with open_npz(path, "remove it, and its items are embedded again") as part:
                positions, rows, reasons = part["positions"], part["rows"], json.loads(str(part["reasons"]))
                if not isinstance(reasons, dict) or positions.ndim != 1 or rows.ndim != 3:
                    raise ValueError("it holds no rows and reasons")
                skipped = {int(position): str(reason) for position, reason in reasons.items()}
                n_features = n_features or rows.shape[2]
                self._check(positions, rows, skipped, n_features)
            yield positions, rows, skipped

    def _check(self, positions: NDArray[Any], rows: NDArray[Any], skipped: dict[int, str], n_features: int) -> None:
        """Raise ValueError for a part that `add` does not write."""
        if positions.dtype != np.int64 or rows.dtype != np.float32 or not np.isfinite(rows).all():
            raise ValueError("its rows or their positions are not numbers")
        if not all(0 <= position < self._n_items for position in (*positions.tolist(), *skipped)):
            raise ValueError("it holds items that do not exist")
        if rows.shape != (len(positions), self._n_views, n_features if len(positions) else rows.shape[2]):
            raise ValueError(f"its rows have the shape {rows.shape}")

    def done(self) -> set[int]:
        """The positions of finished items."""
        return {position for positions, _, skipped in self for position in (*positions.tolist(), *skipped)}

    def matrix(self, view: int, shape: tuple[int, int]) -> NDArray[np.float32]:
        """An empty matrix on disk for the rows of a view."""
        path = self.folder / f"view-{view}.npy"
        with writing(path):
            path.unlink(missing_ok=True)  # whatever it is
            return np.lib.format.open_memmap(path, "w+", np.float32, shape)

    def remove(self) -> None:
        """Remove the checkpoint."""
        self._work.remove()

    def close(self) -> None:
        """Let other processes resume the embedding."""
        self._work.close()


SUFFIXES = (".parquet", ".npz")
SECONDS_A_PART = 10.0
ITEMS_A_PART = 8192


@dataclass(frozen=True)
class EmbeddingReport:
    """The result of an embedding.

    Attributes
    ----------
    embedded, resumed : int
        Number of items embedded by this call, and resumed from a checkpoint.
    skipped : list of (id, reason)
        Unusable items.
    seconds, encoder_seconds : float
        Total time, and time in the encoder.
    """

    embedded: int
    resumed: int
    skipped: list[tuple[str, str]]
    seconds: float
    encoder_seconds: float


def embed(
    items: Items,
    encoder: Encoder | str | Sequence[str] | None,
    output: Path,
    *,
    weights: Path | Sequence[Path] | None = None,
    device: str | None = None,
    views: int = 0,
    batch_size: int | None = None,
    workers: int | None = None,
    seed: int = 0,
    overwrite: bool = False,
    reuse: bool = False,
    verbose: bool = False,
) -> EmbeddingReport:
    """Embed items and write a feature set.

    Finished parts are stored next to `output`; a call with the same arguments resumes.

    Parameters
    ----------
    items : Items
        What `read_source` returns.
    encoder : Encoder, str, sequence of str, or None
        Names are opened with `weights` and `device`; None is the default for the kind of items. The rows of several
        encoders are written side by side, as one feature set with several embeddings.
    output : path of the .parquet or .npz file
        The file to write.
    weights : path or sequence of paths, optional
        Local weights of the encoder, or of each of several, instead of those of the hub.
    device : str, optional
        A torch device; by default a GPU where there is one.
    views : int
        Number of augmented views per image to embed as well: ``view_2``, ``view_3``, ...
    batch_size : int, optional
        Batch size of the encoder; affects the rows only by rounding.
    workers : int, optional
        Number of processes that decode images (default: half the cores).
    seed : int
        Of the augmented views.
    overwrite : bool
        Replace `output`, and discard a checkpoint of another encoder.
    reuse : bool
        Keep `output` if it holds these items, embedded by this encoder.
    verbose : bool
        Show progress on a terminal.

    Returns
    -------
    EmbeddingReport
        The number of items embedded, resumed and skipped, and the time taken.

    Raises
    ------
    InputError
        If `output` cannot be written, or no item is usable.
    """
    check_export(output, overwrite or reuse, SUFFIXES)
    if not isinstance(encoder, Encoder):
        names = [] if encoder is None else [encoder] if isinstance(encoder, str) else encoder
        paths = [] if weights is None else [weights] if isinstance(weights, Path) else weights
        encoder = open_encoders(items.kind, names, paths, device)
    if batch_size is not None:
        encoder.batch_size = batch_size
    plan = plan_of(items, encoder, views, seed)
    if reuse and is_embedded(output, plan, overwrite):
        return EmbeddingReport(0, len(items), [], 0.0, 0.0)
    with contextlib.closing(EmbeddingCheckpoint(output, plan, len(items), overwrite)) as parts:
        done = parts.done()
        work = EmbeddingLoop(parts.add, encoder, 1 + views)
        with Progress(verbose, "embedding") as progress:
            progress.expect(len(items))
            progress.advance(len(done))
            todo = [position for position in range(len(items)) if position not in done]
            work.run(prepared_batches(items, todo, encoder, views=1 + views, workers=workers, seed=seed), progress)
        skipped = _assemble(parts, items, plan, views, output, overwrite)
        parts.remove()
    return EmbeddingReport(work.n_embedded, len(done), skipped, work.seconds, work.encoder_seconds)


def plan_of(items: Items, encoder: Encoder, views: int, seed: int) -> dict[str, Any]:
    """Everything that determines the rows: encoder, items and augmented views.

    Raises
    ------
    InputError
        If the encoder does not match the kind of items, or they have no views.
    """
    if views and items.kind != "images":
        raise InputError(f"{items.source} holds {items.kind}, and augmented views are of images: leave --views out.")
    if encoder.kind != items.kind:
        raise InputError(
            f"{items.source} holds {items.kind}, but {encoder.name} is an encoder of {encoder.kind}: "
            f"give {encoder.kind}."
        )
    return {**encoder.metadata(), "items": fingerprint(items), "views": views, "seed": seed if views else None}


def is_embedded(output: Path, plan: dict[str, Any], overwrite: bool = False) -> bool:
    """Whether `output` holds these features; raises if it holds others that may not be overwritten."""
    if not output.exists():
        return False
    before = FeatureSet.read(output).metadata
    if all(before.get(fact) == plan[fact] for fact in ("encoder", "items", "views", "seed")):
        return True
    if not overwrite:
        raise InputError(f"{output} holds other items, or those of another encoder: remove it.")
    return False


class EmbeddingLoop:
    """Encode batches, and store the rows every few seconds and on Ctrl-C.

    Parameters
    ----------
    keep : function of positions, rows (n, V, D) and reasons
        Stores them.
    """

    def __init__(
        self, keep: Callable[[list[int], NDArray[np.float32], dict[int, str]], None], encoder: Encoder, views: int
    ) -> None:
        self._add, self._encoder, self._views = keep, encoder, views
        self._positions: list[int] = []
        self._rows: list[NDArray[np.float32]] = []
        self._reasons: dict[int, str] = {}
        self.n_embedded = 0
        self.seconds = self.encoder_seconds = 0.0

    def run(self, batches: Any, progress: Progress) -> None:
        """Encode all batches."""
        start = kept = time.monotonic()
        n_done = 0
        try:
            for batch in batches:
                if batch.positions:
                    self._encode(batch.positions, batch.prepared)
                self._reasons |= batch.reasons
                n_items = len(batch.positions) + len(batch.reasons)
                n_done += n_items
                progress.stage(f"embedding, {n_done / (time.monotonic() - start):.1f} items a second")
                progress.advance(n_items)
                if time.monotonic() - kept > SECONDS_A_PART or len(self._positions) >= ITEMS_A_PART:
                    self._keep()
                    kept = time.monotonic()
        finally:
            self._keep()
            self.seconds = time.monotonic() - start

    def _encode(self, positions: list[int], prepared: Any) -> None:
        start = time.monotonic()
        rows = self._encoder.encode(prepared)  # (n * V, D)
        self.encoder_seconds += time.monotonic() - start
        if not np.isfinite(rows).all():
            raise InputError(f"{self._encoder.name} returns non-finite values: its weights may be damaged.")
        self._rows.append(rows.reshape(len(positions), self._views, -1))  # (n, V, D)
        self._positions += positions
        self.n_embedded += len(positions)

    def _keep(self) -> None:
        if self._positions or self._reasons:
            rows = np.concatenate(self._rows) if self._rows else np.empty((0, self._views, 0), dtype=np.float32)
            self._add(self._positions, rows, self._reasons)
            self._positions, self._rows, self._reasons = [], [], {}


def fingerprint(items: Items) -> str:
    """Hash of the items: texts by content, files by name, size and time, others by id."""
    digest = hashlib.sha256(f"{items.kind} {len(items)}\n".encode())
    paths = items.paths
    for position, name in enumerate(items.ids.tolist()):
        said = items.content[position] if items.kind == "texts" else ""
        if paths is not None:
            with contextlib.suppress(OSError):
                found = Path(paths[position]).stat()
                said = f"{found.st_size} {found.st_mtime_ns}"
        digest.update(f"{name}\0{said}\0".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _assemble(
    parts: EmbeddingCheckpoint, items: Items, plan: dict[str, Any], views: int, output: Path, overwrite: bool
) -> list[tuple[str, str]]:
    """Write the rows of all parts in the order of the items; return the skipped items with reasons."""
    reasons: dict[int, str] = {}
    found: set[int] = set()
    n_features = 0
    for positions, rows, left_out in parts:
        found.update(positions.tolist())
        reasons |= left_out
        n_features = max(n_features, rows.shape[2])
    skipped = all_skipped(items, reasons)
    if not found:
        parts.remove()
        raise none_usable(items, skipped)
    order = np.array(sorted(found), dtype=np.int64)  # (n,)
    # On disk, since they may not fit into memory.
    matrices = [parts.matrix(view, (len(order), n_features)) for view in range(1, 2 + views)]
    for positions, rows, _ in parts:
        if len(positions):
            places = np.searchsorted(order, positions)
            for view, matrix in enumerate(matrices):
                matrix[places] = rows[:, view]

    features = feature_set(items, order, matrices, metadata_of(plan, items, skipped))
    features.write(output, overwrite=overwrite)
    return skipped


def all_skipped(items: Items, reasons: dict[int, str]) -> list[tuple[str, str]]:
    """The ids of unusable items with reasons; those known before embedding come first."""
    names = items.ids.tolist()
    return [*items.skipped, *((str(names[position]), reasons[position]) for position in sorted(reasons))]


def none_usable(items: Items, skipped: Sequence[tuple[str, str]]) -> InputError:
    """The error if no item is usable."""
    name, reason = skipped[0]
    return InputError(f"None of the {len(items):,} {items.kind} of {items.source} can be used ({name}: {reason}).")


def metadata_of(plan: dict[str, Any], items: Items, skipped: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The metadata of the features."""
    return {**plan, "source": str(items.source.resolve()), "skipped": list(skipped)}


def feature_set(
    items: Items, order: NDArray[np.int64], matrices: Sequence[NDArray[np.float32]], metadata: dict[str, Any]
) -> FeatureSet:
    """The feature set of the items at these positions, with one matrix per view."""

    def chosen(values: list[str] | None) -> list[str] | None:
        return None if values is None else [values[position] for position in order]

    return FeatureSet.from_arrays(
        matrices[0],
        labels=None if items.labels is None else items.labels[order],
        ids=items.ids[order],
        truth=None if items.truth is None else items.truth[order],
        views=matrices[1:],
        texts=chosen(items.texts),
        paths=chosen(items.paths),
        split=None if items.split is None else items.split[order],
        columns={name: values[order] for name, values in items.columns.items()},
        metadata=metadata,
    )
