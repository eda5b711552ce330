"""The features that a run was made of: where they are, and whether they are still the same."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim._common.files import RUN_FILE
from rpim.data.feature_set import FeatureSet
from rpim.runs.assignments import Assignments
from rpim.runs.run_folder import ASSIGNMENTS_FILE, FEATURES_FILE, read_run_file, reading


def features_of(run: Path, given: Path | None = None) -> FeatureSet:
    """The rows of a run, in its order and with the labels that it was given.

    Parameters
    ----------
    run : path of the run folder
    given : path, optional
        Where the features are now. Otherwise they are looked for in the run folder, and where the run read them.

    Raises
    ------
    InputError
        If they are not to be found, or are not those of the run.
    """
    facts = read_run_file(run)
    with reading(run / RUN_FILE):
        label_type, provenance = facts["label_type"], dict(facts["provenance"])
    with reading(run / ASSIGNMENTS_FILE):
        assignments = Assignments.read_parquet(run / ASSIGNMENTS_FILE, label_type)
    path = given or where_features_are(run, provenance)
    features = _rows_of(FeatureSet.read(path), assignments.ids, path)
    # Labels may have come from a file of their own; the run keeps what it was given.
    features = dataclasses.replace(features, labels=assignments.given)
    if "extends" not in provenance and features.fingerprint() != provenance["data"]["fingerprint"]:
        raise InputError(f"{path} is not what {run} was made of, it has changed since: give --features FILE.")
    return features


def where_features_are(run: Path, provenance: dict[str, Any]) -> Path:
    """In the run folder, or where the run read them."""
    if (run / FEATURES_FILE).is_file():
        return run / FEATURES_FILE
    if "extends" in provenance:
        raise InputError(f"{run} was extended, so its rows are in several files: give --features FILE with all.")
    told = provenance.get("data", {}).get("path")
    if told is None:
        raise InputError(f"{run} does not say which features it was made of: give --features FILE.")
    if not Path(told).exists():
        raise InputError(f"The features of {run} are no longer at {told}: give --features FILE.")
    return Path(told)


def _rows_of(features: FeatureSet, ids: NDArray[Any], path: Path) -> FeatureSet:
    """The rows with these ids, in this order."""
    if np.array_equal(features.ids, ids):
        return features
    place = {name: row for row, name in enumerate(features.ids.tolist())}
    rows = [place.get(name, -1) for name in ids.tolist()]
    missing = rows.count(-1)
    if missing:
        raise InputError(f"{path} lacks {missing:,} of the {len(ids):,} rows of the run: give --features FILE.")
    return features.subset(rows)
