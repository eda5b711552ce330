"""What is so for the duration of a ``with``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TypeVar

Value = TypeVar("Value")


@contextlib.contextmanager
def within(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Within it the variable has this value, and afterwards the one from before."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)
