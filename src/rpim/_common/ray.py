"""Joining a Ray cluster, or starting one on this machine; everything else about Ray assumes that this was done."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from typing import Any

from rpim._common.errors import InputError, first_line

LOCAL = "local"
"""The address of a Ray that is started on this machine and ends with the work."""
AUTO = "auto"
"""That of the cluster which this machine is part of."""

_ADDRESS = re.compile(rf"{LOCAL}|{AUTO}|(?P<client>ray://)?(?P<host>\[[0-9a-fA-F:.]+\]|[^:/\\\s]+):(?P<port>\d{{1,5}})")
_WITHOUT_PORT = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_SECONDS_TO_ANSWER = 5.0


def is_address(said: str) -> bool:
    """Whether this is meant to be the address of a cluster, right or wrong.

    >>> [is_address(said) for said in ("auto", "10.0.0.1:6379", "ray://head:10001", "10.0.0.1", "rows.npy", "C:/rows")]
    [True, True, True, True, False, False]
    """
    return any(pattern.fullmatch(said) for pattern in (_ADDRESS, _WITHOUT_PORT))


@contextlib.contextmanager
def connected(address: str = LOCAL, workers: int | None = None) -> Iterator[int]:
    """Within it Ray can be used; gives the number of workers: as asked for, else one a core.

    A Ray that is running in this process is used and left running; one that is started here ends with it.

    Parameters
    ----------
    address : str
        "local", "auto" or HOST:PORT.
    workers : int, optional
        How many are wanted; a local Ray lets as many run, whatever the cores.

    Raises
    ------
    InputError
        If Ray is not installed, the cluster does not answer, or has fewer cores than workers.
    """
    if workers is not None and workers < 1:
        raise InputError(f"{workers} workers were asked for: give at least one.")
    ray = imported_ray()
    if ray.is_initialized():
        _must_be_the_same(ray, address)
        yield _enough_cores(ray, workers, "The Ray of this process")
        return
    _join(ray, address, workers)
    try:
        yield _enough_cores(ray, workers, f"The cluster at {address}")
    finally:
        ray.shutdown()


def imported_ray() -> Any:
    """Ray itself, or the sentence that says how to install it."""
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # what Ray will do by itself, and warns of
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would tell its makers
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # it writes straight to the terminal
    os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.25")  # the end of a training waits for two of them
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
        with _silent_terminal():
            ray.init(address=LOCAL, num_cpus=max(cores, workers or 1), include_dashboard=False, **quiet)
        return
    if found["host"]:
        _must_answer(address, found["host"].strip("[]"), int(found["port"]))
    try:
        with _silent_terminal():
            ray.init(address=address, **quiet)
    except Exception as error:  # of many kinds: no such cluster, another version of Ray or Python, a timeout
        said = f"The Ray cluster at {address} cannot be joined ({first_line(error)})."
        if address == AUTO and isinstance(error, ConnectionError):
            said = (
                "This machine is part of no Ray cluster: start one with ray start --head, or leave the address out for "
                "one that ends with the work."
            )
        raise InputError(said) from error


def _must_be_the_same(ray: Any, address: str) -> None:
    joined = ray.get_runtime_context().gcs_address
    if address not in (LOCAL, AUTO, joined):
        raise InputError(f"{address} was asked for, but this process is part of the Ray at {joined}: leave that first.")


@contextlib.contextmanager
def _silent_terminal() -> Iterator[None]:
    """Ray's core tells the terminal, past Python, that it was asked to tell it nothing."""
    try:
        kept = os.dup(2)
    except OSError:  # there is no terminal, nor anything in its place
        yield
        return
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _must_answer(address: str, host: str, port: int) -> None:
    """Ray itself would try for minutes."""
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
