"""Predictor: the classes of a run for rows it has never seen, in files of any size."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from rpim._common.errors import InputError
from rpim._common.files import RUN_FILE, StrPath, check_export
from rpim._common.progress import Progress
from rpim.data.checks import FloatArray
from rpim.data.feature_set import FeatureSet
from rpim.data.feature_stream import FeatureStream
from rpim.data.formats.tables import CsvTable, Table, new_table
from rpim.estimators.base import DiscoveryEstimator
from rpim.runs.assignments import Assignments, assign, check_width
from rpim.runs.embedding_space import EmbeddingSpace
from rpim.runs.run_folder import MODEL_FILE, read_run_file, reading
from rpim.runs.saved_model import restore


@dataclass(frozen=True, eq=False)
class Predictor:
    """All of a run that new rows need. Unlike a `Discovery`, it does not grow with the rows of the run.

    Parameters
    ----------
    model : fitted estimator
        From a run folder it has neither ``labels_`` nor ``history_``, which are about the rows of the run.
    space : EmbeddingSpace
        What rows of the same encoder look like.

    Examples
    --------
    >>> Predictor.load("run").model.predict_proba(X)  # doctest: +SKIP
    >>> Predictor.load("run").assign_file("new.parquet", "classes.parquet")  # doctest: +SKIP
    """

    model: DiscoveryEstimator
    space: EmbeddingSpace = field(default_factory=EmbeddingSpace)

    @classmethod
    def load(cls, folder: StrPath) -> Predictor:
        """Read what prediction needs of a run folder.

        Raises
        ------
        InputError
            If it is no run folder, a newer one, or damaged.
        """
        return cls.from_facts(Path(folder), read_run_file(Path(folder)))

    @classmethod
    def from_facts(cls, folder: Path, facts: dict[str, Any]) -> Predictor:
        """The same, where ``run.json`` has been read already."""
        from safetensors.torch import load

        with reading(folder / MODEL_FILE):
            tensors = load((folder / MODEL_FILE).read_bytes())
        with reading(folder / RUN_FILE):
            model = restore(facts, tensors)
            encoder = facts["provenance"].get("data", {}).get("metadata", {}).get("encoder")
            # It is not there where there were too few rows, or the run is from before there was one.
            directions = tensors["space"].numpy() if "space" in tensors else None
            if directions is not None and len(directions) != model.n_features_in_:
                raise ValueError(f"the space has {len(directions)} features, not {model.n_features_in_}")
            return cls(model, EmbeddingSpace(encoder, directions))

    def check(self, features: FeatureSet, *, any_encoder: bool = False) -> None:
        """Raise where the rows are of another width, or seem to be of another encoder."""
        check_width(self.model, features)
        if not any_encoder:
            self.space.check(features)

    def assign(self, new: FeatureSet | ArrayLike, *, any_encoder: bool = False, verbose: bool = False) -> Assignments:
        """The class of each new row, with how sure the model is of it and the runner-up.

        Raises
        ------
        InputError
            If the rows are of another width or encoder; `any_encoder` leaves the encoder unchecked.
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
        """`assign` for a file of any size, in memory that does not grow with it.

        Parameters
        ----------
        path : path
            Whatever `FeatureStream` reads.
        output : path of a .csv or .parquet file, optional
            It is written whole or not at all. Where none is given, lines of .csv are printed as they come.
        feature_column : str, optional
            The .parquet column (or .npz key) with the features, where several could be meant.
        probabilities : bool
            Add the probability of every class: a column for each in a .csv, ``probability_NAME``; in a .parquet a
            column of lists, ``probabilities``, in the order of the file's metadata ``rpim_classes``.
        refined : bool
            Add h(x), a column of lists, ``refined``; for .parquet alone.
        any_encoder, overwrite, verbose : bool
            Go on whatever the rows look like; replace a file that exists; show progress on a terminal.
        """
        target = _checked_output(output, refined=refined, overwrite=overwrite)
        stream = FeatureStream(path, feature_column=feature_column)
        with self._table(target) as table, Progress(verbose, "predicting") as progress:
            if stream.n_rows is not None:
                progress.expect(stream.n_rows)
            for block in stream:
                if block.first_row == 0:
                    self.check(block, any_encoder=any_encoder)
                table.append(self.columns(block, probabilities, refined, in_lists=_has_lists(target)))
                progress.advance(len(block))

    def columns(self, block: FeatureSet, probabilities: bool, refined: bool, *, in_lists: bool) -> dict[str, Any]:
        """What is written of these rows; see `assign_file`. A .parquet holds probabilities in lists."""
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
    def _table(self, target: Path | None) -> Iterator[Table]:
        if target is None:
            yield CsvTable(sys.stdout)
        else:
            with self.new_table(target) as table:
                yield table

    def new_table(self, target: Path) -> contextlib.AbstractContextManager[Table]:
        """A file for `columns` of blocks, which says what the classes are."""
        return new_table(target, {"rpim_classes": self.model.classes_.tolist()})


def _checked_output(output: StrPath | None, *, refined: bool, overwrite: bool) -> Path | None:
    """The file that may be written with what it is asked to hold; None for standard output."""
    target = None if output is None else check_export(output, overwrite)
    if refined and not _has_lists(target):
        raise InputError("Refined rows are lists of numbers, which go into a .parquet file only: give -o FILE.parquet.")
    return target


def _has_lists(target: Path | None) -> bool:
    return target is not None and target.suffix.lower() == ".parquet"
