"""The server: a FastAPI application for one run, behind `Guard`."""

from __future__ import annotations

import asyncio
import base64
import json
import mimetypes
import time
from collections.abc import AsyncIterator, Callable
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool

from rpim._common.errors import InputError
from rpim._version import __version__
from rpim.explorer.background import Background
from rpim.explorer.columns import parse_filters
from rpim.explorer.exports import IMAGE_FOLDERS, SUFFIXES, Decided, image_folders, new_folder
from rpim.explorer.guard import Guard
from rpim.explorer.pictures import SIZES
from rpim.explorer.requests import ActivateRequest, DecisionRequest, OfVersion, RankRequest, decision_factory
from rpim.explorer.requests import Request as Keyed
from rpim.explorer.workbench import ORDERS, Workbench
from rpim.runs.assignments import UNSTABLE
from rpim.runs.decisions import BoolArray
from rpim.runs.maps import close_gaps
from rpim.runs.versions import class_number

JUNK_CODE = -2
_POLL_SECONDS, _HEARTBEAT_SECONDS = 0.2, 3.0  # seconds
_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".svg": "image/svg+xml"}
BINARY = "application/octet-stream"
FiltersText = Annotated[str, Query(max_length=8000)]

Row = Annotated[int, Query(ge=0)]


def make_app(
    bench: Workbench,
    background: Background,
    token: str,
    port: int,
    is_ending: Callable[[], bool] = lambda: False,
    code: str | None = None,
    *,
    framed: bool = False,
) -> Guard:
    """The application for an open run, behind its guard; event streams end once `is_ending`."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _handle_errors(app)
    _serve_page(app)
    _serve_rows(app, bench)
    _serve_finding(app, bench)
    _serve_decisions(app, bench)
    _serve_jobs(app, bench, background)
    _serve_events(app, bench, background, is_ending)
    return Guard(app, token=token, port=port, code=code, framed=framed)


def _handle_errors(app: FastAPI) -> None:
    """Every refusal is ``{"problem": one sentence}``."""

    @app.exception_handler(InputError)
    def refused(request: Request, error: InputError) -> Response:
        return JSONResponse({"problem": str(error)}, 409)

    @app.exception_handler(RequestValidationError)
    def malformed(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        return JSONResponse({"problem": f"The request is not understood ({where}: {first['msg']})."}, 422)

    @app.exception_handler(404)
    def nothing(request: Request, error: Exception) -> Response:
        return JSONResponse({"problem": "Not found."}, 404)


def _serve_page(app: FastAPI) -> None:
    """The page and its static files, read once: request names never reach the disk."""
    folder = resources.files("rpim.explorer") / "static"
    files = {file.name: file.read_bytes() for file in folder.iterdir() if Path(file.name).suffix in _TYPES}

    def answer(name: str) -> Response:
        kind = _TYPES[Path(name).suffix]
        return Response(files[name], media_type=kind)

    @app.get("/")
    def page() -> Response:
        return answer("index.html")

    @app.get("/static/{name}")
    def file(name: str) -> Response:
        return answer(name) if name in files else JSONResponse({"problem": "No such file."}, 404)


def _serve_rows(app: FastAPI, bench: Workbench) -> None:
    """Read-only routes."""

    def row_of(row: int) -> int:
        if not 0 <= row < len(bench):
            raise InputError(f"There is no row {row}: the run has {len(bench):,}.")
        return row

    @app.get("/api/run")
    def run() -> Any:
        return {
            "name": bench.run.resolve().name,
            "rows": len(bench),
            "shows": "images" if bench.pictures else "texts" if bench.texts is not None else "ids",
            "images_moved": bench.pictures.missing(),
            "columns": bench.columns(),
            "unstable": UNSTABLE,
            "map": bench.map_kind,
            "rpim": __version__,
        }

    @app.get("/api/state")
    def state() -> Response:
        return JSONResponse(bench.summary())

    @app.get("/api/map")
    def positions() -> Response:
        places = close_gaps(bench.map).astype("<f4")
        return Response(places.tobytes(), media_type=BINARY, headers={"x-map": bench.map_kind})

    @app.get("/api/codes")
    def codes() -> Response:
        state = bench.versions.state()
        return Response(np.where(state.junk, JUNK_CODE, state.class_of).astype("<i4").tobytes(), media_type=BINARY)

    @app.get("/api/columns/{key}/legend")
    def legend(key: str) -> Any:
        column = bench.column(key)
        return {"ends": column.ends, "kinds": column.kinds, "others": column.others}

    @app.get("/api/columns/{key}")
    def column(key: str) -> Response:
        return Response(bench.column(key).values.astype("<f4").tobytes(), media_type=BINARY)

    @app.get("/api/classes/{number}/items")
    def items(
        number: int,
        order: str = ORDERS[0],
        start: Row = 0,
        count: Annotated[int, Query(le=200)] = 60,
        filters: FiltersText = "",
    ) -> Any:
        if order not in ORDERS:
            raise InputError(f"Items can be ordered by {', '.join(ORDERS)}: choose one of these.")
        state = bench.versions.state()
        rows = bench.members(state, number, order, bench.charts.mask(parse_filters(filters)))
        shown = rows[start : start + count].tolist()
        return {"total": len(rows), "items": [bench.item(row, state) for row in shown]}

    @app.get("/api/label-issues")
    def label_issues(start: Row = 0, count: Annotated[int, Query(ge=0, le=200)] = 60, filters: FiltersText = "") -> Any:
        return bench.label_issue_items(start, count, bench.charts.mask(parse_filters(filters)))

    @app.get("/api/rows/{row}")
    def one(row: int) -> Any:
        return bench.item(row_of(row), bench.versions.state())

    @app.get("/api/items")
    def some(rows: Annotated[str, Query(pattern=r"^\d{1,9}(,\d{1,9})*$", max_length=4000)]) -> Any:
        state = bench.versions.state()
        return {"items": [bench.item(row_of(int(row)), state) for row in rows.split(",")]}

    @app.get("/api/pictures/{row}")
    def picture(row: int, size: int = SIZES[0]) -> Response:
        made = bench.pictures.small(row_of(row), SIZES[0] if size <= SIZES[0] else SIZES[1]) if bench.pictures else None
        if made is None:
            return JSONResponse({"problem": "The image is missing or cannot be read."}, 404)
        return Response(made, media_type="image/jpeg")


def _serve_decisions(app: FastAPI, bench: Workbench) -> None:
    """Decisions; the response is sent once they are on disk."""
    versions = bench.versions

    def check(version: int) -> None:
        if version != versions.active:
            raise InputError("Another version of the run is now active: reload the page and try again.")

    @app.post("/api/decisions")
    def decide(asked: DecisionRequest) -> Response:
        check(asked.version)
        versions.timeline.decide(asked.version, decision_factory(asked, bench), asked.key)
        return JSONResponse(bench.summary())

    @app.post("/api/undo")
    def undo(asked: OfVersion) -> Response:
        check(asked.version)
        versions.timeline.undo(asked.version, asked.key)
        return JSONResponse(bench.summary())

    @app.post("/api/redo")
    def redo(asked: OfVersion) -> Response:
        check(asked.version)
        versions.timeline.redo(asked.version, asked.key)
        return JSONResponse(bench.summary())

    @app.post("/api/version")
    def activate(asked: ActivateRequest) -> Response:
        if asked.version not in versions.numbers():
            raise InputError("The version no longer exists: choose another.")
        versions.activate(asked.version)
        return JSONResponse(bench.summary())

    @app.get("/api/history")
    def history() -> Any:
        return bench.history()


def _serve_jobs(app: FastAPI, bench: Workbench, background: Background) -> None:
    """Exports and refits."""

    @app.get("/api/export/{form}")
    def download(form: str) -> Response:
        if form not in SUFFIXES:
            raise InputError(f"There is no format {form[:20]!r}: choose among {', '.join(SUFFIXES)}.")
        name = f"rpim-{bench.versions.active}{SUFFIXES[form]}"
        kind = mimetypes.guess_type(name)[0] or BINARY
        decided = Decided.of(bench.versions, metadata=bench.metadata)
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(decided.bytes(form), media_type=kind, headers=headers)

    @app.post(f"/api/export/{IMAGE_FOLDERS}")
    def folders(asked: Keyed) -> Any:
        if not bench.pictures:
            raise InputError("The rows of this run have no images: export a table.")
        place = bench.run / "exports" / time.strftime(f"images-%Y%m%d-%H%M%S-{asked.key[:8]}")
        with new_folder(place) as folder:
            written, left_out = image_folders(Decided.of(bench.versions), bench.pictures, folder)
        return {"folder": str(place), "written": written, "left_out": left_out}

    @app.post("/api/refit")
    def refit(asked: OfVersion) -> Any:
        background.refit(asked.version)
        return background.refitting.progress()

    @app.post("/api/refit/cancel")
    def cancel(asked: Keyed) -> Any:
        background.refitting.cancel()
        return background.refitting.progress()


def _serve_events(app: FastAPI, bench: Workbench, background: Background, is_ending: Callable[[], bool]) -> None:
    """Changes as server-sent events, with a heartbeat."""

    def now() -> dict[str, Any]:
        return {
            "stamp": bench.stamp(),
            "map": bench.map_kind,
            "mapping": background.mapping.status,
            "refit": background.refitting.progress(),
        }

    @app.get("/api/events")
    async def events(request: Request) -> Response:
        async def lines() -> AsyncIterator[str]:
            last, beat = None, 0.0
            while not is_ending() and not await request.is_disconnected():
                found = await run_in_threadpool(now)
                if found != last or time.monotonic() - beat > _HEARTBEAT_SECONDS:
                    last, beat = found, time.monotonic()
                    yield f"data: {json.dumps(found)}\n\n"
                await asyncio.sleep(_POLL_SECONDS)

        return StreamingResponse(lines(), media_type="text/event-stream")


def _serve_finding(app: FastAPI, bench: Workbench) -> None:
    """Routes that find rows (by words, by meaning, by charts, and those to label next) and similar classes."""

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
