"""The connection to Ray, failures of a cluster as errors that say what to do, and tasks as a parallel backend."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from rpim._common.errors import InputError, first_line
from rpim._common.files import disk_is_full
from rpim._common.progress import OnResult, Progress, parallel_backend

LOCAL = "local"
"""The address of a Ray that is started on this machine and shut down at the end."""
AUTO = "auto"
"""The address of the cluster that this machine is part of."""

_ADDRESS = re.compile(rf"{LOCAL}|{AUTO}|(?P<client>ray://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^:/\\\s]+):(?P<port>\d{{1,5}})")
_WITHOUT_PORT = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_SECONDS_TO_ANSWER = 5.0


def is_address(said: str) -> bool:
    """Whether this looks like the address of a cluster, valid or not.

    >>> [is_address(said) for said in ("auto", "10.0.0.1:6379", "ray://head:10001", "10.0.0.1", "rows.npy", "C:/rows")]
    [True, True, True, True, False, False]
    """
    return any(pattern.fullmatch(said) for pattern in (_ADDRESS, _WITHOUT_PORT))


@contextlib.contextmanager
def connected(address: str = LOCAL, workers: int | None = None) -> Iterator[int]:
    """Context in which this process is part of a Ray cluster; yields the number of workers, by default one per core.

    A Ray that already runs in this process is used and left running; one that is started here is shut down.

    Parameters
    ----------
    address : str
        "local", "auto" or HOST:PORT.
    workers : int, optional
        A local Ray runs that many, whatever the number of cores.

    Raises
    ------
    InputError
        If Ray is not installed, the cluster does not answer, or has fewer cores than workers.
    """
    if workers is not None and workers < 1:
        raise InputError(f"{workers} workers were asked for: give at least one.")
    ray = import_ray()
    if ray.is_initialized():
        _check_same_cluster(ray, address)
        yield _enough_cores(ray, workers, "The Ray of this process")
        return
    with _on_loopback(ray) if address == LOCAL else contextlib.nullcontext():
        _join(ray, address, workers)
        try:
            yield _enough_cores(ray, workers, f"The cluster at {address}")
        finally:
            ray.shutdown()


@contextlib.contextmanager
def _on_loopback(ray: Any) -> Iterator[None]:
    """Context in which a Ray that is started listens on 127.0.0.1 alone.

    Its ports let anyone run code. On Linux Ray replaces 127.0.0.1 by the address of the machine, unless it is
    told, as on other systems, that it is no part of a cluster: by this variable in its processes, and by the constant
    that was made from it in ours.
    """
    variable, constants = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", ray._private.ray_constants
    before, was = os.environ.get(variable), constants.ENABLE_RAY_CLUSTER
    os.environ[variable], constants.ENABLE_RAY_CLUSTER = "0", False
    try:
        yield
    finally:
        constants.ENABLE_RAY_CLUSTER = was
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def import_ray() -> Any:
    """Import Ray, or raise an InputError that says how to install it."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # Ray's future default; avoids its warning
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it bypasses Python's logging
    try:
        import ray
    except ModuleNotFoundError as error:
        raise InputError("--ray needs ray, which is not installed: pip install 'rpim[ray]'.") from error
    return ray


def _join(ray: Any, address: str, workers: int | None) -> None:
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise InputError(f"{address!r} is no address of a Ray cluster: give HOST:PORT, auto or local.")
    if found["client"]:
        raise InputError(
            f"{address} is for Ray's client, which has no Ray Data: call rpim on a machine of the cluster, with auto."
        )
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address == LOCAL:
        cores = os.cpu_count() or 1
        # Or Ray ends the processes of tasks while actors train, and new ones have to import torch.
        os.environ.setdefault("RAY_num_workers_soft_limit", str(2 * max(cores, workers or 1)))
        with _silent_terminal():
            ray.init(address=LOCAL, num_cpus=max(cores, workers or 1), include_dashboard=False, **quiet)
        return
    if found["host"]:
        _check_reachable(address, found["host"].strip("[]"), int(found["port"]))
    try:
        with _silent_terminal():
            ray.init(address=address, **quiet)
    except Exception as error:  # no such cluster, another version of Ray or Python, a timeout
        said = f"The Ray cluster at {address} cannot be joined ({first_line(error)})."
        if address == AUTO and isinstance(error, ConnectionError):
            said = (
                "This machine is part of no Ray cluster: start one with ray start --head, or leave the address out for "
                "one that ends with the work."
            )
        raise InputError(said) from error


def _check_same_cluster(ray: Any, address: str) -> None:
    joined = ray.get_runtime_context().gcs_address
    if address not in (LOCAL, AUTO, joined):
        raise InputError(f"{address} was asked for, but this process is part of the Ray at {joined}: leave that first.")


