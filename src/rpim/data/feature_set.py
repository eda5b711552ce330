"""FeatureSet: embeddings with their labels, ids, views and metadata, checked once.

Code that takes a FeatureSet may rely on finite two-dimensional features and on one label, id and text per row. The
checks of single arrays are in ``labels``, the file formats in ``formats``.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from rpim._common.errors import InputError, some_rows
from rpim._common.files import StrPath
from rpim._common.hardware import BLOCK_VALUES, as_bytes
from rpim.data.columns import metadata_columns
from rpim.data.formats.feature_files import (
    declared_size,
    is_pim_folder,
    read_features,
    read_shards,
    write_features,
)
from rpim.data.formats.label_files import read_added_labels, read_labels
from rpim.data.labels import (
    EMBEDDINGS,
    BoolArray,
    FloatArray,
    column_slices,
    feature_matrix,
    id_array,
    label_array,
    named_widths,
    side_by_side,
    text_list,
    unit_rows,
    unlabelled_rows,
)
from rpim.data.row_files import RowFiles, is_row_folder, row_blocks_of

SURELY_FITS = 64 << 20
"""Files that declare less than this are read without asking whether they fit into memory."""


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class FeatureSet:
    """Features of N rows, with labels, ids and metadata.

    Build one with `from_arrays` or `read`, which check their input; the constructor does not.

    Parameters
    ----------
    X : array of shape (N, D)
        float16, float32 or float64, kept as given; memory-mapped if read from an .npy file. `RowFiles` stay on disk,
        and their values are checked when they are read.
    ids : array of N strings or ints
        Unique, so that a decision about a row can be transferred to another file.
    labels : array of N values, or None
        In the user's own type; -1, NaN or the empty string for unlabelled rows.
    truth : array of N values, or None
        The true classes, for evaluation only: no method uses them.
    views : tuple of arrays of shape (N, D)
        Other views of the same rows, such as embeddings of augmented images.
    texts, paths : list of N strings, or None
        The text, or the path of the image, of each row.
    split : array of N strings, or None
        The split of each row, such as "train" or "test". Benchmarks use it; ``rpim discover`` uses all rows.
    columns : dict of str to array of N
        Metadata columns, such as a date or a price: numbers (NaN for missing ones) or strings (an array of objects, ""
        for missing ones). No method uses them.
    metadata : dict
        JSON-able facts about the whole set; "encoder" is compared before a run is applied to new rows, and "embeddings"
        lists the name and width of each embedding, if X has several side by side.
    first_row : int
        The number of the first row in its file, if these rows are a block of it; errors count rows from it.

    Examples
    --------
    >>> features = FeatureSet.from_arrays([[3.0, 4.0], [0.0, 2.0]], labels=["cat", None])
    >>> features
    FeatureSet(2 rows, 2 features, 1 labelled)
    >>> features.rows().tolist()[1]
    [0.0, 1.0]

    Several embeddings of the same rows, by name; each has the same weight in `rows`:

    >>> two = FeatureSet.from_arrays({"clip": [[3.0, 4.0], [0.0, 2.0]], "dino": [[100.0], [-5.0]]})
    >>> two, two.embeddings
    (FeatureSet(2 rows, 3 features of 2 embeddings, 0 labelled), {'clip': 2, 'dino': 1})
    >>> (two.rows() ** 2).round(2).tolist()
    [[0.18..., 0.31..., 0.5], [0.0, 0.5, 0.5]]
    """

    X: FloatArray | RowFiles
    ids: NDArray[Any]
    labels: NDArray[Any] | None = None
    truth: NDArray[Any] | None = None
    views: tuple[FloatArray, ...] = ()
    texts: list[str] | None = None
    paths: list[str] | None = None
    split: NDArray[np.str_] | None = None
    columns: dict[str, NDArray[Any]] = dataclasses.field(default_factory=dict)
    metadata: dict[str, Any] = dataclasses.field(default_factory=dict)
    first_row: int = 0

    @classmethod
    def from_arrays(
        cls,
        X: ArrayLike | RowFiles | Mapping[str, ArrayLike],
        labels: ArrayLike | None = None,
        ids: ArrayLike | None = None,
        *,
        truth: ArrayLike | None = None,
        views: Iterable[ArrayLike] = (),
        texts: Iterable[str | None] | None = None,
        paths: Iterable[StrPath | None] | None = None,
        split: ArrayLike | None = None,
        columns: Mapping[str, ArrayLike] | None = None,
        metadata: Mapping[str, Any] | None = None,
        first_row: int = 0,
    ) -> FeatureSet:
        """Build a feature set from arrays; X is not copied unless its type has to change.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features), RowFiles, or mapping of str to array-like
            The features; of several encoders, the embeddings by name.
        labels : array-like of shape (n_rows,), optional
            The labels of the rows that have one; -1, None, NaN or "" for the others.
        ids : array-like of shape (n_rows,), optional
            Unique names of the rows; by default their numbers.
        truth : array-like of shape (n_rows,), optional
            True classes, for evaluation only.
        views : iterable of array-likes of the shape of X
            Augmented views of the same items.
        texts, paths : iterable of str, optional
            The text of each row, or the path of its image.
        split : array-like of shape (n_rows,), optional
            The split of each row, such as "train" or "test".
        columns : mapping of str to array-like, optional
            Metadata columns.
        metadata : mapping, optional
            JSON-able facts about the whole set, such as its encoder.
        first_row : int
            The number of the first row in its file, if these rows are a block of it.

        Returns
        -------
        FeatureSet
            The checked feature set.

        Raises
        ------
        InputError
            If they do not fit together, or X has values that cannot be clustered.

        Examples
        --------
        >>> FeatureSet.from_arrays([[1, 0], [0, 1]], labels=[4, None]).labels.tolist()
        [4, -1]
        """
        if isinstance(X, Mapping):
            parts = {str(name): feature_matrix(part, str(name), first_row) for name, part in X.items()}
            X, widths = side_by_side(list(parts.values()))
            listed = [{"name": name, "width": width} for name, width in zip(parts, widths, strict=True)]
            metadata = {"encoder": " + ".join(parts), **(metadata or {}), EMBEDDINGS: listed}
        matrix = X if isinstance(X, RowFiles) else feature_matrix(X, "X", first_row)
        n = len(matrix)
        checked_views = tuple(feature_matrix(view, f"view_{k}") for k, view in enumerate(views, start=2))
        for k, view in enumerate(checked_views, start=2):
            if view.shape != matrix.shape:
                raise InputError(
                    f"view_{k} has shape {view.shape} but X has {matrix.shape}: give a view of the same rows."
                )
        try:
            facts = json.loads(json.dumps(dict(metadata or {}), allow_nan=False))
        except (TypeError, ValueError) as error:
            raise InputError(f"metadata is not JSON ({error}): use text, numbers, lists and dicts.") from error
        named_widths(facts, matrix.shape[1])
        return cls(
            X=matrix,
            ids=id_array(ids, n, first_row),
            labels=None if labels is None else label_array(labels, "labels", n),
            truth=None if truth is None else label_array(truth, "truth", n),
            views=checked_views,
            texts=None if texts is None else text_list(texts, "texts", n, first_row),
            paths=None if paths is None else text_list(paths, "paths", n, first_row),
            split=None if split is None else label_array(split, "split", n).astype(str),
            columns=metadata_columns(columns or {}, n),
            metadata=facts,
            first_row=first_row,
        )

    @classmethod
    def read(
        cls,
        path: StrPath,
        labels: StrPath | None = None,
        *,
        label_column: str | None = None,
        feature_column: str | None = None,
        split_column: str | None = None,
        memory: int | str | None = None,
    ) -> FeatureSet:
        """Read an .npz, .npy, .parquet or .csv file, a folder of .npy or .parquet files, or PIM's feature maps.

        Parameters
        ----------
        path : path of the file or folder
            The rows of .npy and .parquet files stay on disk if they do not fit into `memory`; their ids, texts, paths
            and metadata columns are read.
        labels : path of a labels file (.npy, .csv, .txt, .json or .parquet), optional
            Replaces any labels in `path`. If it has ids, rows that it does not name stay unlabelled; otherwise it has
            one label per row.
        label_column : str, optional
            The column (or .npz key) with the labels, if it is not called label, labels or y.
        feature_column : str, optional
            The .parquet column (or .npz key) with the features, if there are several candidates.
        split_column : str, optional
            The column (or .npz key) with the split of each row, if it is not called split.
        memory : int or str, optional
            What a fit may use in all, such as "4GB" or "4GiB"; by default a share of the free memory.

        Returns
        -------
        FeatureSet
            The features, with their labels, ids and metadata.
        """
        given, path = path, Path(path)
        in_path = None if labels is not None else label_column
        budget = None if memory is None else as_bytes(memory)
        rows = _on_disk(path, feature_column, budget)
        if rows is None:
            columns = read_features(given, in_path, feature_column, split_column, budget)
        else:
            columns = read_shards(rows.files, in_path, feature_column, split_column, in_memory=rows.fits, memory=budget)
            if "X" not in columns:
                columns["X"] = rows[:] if rows.fits else rows
        if labels is not None:
            columns["labels"] = None
        try:
            features = cls.from_arrays(**columns)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        if labels is None:
            return features
        found = read_labels(Path(labels), features.ids, label_column)
        try:
            return dataclasses.replace(features, labels=label_array(found, "labels", len(features)))
        except InputError as error:
            raise InputError(f"{labels}: {error}") from error

    def with_labels(self, path: StrPath) -> FeatureSet:
        """Add the labels in a file, such as one of `Discovery.write_suggestions` that you have filled in.

        Parameters
        ----------
        path : path of a labels file (.npy, .csv, .txt, .json or .parquet)
            With ids, or one label per row. Rows without a label in it keep theirs.

        Returns
        -------
        FeatureSet
            The same rows, with these labels too.

        Raises
        ------
        InputError
            If the file has no label, unknown ids, or text where the other labels are numbers.
        """
        return dataclasses.replace(self, labels=read_added_labels(path, self.ids, self.labels))

    def write(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write an .npz or .parquet file; the file appears once it is complete.

        An .npz pads every string to the longest one; choose .parquet for long texts.

        Parameters
        ----------
        path : path of an .npz or .parquet file
            The file to write.
        overwrite : bool
            Replace an existing file.
        """
        columns = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        write_features(Path(path), columns, overwrite)

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        several = f" of {len(self.embeddings)} embeddings" if self.embeddings else ""
        return f"FeatureSet({len(self)} rows, {self.n_features} features{several}, {self.n_labelled} labelled)"

    @property
    def n_features(self) -> int:
        """D, the number of columns."""
        return int(self.X.shape[1])

    @property
    def embeddings(self) -> dict[str, int]:
        """The number of columns of each embedding by its name, in the order of the columns; empty if X is one."""
        return named_widths(self.metadata, self.n_features)

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of columns of each embedding, as `fit` takes it; empty if X is one."""
        return tuple(self.embeddings.values())

    @property
    def labelled(self) -> BoolArray:
        """True where a row has a label."""
        if self.labels is None:
            return np.zeros(len(self), dtype=bool)
        return ~unlabelled_rows(self.labels)

    @property
    def n_labelled(self) -> int:
        """The number of labelled rows."""
        return int(self.labelled.sum())

    def rows_of_views(self, normalize: bool = True) -> list[FloatArray]:
        """Copy the rows of each of `views`, as `rows` does.

        Parameters
        ----------
        normalize : bool
            Scale rows to unit length.

        Returns
        -------
        list of ndarray of shape (n_rows, n_features)
            One matrix per view.
        """
        return [self.rows(normalize, view=k) for k in range(2, 2 + len(self.views))]

    def rows(self, normalize: bool = True, dtype: DTypeLike = np.float32, *, view: int = 1) -> FloatArray:
        """Copy the rows into a contiguous matrix, each scaled to length 1 if `normalize`.

        Parameters
        ----------
        normalize : bool
            Scale rows to unit length.
        dtype : dtype
            Type of the result.
        view : int
            1 for X, 2 for the first of `views`, and so on.

        Returns
        -------
        ndarray of shape (n_rows, n_features)
            The rows.
        """
        if not 1 <= view <= 1 + len(self.views):
            raise InputError(f"view {view} was asked for but the features have views 1 to {1 + len(self.views)}.")
        name, X = ("X", self.X) if view == 1 else (f"view_{view}", self.views[view - 2])
        out = np.empty(X.shape, dtype=dtype)  # (N, D)
        zero: list[int] = []
        for block, part in row_blocks_of(X, max(1, BLOCK_VALUES // X.shape[1])):
            zero += self._scaled(name, part, normalize, block.start, out[block])
        _refuse_zeros(name, zero)
        return out

    def blocks(self, normalize: bool = True, n_rows: int = 8192) -> Iterator[tuple[slice, FloatArray]]:
        """Yield what `rows` returns, `n_rows` at a time: rows on disk need not fit into memory.

        Parameters
        ----------
        normalize : bool
            Scale rows to unit length.
        n_rows : int
            Number of rows per block.

        Yields
        ------
        (slice, ndarray)
            Which rows, and their values.
        """
        for block, part in row_blocks_of(self.X, n_rows):
            out = np.empty(part.shape, dtype=np.float32)
            _refuse_zeros("X", self._scaled("X", part, normalize, block.start, out))
            yield block, out

    def _scaled(self, name: str, X: FloatArray, normalize: bool, start: int, out: FloatArray) -> list[int]:
        """Write rows into `out`, scaled to length 1 if `normalize`, and return the numbers of rows of zeros."""
        if not normalize:
            with np.errstate(over="ignore"):
                out[:] = X
            if not np.isfinite(out).all():
                raise InputError(f"{name} has values too large for {out.dtype}: ask for rows(dtype=numpy.float64).")
            return []
        out[:] = unit_rows(X, np.float64, self.widths)
        is_zero = np.zeros(len(out), dtype=bool)
        for columns in column_slices(self.widths):
            is_zero |= ~out[:, columns].any(axis=1)
        zero: list[int] = (np.flatnonzero(is_zero) + start + self.first_row).tolist()
        return zero

    def fingerprint(self) -> str:
        """Compute the SHA-256 of the features (as float32), labels and ids.

        Views, texts, paths, split, truth, columns and metadata are left out. It is computed once, and kept.

        Returns
        -------
        str
            In hexadecimal digits; the same for float16 and float32 of equal values.

        Examples
        --------
        >>> a = FeatureSet.from_arrays(np.eye(2, dtype=np.float16))
        >>> b = FeatureSet.from_arrays(np.eye(2, dtype=np.float64))
        >>> a.fingerprint() == b.fingerprint()
        True
        """
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> str:
        of_each = f" {self.widths}" if self.widths else ""
        digest = hashlib.sha256(f"rpim features 1: {len(self)} x {self.n_features}{of_each}\n".encode())
        for _, block in row_blocks_of(self.X, max(1, BLOCK_VALUES // self.n_features)):
            with np.errstate(over="ignore"):
                digest.update(np.ascontiguousarray(block, dtype="<f4").data)
        for name, values in (("labels", self.labels), ("ids", self.ids)):
            digest.update(f"\n{name} ".encode())
            if values is not None:
                _add_values(digest, values)
        return digest.hexdigest()

    def quick_fingerprint(self) -> str:
        """Compute the `fingerprint`, or for rows on disk a digest of the names, sizes and dates of their files.

        Returns
        -------
        str
            In hexadecimal digits.
        """
        if not isinstance(self.X, RowFiles):
            return self.fingerprint()
        digest = hashlib.sha256(f"{self.X.state()!r}{self.widths or ''}".encode())
        if self.labels is not None:
            _add_values(digest, self.labels)
        return digest.hexdigest()

    def subset(self, index: ArrayLike | slice) -> FeatureSet:
        """Select rows, in the order given; a slice of a memory map stays one.

        Parameters
        ----------
        index : array-like or slice
            Positions, a mask or a slice.

        Returns
        -------
        FeatureSet
            These rows.

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
            split=take(self.split),
            columns={name: values[chosen] for name, values in self.columns.items()},
            first_row=0,
        )


