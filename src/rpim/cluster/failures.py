"""What went wrong on a worker, in one sentence where it can be said in one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rpim.cluster.connection import imported_ray
from rpim.errors import InputError
from rpim.messages import first_line


@contextlib.contextmanager
def in_a_sentence() -> Iterator[None]:
    """Turn Ray's accounts of a failure, a page each, into what the worker itself said, or what there is too little of.

    Raises
    ------
    InputError
        For bad input found by a worker, and for too little memory, object store or disk.
    """
    exceptions = imported_ray().exceptions
    try:
        yield
    except Exception as error:
        for cause in _causes(error):
            if isinstance(cause, InputError):
                raise InputError(str(cause)) from error
            if isinstance(cause, exceptions.ObjectStoreFullError):
                raise InputError(
                    "Ray's object store is full: give more memory (ray start --object-store-memory), fewer workers, or "
                    "rows as .npy or .parquet files, which workers read themselves."
                ) from error
            if isinstance(cause, exceptions.OutOfDiskError) or getattr(cause, "errno", None) == 28:
                raise InputError("A worker has no space left on its disk: free some of it.") from error
            if isinstance(cause, exceptions.OutOfMemoryError | MemoryError):
                raise InputError(
                    f"A worker ran out of memory ({first_line(cause)}): give --memory, or more workers."
                ) from error
        raise


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that it came from, on whatever worker."""
    waiting, seen = [error], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        failures = getattr(one, "worker_failures", {})
        others = [*failures.values(), *(getattr(one, name, None) for name in ("cause", "controller_failure"))]
        waiting += [other for other in [*others, one.__cause__] if isinstance(other, BaseException)]
