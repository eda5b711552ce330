"""The bodies of requests to the explorer, validated by pydantic, and the decisions that they ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rpim.explorer.workbench import MAX_PARTS, Workbench
from rpim.runs.decisions import MAX_NAME, Accept, Decision, Junk, Merge, Move, Rename, State

Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
Rows = Annotated[list[Number], Field(min_length=1, max_length=400_000)]


class Request(BaseModel):
    """Every change has a unique key, so that a repeated request is not executed twice."""

    model_config = ConfigDict(extra="forbid")
    key: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{8,64}$")]


class RankRequest(BaseModel):
    """Rank all rows by their similarity to words, or to rows."""

    model_config = ConfigDict(extra="forbid")
    words: Annotated[str, Field(max_length=4000)] | None = None
    rows: Rows | None = None


class OfVersion(Request):
    """A request about one version; refused if another one is active."""

    version: Number


class RenameRequest(OfVersion):
    """Rename a class."""

    kind: Literal["rename"]
    number: Number
    name: Name


class AcceptRequest(OfVersion):
    """Accept a class, or reopen it."""

    kind: Literal["accept"]
    number: Number
    accepted: bool


class MergeRequest(OfVersion):
    """Merge classes into the first of them."""

    kind: Literal["merge"]
    numbers: Annotated[list[Number], Field(min_length=2, max_length=10_000)]


class SplitRequest(OfVersion):
    """Split a class."""

    kind: Literal["split"]
    number: Number
    parts: Annotated[int, Field(ge=2, le=MAX_PARTS)]


class MoveRequest(OfVersion):
    """Move rows to a class, by number, or to a new one, by name."""

    kind: Literal["move"]
    rows: Rows
    to: Number | None = None
    name: Name | None = None


class JunkRequest(OfVersion):
    """Mark rows as junk, or restore them."""

    kind: Literal["junk"]
    rows: Rows
    junk: bool


DecisionRequest = Annotated[
    RenameRequest | AcceptRequest | MergeRequest | SplitRequest | MoveRequest | JunkRequest,
    Field(discriminator="kind"),
]


class ActivateRequest(Request):
    """Make another version active."""

    version: Number


def decision_factory(asked: DecisionRequest, bench: Workbench) -> Callable[[State], Decision]:
    """A function that builds the requested decision from the current state."""

    def make(state: State) -> Decision:
        if isinstance(asked, RenameRequest):
            return Rename(asked.number, state.available_name(asked.name, but=asked.number))
        if isinstance(asked, AcceptRequest):
            return Accept(asked.number, asked.accepted)
        if isinstance(asked, MergeRequest):
            return Merge(tuple(dict.fromkeys(asked.numbers)))
        if isinstance(asked, SplitRequest):
            return bench.split(state, asked.number, asked.parts)
        rows = np.unique(np.array(asked.rows, dtype=np.int32))
        if isinstance(asked, JunkRequest):
            return Junk(rows, asked.junk)
        if asked.to is None:
            return Move(rows, state.next_class, state.available_name(asked.name or ""))
        return Move(rows, asked.to)

    return make
