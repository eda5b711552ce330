"""Background jobs of the explorer: a UMAP map, suggested names, and refits with a person's decisions.

Two of them run in processes of their own, which print their progress as JSON lines:

python -m rpim.explorer.background map ROWS.npy MAP.npy
    UMAP compiles for seconds and then holds the GIL for minutes, during which the server could not answer.
python -m rpim.explorer.background refit RUN JOB.npz TARGET [FEATURES]
    Decisions become labels, and the result is a run folder inside the old one.
"""

from __future__ import annotations

import dataclasses
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.base import clone

from rpim._common.errors import InputError, first_line
from rpim._common.progress import progress_listener
from rpim.data.formats.arrays import load_npy, open_npz
from rpim.data.labels import name_rows
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.infomax import InfoMaxEstimator
from rpim.estimators.objective import nested_names
from rpim.explorer.jobs import Job, emit, held
from rpim.explorer.workbench import Workbench
from rpim.runs.assignments import class_codes
from rpim.runs.decisions import BoolArray, IntArray, State
from rpim.runs.discovery import Discovery
from rpim.runs.maps import N_DIRECTIONS, PRINCIPAL_MAP, UMAP_MAP, kind_of_map, leading, two_dimensional
from rpim.runs.predictor import Predictor
from rpim.runs.run_folder import REFITS_FOLDER, features_of, read_run_file, recorded_features_path
from rpim.runs.versions import version_numbers

JOB = "job.npz"
RUNNING = ".running"
"""The folder of a refit in progress, beside those of finished refits."""


