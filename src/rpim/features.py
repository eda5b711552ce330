"""FeatureSet: the rows to be clustered with their labels, ids and views, checked once where they come in.

Everything after this module may rely on finite two-dimensional features and on one label, id and text per row.
The formats of the files stand in ``feature_files``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import numbers
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from rpim.errors import InputError
from rpim.feature_files import read_features, read_labels, row_blocks, some, write_features
from rpim.labels import UNLABELLED, BoolArray, unlabelled_rows

FloatArray = NDArray[np.floating[Any]]
StrPath = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FeatureSet:
    """Features of N rows and what is known of each row.

    Build one with `from_arrays` or `read`, which check what they are given; the constructor itself checks nothing.

    Parameters
    ----------
    X : array of shape (N, D)
        float16, float32 or float64, kept as given; memory-mapped where it comes from an .npy file.
    ids : array of N strings or ints
        Unique, so that a decision about a row can be carried to another file.
    labels : array of N values, or None
        In the user's own type; -1, NaN or the empty string where a row has none.
    truth : array of N values, or None
        The true classes, for evaluation only: no method may look at them.
    views : tuple of arrays of shape (N, D)
        Further views of the same rows, e.g. of a second augmentation.
    texts, paths : list of N strings, or None
        What a person can look at for each row.
    metadata : dict
        JSON-able facts, such as the encoder's name.

    Examples
    --------
    >>> features = FeatureSet.from_arrays([[3.0, 4.0], [0.0, 2.0]], labels=["cat", None])
    >>> features
    FeatureSet(2 rows, 2 features, 1 labelled)
    >>> features.rows().tolist()[1]
    [0.0, 1.0]
    """

    X: FloatArray
    ids: NDArray[Any]
    labels: NDArray[Any] | None = None
    truth: NDArray[Any] | None = None
    views: tuple[FloatArray, ...] = ()
    texts: list[str] | None = None
    paths: list[str] | None = None
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike,
        labels: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        *,
        truth: ArrayLike | None = None,
        views: Iterable[ArrayLike] = (),
        texts: Iterable[str | None] | None = None,
        paths: Iterable[StrPath | None] | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> FeatureSet:
        """Check the arrays and keep them; X is not copied unless its type has to change.

        Raises
        ------
        InputError
            If they do not fit together, or X has values that cannot be clustered.

        Examples
        --------
        >>> FeatureSet.from_arrays([[1, 0], [0, 1]], labels=[4, None]).labels.tolist()
        [4, -1]
        """
        matrix = _matrix(X, "X")
        n = len(matrix)
        checked_views = tuple(_matrix(view, f"view_{k}") for k, view in enumerate(views, start=2))
        for k, view in enumerate(checked_views, start=2):
            if view.shape != matrix.shape:
                raise InputError(
                    f"view_{k} has shape {view.shape} but X has {matrix.shape}: give a view of the same rows."
                )
        try:
            facts = json.loads(json.dumps(dict(metadata or {})))
        except (TypeError, ValueError) as error:
            raise InputError(f"metadata is not JSON ({error}): use text, numbers, lists and dicts.") from error
        return cls(
            X=matrix,
            ids=_id_array(ids, n),
            labels=None if labels is None else _label_array(labels, "labels", n),
            truth=None if truth is None else _label_array(truth, "truth", n),
            views=checked_views,
            texts=None if texts is None else _strings(texts, "texts", n),
            paths=None if paths is None else _strings(paths, "paths", n),
            metadata=facts,
        )

    @classmethod
    def read(
        cls,
        path: StrPath,
        labels: StrPath | None = None,
        *,
        label_column: str | None = None,
        feature_column: str | None = None,
    ) -> FeatureSet:
        """Read an .npz, .npy, .parquet or .csv file, or PIM's folder of feature maps.

        Parameters
        ----------
        path : path of the file or folder
        labels : path of a labels file (.npy, .csv, .txt, .json or .parquet), optional
            Takes the place of any labels in `path`. Where it has ids, labels go to the rows of those ids and the
            rows it does not name stay unlabelled; otherwise it has one label per row.
        label_column : str, optional
            The column (or .npz key) with the labels, where it is not called label, labels or y.
        feature_column : str, optional
            The .parquet column (or .npz key) with the features, where several could be meant.
        """
        path = Path(path)
        columns = read_features(path, None if labels is not None else label_column, feature_column)
        if labels is not None:
            columns["labels"] = None
        try:
            features = cls.from_arrays(**columns)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        if labels is None:
            return features
        given = read_labels(Path(labels), features.ids, label_column)
        try:
            return dataclasses.replace(features, labels=_label_array(given, "labels", len(features)))
        except InputError as error:
            raise InputError(f"{labels}: {error}") from error

    def write(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write an .npz or .parquet file, whole or not at all.

        An .npz pads every text to the longest one; choose .parquet for long texts.
        """
        columns = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        write_features(Path(path), columns, overwrite)

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        return f"FeatureSet({len(self)} rows, {self.n_features} features, {self.n_labelled} labelled)"

    @property
    def n_features(self) -> int:
        """D, the number of columns."""
        return int(self.X.shape[1])

    @property
    def labelled(self) -> BoolArray:
        """True where a row has a label."""
        if self.labels is None:
            return np.zeros(len(self), dtype=bool)
        return ~unlabelled_rows(self.labels)

    @property
    def n_labelled(self) -> int:
        """How many rows have a label."""
        return int(self.labelled.sum())

    def rows(self, normalise: bool = True, dtype: DTypeLike = np.float32, *, view: int = 1) -> FloatArray:
        """A new contiguous matrix of the rows, each of length 1 if `normalise`; the original is left alone.

        Parameters
        ----------
        normalise : bool
        dtype : dtype of the result
        view : int
            1 for X, 2 for the first of `views`, and so on.
        """
        if not 1 <= view <= 1 + len(self.views):
            raise InputError(f"view {view} was asked for but the features have views 1 to {1 + len(self.views)}.")
        name, X = ("X", self.X) if view == 1 else (f"view_{view}", self.views[view - 2])
        out = np.empty(X.shape, dtype=dtype)  # (N, D)
        zero: list[int] = []
        for block in row_blocks(*X.shape):
            if not normalise:
                with np.errstate(over="ignore"):
                    out[block] = X[block]
                if not np.isfinite(out[block]).all():
                    raise InputError(f"{name} has values too large for {out.dtype}: ask for rows(dtype=numpy.float64).")
                continue
            values = X[block].astype(np.float64)  # (n, D)
            # Dividing by the largest value first keeps the squares of huge or tiny features within range.
            largest = np.maximum(values.max(axis=1), -values.min(axis=1))  # (n,)
            zero.extend((np.flatnonzero(largest == 0) + block.start).tolist())
            values /= np.where(largest == 0, 1.0, largest)[:, None]
            lengths = np.sqrt(np.einsum("nd,nd->n", values, values))  # (n,), at least 1 but for rows of zeros
            out[block] = np.divide(values, np.maximum(lengths, 1.0)[:, None], out=values)
        if zero:
            raise InputError(
                f"{name} has {_rows(zero)} of zeros only, which cannot be normalised: remove or embed again."
            )
        return out

    def fingerprint(self) -> str:
        """SHA-256 of the features (as float32), labels and ids, the same for float16 and float32 of equal values.

        Views, texts, paths, truth and metadata are left out.

        Examples
        --------
        >>> a = FeatureSet.from_arrays(np.eye(2, dtype=np.float16))
        >>> b = FeatureSet.from_arrays(np.eye(2, dtype=np.float64))
        >>> a.fingerprint() == b.fingerprint()
        True
        """
        digest = hashlib.sha256(f"rpim features 1: {len(self)} x {self.n_features}\n".encode())
        for block in row_blocks(*self.X.shape):
            with np.errstate(over="ignore"):
                digest.update(np.ascontiguousarray(self.X[block], dtype="<f4").data)
        for name, values in (("labels", self.labels), ("ids", self.ids)):
            digest.update(f"\n{name} ".encode())
            if values is not None:
                _add_values(digest, values)
        return digest.hexdigest()

    def subset(self, index: ArrayLike | slice) -> FeatureSet:
        """The rows at `index` (positions, a mask or a slice), in that order; a slice of a memory map stays one.

        Examples
        --------
        >>> FeatureSet.from_arrays([[1.0], [2.0], [3.0]]).subset([2, 0]).ids.tolist()
        [2, 0]
        """
        chosen: Any = index if isinstance(index, slice) else np.asarray(index)
        try:
            positions = np.arange(len(self))[chosen]  # (n,)
        except IndexError as error:
            raise InputError(f"The index of the subset does not fit {len(self)} rows: {error}.") from error
        if positions.ndim != 1 or positions.size == 0:
            raise InputError("The index of the subset chooses no rows: give positions, a mask or a slice.")
        if len(np.unique(positions)) < len(positions):
            raise InputError("The index of the subset has a row twice, but ids are unique: give each row once.")

        def take(values: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if values is None else values[chosen]

        def take_text(values: list[str] | None) -> list[str] | None:
            return None if values is None else [values[i] for i in positions]

        return dataclasses.replace(
            self,
            X=self.X[chosen],
            ids=self.ids[chosen],
            labels=take(self.labels),
            truth=take(self.truth),
            views=tuple(view[chosen] for view in self.views),
            texts=take_text(self.texts),
            paths=take_text(self.paths),
        )


def _rows(rows: Sequence[int]) -> str:
    """'1 row (4)' or '12 rows (0, 1, 2, 3, 4, ...)'."""
    return f"{len(rows)} row{'s' if len(rows) > 1 else ''} ({some(rows)})"


def _matrix(values: ArrayLike, name: str) -> FloatArray:
    """`values` as a finite (N, D) float array, still memory-mapped if it was."""
    if isinstance(values, np.ma.MaskedArray):
        raise InputError(f"{name} is a masked array: fill or remove the masked rows.")
    try:
        # asarray would take away the type that says it is memory-mapped.
        array: NDArray[Any] = values if isinstance(values, np.memmap) else np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(f"{name} cannot be made an array ({reason}): give N x D floats.") from error
    kind = array.dtype.kind
    if kind == "O":
        raise InputError(f"{name} is an object array, of unequal rows or of things not numbers: give N x D floats.")
    if kind not in "fiu":
        what = {"b": "True/False values", "c": "complex numbers"}.get(kind, f"{array.dtype} values, not numbers")
        raise InputError(f"{name} holds {what}: give features of float16, float32 or float64.")
    if array.ndim != 2:
        raise InputError(f"{name} has shape {array.shape}, not two dimensions: give rows of features.")
    if 0 in array.shape:
        lacking = "rows" if len(array) == 0 else "columns"
        raise InputError(f"{name} has shape {array.shape}, so it has no {lacking}: give at least one.")
    if kind in "iu":
        array = array.astype(np.float32)
    elif array.dtype.itemsize not in (2, 4, 8):
        array = array.astype(np.float64)
    bad: list[int] = []
    for block in row_blocks(*array.shape):
        finite = np.isfinite(array[block]).all(axis=1)
        bad.extend((np.flatnonzero(~finite) + block.start).tolist())
    if bad:
        raise InputError(f"{name} has NaN, missing or infinite values in {_rows(bad)}: remove or embed again.")
    return array


def _one_per_row(values: Any, name: str, n_rows: int) -> NDArray[Any]:
    """`values` as a flat array of n_rows; a list of text keeps its Nones, which numpy would spell 'None'."""
    try:
        array = np.asarray(values)
        if array.dtype.kind == "T" or (array.dtype.kind == "U" and not isinstance(values, np.ndarray)):
            array = np.asarray(values, dtype=object)
    except ValueError as error:
        raise InputError(f"{name} is not a plain list of {n_rows} values, one per row of X.") from error
    if array.ndim != 1:
        raise InputError(f"{name} has shape {array.shape}: give a flat list of {n_rows} values, one per row of X.")
    if len(array) != n_rows:
        raise InputError(f"{name} has {len(array)} values but X has {n_rows} rows: give one per row.")
    if array.dtype.kind == "S":
        try:
            array = np.char.decode(array, "utf-8")
        except UnicodeDecodeError as error:
            raise InputError(f"{name} has bytes that are not UTF-8 ({error.reason}): give text.") from error
    return array


def _typed(array: NDArray[Any], missing: BoolArray, name: str) -> NDArray[Any]:
    """An object array as text, ints or floats, with "", -1 or NaN where missing, so that no file needs a pickle."""
    present = array[~missing].tolist()
    if all(isinstance(value, str) for value in (present or array.tolist())):
        return np.asarray(["" if gone else value for value, gone in zip(array, missing, strict=True)], dtype=str)
    try:
        if all(isinstance(value, numbers.Integral | np.bool_) for value in present):
            out = np.full(len(array), UNLABELLED, dtype=np.int64)
            out[~missing] = np.asarray(present, dtype=np.int64)
            return out
    except OverflowError as error:
        raise InputError(f"{name} has a number beyond 64 bits: give it as text.") from error
    if all(isinstance(value, numbers.Real) for value in present):
        return np.asarray([np.nan if gone else float(v) for v, gone in zip(array, missing, strict=True)])
    kinds = ", ".join(sorted({type(value).__name__ for value in present}))
    raise InputError(f"{name} mixes or holds values of type {kinds}: give only text or only numbers.")


def _label_array(values: ArrayLike, name: str, n_rows: int) -> NDArray[Any]:
    array = _one_per_row(values, name, n_rows)
    if array.dtype.kind == "O":
        return _typed(array, unlabelled_rows(array), name)
    if array.dtype.kind not in "biufU":
        raise InputError(f"{name} holds values of type {array.dtype}: give text or numbers.")
    return array


def _id_array(values: ArrayLike | None, n_rows: int) -> NDArray[Any]:
    if values is None:
        return np.arange(n_rows, dtype=np.int64)
    array = _one_per_row(values, "ids", n_rows)
    if array.dtype.kind == "O":
        array = _typed(array, np.zeros(n_rows, dtype=bool), "ids")
    if array.dtype.kind not in "iuU":
        raise InputError(f"ids are of type {array.dtype}: give text or whole numbers, with none missing.")
    ordered = np.sort(array)
    repeated = ordered[1:][ordered[1:] == ordered[:-1]]
    if repeated.size:
        raise InputError(f"ids has {repeated[0].item()!r} more than once: give each row an id of its own.")
    return array


def _strings(values: Iterable[Any], name: str, n_rows: int) -> list[str]:
    """A list rather than an array, in which every text would take the room of the longest."""
    if isinstance(values, str):
        raise InputError(f"{name} is one text, {values[:40]!r}: give a list of {n_rows} texts.")
    given = ("" if value is None else value for value in values)
    strings = [os.fspath(value) if isinstance(value, os.PathLike) else value for value in given]
    if len(strings) != n_rows:
        raise InputError(f"{name} has {len(strings)} values but X has {n_rows} rows: give one per row.")
    for row, value in enumerate(strings):
        if not isinstance(value, str):
            raise InputError(f"{name} has {value!r} in row {row}, which is not text.")
    return [str(value) for value in strings]


def _add_values(digest: Any, values: NDArray[Any]) -> None:
    """Labels or ids into the digest, the same for int32 and int64."""
    if values.dtype.kind == "U":
        for value in values.tolist():
            text = value.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(text) + text)  # the length, so that ["ab", "c"] differs from ["a", "bc"]
        return
    form = {"f": "<f8", "b": "|b1"}.get(values.dtype.kind, "<i8")
    digest.update(form.encode())
    digest.update(np.ascontiguousarray(values, dtype=form).data)
