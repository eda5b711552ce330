"""Columns of tables: their names, cells that are text, and metadata.

Metadata is what a user knows about each row beside its label, such as a date, a source or a price. No method uses it.
A metadata column is an array of numbers, with NaN for a missing one, or of strings, with "" for a missing one. Strings
are in an array of objects: a numpy array of strings pads each to the longest.
"""

from __future__ import annotations

import contextlib
import datetime
import decimal
import itertools
import numbers
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rpim._common.errors import InputError, MissingColumn, short

# Names of a column, or an .npz key. The column without a name is the index that pandas writes first.
NAMES = {
    "X": ("features", "x", "embeddings", "feats"),
    "labels": ("labels", "label", "y"),
    "truth": ("truth", "targets"),
    "ids": ("ids", "id", ""),
    "texts": ("texts", "text"),
    "paths": ("paths", "path"),
    "split": ("splits", "split"),
}
PER_ROW = ("labels", "truth", "ids", "texts", "paths", "split")

VIEW = re.compile(r"view_(\d+)")
DECIMAL = re.compile(r"-?(0|[1-9]\d{0,17})\.\d+")
_WHOLE = re.compile(r"-?(0|[1-9]\d{0,17})")  # not 007, which a number would turn into 7
_NO_NUMBER = ("", "nan", "NaN")
_DATE = re.compile(r"(\d{4}-\d\d(?:-\d\d)?)(?:[ T](\d\d:\d\d(?::\d\d)?)(?:\.\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?")
_OTHER_DATE = re.compile(r"\d{1,2}([./-])\d{1,2}\1(?:\d\d|\d{4})")
_MAX_SHOWN = 12


def is_called(name: str, field: str) -> bool:
    """Whether a column of this name holds the field.

    >>> is_called("Targets", "truth"), is_called("f0", "truth")
    (True, False)
    """
    return name.strip().lower() in NAMES[field]


def is_metadata_name(name: str) -> bool:
    """Whether a column, or .npz key, of this name is metadata: not the name of a field.

    >>> is_metadata_name("price"), is_metadata_name("Label"), is_metadata_name("view_2")
    (True, False, False)
    """
    fixed = name == "metadata_json" or VIEW.fullmatch(name) is not None
    return not fixed and not any(is_called(name, field) for field in NAMES)


def metadata_names(names: Sequence[str], taken: Iterable[str]) -> list[str]:
    """The names of metadata columns: unique, not taken, and not the index of pandas."""
    others, times = set(taken), Counter(names)
    return [
        name
        for name in names
        if name not in others and is_metadata_name(name) and times[name] == 1 and not name.startswith("__index_level_")
    ]


def find_column(path: Path, names: Sequence[str], field: str, wanted: str | None = None) -> str | None:
    """Find the column of a field: the wanted one, or one with a usual name."""
    if wanted is not None:
        if wanted not in names:
            raise InputError(f"{path} has no column {wanted!r}: it has {', '.join(map(repr, names))}.")
        return wanted
    found = [name for name in names if is_called(name, field)]
    if len(found) > 1:
        option = {"labels": "--label-column (label_column)", "X": "--feature-column (feature_column)"}.get(field)
        other = f" or choose with {option}" if option else ""
        raise InputError(f"{path} has several columns for {field} ({', '.join(found)}): keep one{other}.")
    return found[0] if found else None


def find_per_row(path: Path, names: Sequence[str], wanted: Mapping[str, str | None]) -> dict[str, str]:
    """Map the fields that a file has to their columns: the wanted ones, or those with a usual name."""
    found = {field: find_column(path, names, field, wanted.get(field)) for field in PER_ROW}
    return {field: name for field, name in found.items() if name is not None}


def labels_from_text(cells: list[str]) -> list[Any]:
    """Convert labels to numbers if every cell is one or empty, else leave them as text."""
    numbers = [cell for cell in cells if cell not in _NO_NUMBER]
    if are_whole(numbers):
        return [None if cell in _NO_NUMBER else int(cell) for cell in cells]
    if all(_WHOLE.fullmatch(cell) or DECIMAL.fullmatch(cell) for cell in numbers):
        return [None if cell in _NO_NUMBER else float(cell) for cell in cells]
    return cells


def are_whole(cells: Iterable[str]) -> bool:
    """Whether every cell is an integer as Python writes it."""
    return all(_WHOLE.fullmatch(cell) for cell in cells)


def column_from_text(cells: list[str]) -> list[Any]:
    """Convert a metadata column to numbers if every cell is one or empty, else leave it as text.

    >>> column_from_text(["3", "", "2.5"]), column_from_text(["0041", "12"])
    ([3.0, None, 2.5], ['0041', '12'])
    """
    if all(cell in _NO_NUMBER or _WHOLE.fullmatch(cell) or DECIMAL.fullmatch(cell) for cell in cells):
        return [None if cell in _NO_NUMBER else float(cell) for cell in cells]
    return cells


