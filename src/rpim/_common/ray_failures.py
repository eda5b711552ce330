"""What a user can do about it when a cluster fails, in one sentence."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from typing import Any

from rpim._common.errors import InputError, first_line
from rpim._common.files import disk_is_full
from rpim._common.ray import imported_ray


@contextlib.contextmanager
def in_a_sentence() -> Iterator[None]:
    """Turn what Ray raises about a worker, or a cluster that is full or lost, into one sentence.

    Other errors stay as they are.
    """
    try:
        yield
    except Exception as error:
        for cause in _causes(error):
            said = what_failed(cause)
            if said is not None:
                raise InputError(said) from error
        raise


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error, and those that it came from, on whatever worker."""
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


def unprinted() -> contextlib.AbstractContextManager[Any]:
    """What Ray's threads print of workers that were lost stays off standard output."""
    return contextlib.redirect_stdout(io.StringIO())


def what_failed(error: BaseException) -> str | None:
    """What is wrong and what to do, where it is the cluster that failed; None where it is the work."""
    raised = imported_ray().exceptions
    cause = getattr(error, "cause", None) or error
    if isinstance(cause, InputError):
        return str(cause)
    if disk_is_full(cause):
        return f"A disk of the cluster is full ({first_line(cause)}): free some of it, and call it again to go on."
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
        return "A worker was lost, for want of memory or disk perhaps: ask for fewer, and call it again to go on."
    if isinstance(cause, raised.LocalRayletDiedError | raised.RaySystemError | raised.ObjectLostError):
        return f"The cluster was lost ({first_line(cause)}): call it again to go on."
    return None