class Background:
    """The background jobs of an open run.

    Parameters
    ----------
    bench : Workbench
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self._refits = bench.versions.run / REFITS_FOLDER
        self.mapping, self.refitting = Job("map"), Job("refit", self._refits / RUNNING)
        self.refitting.resume(self._take)

    def map(self) -> None:
        """Compute a UMAP map, unless there is one or umap-learn is missing."""
        bench = self._bench
        if bench.map_kind != PRINCIPAL_MAP or kind_of_map() != UMAP_MAP or len(bench) < N_DIRECTIONS:
            return

        def prepare(folder: Path) -> list[str]:
            np.save(folder / "rows.npy", leading(bench.refined, N_DIRECTIONS), allow_pickle=False)
            return ["map", str(folder / "rows.npy"), str(folder / "map.npy")]

        self.mapping.start(
            "rpim.explorer.background", prepare, lambda folder: bench.keep_map(load_npy(folder / "map.npy"))
        )

    def suggest_names(self) -> None:
        """Suggest names for new classes."""
        threading.Thread(target=self._bench.suggest_names, daemon=True).start()

    def refit(self, version: int) -> None:
        """Refit with the decisions about a version; the result becomes the active version.

        The refit continues if the server stops or is killed; the next server takes it over.
        """
        bench, versions = self._bench, self._bench.versions

        def prepare(folder: Path) -> list[str]:
            for left in self._refits.glob(".*.partial"):  # left by a refit that was cancelled while writing
                shutil.rmtree(left, ignore_errors=True)
            number = max(version_numbers(versions.run)) + 1  # after another server's refit, and after damaged ones
            made = plan(versions.state(version), versions[version].labelled, versions[version].confidence)
            write_job(folder / JOB, made, version, number)
            features = [] if bench.features_path is None else [bench.features_path.resolve()]
            return ["refit", *map(str, (versions.run, folder / JOB, versions.folder(number), *features))]

        self.refitting.start("rpim.explorer.background", prepare, self._take)

    def _take(self, folder: Path) -> None:
        """Activate the version of a finished refit."""
        self._bench.versions.activate(number_of_job(folder / JOB))
        self.suggest_names()

    def end(self) -> None:
        """The server stops: cancel the map. A refit continues."""
        if self.mapping.status == "running":
            self.mapping.cancel()


def _map_child(rows: Path, target: Path) -> None:
    np.save(target, two_dimensional(load_npy(rows)), allow_pickle=False)
    emit(done=True)


MOST_CONFIDENT = 50
"""Number of most confident rows of a reviewed class that are used as labels."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The inputs of a refit.

    Attributes
    ----------
    rows : (n,) int32
        The rows to fit: all except junk.
    labels : (n,) str
        The label of each row, "" for unlabelled.
    before : (n,) str
        The previous class of each row, so that discovered classes keep their names.
    n_classes : int
    unnamed : tuple of str
        New classes that no person has named or accepted: they stay new even if some of their rows are labelled.
    """

    rows: IntArray
    labels: NDArray[np.str_]
    before: NDArray[np.str_]
    n_classes: int
    unnamed: tuple[str, ...] = ()


def plan(state: State, labelled: BoolArray, confidence: NDArray[np.float32]) -> Plan:
    """The labels of a refit: the given labels, updated by the decisions.

    Labelled rows and rows moved by hand are labelled with their current class, and so are the most confident rows of
    classes that were renamed, accepted, merged or split.
    """
    names = np.asarray(state.names())
    has_label = labelled | state.by_hand
    for number, info in state.classes.items():
        if info.reviewed:
            rows = state.rows_of(number)
            has_label[rows[np.argsort(-confidence[rows], kind="stable")[:MOST_CONFIDENT]]] = True
    kept = np.flatnonzero(~state.junk).astype(np.int32)
    unnamed = (info.name for info in state.classes.values() if not (info.known or info.named or info.accepted))
    n_classes = sum(size > 0 for size in state.sizes().values())
    return Plan(kept, np.where(has_label, names, "")[kept], names[kept], n_classes, tuple(unnamed))


def inherited_names(names: list[str], n_known: int, found: IntArray, before: NDArray[np.str_]) -> list[str]:
    """Rename discovered classes to the previous class of most of their rows.

    Parameters
    ----------
    names : list
        Classes of the refit, known classes first.
    found : (n,)
        The class number of each row, -1 for none.
    before : (n,)
        The previous class name of each row.

    >>> inherited_names(["cat", "new-1", "new-2"], 1, np.array([1, 1, 2, 0]), np.array(["new-7", "new-7", "x", "cat"]))
    ['cat', 'new-7', 'x']
    """
    free = sorted(set(before.tolist()) - set(names[:n_known]) - {""})
    place = {name: k for k, name in enumerate(free)}
    shared = np.zeros((len(names) - n_known, len(free)), dtype=np.int64)
    for number, name in zip(found.tolist(), before.tolist(), strict=True):
        if number >= n_known and name in place:
            shared[number - n_known, place[name]] += 1
    called = list(names)
    for new, old in zip(*linear_sum_assignment(-shared), strict=True):
        if shared[new, old]:
            called[n_known + new] = free[old]
    for k in range(n_known, len(names)):  # a class that keeps its name must not collide with an inherited one
        if called.count(called[k]) > 1 and called[k] == names[k]:
            called[k] = next(f"new-{i}" for i in range(1, len(names) * 2 + 2) if f"new-{i}" not in {*called, *free})
    return called


def write_job(path: Path, made: Plan, version: int, number: int) -> None:
    """Write the child's input: the plan, the parent version, and the number of the new version."""
    np.savez(path, **{**vars(made), "unnamed": np.array(made.unnamed, dtype=np.str_)}, version=version, number=number)


def number_of_job(path: Path) -> int:
    """The number of the version that a job creates."""
    with open_npz(path) as stored:
        return int(stored["number"])