def _on_disk(path: Path, feature_column: str | None, memory: int | None) -> RowFiles | None:
    """The rows of a folder that is not PIM's, and of files that do not fit into memory; None for all others."""
    is_folder = is_row_folder(path) and not is_pim_folder(path)
    if not is_folder and path.suffix.lower() not in (".npy", ".parquet"):
        return None
    if not path.exists():
        return None
    if memory is None and path.is_file() and declared_size(path) < SURELY_FITS:
        return None
    rows = RowFiles(path, feature_column, memory)
    return rows if is_folder or not rows.fits else None


def _refuse_zeros(name: str, zero: list[int]) -> None:
    if zero:
        raise InputError(
            f"{name} has {some_rows(zero)} of zeros only, which cannot be normalized: remove or embed again."
        )


def _add_values(digest: Any, values: NDArray[Any]) -> None:
    """Add labels or ids to the digest, the same for int32 and int64."""
    if values.dtype.kind == "U":
        for value in values.tolist():
            text = value.encode("utf-8", "surrogatepass")
            digest.update(b"%d:" % len(text) + text)  # the length, so that ["ab", "c"] differs from ["a", "bc"]
        return
    form = {"f": "<f8", "b": "|b1"}.get(values.dtype.kind, "<i8")
    digest.update(form.encode())
    digest.update(np.ascontiguousarray(values, dtype=form).data)
