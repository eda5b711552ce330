"""Predict new rows with a saved run: here, or spread over Ray workers."""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from rpim._common.errors import InputError
from rpim._common.files import RUN_FILE, StrPath, check_export
from rpim._common.progress import Progress
from rpim.data.feature_set import FeatureSet
from rpim.data.feature_stream import FeatureSpans, FeatureStream
from rpim.data.formats.tables import CsvTable, Table, new_table
from rpim.data.labels import FloatArray
from rpim.data.ray_shards import ShardResult, Shards, Span, check_folder, write_shards
from rpim.estimators.base import DiscoveryEstimator
from rpim.runs.assignments import Assignments, assign, check_width
from rpim.runs.run_folder import MODEL_FILE, read_run_file, reading
from rpim.runs.saved_model import EmbeddingSpace, restore


@dataclass(frozen=True, eq=False)
class Predictor:
    """The model of a run, for prediction. Unlike a `Discovery`, its size does not depend on the rows of the run.

    Parameters
    ----------
    model : fitted estimator
        If read from a run folder, it has no ``labels_`` and no ``history_``.
    space : EmbeddingSpace
        Detects rows of another encoder.

    Examples
    --------
    >>> Predictor.load("run").model.predict_proba(X)  # doctest: +SKIP
    >>> Predictor.load("run").assign_file("new.parquet", "classes.parquet")  # doctest: +SKIP
    """

    model: DiscoveryEstimator
    space: EmbeddingSpace = field(default_factory=EmbeddingSpace)

    @classmethod
    def load(cls, folder: StrPath) -> Predictor:
        """Read the model of a run folder.

        Parameters
        ----------
        folder : path
            The run folder.

        Returns
        -------
        Predictor
            The model of the run, without its rows.

        Raises
        ------
        InputError
            If it is not a run folder, of a newer version, or damaged.
        """
        return cls.from_facts(Path(folder), read_run_file(Path(folder)))

    @classmethod
    def from_facts(cls, folder: Path, facts: dict[str, Any]) -> Predictor:
        """Read the model, given the contents of ``run.json``.

        Parameters
        ----------
        folder : path
            The run folder.
        facts : dict
            The contents of ``run.json``.

        Returns
        -------
        Predictor
            The model of the run, without its rows.
        """
        from safetensors.torch import load

        with reading(folder / MODEL_FILE):
            tensors = load((folder / MODEL_FILE).read_bytes())
        with reading(folder / RUN_FILE):
            model = restore(facts, tensors)
            encoder = facts["provenance"].get("data", {}).get("metadata", {}).get("encoder")
            # Missing if there were too few rows, or in runs of older versions.
            directions = tensors["space"].numpy() if "space" in tensors else None
            if directions is not None and len(directions) != model.n_features_in_:
                raise ValueError(f"the space has {len(directions)} features, not {model.n_features_in_}")
            return cls(model, EmbeddingSpace(encoder, directions))

    def check(self, features: FeatureSet, *, any_encoder: bool = False) -> None:
        """Raise if the rows have another width, or seem to come from another encoder.

        Parameters
        ----------
        features : FeatureSet
            New rows.
        any_encoder : bool
            Check the width alone.
        """
        check_width(self.model, features)
        if not any_encoder:
            self.space.check(features)

    def assign(self, new: FeatureSet | ArrayLike, *, any_encoder: bool = False, verbose: bool = False) -> Assignments:
        """Assign new rows: their class, its confidence and the runner-up.

        Parameters
        ----------
        new : FeatureSet or array-like of shape (n_rows, n_features)
            New rows.
        any_encoder : bool
            Skip the check that the rows come from the run's encoder.
        verbose : bool
            Show progress on a terminal.

        Returns
        -------
        Assignments
            One entry per row.

        Raises
        ------
        InputError
            If the rows have another width or encoder.
        """
        features = new if isinstance(new, FeatureSet) else FeatureSet.from_arrays(new)
        self.check(features, any_encoder=any_encoder)
        return assign(self.model, features, verbose=verbose)

    def assign_file(
        self,
        path: StrPath,
        output: StrPath | None = None,
        *,
        feature_column: str | None = None,
        probabilities: bool = False,
        refined: bool = False,
        any_encoder: bool = False,
        overwrite: bool = False,
        verbose: bool = False,
    ) -> None:
        """`assign` for a file of any size, in constant memory.

        Parameters
        ----------
        path : path
            Any format that `FeatureStream` reads.
        output : path of a .csv or .parquet file, optional
            Written atomically. If omitted, CSV lines are printed.
        feature_column : str, optional
            .parquet column (or .npz key) with the features, if ambiguous.
        probabilities : bool
            Add the probability of every class: in a .csv one column ``probability_NAME`` per class; in a .parquet a
            list column ``probabilities``, in the order of the file's metadata ``rpim_classes``.
        refined : bool
            Add h(x) as a list column ``refined``; .parquet only.
        any_encoder, overwrite, verbose : bool
            Skip the check of the encoder; replace an existing file; show progress on a terminal.
        """
        target = _checked_output(output, refined=refined, overwrite=overwrite)
        stream = FeatureStream(path, feature_column=feature_column)
        with self._table(target, overwrite) as table, Progress(verbose, "predicting") as progress:
            if stream.n_rows is not None:
                progress.expect(stream.n_rows)
            for block in stream:
                if block.first_row == 0:
                    self.check(block, any_encoder=any_encoder)
                table.append(self.columns(block, probabilities, refined, in_lists=_has_lists(target)))
                progress.advance(len(block))

    def columns(self, block: FeatureSet, probabilities: bool, refined: bool, *, in_lists: bool) -> dict[str, Any]:
        """Compute the output columns of these rows; see `assign_file`.

        Parameters
        ----------
        block : FeatureSet
            New rows.
        probabilities, refined : bool
            Which columns to add.
        in_lists : bool
            Put probabilities into one list column, for .parquet.

        Returns
        -------
        dict
            Columns by name.
        """
        columns = assign(self.model, block).columns()
        if probabilities or refined:
            rows = block.rows(normalize=self.model.normalize)  # (n, D)
        if probabilities:
            columns |= self._probabilities(rows, in_lists=in_lists)
        if refined:
            columns["refined"] = self.model.transform(rows)
        return columns

    def _probabilities(self, rows: FloatArray, *, in_lists: bool) -> dict[str, Any]:
        each = self.model.predict_proba(rows)  # (n, K)
        if in_lists:
            return {"probabilities": each}
        return {f"probability_{name}": each[:, k] for k, name in enumerate(self.model.classes_.tolist())}

    @contextlib.contextmanager
    def _table(self, target: Path | None, overwrite: bool) -> Iterator[Table]:
        if target is None:
            yield CsvTable(sys.stdout)
        else:
            with self.new_table(target, overwrite) as table:
                yield table

    def new_table(self, target: Path, overwrite: bool = False) -> contextlib.AbstractContextManager[Table]:
        """Open an output file with the classes in its metadata.

        Parameters
        ----------
        target : path
            The file to write.
        overwrite : bool
            Replace an existing file.

        Returns
        -------
        context manager
            Gives the table to append to.
        """
        return new_table(target, {"rpim_classes": self.model.classes_.tolist()}, overwrite=overwrite)


