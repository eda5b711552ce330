"""The tables of a discovery: its rows as a DataFrame, and its new classes as HTML for notebooks."""

from __future__ import annotations

import html
import importlib
import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line, plural
from rpim.runs.class_summaries import expected_accuracy

if TYPE_CHECKING:
    from rpim.data.feature_set import FeatureSet
    from rpim.runs.discovery import Discovery

_SHOWN_CLASSES = 50
"""Maximum number of classes in the HTML table."""
_CLASS_COLUMNS = ("label", "given", "suggested", "runner_up")
"""Columns that hold classes."""


def rows_as_data_frame(discovery: Discovery) -> Any:
    """The columns of an export and the metadata columns, as a DataFrame."""
    _pandas()
    columns = with_metadata(discovery.assignments.columns(), metadata_of(discovery))
    return data_frame(columns, dict.fromkeys(_CLASS_COLUMNS, discovery.classes.tolist()))


def metadata_of(discovery: Discovery) -> Mapping[str, NDArray[Any]]:
    """The metadata columns of the rows; a warning says why, if those of a saved run cannot be read."""
    try:
        features = features_of_discovery(discovery)
    except InputError as error:
        warnings.warn(f"Metadata columns are left out: {first_line(error)}.", UserWarning, stacklevel=4)
        return {}
    return {} if features is None else features.columns


def features_of_discovery(discovery: Discovery) -> FeatureSet | None:
    """The features in memory, or else those that the run folder records; None if it was never saved."""
    from rpim.runs.run_folder import features_of

    if discovery.features is not None:
        return discovery.features
    return None if discovery.folder is None else features_of(discovery.folder)


def with_metadata(columns: Mapping[str, Any], metadata: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """The columns, followed by the metadata columns, masked where they have no value.

    A metadata column with the name of one of ours gets the prefix "data_".

    >>> list(with_metadata({"id": [1]}, {"id": np.array([2.0]), "price": np.array([3.0])}))
    ['id', 'data_id', 'price']
    """
    joined = dict(columns)
    for name, values in metadata.items():
        while name in joined:
            name = f"data_{name}"
        is_missing = values == "" if values.dtype.kind == "O" else np.isnan(values)
        joined[name] = np.ma.masked_array(values, is_missing)
    return joined


def data_frame(columns: Mapping[str, Any], classes: Mapping[str, Sequence[Any]]) -> Any:
    """A pandas DataFrame; columns of classes, and texts of which most occur more than once, are categorical.

    Parameters
    ----------
    columns : mapping of str to array or list
        Masked, None or "" for missing values.
    classes : mapping of str to sequence
        The classes that a column can hold.
    """
    pandas = _pandas()
    made = {}
    for name, values in columns.items():
        is_masked = isinstance(values, np.ma.MaskedArray)
        listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
        if name in classes:
            made[name] = pandas.Categorical(listed, list(dict.fromkeys(classes[name])))
        elif is_masked and values.dtype.kind == "f":
            made[name] = pandas.Series(values.filled(np.nan))
        elif is_masked and 2 * len(set(listed)) <= len(listed):
            made[name] = pandas.Categorical(listed)
        else:
            made[name] = pandas.Series(listed if is_masked else values)
    return pandas.DataFrame(made)


def _pandas() -> Any:
    try:
        return importlib.import_module("pandas")
    except ModuleNotFoundError as error:
        raise InputError("A DataFrame needs pandas, which is not installed: pip install 'rpim[notebook]'.") from error


def classes_as_html(discovery: Discovery) -> str:
    """A table of the new classes, below the counts and the expected accuracy."""
    summaries = discovery.classes_table()
    new = sorted((row for row in summaries if not row.known and row.rows), key=lambda row: -row.rows)
    lines = [_counts(discovery, len(new)), f"<p>{expected_accuracy(discovery.model)}</p>"]
    if new:
        names = ("new class", "rows", "confidence", "stability", "keywords")
        lines += ["<table><thead><tr>", *(f"<th>{name}</th>" for name in names), "</tr></thead><tbody>"]
        for row in new[:_SHOWN_CLASSES]:
            cells = (
                row.name,
                f"{row.rows:,}",
                _percent(row.mean_confidence),
                _percent(row.stability),
                ", ".join(row.keywords),
            )
            lines += ["<tr>", *(f"<td>{html.escape(str(cell))}</td>" for cell in cells), "</tr>"]
        lines.append("</tbody></table>")
    if len(new) > _SHOWN_CLASSES:
        lines.append(f"<p>… and {len(new) - _SHOWN_CLASSES:,} more new classes</p>")
    return f"<div>{''.join(lines)}</div>"


def _counts(discovery: Discovery, n_new: int) -> str:
    """One line of counts."""
    rows = discovery.assignments
    unlabelled = ~rows.labelled
    to_known, rejected = int((rows.known & unlabelled).sum()), int((rows.left_out & unlabelled).sum())
    to_new = int(unlabelled.sum()) - to_known - rejected
    counts = [
        plural(len(discovery), "row"),
        f"{int(rows.labelled.sum()):,} labelled",
        f"{to_known:,} assigned to {plural(len(discovery.model.known_classes_), 'known class')}",
        f"{to_new:,} to {plural(n_new, 'new class')}",
        *([f"{rejected:,} rejected"] if rejected else []),
    ]
    return f"<p><b>Discovery</b>: {', '.join(counts)}</p>"


def _percent(share: float) -> str:
    return "—" if math.isnan(share) else f"{share:.0%}"
