"""The map of the report: its rows, their positions, and its JSON."""

from __future__ import annotations

import base64
import contextlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim._common.files import replacing
from rpim._common.npy import load_npy
from rpim._common.palette import palette
from rpim.core.sampling import rank_within_class
from rpim.data.feature_set import FeatureSet
from rpim.data.labels import IntArray
from rpim.report.facts import ClassFacts, captions
from rpim.report.thumbnails import CELL, COLUMNS, Sheet
from rpim.runs.assignments import class_codes
from rpim.runs.discovery import Discovery
from rpim.runs.maps import (
    N_DIRECTIONS,
    UMAP_MAP,
    FloatArray,
    close_gaps,
    interpolate_positions,
    kind_of_map,
    leading,
    two_dimensional,
)
from rpim.runs.run_folder import MAP_FILE

MAX_POINTS = 10_000
_FEW = 5
"""Minimum number of rows per class on the map."""
_LANDMARKS = 600
"""Number of rows that t-SNE is fitted to: takes two seconds."""
_CAPTION = 90


@dataclass(frozen=True, eq=False)
class PageMap:
    """2-D positions of some rows."""

    kind: str
    rows: IntArray  # (S,)
    places: FloatArray  # (S, 2)


def sample_rows(codes: IntArray, at_most: int = MAX_POINTS, seed: int = 0) -> IntArray:
    """A stratified sample of rows with at least a few per class, in ascending order."""
    if len(codes) <= at_most:
        return np.arange(len(codes))
    shuffled = np.random.RandomState(seed).permutation(len(codes))
    by_class, rank, size = rank_within_class(codes, shuffled)
    turn = np.where(rank < _FEW, 0.0, (rank + 0.5) / size)
    return np.sort(by_class[np.argsort(turn, kind="stable")[:at_most]])


def quick_map(discovery: Discovery, features: FeatureSet) -> PageMap:
    """A map within seconds for any number of rows: t-SNE of 600 rows, the others interpolated.

    UMAP takes ten times as long.
    """
    check_rows(discovery, features)
    rows = sample_rows(class_codes(discovery.labels, discovery.classes))
    return PageMap("t-SNE", rows, quick_places(refined(discovery, features.subset(rows))))


def check_rows(discovery: Discovery, features: FeatureSet) -> None:
    """Raise if the features are not those of the discovery."""
    if len(features) != len(discovery):
        raise InputError(
            f"The features have {len(features):,} rows but the discovery has {len(discovery):,}: give the same ones."
        )
    if not np.array_equal(features.ids, discovery.ids):
        raise InputError("The features have other ids than the discovery, or another order: give the same rows.")


def quick_places(rows: FloatArray, seed: int = 0) -> FloatArray:
    """2-D positions: t-SNE for some rows, interpolated for the others. (N, 2)"""
    from sklearn.manifold import TSNE

    reduced = leading(rows, N_DIRECTIONS)  # (N, 50)
    fitted = np.sort(np.random.RandomState(seed).permutation(len(rows))[:_LANDMARKS])
    perplexity = min(20.0, max(len(fitted) - 1, 1) / 3)
    tsne = TSNE(perplexity=perplexity, init="random" if len(fitted) < 3 else "pca", max_iter=500, random_state=seed)
    return interpolate_positions(reduced, fitted, tsne.fit_transform(reduced[fitted]).astype(np.float32))


def careful_map(discovery: Discovery, features: FeatureSet | None, run: Path | None = None) -> PageMap | None:
    """The UMAP map of all rows, cached in the run folder; without umap-learn, the quick map."""
    rows = sample_rows(class_codes(discovery.labels, discovery.classes))
    kept = None if run is None else kept_map(run, len(discovery))
    if kept is None:
        if features is None:
            return None
        if kind_of_map() != UMAP_MAP:
            return quick_map(discovery, features)
        kept = two_dimensional(refined(discovery, features), verbose=True)
        if run is not None:
            # If the folder is read-only, the map is computed again next time.
            with contextlib.suppress(InputError), replacing(run / MAP_FILE) as file:
                np.save(file, kept, allow_pickle=False)
    return PageMap(UMAP_MAP, rows, kept[rows])


def kept_map(run: Path, n_rows: int) -> FloatArray | None:
    """The cached map of a run folder; None if missing or of other rows."""
    try:
        places = load_npy(run / MAP_FILE)
    except InputError:
        return None
    fits = places.shape == (n_rows, 2) and places.dtype.kind == "f" and bool(np.isfinite(places).all())
    return places.astype(np.float32) if fits else None


def refined(discovery: Discovery, features: FeatureSet) -> FloatArray:
    """The refined rows h(x)."""
    rows: FloatArray = discovery.model.transform(features.rows(normalize=discovery.model.normalize))
    return rows


def for_the_page(found: PageMap, discovery: Discovery, classes: list[ClassFacts], sheet: Sheet | None = None) -> str:
    """The map as JSON: positions, classes and confidence as base64 bytes, captions as text."""
    codes = class_codes(discovery.labels, discovery.classes)[found.rows]
    places = close_gaps(found.places)
    middle = (places.max(axis=0) + places.min(axis=0)) / 2
    extent = float(np.ptp(places, axis=0).max()) or 1.0
    within = 0.5 + (places - middle) / extent  # (S, 2), the longer side from 0 to 1
    facts = {
        "rows": found.rows.tolist(),
        "places": _bytes((within * 65535).round().astype("<u2")),
        "classes": _bytes(np.where(codes < 0, len(classes), codes).astype("<u2")),
        "confidence": _bytes((100 * discovery.confidence[found.rows]).round().astype("u1")),
        "names": [one.name for one in classes],
        "titles": [one.title for one in classes],
        "known": [one.summary.known for one in classes],
        "colours": colours(len(classes)),
        "captions": captions(discovery, found.rows.tolist(), _CAPTION),
        "sheet": None if sheet is None else {**asdict(sheet), "cell": CELL, "columns": COLUMNS},
    }
    return safe_json(facts)


def colours(n: int) -> list[str]:
    """A colour for each class.

    >>> colours(2)
    ['#0072b2', '#e69f00']
    """
    rgb: Any = (palette(n) * 255).round().astype(int)
    return [f"#{red:02x}{green:02x}{blue:02x}" for red, green, blue in rgb.tolist()]


def safe_json(facts: Any) -> str:
    """JSON that is safe inside an HTML script element.

    >>> safe_json("</script>&")
    '"\\\\u003c/script\\\\u003e\\\\u0026"'
    """
    text = json.dumps(facts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _bytes(values: NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode()