def ids_from_text(cells: list[str]) -> list[Any]:
    """Convert ids to integers if all of them are, else leave them as text."""
    return [int(cell) for cell in cells] if are_whole(cells) else cells


_MIN_WORDS = 2.5
_MAX_LABEL = 60
_SAMPLED = 1000


def prose_columns(columns: Mapping[str, Iterable[Any]]) -> list[str]:
    """The columns that look like texts: strings of several words, or long ones without spaces, and few repeated.

    >>> prose_columns({"question": ["where is my card", "I lost my card"], "intent": ["card", "lost card"]})
    ['question']
    """
    found = []
    for name, cells in columns.items():
        texts = _filled(cells)
        if not texts or not all(isinstance(text, str) for text in texts) or 2 * len(set(texts)) < len(texts):
            continue
        n_words = sum(len(text.split()) for text in texts) / len(texts)
        n_unspaced = sum(len(text) for text in texts if not text.isascii()) / len(texts)
        if n_words >= _MIN_WORDS or n_unspaced >= 6:  # Chinese and Japanese have no spaces
            found.append(name)
    return found


def label_columns(columns: Mapping[str, Iterable[Any]]) -> list[str]:
    """The columns that look like labels: at least two short values, most of them repeated, neither decimals nor dates.

    >>> label_columns({"intent": ["card", "", "card", "pin", "pin"], "price": ["0.5", "1.5", "0.5", "1.5", ""]})
    ['intent']
    >>> label_columns({"day": ["2024-01-05", "2024-01-06"] * 2, "seen": ["05/01/2024", "6.1.24"] * 2})
    []
    """
    found = []
    for name, cells in columns.items():
        values = _filled(cells)
        kinds = {str(value) for value in values}
        if any(isinstance(value, float) or DECIMAL.fullmatch(str(value)) for value in values):
            continue
        if all(_DATE.fullmatch(kind) or _OTHER_DATE.fullmatch(kind) for kind in kinds):
            continue
        if 2 <= len(kinds) <= len(values) / 2 and max(map(len, kinds)) <= _MAX_LABEL:
            found.append(name)
    words = [name for name in found if not are_whole(map(str, _filled(columns[name])))]
    return words or found  # numbers are labels only where no column of words is


def shown_columns(columns: Mapping[str, Iterable[Any]]) -> str:
    """The names of columns, each with its first value.

    >>> shown_columns({"utterance": ["", "I lost my card"], "intent": ["lost_card", ""]})
    "utterance ('I lost my card') and intent ('lost_card')"
    """
    said = []
    for name, cells in list(columns.items())[:_MAX_SHOWN]:
        values = _filled(cells)
        said.append(f"{name} ({short(values[0], 40)!r})" if values else f"{name} (empty)")
    if len(columns) > _MAX_SHOWN:
        said.append(f"{len(columns) - _MAX_SHOWN} more")
    return " and ".join(filter(None, (", ".join(said[:-1]), *said[-1:])))


def missing_texts(path: Path, columns: Mapping[str, Iterable[Any]]) -> MissingColumn:
    """The error for a table without a column called text: its columns, and which look like texts and labels."""
    texts = prose_columns(columns)
    has_labels = any(is_called(name, "labels") for name in columns)
    labels = [] if has_labels else [name for name in label_columns(columns) if name not in texts]
    guessed = {"--text-column": texts, "--label-column": labels}
    which = f" ({' or '.join(texts[:3])})" if len(texts) > 1 else ""
    return MissingColumn(
        f"{path} has no column called text, only {shown_columns(columns) or 'none'}: "
        f"name the one with the texts with --text-column{which}.",
        {option: names[0] for option, names in guessed.items() if len(names) == 1} if len(texts) == 1 else {},
    )


def missing_labels(path: Path, columns: Mapping[str, Iterable[Any]]) -> MissingColumn:
    """The error for a table without a column called label: its other columns, and which look like labels."""
    labels = label_columns(columns)
    which = f" ({' or '.join(labels[:3])})" if len(labels) > 1 else ""
    return MissingColumn(
        f"{path} has no column called label, only {shown_columns(columns)}: name the one with the labels with "
        f"--label-column{which}, give --labels FILE, or --no-labels to cluster the rows.",
        {"--label-column": labels[0]} if len(labels) == 1 else {},
    )


def _filled(cells: Iterable[Any]) -> list[Any]:
    """The first values that are not missing."""
    return [cell for cell in itertools.islice(cells, _SAMPLED) if not _is_missing(cell) and cell != ""]


