"""Items: images or texts to embed, with labels and metadata."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim.data.columns import metadata_columns
from rpim.data.labels import id_array, label_array, unlabelled_rows

Kind = Literal["images", "texts"]


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Items:
    """N images or texts with labels and metadata.

    Build one with `of`, which checks the lengths.

    Parameters
    ----------
    kind : "images" or "texts"
    content : sequence of N
        For images the path of each file, the bytes of one, or an array of uint8 of shape (H, W, 3); for texts a str.
        May be a lazy sequence.
    ids : array of N strings or ints
        Unique. For files, the path within `source`, with forward slashes.
    source : Path
        The folder or file that they came from.
    labels : array of N values, or None
        -1, NaN or the empty string for unlabelled items.
    truth : array of N values, or None
        The true classes, for evaluation only.
    split : array of N strings, or None
        "train" or "test", if the data have a split.
    columns : dict of str to array of N
        Metadata columns, as in `FeatureSet`.
    skipped : list of (id, reason)
        Unusable items, which are not among the N.
    """

    kind: Kind
    content: Sequence[Any]
    ids: NDArray[Any]
    source: Path
    labels: NDArray[Any] | None = None
    truth: NDArray[Any] | None = None
    split: NDArray[np.str_] | None = None
    columns: dict[str, NDArray[Any]] = dataclasses.field(default_factory=dict)
    skipped: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    @classmethod
    def of(
        cls,
        kind: Kind,
        content: Sequence[Any],
        source: Path,
        ids: Any = None,
        *,
        labels: Any = None,
        truth: Any = None,
        split: Any = None,
        columns: Mapping[str, Sequence[Any]] | None = None,
        skipped: Sequence[tuple[str, str]] = (),
    ) -> Items:
        """Check the lengths, and that ids are unique.

        Examples
        --------
        >>> Items.of("texts", ["Where is my card?", "Hello"], Path("chat.csv"), labels=["card", None]).labels.tolist()
        ['card', '']
        """
        n = len(content)
        if n == 0:
            raise InputError(f"{source} holds no {kind}: give some.")
        try:
            return cls(
                kind=kind,
                content=content,
                ids=id_array(ids, n),
                source=source,
                labels=None if labels is None else label_array(labels, "labels", n),
                truth=None if truth is None else label_array(truth, "truth", n),
                split=None if split is None else label_array(split, "split", n).astype(str),
                columns=metadata_columns(columns or {}, n),
                skipped=list(skipped),
            )
        except InputError as error:
            raise InputError(f"{source}: {error}") from error

    def __len__(self) -> int:
        return len(self.content)

    def __repr__(self) -> str:
        return f"Items({len(self):,} {self.kind} from {self.source})"

    @property
    def n_labelled(self) -> int:
        """Number of labelled items."""
        return 0 if self.labels is None else int((~unlabelled_rows(self.labels)).sum())

    def part(self, rows: slice) -> Items:
        """A slice of the items for another process, with absolute file paths."""

        def taken(values: NDArray[Any] | None) -> NDArray[Any] | None:
            return None if values is None else values[rows]

        content: Sequence[Any] = _Stretch(self.content, rows)
        if isinstance(self.content, list):
            content = [one.resolve() if isinstance(one, Path) else one for one in self.content[rows]]
        return dataclasses.replace(
            self,
            content=content,
            ids=self.ids[rows],
            labels=taken(self.labels),
            truth=taken(self.truth),
            split=taken(self.split),
            columns={name: values[rows] for name, values in self.columns.items()},
            skipped=[],
        )

    @property
    def paths(self) -> list[str] | None:
        """Absolute paths, if the items are files."""
        if self.kind == "images" and isinstance(self.content[0], Path):
            return [str(path.resolve()) for path in self.content]
        return None

    @property
    def texts(self) -> list[str] | None:
        """The texts, if the items are texts."""
        return list(self.content) if self.kind == "texts" else None


class _Stretch(Sequence[Any]):
    """A lazy slice of a sequence."""

    def __init__(self, whole: Sequence[Any], rows: slice) -> None:
        self._whole, self._places = whole, range(len(whole))[rows]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, row: Any) -> Any:
        return self._whole[self._places[row]]
