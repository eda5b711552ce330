"""What is done side by side, as tasks of a cluster: the trials of a search, the folds of a calibration, resamples.

A task is sent the work as it stands, with two exceptions. A function in `functools.cache` stays the driver's: a task
is told what it knows, and what the task adds is known to later ones; what it needs is put into the object store once,
however many tasks there are. And a `Progress` goes on where it is shown.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from rpim.cluster.connection import imported_ray
from rpim.cluster.failures import in_a_sentence, unprinted
from rpim.errors import InputError
from rpim.parallel import done_by
from rpim.progress import Progress

_CACHED = type(functools.cache(len))
Arguments = tuple[Hashable, ...]


@contextlib.contextmanager
def spread_tasks() -> Iterator[None]:
    """Within it, what a fit does side by side is done by the cluster that this process has joined.

    The result is the same, bit for bit: each piece of work has one core, here and there.

    Examples
    --------
    >>> from rpim.cluster.connection import connected
    >>> with connected("auto"), spread_tasks():  # doctest: +SKIP
    ...     RPIM().fit(X, y)

    Raises
    ------
    InputError
        If no cluster was joined.
    """
    ray = imported_ray()
    if not ray.is_initialized():
        raise InputError("Tasks cannot be spread, as no cluster was joined: use rpim.cluster.connection.connected.")
    driver = _Driver(ray)
    ray.util.register_serializer(_CACHED, serializer=driver.send_cached, deserializer=_CachedThere)
    ray.util.register_serializer(Progress, serializer=driver.send_progress, deserializer=_ProgressThere)
    try:
        with done_by(driver.side_by_side):
            yield
    finally:
        ray.util.deregister_serializer(_CACHED)
        ray.util.deregister_serializer(Progress)


class _Found(NamedTuple):
    """What comes back from a task."""

    result: Any
    values: list[tuple[int, Arguments, Any]]  # of cached functions: whose, for what, and the value
    advanced: list[tuple[int, float]]  # of the progress: whose, and by how much


@dataclass
class _Cached:
    """A cached function of the driver."""

    function: Any  # held on to, so that no other gets its number
    stored: Any  # where what it caches is, for tasks
    calls: set[int]  # the numbers of the cached functions that it may call
    known: dict[Arguments, Any] = field(default_factory=dict)


class _Driver:
    """The end of the wire at which the results are wanted."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._task = ray.remote(num_cpus=1)(_work)
        self._cached: dict[int, _Cached] = {}
        self._shown: dict[int, Progress] = {}
        self._met: set[int] = set()  # the cached functions in what is being stored

    def side_by_side(self, work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """``[work(item) for item in items]``, a task each."""
        with in_a_sentence(), unprinted():
            if not isinstance(work, _CACHED):
                return self._done(work, items)
            known = self._of(work).known  # what is done is added to it
            self._done(work, [item for item in dict.fromkeys(items) if (item,) not in known])
            return [known[(item,)] for item in items]

    def _done(self, work: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        stored, met = self._store(work)
        tasks = []
        try:
            for item in items:
                there, also_met = self._store(item)
                known = {number: self._cached[number].known for number in met | also_met}
                tasks.append(self._task.remote(stored, there, known))
            return [self._answer(task) for task in tasks]
        except Exception:
            # Not cancelled: Ray 2.60 ends this very process where a task is cancelled in the moment in which it ends.
            self._unfinished(tasks, timeout=None)
            raise
        except BaseException:
            for task in self._unfinished(tasks, timeout=0.0):
                self._ray.cancel(task)
            raise

    def _unfinished(self, tasks: list[Any], timeout: float | None) -> list[Any]:
        found: list[Any] = self._ray.wait(tasks, num_returns=len(tasks), timeout=timeout)[1] if tasks else []
        return found

    def _store(self, thing: Any) -> tuple[Any, set[int]]:
        """Put it where tasks find it; the numbers of the cached functions in it."""
        before, self._met = self._met, set()
        try:
            return self._ray.put(thing), self._met
        finally:
            self._met = before

    def _answer(self, task: Any) -> Any:
        try:
            found: _Found = self._ray.get(task)
        except self._ray.exceptions.RayTaskError as error:
            raise error.cause from error  # as if it had been done here
        for number, arguments, value in found.values:
            self._cached[number].known[arguments] = value
        for number, work in found.advanced:
            self._shown[number].advance(work)
        return found.result

    def _of(self, function: Any) -> _Cached:
        number = id(function)
        if number not in self._cached:
            self._cached[number] = _Cached(function, *self._store(function.__wrapped__))
        return self._cached[number]

    def send_cached(self, function: Any) -> tuple[int, Any]:
        """What a task needs of a cached function, but for what it knows, which may be more when the task begins."""
        cached = self._of(function)
        self._met |= {id(function), *cached.calls}
        return id(function), cached.stored

    def send_progress(self, progress: Progress) -> int:
        """What a task needs of a progress."""
        self._shown[id(progress)] = progress
        return id(progress)


# From here on, what is in a task.

_known: dict[int, dict[Arguments, Any]] = {}
_values: list[tuple[int, Arguments, Any]] = []
_advanced: list[tuple[int, float]] = []


def _work(work: Callable[[Any], Any], item: Any, known: dict[int, dict[Arguments, Any]]) -> _Found:
    """The life of a task."""
    torch.set_num_threads(1)
    for left in (_known, _values, _advanced):
        left.clear()
    _known.update(known)
    return _Found(work(item), list(_values), list(_advanced))


class _CachedThere:
    """A cached function of the driver: what it knows is not done again."""

    def __init__(self, sent: tuple[int, Any]) -> None:
        self._number, self._stored = sent

    def __call__(self, *arguments: Hashable) -> Any:
        known = _known.setdefault(self._number, {})
        if arguments not in known:
            known[arguments] = self._function(*arguments)
            _values.append((self._number, arguments, known[arguments]))
        return known[arguments]

    @functools.cached_property
    def _function(self) -> Any:
        return imported_ray().get(self._stored)


class _ProgressThere:
    """The progress of the driver."""

    def __init__(self, number: int) -> None:
        self._number = number

    def advance(self, work: float) -> None:
        """To be told when the task is done."""
        _advanced.append((self._number, work))
