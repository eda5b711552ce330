"""What a new fit has changed: rows that moved, classes that came and went."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rpim.runs.decision_state import State

MOST = 30


def changes(before: State, after: State) -> dict[str, Any]:
    """Compare the final labels of two states of the same rows; rows without one in either are left aside."""
    pairs = [(a, b) for a, b in zip(before.names(), after.names(), strict=True) if a and b]
    moved = Counter((a, b) for a, b in pairs if a != b)
    had, has = {a for a, _ in pairs}, {b for _, b in pairs}
    return {
        "compared": len(pairs),
        "moved": sum(moved.values()),
        "moves": [{"from": a, "to": b, "rows": n} for (a, b), n in moved.most_common(MOST)],
        "appeared": sorted(has - had),
        "vanished": sorted(had - has),
    }
