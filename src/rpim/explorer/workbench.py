"""An open run: its rows, map, classes and similarities, and the search by meaning."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError, first_line, plural
from rpim._common.files import replacing
from rpim.data.formats.arrays import load_npy
from rpim.data.labels import EMBEDDINGS, unit_rows, unlabelled_rows
from rpim.explorer.columns import Charts, Column, amounts, column_of, has_values, kinds
from rpim.explorer.pictures import Pictures, recorded_folders
from rpim.runs.decisions import BoolArray, IntArray, Split, State, changes
from rpim.runs.facets import format_value
from rpim.runs.keywords import keywords, suggest_names
from rpim.runs.maps import PRINCIPAL_MAP, UMAP_MAP, principal_map
from rpim.runs.run_folder import MAP_FILE, features_of, read_run_file
from rpim.runs.versions import LabelIssues, Versions, class_number

if TYPE_CHECKING:
    from rpim.embedding.encoders import Encoder

FloatArray = NDArray[np.float32]

MAX_PARTS = 20
ORDERS = ("typical", "doubtful", "nearby")
OWN = "own-"
"""Prefix of the keys of metadata columns, whose names are arbitrary."""
_CALLED = {"given": "given label", "split": "split", "truth": "truth"}


class Workbench:
    """An open run.

    Parameters
    ----------
    run : path of the run folder
    features : path, optional
        Features of the run, if they have moved.
    images : path, optional
        Where the images are now, if they have moved.
    weights : sequence of paths
        Weights of the encoders, to search by words.
    """

    def __init__(
        self,
        run: Path,
        features: Path | None = None,
        images: Path | None = None,
        weights: Sequence[Path] = (),
    ) -> None:
        from rpim.runs.predictor import Predictor

        self.run, self.features_path = run, features
        given = features_of(run, features)
        model = Predictor.load(run).model
        self.versions = Versions(run)
        self.rows = self.versions.rows
        self.labelled = self.rows.labelled  # (N,)
        self.refined: FloatArray = model.transform(given.rows(normalize=model.normalize))  # (N, D')
        metadata = read_run_file(run)["provenance"].get("data", {}).get("metadata", {})
        self.ranking = Ranking(self.refined, model.transform, metadata, weights)
        self.texts = self.rows.texts or given.texts
        paths = self.rows.paths or given.paths
        self.pictures = Pictures(paths, self.rows.ids.tolist(), images, recorded_folders(run))
        texts = {"given": self.rows.given, "split": given.split, "truth": given.truth}
        self._labels = {name: values for name, values in texts.items() if values is not None}
        self.metadata = given.columns
        self._metadata_columns = [(name, values) for name, values in given.columns.items() if has_values(values)]
        own = {f"{OWN}{k}": (format_value(name), values) for k, (name, values) in enumerate(self._metadata_columns)}
        self.charts = Charts(self.versions, own)
        self._coloured: dict[str, Column] = {}
        self._suggested: dict[int, dict[int, str]] = {}
        self.map, self.map_kind = self._first_map()

    def __len__(self) -> int:
        return len(self.rows)

    def close(self) -> None:
        """Close the decisions."""
        self.versions.store.close()

    def _first_map(self) -> tuple[FloatArray, str]:
        """The cached map, or the principal components."""
        path = self.run / MAP_FILE
        if path.is_file():
            try:
                kept = load_npy(path)
            except InputError:
                kept = np.empty(0)
            if kept.shape == (len(self), 2) and np.isfinite(kept).all():
                return kept.astype(np.float32), UMAP_MAP
        return principal_map(self.refined), PRINCIPAL_MAP

    def keep_map(self, on_map: FloatArray) -> None:
        """Use a UMAP map and cache it, if the run folder is writable."""
        self.map, self.map_kind = on_map, UMAP_MAP
        with contextlib.suppress(InputError), replacing(self.run / MAP_FILE) as file:
            np.save(file, on_map, allow_pickle=False)

    def columns(self) -> dict[str, str]:
        """Columns that can colour the map: key -> title."""
        fits = np.isfinite(self.versions[self.versions.active].outlier).any()
        return {
            "confidence": "confidence",
            **({"outlier": "outlier score"} if fits else {}),
            **{key: _CALLED[key] for key in self._labels},
            **{f"{OWN}{k}": format_value(name) for k, (name, _) in enumerate(self._metadata_columns)},
        }

    def column(self, key: str) -> Column:
        """A column by its key."""
        if key not in self.columns():
            raise InputError("The column does not exist: choose another.")
        version = self.versions[self.versions.active]
        if key == "confidence":
            return Column(version.confidence, ("0%", "100%"))
        if key == "outlier":
            return replace(amounts(version.outlier), ends=("inlier", "outlier"))
        if key not in self._coloured:
            if key in self._labels:
                labels = self._labels[key]
                self._coloured[key] = kinds(labels.astype(str), unlabelled_rows(labels))
            else:
                self._coloured[key] = column_of(self._metadata_columns[int(key.removeprefix(OWN))][1])
        return self._coloured[key]

    @cached_property
    def _searched(self) -> list[str]:
        texts = [""] * len(self) if self.texts is None else self.texts
        paths = [""] * len(self) if self.rows.paths is None else self.rows.paths
        return [f"{a}\n{b}\n{c}".casefold() for a, b, c in zip(texts, self.rows.ids.tolist(), paths, strict=True)]

    def search(self, words: str) -> IntArray:
        """The rows with all of these words in their text, id or path."""
        wanted = words.casefold().split()
        found = [row for row, text in enumerate(self._searched) if all(word in text for word in wanted)]
        return np.array(found if wanted else [], dtype=np.int32)

    def item(self, row: int, state: State) -> dict[str, Any]:
        """A row for the page."""
        version = self.versions[self.versions.active]
        return {
            "row": row,
            "id": str(self.rows.ids[row]),
            "text": None if self.texts is None else self.texts[row],
            "class": int(state.class_of[row]),
            "junk": bool(state.junk[row]),
            "by_hand": bool(state.by_hand[row]),
            "labelled": bool(self.labelled[row]),
            "confidence": round(float(version.confidence[row]), 4),
            "runner_up": self._runner_up(row, state),
            "runner_up_confidence": round(float(version.runner_up_confidence[row]), 4),
            "columns": {
                f"{OWN}{k}": said
                for k, (_, values) in enumerate(self._metadata_columns)
                if (said := format_value(values[row]))
            },
        }

    def _runner_up(self, row: int, state: State) -> int | None:
        """The number of the second most probable class of a row; None if it is in that class, after a merge."""
        version = self.versions[self.versions.active]
        number = class_number(version.runner_up[row], version.state)
        now = None if number is None else state.merged.get(number, number)
        return now if now in state.classes and now != state.class_of[row] else None

    def label_issue_items(self, start: int, count: int, within: BoolArray | None = None) -> dict[str, Any]:
        """The undecided label issues with the suggested classes, all or of these rows."""
        active = self.versions.active
        state, found = self.versions.state(active), self.versions.label_issues(active)
        if within is not None:
            kept = within[found.rows]
            found = LabelIssues(found.rows[kept], found.suggested[kept], found.quality[kept])
        shown = zip(found.rows.tolist(), found.suggested.tolist(), found.quality.tolist(), strict=True)
        items = [
            {**self.item(row, state), "suggested": suggested, "label_quality": round(quality, 4)}
            for row, suggested, quality in itertools.islice(shown, start, start + count)
        ]
        return {"total": len(found), "items": items}

    def members(self, state: State, number: int, order: str, within: BoolArray | None = None) -> IntArray:
        """The rows of a class, most typical or most doubtful first, or the nearest rows of other classes."""
        state.info(number)
        rows = state.rows_of(number)
        version = self.versions[self.versions.active]
        if order == "nearby":
            return self._nearby(state, rows, within)
        if within is not None:
            rows = rows[within[rows]]
        if order == "doubtful":
            first: NDArray[np.int64] = np.argsort(version.confidence[rows], kind="stable")
        else:
            first = np.lexsort((version.outlier[rows], -np.round(version.confidence[rows], 2)))
        return rows[first]

    def _nearby(self, state: State, rows: IntArray, within: BoolArray | None, count: int = 200) -> IntArray:
        if len(rows) == 0:
            return rows
        similarity: FloatArray = self.refined @ self.refined[rows].mean(axis=0)  # (N,)
        similarity[rows] = -np.inf
        similarity[state.junk if within is None else state.junk | ~within] = -np.inf
        nearest = np.argsort(-similarity, kind="stable")[:count].astype(np.int32)
        return nearest[np.isfinite(similarity[nearest])]

    def split(self, state: State, number: int, parts: int) -> Split:
        """Split a class into parts by k-means, largest first."""
        import torch

        from rpim.core.kmeans import kmeans

        rows = state.rows_of(number)
        name = state.info(number).name
        if len(rows) < parts:
            raise InputError(f"{name} has {plural(len(rows), 'row')} and cannot be split into {parts}.")
        try:
            found = kmeans(torch.from_numpy(self.refined[rows]), parts, generator=torch.Generator().manual_seed(0))
        except (RuntimeError, ValueError) as error:
            raise InputError(f"{name} cannot be split ({first_line(error)}): move some rows by hand.") from error
        codes = found.labels.numpy()
        by_size = np.argsort(-np.bincount(codes, minlength=parts), kind="stable")
        place = np.argsort(by_size)
        return Split(number, rows, place[codes].astype(np.int32), first=state.next_class)

    def suggest_names(self) -> None:
        """Suggest names for the new classes of each version: those stored with it, else from the keywords of its texts.

        Runs in the background: 100,000 texts take seconds.
        """
        for version in self.versions.numbers():
            if version in self._suggested:
                continue
            fitted = self.versions[version].state
            known = [info.known for info in fitted.classes.values()]
            names = [""] * len(known)
            if self.texts is not None:
                of_class = keywords(self.texts, fitted.class_of, len(known))
                taken = [info.name for info in fitted.classes.values() if info.known]
                names = suggest_names([[] if k else words for k, words in zip(known, of_class, strict=True)], taken)
            stored = read_run_file(self.versions.folder(version)).get("suggested_names") or names
            names = [own or name for own, name in zip(stored, names, strict=True)]
            self._suggested[version] = dict(zip(fitted.classes, names, strict=True))

    def summary(self) -> dict[str, Any]:
        """The current state of the active version: classes, undo and redo."""
        active = self.versions.active
        version, state, timeline = self.versions[active], self.versions.state(active), self.versions.timeline
        counted = (state.class_of >= 0) & ~state.junk
        codes, n = state.class_of[counted], state.next_class
        sizes = np.bincount(codes, minlength=n)
        labelled = np.bincount(codes, weights=self.labelled[counted], minlength=n)
        confidence = np.bincount(codes, weights=version.confidence[counted], minlength=n) / np.maximum(sizes, 1)
        suggested = self._suggested.get(active, {})
        classes = [
            {
                "suggested": "" if info.reviewed else suggested.get(number, ""),
                "number": number,
                "name": info.name,
                "known": info.known,
                "accepted": info.accepted,
                "reviewed": info.reviewed,
                "rows": int(sizes[number]),
                "labelled": int(labelled[number]),
                "confidence": round(float(confidence[number]), 4),
                "stability": version.stability.get(number),
            }
            for number, info in state.classes.items()
        ]
        return {
            "version": active,
            "versions": [{"number": k, "created": self.versions[k].created} for k in self.versions.numbers()],
            "members": version.n_members,
            "expected_accuracy": version.expected_accuracy,
            "label_issues": len(self.versions.label_issues(active)),
            "classes": classes,
            "junk": int(state.junk.sum()),
            "without": int(((state.class_of < 0) & ~state.junk).sum()),
            "undo": timeline.undo_description(active),
            "redo": timeline.redo_description(active),
            "stamp": self.stamp(),
        }

    def history(self) -> list[dict[str, Any]]:
        """The active version and those it was refitted from: the decisions about each, and what the refit changed."""
        found, number = [], self.versions.active
        while True:
            version, decisions = self.versions[number], self.versions.timeline.history(number)
            parent = version.parent if version.parent in self.versions.numbers() else None
            found.append(
                {
                    "version": number,
                    "created": version.created,
                    "decisions": [asdict(one) for one in decisions],
                    "changes": None if parent is None else changes(self.versions.state(parent), version.state),
                }
            )
            if parent is None:
                return found
            number = parent

    def stamp(self) -> str:
        """Changes with every decision, undo, redo or change of version, and when names are suggested."""
        seen = len(self.versions.numbers()), len(self._suggested)
        return "-".join(map(str, (*self.versions.store.stamp(), *seen)))


class Ranking:
    """Search by meaning: all rows by their cosine similarity to a query in words, or to rows.

    Parameters
    ----------
    rows : (N, D') float32
        The refined rows, in which rows of one class are closer than in the embeddings.
    refine : function of an (n, D) array
        Refines embeddings at unit length.
    metadata : dict
        What the features say of their encoder.
    weights : sequence of paths
        Weights of the encoders that the user has named; no file that the run names is opened.
    """

    def __init__(
        self,
        rows: FloatArray,
        refine: Callable[[FloatArray], FloatArray],
        metadata: dict[str, Any],
        weights: Sequence[Path] = (),
    ) -> None:
        self._given, self._refine, self._metadata, self._weights = rows, refine, metadata, weights
        self._encoder: Encoder | None = None
        self._lock = threading.Lock()

    def by_words(self, words: str) -> tuple[NDArray[np.int32], FloatArray]:
        """All rows, the most similar to the words first, and their similarities.

        Raises
        ------
        InputError
            If there are no words, or the encoder of the run cannot embed them.
        """
        text = words.strip()
        if not text:
            raise InputError("The search is empty: type what the rows should be about.")
        return self._by(self._embedded(text))

    def by_rows(self, rows: NDArray[np.int32]) -> tuple[NDArray[np.int32], FloatArray]:
        """All rows, the most similar to the mean of these first, and their similarities."""
        return self._by(self._rows[rows].mean(axis=0, keepdims=True))

    @cached_property
    def _rows(self) -> FloatArray:
        return unit_rows(self._given)

    def _by(self, query: FloatArray) -> tuple[NDArray[np.int32], FloatArray]:
        similarity = self._rows @ unit_rows(query)[0]  # (N,)
        order = np.argsort(-similarity, kind="stable").astype(np.int32)
        return order, similarity[order]

    def _embedded(self, text: str) -> FloatArray:
        from rpim.embedding.pictures import Unusable

        with self._lock:  # the encoder is opened once, which takes seconds, and used by one request at a time
            encoder = self._opened()
            try:
                found = encoder.encode([encoder.prepare(text)])  # (1, D)
            except Unusable as error:
                raise InputError(f"The search cannot be embedded ({error}): type other words.") from error
        try:
            return self._refine(unit_rows(found))
        except ValueError as error:  # of another width
            raise InputError(
                f"The encoder does not give rows like those of the run ({first_line(error)}): choose a row and show "
                "more like it."
            ) from error

    def _opened(self) -> Encoder:
        if self._encoder is None:
            several = self._metadata.get(EMBEDDINGS)
            said = several[0] if several else self._metadata.get("embedding")
            if not isinstance(said, dict):
                raise InputError(
                    "The rows of this run were not embedded by rpim, so words cannot be compared with them: choose a "
                    "row and show more like it, or search in texts and ids."
                )
            if said.get("kind") == "images":
                raise InputError(
                    f"The images of this run were embedded by {str(said.get('encoder'))[:80]}, which does not embed "
                    "words: choose a row and show more like it."
                )
            from rpim.embedding.open_encoder import encoders_of

            self._encoder = encoders_of(self._metadata, self._weights)
        return self._encoder
