"""Routes that find rows (by words, by meaning, by charts that filter, and those to label next) and similar classes."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query, Response
from numpy.typing import NDArray

from rpim._common.errors import InputError
from rpim.explorer.columns import parse_filters
from rpim.explorer.requests import RankRequest
from rpim.explorer.workbench import Workbench
from rpim.runs.decisions import BoolArray
from rpim.runs.versions import class_number

BINARY = "application/octet-stream"
FiltersText = Annotated[str, Query(max_length=8000)]


def serve_finding(app: FastAPI, bench: Workbench) -> None:
    """Add the routes."""

    @app.get("/api/search")
    def search(words: Annotated[str, Query(max_length=200)]) -> Response:
        return Response(bench.search(words).astype("<i4").tobytes(), media_type=BINARY)

    @app.post("/api/rank")
    def rank(asked: RankRequest) -> Response:
        """All rows, the most similar first, and then their similarities."""
        if (asked.words is None) == (asked.rows is None):
            raise InputError("A search is by words or by rows: give one of them.")
        if asked.words is not None:
            order, similarity = bench.ranking.by_words(asked.words)
        else:
            rows = np.unique(np.array(asked.rows, dtype=np.int32))
            if rows[-1] >= len(bench):
                raise InputError(f"There is no row {rows[-1]}: the run has {len(bench):,}.")
            order, similarity = bench.ranking.by_rows(rows)
        return Response(order.astype("<i4").tobytes() + similarity.astype("<f4").tobytes(), media_type=BINARY)

    @app.get("/api/to-label")
    def to_label(n: Annotated[int, Query(ge=1, le=1000)] = 50, filters: FiltersText = "") -> Response:
        """The rows to label next, the most useful first."""
        rows = rows_to_label(bench, n, bench.charts.mask(parse_filters(filters)))
        return Response(rows.astype("<i4").tobytes(), media_type=BINARY)

    @app.get("/api/charts")
    def charts(filters: FiltersText = "") -> Any:
        """The charts, and as bits which rows pass the filters."""
        chosen = parse_filters(filters)
        mask = bench.charts.mask(chosen)
        bits = None if mask is None else base64.b64encode(np.packbits(mask, bitorder="little").tobytes()).decode()
        return {
            "charts": bench.charts.drawn(chosen),
            "mask": bits,
            "rows": len(bench) if mask is None else int(mask.sum()),
        }

    @app.get("/api/over-time")
    def over_time(column: str, since: Annotated[str, Query(max_length=40)] = "", filters: FiltersText = "") -> Any:
        return bench.charts.over_time(column, since, parse_filters(filters))

    latest: tuple[str, dict[str, Any]] | None = None

    @app.get("/api/tree")
    def tree() -> Any:
        """The tree of the classes, kept until the next decision: keywords of many texts take seconds."""
        nonlocal latest
        stamp = bench.stamp()
        if latest is None or latest[0] != stamp:
            latest = stamp, class_tree(bench)
        return latest[1]


def rows_to_label(bench: Workbench, n: int, within: BoolArray | None = None) -> NDArray[np.int64]:
    """At most n rows to label next, as `rpim suggest` chooses them: neither labelled, nor moved by hand, nor junk."""
    from rpim.runs.suggestions import choose_rows, sample_rows

    active = bench.versions.active
    version, state = bench.versions[active], bench.versions.state(active)
    is_open = ~(version.labelled | bench.versions.decided(active)) & ~state.junk & (state.class_of >= 0)
    rows = np.flatnonzero(is_open if within is None else is_open & within)
    if not len(rows):
        return rows
    numbers = sorted(state.classes, key=lambda number: (not state.classes[number].known, number))
    place = np.zeros(state.next_class, dtype=np.int64)
    place[numbers] = np.arange(len(numbers))
    rows, codes = sample_rows(rows, place[state.class_of[rows]], n)
    n_known = sum(info.known for info in state.classes.values())
    return rows[choose_rows(codes, version.confidence[rows], n_known, min(n, len(rows)), bench.refined[rows])]


def class_tree(bench: Workbench) -> dict[str, Any]:
    """The tree of the active version with its decisions, as `Discovery.hierarchy` numbers its nodes.

    Returns
    -------
    dict
        numbers : the class number of each leaf
        merges : the two nodes of each other node
        names : of all nodes
        n_groups : number of groups to show first

    Raises
    ------
    InputError
        If fewer than two classes have rows.
    """
    from rpim.runs.current_version import choose_version

    active = bench.versions.active
    found = choose_version(bench.run, active).load().hierarchy()
    state = bench.versions.state(active)
    numbers = [class_number(str(name), state) for name in found.classes]
    if None in numbers:
        raise InputError("The classes have changed in the meantime: open the tree again.")
    levels = found.levels()
    n_groups = levels[0] if levels else len(numbers)
    return {"numbers": numbers, "merges": found.merges, "names": found.names, "n_groups": n_groups}
