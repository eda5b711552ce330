"""Discovery: the result of a fit, and the run folder it is saved in.

run.json             parameters, classes, searches, versions, provenance of the data; format version 1
model.safetensors    prototypes, transformation h, principal components, embedding space
assignments.parquet  class, given label, suggested label, confidence and runner-up of every row
history.json         the terms of the objective at every step
features.parquet     the features, if they were embedded for the run
report.html          the report, derived from the other files
map.npy              the 2-D position of every row, once rpim report has computed it
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.metadata
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from rpim._common.errors import InputError
from rpim._common.files import RUN_FILE, StrPath, full_path
from rpim._version import __version__
from rpim.data.feature_set import FeatureSet
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.committee import LabelIssue
from rpim.estimators.infomax import InfoMaxEstimator
from rpim.runs.assignments import Assignments, assign, check_new_rows, extend_model
from rpim.runs.class_summaries import (
    ClassSummary,
    names_from,
    ranked_issues,
    summarise_classes,
    with_label_checks,
)
from rpim.runs.discovery_tables import classes_as_html, rows_as_data_frame
from rpim.runs.hierarchy import Hierarchy, build_hierarchy
from rpim.runs.keywords import Namer
from rpim.runs.predictor import Predictor
from rpim.runs.run_folder import (
    ASSIGNMENTS_FILE,
    FEATURES_FILE,
    FORMAT,
    HISTORY_FILE,
    MODEL_FILE,
    copy_of,
    new_folder,
    read_assignments,
    read_history,
    read_run_file,
    reading,
    write_json,
)
from rpim.runs.saved_model import EmbeddingSpace, describe, from_json_value, json_value
from rpim.runs.suggestions import Suggestion, suggest, write_suggestions


@dataclass(frozen=True, eq=False, repr=False)
class Discovery:
    """The result of a fit: the class of every row, the fitted model, and its provenance.

    Build one with `from_fit`, or read one with `load`.

    Parameters
    ----------
    assignments : Assignments
        One entry per row.
    model : estimator
        The fitted estimator.
    provenance : dict
        JSON-serializable: time, duration, command, seed, versions, and the path, fingerprint and shape of the data.
    space : EmbeddingSpace
        Detects rows of another encoder.
    stability : array, optional
        Stability of each class; None for a single fit.
    found_names : dict, optional
        For classes that a person has renamed or merged, the names that the fit gave.
    suggested_names : dict of class to name
        Names from `named_by`; other new classes are named by their keywords.
    features : FeatureSet, optional
        The rows of the fit, as long as they are in memory. They are not saved.
    folder : path, optional
        The run folder that it was read from or saved to.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from rpim import RPIM, FeatureSet
    >>> X, y = make_blobs(90, n_features=4, centers=3, random_state=0)
    >>> features = FeatureSet.from_arrays(X, labels=[c if c < 2 and i % 2 else -1 for i, c in enumerate(y)])
    >>> model = RPIM(n_classes=3, random_state=0)
    >>> discovery = Discovery.from_fit(model.fit(features.rows(), features.labels), features)
    >>> [row.name for row in discovery.classes_table() if not row.known]
    [2]
    """

    assignments: Assignments
    model: DiscoveryEstimator
    provenance: dict[str, Any]
    space: EmbeddingSpace = field(default_factory=EmbeddingSpace)
    stability: NDArray[np.float64] | None = None
    found_names: dict[Any, str] = field(default_factory=dict)
    suggested_names: dict[Any, str] = field(default_factory=dict)
    features: FeatureSet | None = None
    folder: Path | None = None

    @classmethod
    def from_fit(
        cls,
        model: DiscoveryEstimator,
        features: FeatureSet,
        *,
        source: StrPath | None = None,
        duration: float | None = None,
        command: list[str] | None = None,
        verbose: bool = False,
    ) -> Discovery:
        """Build the discovery of a fitted model.

        Parameters
        ----------
        model : estimator
            The fitted estimator.
        features : FeatureSet
            The rows of the fit, in order.
        source : path, optional
            Path of the features.
        duration : float, optional
            Duration of the fit in seconds.
        command : list of str, optional
            The command line, if any.
        verbose : bool
            Show progress on a terminal.

        Returns
        -------
        Discovery
            The result, ready to be saved.
        """
        if len(model.labels_) != len(features):
            raise InputError(
                f"The model was fitted to {len(model.labels_)} rows but the features have {len(features)}: "
                "give the same ones."
            )
        assignments = with_label_checks(assign(model, features, model.labels_, verbose=verbose), model)
        stable: NDArray[np.float64] | None = model.stability_ if getattr(model, "n_members_", 1) > 1 else None
        provenance = _provenance(model, features, source, duration, command)
        return cls(assignments, model, provenance, EmbeddingSpace.of(features), stable, features=features)

    @property
    def ids(self) -> NDArray[Any]:
        """The id of every row."""
        return self.assignments.ids

    @property
    def labels(self) -> NDArray[Any]:
        """The class of every row, in the user's label type; -1, NaN or "" for rejected rows."""
        return self.assignments.labels

    @property
    def given(self) -> NDArray[Any] | None:
        """The given labels; -1, NaN or "" for unlabelled rows."""
        return self.assignments.given

    @property
    def confidence(self) -> NDArray[np.float32]:
        """The probability of the class of every row, labelled or not."""
        return self.assignments.confidence

    @property
    def known(self) -> NDArray[np.bool_]:
        """True for rows in known classes."""
        return self.assignments.known

    @property
    def classes(self) -> NDArray[Any]:
        """All classes, known classes first."""
        classes: NDArray[Any] = self.model.classes_
        return classes

    def __len__(self) -> int:
        return len(self.assignments)

    def __repr__(self) -> str:
        n_known = len(self.model.known_classes_)
        return f"Discovery({len(self)} rows, {n_known} known classes, {len(self.classes) - n_known} new)"

    def _repr_html_(self) -> str:
        """A table of the new classes for notebooks, below the counts and the expected accuracy."""
        return classes_as_html(self)

    def to_pandas(self) -> Any:
        """Return all rows as a pandas DataFrame: the columns of `export`, and the metadata columns of the features.

        Columns of classes are categorical, and so are metadata columns of texts that repeat. A metadata column with the
        name of another column gets the prefix ``data_``.

        Returns
        -------
        pandas.DataFrame
            One line per row, in the order of the features.

        Raises
        ------
        InputError
            If pandas is not installed.
        """
        return rows_as_data_frame(self)

    def explore(self, run: StrPath | None = None, **options: Any) -> Any:
        """Open the explorer in the notebook or in the browser: `rpim.explore` of this discovery.

        Parameters
        ----------
        run : path, optional
            The folder to save the discovery in, if it was neither saved nor loaded.
        **options
            Those of `rpim.explore`.

        Returns
        -------
        Explorer
            The open explorer: `url`, `decisions()`, `close()`; also a context manager.
        """
        import rpim  # the public function: the explorer is a layer above this one

        return rpim.explore(self, run, **options)

    def classes_table(self) -> list[ClassSummary]:
        """Summarise the classes, in the order of `classes`.

        Returns
        -------
        list of ClassSummary
            Name, rows, mean confidence, stability, keywords and typical rows of each class.
        """
        return list(self._summaries)

    def named_by(self, namer: Namer) -> Discovery:
        """Name the new classes by a function of yours, such as a call of a language model.

        They take the place of the names from the keywords, and `save` stores them. A name that occurs twice, or is that
        of a known class, is numbered.

        Parameters
        ----------
        namer : callable
            ``namer(examples, keywords)`` returns the name of a class, or "" for that from the keywords. ``examples``
            are the texts of its most typical rows, at most 20, or the paths of their images, or else their ids;
            ``keywords`` is empty without texts.

        Returns
        -------
        Discovery
            The discovery with these names.
        """
        known = self.model.known_classes_.tolist()
        names = names_from(namer, self.assignments, self.classes_table(), known)
        return dataclasses.replace(self, suggested_names=names)

    def label_issues(self) -> list[LabelIssue]:
        """List the labels that are probably wrong, according to members that did not see them.

        ``row`` is the row number in this discovery. Empty without a committee.

        Returns
        -------
        list of LabelIssue
            Most likely errors first.
        """
        return ranked_issues(self.assignments)

    def suggest(self, n: int = 50, features: FeatureSet | None = None, *, exclude: ArrayLike = ()) -> list[Suggestion]:
        """Suggest the rows to label next: of every new class, then where errors are expected.

        A label of a new class names it. Within a class, the rows are typical of different parts of it.

        Parameters
        ----------
        n : int
            Number of rows.
        features : FeatureSet, optional
            The rows of the discovery, in order. Without them near-duplicates cannot be avoided.
        exclude : array-like
            Ids of rows not to suggest, such as those that are being labelled.

        Returns
        -------
        list of Suggestion
            The most useful rows first: row number, id, predicted class, confidence, runner-up.

        Raises
        ------
        InputError
            If there are fewer than `n` unlabelled rows.
        """
        return suggest(self.assignments, self.model, n, features, exclude)

    def write_suggestions(self, suggestions: Sequence[Suggestion], path: StrPath, *, overwrite: bool = False) -> None:
        """Write rows to label to a .csv or .parquet file, with an empty column label.

        `FeatureSet.with_labels` and ``rpim discover --add-labels`` read the file once it is filled in.

        Parameters
        ----------
        suggestions : sequence of Suggestion
            From `suggest`.
        path : path of a .csv or .parquet file
            The file to write.
        overwrite : bool
            Replace an existing file.
        """
        write_suggestions(self.assignments, suggestions, path, overwrite=overwrite)

    def hierarchy(self) -> Hierarchy:
        """Build the tree of the classes: similar classes, and classes that the model confuses, are merged first.

        Returns
        -------
        Hierarchy
            The merges, names at every level, `cut`, `to_json` and `to_newick`.

        Raises
        ------
        InputError
            If fewer than two classes have rows.
        """
        return self._hierarchy

    @functools.cached_property
    def _hierarchy(self) -> Hierarchy:
        return build_hierarchy(self.assignments, self.model, self._summaries)

    @functools.cached_property
    def _summaries(self) -> list[ClassSummary]:
        """Cached: keywords of many texts take seconds, and both the terminal and the report use them."""
        return summarise_classes(self.assignments, self.model, self.stability, self.suggested_names, self.found_names)

    def assign(self, new: FeatureSet | ArrayLike, *, any_encoder: bool = False, verbose: bool = False) -> Assignments:
        """Assign new rows: their class, its confidence and the runner-up; see `Predictor.assign`.

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
        """
        return Predictor(self.model, self.space).assign(new, any_encoder=any_encoder, verbose=verbose)

    def predict(self, X: FeatureSet | ArrayLike, *, any_encoder: bool = False) -> NDArray[Any]:
        """Predict the class of each new row.

        Parameters
        ----------
        X : FeatureSet or array-like of shape (n_rows, n_features)
            New rows.
        any_encoder : bool
            Skip the check that the rows come from the run's encoder.

        Returns
        -------
        ndarray of shape (n_rows,)
            Classes, in the type of the labels.
        """
        return self.assign(X, any_encoder=any_encoder).labels

    def extended(
        self,
        new: FeatureSet,
        *,
        source: StrPath | None = None,
        command: list[str] | None = None,
        any_encoder: bool = False,
        verbose: bool = False,
    ) -> Discovery:
        """Extend the discovery by new rows and their new classes; see `InfoMaxEstimator.extend`.

        A new row replaces the row with the same id. New rows without ids are numbered after those of the run.

        Parameters
        ----------
        new : FeatureSet
            The new rows; some may be labelled.
        source, command
            As in `from_fit`.
        any_encoder : bool
            Skip the check that the rows come from the run's encoder.
        verbose : bool
            Show progress on a terminal.

        Returns
        -------
        Discovery
            The rows of both, with the extended model.

        Raises
        ------
        InputError
            If the rows have another width or encoder, none is new, or the method cannot be extended.
        """
        if not isinstance(self.model, InfoMaxEstimator):
            name = type(self.model).__name__.lower()
            raise InputError(
                f"A run of {name} cannot be extended, only runs of rpim, pim, tim and rim: refit on all rows instead."
            )
        Predictor(self.model, self.space).check(new, any_encoder=any_encoder)
        check_new_rows(new, self.assignments, self.provenance)
        start = time.monotonic()
        model, assignments = extend_model(self.model, self.assignments, new, verbose=verbose)
        provenance = _provenance(model, new, source, time.monotonic() - start, command)
        kept = {model.renamed_.get(name, name): said for name, said in self.suggested_names.items()}
        provenance["extends"] = self.provenance
        return Discovery(assignments, model, provenance, self.space, suggested_names=kept)

    def export(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write the assignments to a .csv or .parquet file, atomically.

        Parameters
        ----------
        path : path of a .csv or .parquet file
            The file to write.
        overwrite : bool
            Replace an existing file.
        """
        self.assignments.write(path, overwrite=overwrite)

    def save(self, folder: StrPath, *, overwrite: bool = False, features: Path | None = None) -> None:
        """Write the run folder atomically.

        Parameters
        ----------
        folder : path
            The run folder to write.
        overwrite : bool
            Replace an existing run folder once the new one is complete.
        features : path of a .parquet file, optional
            The features of the rows; moved into the folder.

        Raises
        ------
        InputError
            If the folder exists (and is not a run folder, or `overwrite` is False), or cannot be written.
        """
        from safetensors.torch import save

        facts, tensors = describe(self.model)
        if self.space.directions is not None:
            tensors["space"] = torch.from_numpy(self.space.directions)
        history = [{name: json_value(value) for name, value in step.items()} for step in self.model.history_]
        with new_folder(folder, overwrite) as place:
            # Written by Python's own files, so that a full disk raises an OSError with errno.
            (place / MODEL_FILE).write_bytes(save(tensors))
            with open(place / ASSIGNMENTS_FILE, "wb") as file:
                self.assignments.write_parquet(file)
            write_json(place / HISTORY_FILE, history, indent=None)
            stable = None if self.stability is None else [json_value(value) for value in self.stability]
            about = {"rows": len(self), **facts, "stability": stable, "provenance": self.provenance}
            if self.suggested_names:
                about["suggested_names"] = [self.suggested_names.get(name, "") for name in self.classes.tolist()]
            write_json(place / RUN_FILE, {"format": FORMAT, **about})
            if features is not None:
                copy_of(features, place / FEATURES_FILE)
        if features is not None:
            features.unlink()
        object.__setattr__(self, "folder", full_path(folder))  # where it is, not what it is

    @classmethod
    def load(cls, folder: StrPath) -> Discovery:
        """Read a run folder; the model predicts exactly as before.

        Parameters
        ----------
        folder : path
            The run folder.

        Returns
        -------
        Discovery
            The discovery as it was saved.

        Raises
        ------
        InputError
            If it is not a run folder, of a newer version, or damaged.
        """
        place = Path(folder)
        facts = read_run_file(place)
        predictor = Predictor.from_facts(place, facts)
        model = predictor.model
        with reading(place / RUN_FILE):
            stable = _stability(facts.get("stability"))
            names = facts.get("suggested_names") or [""] * len(model.classes_)
            suggested = {name: str(said) for name, said in zip(model.classes_.tolist(), names, strict=True) if said}
        assignments = read_assignments(place, facts)
        model.history_ = [
            {name: from_json_value(value) for name, value in step.items()} for step in read_history(place)
        ]
        model.labels_ = assignments.labels
        loaded = cls(
            assignments,
            model,
            facts["provenance"],
            predictor.space,
            stable,
            suggested_names=suggested,
            folder=full_path(place),
        )
        if stable is not None:
            model.stability_ = stable
        if isinstance(model, InfoMaxEstimator):
            model.label_issues_ = loaded.label_issues()
            quality = assignments.label_quality
            model.label_quality_ = np.full(len(loaded), np.nan, np.float32) if quality is None else quality
        return loaded


def _stability(stored: list[float | None] | None) -> NDArray[np.float64] | None:
    if stored is None:
        return None
    return np.asarray([from_json_value(value) for value in stored], dtype=np.float64)


def _provenance(
    model: DiscoveryEstimator,
    features: FeatureSet,
    source: StrPath | None,
    duration: float | None,
    command: list[str] | None,
) -> dict[str, Any]:
    return {
        "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "duration_seconds": None if duration is None else round(duration, 3),
        "command": command,
        "seed": json_value(model.random_state),
        "versions": {
            "rpim": __version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("torch", "numpy", "scikit-learn")},
        },
        "data": {
            "path": None if source is None else os.fspath(source),
            "fingerprint": features.fingerprint(),
            "rows": len(features),
            "features": features.n_features,
            "labelled": features.n_labelled,
            "metadata": features.metadata,
        },
    }
