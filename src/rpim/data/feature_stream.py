"""FeatureStream: the rows of a file of any size, as one small FeatureSet after the other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rpim._common.errors import InputError
from rpim._common.files import StrPath
from rpim.data.feature_set import FeatureSet
from rpim.data.feature_spans import FeatureSpans
from rpim.data.formats.column_stream import open_columns
from rpim.data.formats.feature_files import is_pim_folder
from rpim.data.row_files import is_row_folder


class FeatureStream:
    """The rows of a feature file a block at a time, in memory that does not grow with their number.

    Each block has the features, ids, texts, paths and metadata that ``FeatureSet.read`` would give those rows. Labels
    and views are not read. Ids are compared within a block alone, so that one that is repeated much later goes unseen.

    Parameters
    ----------
    path : path of an .npz, .npy, .parquet or .csv file, of a folder of .npy or .parquet files, or of PIM's feature maps
        An array in Fortran order, whose rows lie all over the file, is read whole.
    feature_column : str, optional
        The .parquet column (or .npz key) with the features, where several could be meant.

    Attributes
    ----------
    n_rows : int or None
        How many rows there are; None for a .csv, where only reading tells.

    Raises
    ------
    InputError
        At once if the file cannot be read, or while iterating if a row cannot be used.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     FeatureSet.from_arrays([[3.0, 4.0], [0.0, 2.0]], ids=["a", "b"]).write(f"{folder}/two.parquet")
    ...     [block.ids.tolist() for block in FeatureStream(f"{folder}/two.parquet")]
    [['a', 'b']]
    """

    def __init__(self, path: StrPath, *, feature_column: str | None = None) -> None:
        self.path = Path(path)
        self._spans: FeatureSpans | None = None
        if is_row_folder(self.path) and not is_pim_folder(self.path):
            self._spans = FeatureSpans(self.path, feature_column)
            self.n_rows: int | None = len(self._spans)
        else:
            self._columns = open_columns(path, feature_column)
            self.n_rows = self._columns.n_rows

    def __iter__(self) -> Iterator[FeatureSet]:
        if self._spans is not None:
            yield from self._spans.blocks()
            return
        first_row, n_features = 0, None
        for columns in self._columns.blocks():
            try:
                block = FeatureSet.from_arrays(**columns, metadata=self._columns.metadata, first_row=first_row)
            except InputError as error:
                raise InputError(f"{self.path}: {error}") from error
            if n_features not in (None, block.n_features):
                raise InputError(
                    f"{self.path} has {n_features} features in its first rows but {block.n_features} from row "
                    f"{first_row} on: give every row as many numbers."
                )
            yield block
            first_row, n_features = first_row + len(block), block.n_features
        if first_row == 0:
            raise InputError(f"{self.path} has no rows: give at least one.")