def _refit_child(run: Path, job: Path, target: Path, *features: Path) -> None:
    with held(job.parent):
        try:
            refit_run(run, job, target, features[0] if features else None)
            emit(done=True)
        except Exception as error:
            emit(error=str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {first_line(error)}")
            raise SystemExit(1) from error


def refit_run(run: Path, job: Path, target: Path, features_path: Path | None = None) -> None:
    """Read the job, refit, and write the run folder."""
    source = features_path or recorded_features_path(run, dict(read_run_file(run)["provenance"]))
    with open_npz(job) as stored:
        unnamed = tuple(stored["unnamed"].tolist())
        made = Plan(stored["rows"], stored["labels"], stored["before"], int(stored["n_classes"]), unnamed)
        version = int(stored["version"])
    features = dataclasses.replace(features_of(run, features_path).subset(made.rows), labels=made.labels)
    model = _unfitted_copy(Predictor.load(run).model, made.n_classes)
    start = time.monotonic()
    with progress_listener(_ProgressEmitter()):
        views = features.rows_of_views(model.normalize) if model.uses_views else []
        model.fit(features.rows(normalize=model.normalize), made.labels, views, widths=features.widths)
        _keep_names(model, made)
        _keep_new(model, made.unnamed)
        discovery = Discovery.from_fit(model, features, source=source.resolve(), duration=time.monotonic() - start)
    discovery.provenance["refit"] = {"of": str(run.resolve()), "version": version}
    target.parent.mkdir(exist_ok=True)
    discovery.save(target)


def _unfitted_copy(fitted: DiscoveryEstimator, n_classes: int) -> DiscoveryEstimator:
    """An unfitted estimator with the run's parameters; searched parameters keep their found values."""
    found: dict[str, Any] = {name: getattr(fitted, f"{name}_") for name in getattr(fitted, "search_", {})}
    model: DiscoveryEstimator = clone(fitted)
    model.set_params(**nested_names(type(fitted), found), n_classes=n_classes, verbose=False)
    return model


def _keep_names(model: DiscoveryEstimator, made: Plan) -> None:
    n_known = len(model.known_classes_)
    codes = class_codes(model.labels_, model.classes_)
    names = inherited_names(model.classes_.tolist(), n_known, codes.astype(np.int32), made.before)
    called = dict(zip(model.classes_.tolist(), names, strict=True))
    model.classes_ = np.asarray(names)
    model.known_classes_, model.new_classes_ = model.classes_[:n_known], model.classes_[n_known:]
    model.labels_ = name_rows(codes, model.classes_)
    if isinstance(model, InfoMaxEstimator):
        model.label_issues_ = [issue._replace(suggested=called[issue.suggested]) for issue in model.label_issues_]


def _keep_new(model: DiscoveryEstimator, unnamed: tuple[str, ...]) -> None:
    """Make labelled classes without a name new classes again: they follow the known ones."""
    n_fitted, is_new = len(model.known_classes_), np.isin(model.known_classes_, np.array(unnamed, dtype=np.str_))
    if not is_new.any() or is_new.all():  # a model needs a known class
        return
    order = np.concatenate([np.argsort(is_new, kind="stable"), np.arange(n_fitted, len(model.classes_))])
    n_known = n_fitted - int(is_new.sum())
    model.classes_ = model.classes_[order]
    model.known_classes_, model.new_classes_ = model.classes_[:n_known], model.classes_[n_known:]
    head = model.head_
    places = torch.from_numpy(order).to(head.prototypes.device)
    head.prototypes = head.prototypes[places]
    head.offsets = None if head.offsets is None else head.offsets[places]
    if isinstance(model, InfoMaxEstimator):
        model.exemplars_ = model.exemplars_.renumbered(places.argsort(), len(order))
        if model.n_members_ > 1:
            model.stability_ = model.stability_[order]


class _ProgressEmitter:
    """Emit progress as JSON lines, a few per second."""

    def __init__(self) -> None:
        self._last = ("", 0.0)

    def __call__(self, stage: str, share: float) -> None:
        before, when = self._last
        if stage != before or time.monotonic() - when > 0.2:
            self._last = stage, time.monotonic()
            emit(stage=stage, share=round(share, 3))


def main() -> None:
    """The child process: compute a map, or refit."""
    children: dict[str, Callable[..., None]] = {"map": _map_child, "refit": _refit_child}
    children[sys.argv[1]](*map(Path, sys.argv[2:]))


if __name__ == "__main__":
    main()