@contextlib.contextmanager
def _silent_terminal() -> Iterator[None]:
    """Silence file descriptor 2: Ray's core writes to it directly."""
    try:
        saved = os.dup(2)
    except OSError:  # there is no standard error
        yield
        return
    try:
        with open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)


def _check_reachable(address: str, host: str, port: int) -> None:
    """Fail fast: Ray itself retries for minutes."""
    try:
        socket.create_connection((host, port), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"No Ray cluster answers at {address} ({first_line(error)}): start one with ray start --head there, or "
            "leave the address out for one on this machine."
        ) from error


def _enough_cores(ray: Any, workers: int | None, where: str) -> int:
    cores = int(ray.cluster_resources().get("CPU", 0))
    if workers is not None and workers > cores:
        raise InputError(f"{where} has {cores} cores and {workers} workers were asked for: ask for fewer.")
    return workers or max(cores, 1)


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
        others = getattr(one, "cause", None), one.__cause__
        waiting += [other for other in others if isinstance(other, BaseException)]


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


@contextlib.contextmanager
def ray_backend() -> Iterator[None]:
    """Context in which `parallel_map` runs its items as tasks of the cluster that this process has joined.

    The results are the same bit for bit: each item has one core on either backend. A `Progress` that the work refers to
    reports back to this process.

    Examples
    --------
    >>> with connected("auto"), ray_backend():  # doctest: +SKIP
    ...     RPIM().fit(X, y)

    Raises
    ------
    InputError
        If no cluster was joined.
    """
    ray = import_ray()
    if not ray.is_initialized():
        raise InputError("This process has joined no Ray cluster: use rpim._common.ray.connected.")
    driver = _Driver(ray)
    ray.util.register_serializer(Progress, serializer=driver.send_progress, deserializer=_RemoteProgress)
    try:
        with parallel_backend(driver.parallel_map):
            yield
    finally:
        ray.util.deregister_serializer(Progress)


class _TaskResult(NamedTuple):
    """The result of a task, and the progress that it made."""

    result: Any
    advanced: list[tuple[int, float]]  # the number of a Progress, and by how much it advanced


class _Driver:
    """Submits the tasks and collects their results."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._task = ray.remote(num_cpus=1)(_work)
        self._shown: dict[int, Progress] = {}

    def parallel_map(self, work: Callable[[Any], Any], items: list[Any], on_result: OnResult) -> list[Any]:
        """``[work(item) for item in items]``, one task per item."""
        with explain_ray_errors(), suppress_stdout():
            stored = self._ray.put(work)
            tasks: list[Any] = []
            try:
                tasks += [self._task.remote(stored, self._ray.put(item)) for item in items]
                return self._collect(tasks, on_result)
            except Exception:
                # Not cancelled: Ray 2.60 kills this process if a task is cancelled in the moment it ends.
                self._pending(tasks, timeout=None)
                raise
            except BaseException:
                for task in self._pending(tasks, timeout=0.0):
                    self._ray.cancel(task)
                raise

    def _collect(self, tasks: list[Any], on_result: OnResult) -> list[Any]:
        """The results in the order of the tasks; calls `on_result` for each as soon as it exists."""
        number_of = {task: number for number, task in enumerate(tasks)}
        results: dict[int, Any] = {}
        waiting = list(tasks)
        while waiting:
            [ready], waiting = self._ray.wait(waiting, num_returns=1)
            number = number_of[ready]
            results[number] = self._result(ready)
            on_result(number, results[number])
        return [results[number] for number in range(len(tasks))]

    def _pending(self, tasks: list[Any], timeout: float | None) -> list[Any]:
        found: list[Any] = self._ray.wait(tasks, num_returns=len(tasks), timeout=timeout)[1] if tasks else []
        return found

    def _result(self, task: Any) -> Any:
        try:
            found: _TaskResult = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error  # as without Ray
        for number, work in found.advanced:
            self._shown[number].advance(work)
        return found.result

    def send_progress(self, progress: Progress) -> int:
        """What a task receives instead of a Progress: its number."""
        self._shown[id(progress)] = progress
        return id(progress)


# -- what runs in a task ----------------------------------------------------------------------------------------------

_advanced: list[tuple[int, float]] = []


def _work(work: Callable[[Any], Any], item: Any) -> _TaskResult:
    """The body of a task."""
    import torch

    torch.set_num_threads(1)
    _advanced.clear()
    return _TaskResult(work(item), list(_advanced))


class _RemoteProgress:
    """Records the advance of a Progress of the driver."""

    def __init__(self, number: int) -> None:
        self._number = number

    def advance(self, work: float) -> None:
        """Record the advance; the driver applies it when the task ends."""
        _advanced.append((self._number, work))
