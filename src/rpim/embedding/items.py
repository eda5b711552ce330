"""Items: images or texts to embed, with labels and metadata."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim._common.files import StrPath
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
        Unique. For files, the path within `source`, with forward slashes, as `text_of_path` writes it.
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
            content = [self._absolute(one) if isinstance(one, Path) else one for one in self.content[rows]]
        return dataclasses.replace(
            self,
            content=content,
            source=self.source.resolve(),
            ids=self.ids[rows],
            labels=taken(self.labels),
            truth=taken(self.truth),
            split=taken(self.split),
            columns={name: values[rows] for name, values in self.columns.items()},
            skipped=[],
        )

    @property
    def paths(self) -> list[str] | None:
        """Absolute paths within `source`, if the items are files, as `text_of_path` writes them."""
        if self.kind == "images" and isinstance(self.content[0], Path):
            return [text_of_path(self._absolute(path)) for path in self.content]
        return None

    def _absolute(self, path: Path) -> Path:
        """The path of a file, not that of what it may be a link to."""
        if path.is_relative_to(self.source):
            return self.source.resolve() / path.relative_to(self.source)
        return Path(os.path.abspath(path))

    @property
    def texts(self) -> list[str] | None:
        """The texts, if the items are texts."""
        return list(self.content) if self.kind == "texts" else None


_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


def text_of_path(path: StrPath) -> str:
    r"""A path as valid Unicode, whatever its bytes: one that is not UTF-8 becomes ``\xNN``.

    >>> text_of_path(os.fsdecode(b"caf\xe9.png")), text_of_path("café.png"), text_of_path(r"a\xe9")
    ('caf\\xe9.png', 'café.png', 'a\\x5cxe9')
    """
    unambiguous = _ESCAPED.sub(r"\\x5cx\1", os.fspath(path))
    return os.fsencode(unambiguous).decode("utf-8", "backslashreplace")


def path_of_text(text: str) -> Path:
    r"""The path that `text_of_path` has written; any other text is the path itself.

    >>> os.fsencode(path_of_text(r"caf\xe9.png")), str(path_of_text(r"a\x5cxe9"))
    (b'caf\xe9.png', 'a\\xe9')
    """
    if not _ESCAPED.search(text) or os.path.exists(text):
        return Path(text)
    content = re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes.fromhex(found[1].decode()), os.fsencode(text))
    return Path(os.fsdecode(content))


class _Stretch(Sequence[Any]):
    """A lazy slice of a sequence."""

    def __init__(self, whole: Sequence[Any], rows: slice) -> None:
        self._whole, self._places = whole, range(len(whole))[rows]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, row: Any) -> Any:
        return self._whole[self._places[row]]
