"""Values that hold for the duration of a ``with`` block."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import TypeVar

Value = TypeVar("Value")


@contextlib.contextmanager
def set_context(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Set a context variable, and reset it at the end of the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
