"""Extend the model and the rows of a run by new rows."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim.data.feature_set import FeatureSet
from rpim.estimators.infomax import InfoMaxEstimator
from rpim.runs.assignments import Assignments, assign


def check_new_rows(new: FeatureSet, rows: Assignments, provenance: dict[str, Any]) -> None:
    """Raise if the new rows and their labels are already in the run.

    Parameters
    ----------
    new : FeatureSet
    rows : Assignments
        The rows of the run.
    provenance : dict
        Of the run, with that of the run that it extends, and so on.
    """
    before: dict[str, Any] | None = provenance
    fingerprint = new.fingerprint()
    while before is not None:
        if before["data"]["fingerprint"] == fingerprint:
            raise InputError("The new rows are those of the run, with the same labels: give new rows or labels.")
        before = before.get("extends")
    if new.n_labelled == 0 and np.isin(_renumbered(new.ids, rows.ids), rows.ids).all():
        raise InputError(
            "All ids of the new rows are already in the run, and none is labelled: give new rows or labels."
        )


def extend_model(
    model: InfoMaxEstimator, rows: Assignments, new: FeatureSet, *, verbose: bool = False
) -> tuple[InfoMaxEstimator, Assignments]:
    """A copy of the model that has learned from the new rows, and the rows of both.

    A new row replaces the row with the same id.
    """
    numbered = dataclasses.replace(new, ids=_renumbered(new.ids, rows.ids))
    model = copy.deepcopy(model)
    model.verbose = verbose
    model.extend(new.rows(normalize=model.normalize), new.labels)

    def renamed(names: NDArray[Any]) -> NDArray[Any]:
        return np.array([model.renamed_.get(name, name) for name in names.tolist()])

    before = dataclasses.replace(
        rows,
        labels=renamed(rows.labels),
        runner_up=renamed(rows.runner_up),
        suggested=None if rows.suggested is None else renamed(rows.suggested),
    )
    later = assign(model, numbered, model.labels_, verbose=verbose)
    both = before.followed_by(later, model.classes_, len(model.known_classes_))
    model.labels_ = both.labels
    return model, both


def _renumbered(ids: NDArray[Any], taken: NDArray[Any]) -> NDArray[Any]:
    """The ids; default ids 0, 1, ... that are taken are replaced by the next free numbers."""
    if taken.dtype.kind in "iu" and np.array_equal(ids, np.arange(len(ids))) and len(taken):
        return ids + int(taken.max()) + 1
    return ids