def _checked_output(output: StrPath | None, *, refined: bool, overwrite: bool) -> Path | None:
    """Check the output file and its format; None for stdout."""
    target = None if output is None else check_export(output, overwrite)
    if refined and not _has_lists(target):
        raise InputError(
            "Refined rows are lists of numbers, which only a .parquet file can hold: give -o FILE.parquet."
        )
    return target


def _has_lists(target: Path | None) -> bool:
    return target is not None and target.suffix.lower() == ".parquet"


FILES = 64
MOST = 16
"""Maximum blocks of rows per file; about 64 files are written."""


def predict_on_ray(
    run: StrPath,
    new: StrPath,
    output: Path,
    workers: int,
    *,
    load: Callable[[], Predictor] | None = None,
    feature_column: str | None = None,
    probabilities: bool = False,
    refined: bool = False,
    any_encoder: bool = False,
    overwrite: bool = False,
    verbose: bool = False,
) -> None:
    """`Predictor.assign_file` on the workers of the connected Ray cluster, into a folder.

    Finished files are kept in ``OUTPUT.checkpoint`` until the end; a call with the same arguments resumes.

    Parameters
    ----------
    run : path of the run folder
    new : path of an .npy or .parquet file, or of a folder of either
        Like `run` and `output`, on a disk that all machines share.
    output : path of the folder to write
    workers : int
        Number of workers.
    load : callable, optional
        Loads the model in every worker (default: that of the run folder as found); picklable.
    feature_column, probabilities, refined, any_encoder, overwrite, verbose
        As in `Predictor.assign_file`.

    Raises
    ------
    InputError
        If the rows have another width or encoder or are unusable, or the cluster fails.
    """
    check_folder(output, overwrite)
    run = Path(run).resolve()
    load = load or partial(Predictor.load, run)
    predictor = load()
    spans = FeatureSpans(new, feature_column)
    predictor.check(next(spans.blocks(0, spans.block_rows)), any_encoder=any_encoder)
    blocks = -(-len(spans) // spans.block_rows)
    size = min(max(1, -(-blocks // FILES)), MOST) * spans.block_rows
    options = {"probabilities": probabilities, "refined": refined}
    classes = predictor.model.classes_.tolist()
    plan = {
        "run": _state_of_run(run),
        "classes": classes,
        "rows": spans.rows.state(),
        "feature_column": feature_column,
        **options,
    }
    shards = Shards(output, plan, len(spans), size, "prediction", overwrite)
    write_shards(shards, partial(_Assigner, load, spans, options), workers, doing="predicting", verbose=verbose)
    shards.finish()


class _Assigner:
    """A worker: the model and the rows."""

    def __init__(self, load: Callable[[], Predictor], spans: FeatureSpans, options: dict[str, bool]) -> None:
        self._predictor, self._spans, self._options = load(), spans, options

    def write(self, span: Span, file: Path) -> ShardResult:
        """Write the predictions of a span."""
        with self._predictor.new_table(file, overwrite=True) as table:
            for block in self._spans.blocks(span.start, span.stop):
                table.append(self._predictor.columns(block, **self._options, in_lists=True))
        return ShardResult(span.stop - span.start)


def _state_of_run(run: Path) -> str:
    digest = hashlib.sha256()
    for name in (MODEL_FILE, RUN_FILE):
        digest.update((run / name).read_bytes())
    return digest.hexdigest()
