"""The words that messages about bad input share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def some(values: Iterable[Any]) -> str:
    """The first five values, for a message.

    >>> some(range(9))
    '0, 1, 2, 3, 4, ...'
    """
    listed = list(values)
    return ", ".join(str(value) for value in listed[:5]) + (", ..." if len(listed) > 5 else "")


def some_rows(rows: Sequence[int]) -> str:
    """How many rows, and which.

    >>> some_rows([4]), some_rows(range(12))
    ('1 row (4)', '12 rows (0, 1, 2, 3, 4, ...)')
    """
    return f"{len(rows)} row{'s' if len(rows) > 1 else ''} ({some(rows)})"


def first_line(error: BaseException) -> str:
    """What an error says in its first line, without a full stop; its type where it says nothing.

    >>> first_line(ValueError("No such type.\\nSee the manual."))
    'No such type'
    """
    return (str(error).splitlines() or [""])[0].rstrip(".") or type(error).__name__
