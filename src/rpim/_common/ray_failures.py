"""Failures of a Ray cluster as errors that say what to do."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

from rpim._common.errors import InputError, first_line
from rpim._common.files import disk_is_full
from rpim._common.ray import import_ray


@contextlib.contextmanager
def explain_ray_errors() -> Iterator[None]:
    """Context that turns Ray's errors about workers and the cluster into an InputError of one sentence.

    Other errors pass unchanged.
    """
    try:
        yield
    except Exception as error:
        for cause in _causes(error):
            message = explanation(cause)
            if message is not None:
                raise InputError(message) from error
        raise


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, on any worker."""
    waiting, seen = [error], set()
    while waiting:
        one = waiting.pop(0)
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        failures = getattr(one, "worker_failures", {})
        others = [*failures.values(), *(getattr(one, name, None) for name in ("cause", "controller_failure"))]
        waiting += [other for other in [*others, one.__cause__] if isinstance(other, BaseException)]


def suppress_stdout() -> contextlib.AbstractContextManager[Any]:
    """Suppress standard output: Ray's threads print about lost workers."""
    return contextlib.redirect_stdout(io.StringIO())


def explanation(error: BaseException) -> str | None:
    """What is wrong and what to do if the cluster failed; None if the work did."""
    raised = import_ray().exceptions
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, InputError):
        return str(cause)
    if disk_is_full(cause):
        return f"A disk of the cluster is full ({first_line(cause)}): free some of it, and call it again to resume."
    if isinstance(cause, raised.ObjectStoreFullError):
        return "The object store of Ray is full: start Ray with a larger object_store_memory, or ask for fewer workers."
    if isinstance(cause, raised.OutOfDiskError):
        return (
            "The object store of Ray is full, and so is the disk to which it moves what does not fit: start Ray with a "
            "larger object_store_memory, or free some of that disk."
        )
    if isinstance(cause, raised.OutOfMemoryError):
        return "A machine of the cluster has run out of memory: ask for fewer workers, or larger machines."
    if isinstance(cause, raised.RayActorError) and "creation task" in str(cause):
        last = str(cause).strip().splitlines()[-1].strip()
        return f"A worker could not start ({last}): install the same packages on all machines of the cluster."
    if isinstance(cause, raised.WorkerCrashedError | raised.RayActorError | raised.NodeDiedError):
        return "A worker was lost, for want of memory or disk perhaps: ask for fewer, and call it again to resume."
    if isinstance(cause, raised.LocalRayletDiedError | raised.RaySystemError | raised.ObjectLostError):
        return f"The cluster was lost ({first_line(cause)}): call it again to resume."
    return None
