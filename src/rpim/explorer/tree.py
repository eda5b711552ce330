"""The tree of the classes, for the page: similar classes are near each other, and can be merged."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from rpim._common.errors import InputError
from rpim.explorer.workbench import Workbench
from rpim.runs.versions import class_number


def serve_tree(app: FastAPI, bench: Workbench) -> None:
    """Add the route; the latest tree is kept until the next decision, because keywords of many texts take seconds."""
    latest: tuple[str, dict[str, Any]] | None = None

    @app.get("/api/tree")
    def tree() -> Any:
        nonlocal latest
        stamp = bench.stamp()
        if latest is None or latest[0] != stamp:
            latest = stamp, class_tree(bench)
        return latest[1]


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