_NUMBERS = (numbers.Real, decimal.Decimal)
_BOOLEANS = (bool, np.bool_)
_SCALARS = (str, datetime.date, datetime.time, *_NUMBERS, *_BOOLEANS)


def metadata_columns(given: Mapping[str, ArrayLike], n_rows: int) -> dict[str, NDArray[Any]]:
    """Check metadata columns: no name of another field, and one number or string per row.

    >>> found = metadata_columns({"price": [3, None], "seen": [datetime.date(2024, 1, 5), None]}, 2)
    >>> found["price"].tolist(), found["seen"].tolist()
    ([3.0, nan], ['2024-01-05', ''])
    """
    for name in given:
        if not isinstance(name, str) or not is_metadata_name(name):
            raise InputError(f"columns has {name!r}, which is the name of another field in files: rename it.")
    return {name: column_array(values, name, n_rows) for name, values in given.items()}


def scalar_columns(found: Mapping[str, Sequence[Any]]) -> dict[str, Sequence[Any]]:
    """Keep the columns of a table whose values are scalars, such as numbers, strings and dates."""
    return {
        name: values
        for name, values in found.items()
        if all(_is_missing(cell) or isinstance(cell, _SCALARS) for cell in values)
    }


def column_array(values: Any, name: str, n_rows: int) -> NDArray[Any]:
    """Convert one column to numbers or strings.

    Booleans, dates and times become strings, and so do mixed values.

    Raises
    ------
    InputError
        If there is not one value per row, or they are lists or the like.
    """
    is_array = isinstance(values, np.ndarray) and not isinstance(values, np.ma.MaskedArray)
    if isinstance(values, str) or np.ndim(values) == 0 or (is_array and values.ndim != 1):
        raise InputError(f"The column {name!r} is not a flat list: give one value per row.")
    if len(values) != n_rows:
        raise InputError(f"The column {name!r} has {len(values)} values but X has {n_rows} rows: give one per row.")
    if is_array and values.dtype.kind in "iuf":
        return np.asarray(values)
    if is_array and values.dtype.kind == "M":
        values = np.where(np.isnat(values), "", np.datetime_as_string(values))
    if is_array and values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8", "replace")
    listed = values.tolist() if isinstance(values, np.ndarray) else values
    cells = [None if _is_missing(cell) else cell for cell in listed]
    odd = next((cell for cell in cells if cell is not None and not isinstance(cell, _SCALARS)), None)
    if odd is not None:
        raise InputError(f"The column {name!r} has values of type {type(odd).__name__}: give numbers or text.")
    if all(cell is None or (isinstance(cell, _NUMBERS) and not isinstance(cell, _BOOLEANS)) for cell in cells):
        with contextlib.suppress(OverflowError):  # a number beyond all floats is a text
            return np.asarray([np.nan if cell is None else float(cell) for cell in cells])
    kept: dict[str, str] = {}  # equal strings share one object
    texts = np.empty(n_rows, dtype=object)
    texts[:] = [kept.setdefault(text, text) for text in map(_as_string, cells)]
    return texts


def _is_missing(cell: Any) -> bool:
    """None, NaN, and the NA and NaT of pandas."""
    if isinstance(cell, numbers.Real):
        return bool(cell != cell)
    return cell is None or type(cell).__name__ in ("NAType", "NaTType")


def _as_string(cell: Any) -> str:
    if isinstance(cell, _BOOLEANS):
        return "true" if cell else "false"
    return "" if cell is None else str(cell)


def read_dates(values: NDArray[Any]) -> tuple[NDArray[np.float64], list[str]]:
    """Seconds since 1970 of dates such as 2024-01-31, 2024-01 or 2024-01-31 12:30, and the strings that are no dates.

    Time zones are ignored. Missing values and strings that are no dates are NaN.

    >>> seconds, others = read_dates(np.array(["1970-01-02", "", "soon"], dtype=object))
    >>> seconds.tolist(), others
    ([86400.0, nan, nan], ['soon'])
    """
    found, others = {}, []
    for text in dict.fromkeys(values.tolist()):
        match = _DATE.fullmatch(text)
        try:
            if match is not None:
                found[text] = float(np.datetime64("T".join(filter(None, match.groups())), "s").astype(np.int64))
                continue
        except ValueError:  # 2024-02-30
            pass
        if text:
            others.append(text)
    return np.array([found.get(text, np.nan) for text in values.tolist()], dtype=np.float64), others


def view_names(names: Sequence[str]) -> list[str]:
    """The columns of the views after the first, in order."""
    numbered = [(int(match[1]), name) for name in names if (match := VIEW.fullmatch(name))]
    return [name for _, name in sorted(numbered)]
