"""Routes that find rows: by words, by meaning, and by charts that filter."""

from __future__ import annotations

import base64
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query, Response

from rpim._common.errors import InputError
from rpim.explorer.charts import parse_filters
from rpim.explorer.requests import RankRequest
from rpim.explorer.workbench import Workbench

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
