"""The engine for rows on Ray workers: each has a shard of the rows, and every sum over rows is an all-reduce.

The workers are actors that torch.distributed connects. If one dies, all are started again and resume from the last
checkpoint. The results are those of one process up to rounding. (Ray Train does this too, but takes twenty seconds to
start two workers, and writes its own state in place: a driver killed meanwhile leaves one that it cannot read.)
"""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rpim._common.errors import InputError, first_line
from rpim._common.files import disk_is_full, replacing
from rpim._common.hardware import default_memory_budget
from rpim._common.ray import LOCAL, connected, explain_ray_errors, import_ray, ray_backend, suppress_stdout
from rpim.core import checkpoint
from rpim.core.checkpoint import History, TrainingState
from rpim.core.head import Head
from rpim.core.objective import Objective
from rpim.core.preprocessing import Preprocessing
from rpim.core.training import Schedule, train
from rpim.data.labels import IntArray
from rpim.data.row_files import RowFiles
from rpim.engines.base import Rows, TrainingTask, assign_rows, sample_within, scan_rows
from rpim.engines.ray_rows import Shard, cut

_END_FILE = "trained.safetensors"
_MAX_FAILURES = 5
_SECONDS_BETWEEN_POLLS, _SECONDS_TO_ANSWER = 0.5, 10.0
CPU = torch.device("cpu")


@dataclass(frozen=True)
class WorkerConfig:
    """What every worker receives."""

    shards: list[Shard]
    codes: list[Any]  # references to the class of each row of a shard
    head: Head
    objective: Objective
    schedule: Schedule
    preprocess: Preprocessing
    cache: bool
    memory: int | None
    storage: Path
    save_every: float


class RayEngine:
    """Rows on Ray workers, a shard each; see `Engine`."""

    def __init__(self, rows: Rows | ArrayLike, n_workers: int) -> None:
        from sklearn.utils import check_array  # workers, which import this module, do without scikit-learn

        self.rows: Rows = (
            rows
            if isinstance(rows, RowFiles)
            else check_array(rows, dtype=[np.float32, np.float64], order="C", ensure_min_samples=2)
        )
        self.n_workers = n_workers
        self.shape = self.rows.shape[0], self.rows.shape[1]
        self._shards: list[Shard] | None = None

    @property
    def shards(self) -> list[Shard]:
        """The rows in shards; an array is sent to the object store once."""
        if self._shards is None:
            self._shards = cut(self.rows, self.n_workers)
        return self._shards

    def sample(self, codes: IntArray, n_classes: int, seed: int) -> IntArray:
        return sample_within(self.rows, codes, n_classes, seed)

    @explain_ray_errors()
    def scan(
        self, sample: IntArray, preprocess: Preprocessing, *, directions: bool
    ) -> tuple[NDArray[np.floating], Tensor | None]:
        inside = [sample[(sample >= shard.start) & (sample < shard.stop)] - shard.start for shard in self.shards]
        found = _on_each(_scan, self.shards, inside, replace(preprocess, device=CPU), directions)
        grams = [gram for _, gram in found if gram is not None]
        total = torch.stack(grams).sum(dim=0).to(preprocess.device) if grams else None
        return np.concatenate([values for values, _ in found]), total

    @explain_ray_errors()
    def train(self, head: Head, task: TrainingTask) -> History:
        with contextlib.ExitStack() as stack:
            if task.checkpoint is None:
                storage = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpim-")))
            else:
                storage = task.checkpoint.workers_folder()
            ray = import_ray()
            work = WorkerConfig(
                shards=self.shards,
                codes=[ray.put(task.codes[shard.start : shard.stop]) for shard in self.shards],
                head=head,
                objective=task.objective,
                schedule=task.schedule,
                preprocess=task.preprocess,
                cache=task.cache,
                memory=self.rows.given_memory if isinstance(self.rows, RowFiles) else None,
                storage=storage,
                save_every=checkpoint.SAVE_EVERY,
            )
            stack.enter_context(suppress_stdout())
            _train_on_workers(work, task.on_step)
            with _reading(storage):
                end = TrainingState.from_bytes((storage / _END_FILE).read_bytes(), head.parameters)
        for name, parameter in head.parameters.items():
            parameter.copy_(end.tensors[name])
        return end.history

    @explain_ray_errors()
    def assign(self, head: Head, preprocess: Preprocessing, *, scores: bool) -> tuple[IntArray, NDArray[np.float32]]:
        found = _on_each(_assign, self.shards, [head] * len(self.shards), replace(preprocess, device=CPU), scores)
        return np.concatenate([classes for classes, _ in found]), np.concatenate([score for _, score in found])


@contextlib.contextmanager
def on_ray(address: str = LOCAL, workers: int | None = None) -> Iterator[Callable[[Rows | ArrayLike], RayEngine]]:
    """Connect to Ray; yields a function that spreads the rows of a fit of RIM, TIM, PIM or RPIM over its workers.

    Needs ``rpim[ray]``.

    Parameters
    ----------
    address : str
        "local" for this machine's cores; "auto" or HOST:PORT for a cluster.
    workers : int, optional
        One per core by default. Each has a shard of the rows: the workers read the files of `RowFiles` themselves, so
        all machines must see them; an array is sent to the workers. The members of a committee run as tasks.

    Yields
    ------
    callable
        Spreads an array or `RowFiles` over the workers; its result is given to ``fit`` as X.

    Examples
    --------
    >>> from rpim import RPIM, on_ray
    >>> with on_ray(workers=2) as spread:  # doctest: +SKIP
    ...     model = RPIM(n_classes=20).fit(spread(X), y)
    """
    with connected(address, workers) as n_workers, ray_backend():
        yield partial(RayEngine, n_workers=n_workers)


def _on_each(work: Callable[..., Any], shards: list[Shard], each: list[Any], *others: Any) -> list[Any]:
    """Run one task per shard; Ray retries a task whose worker dies."""
    ray = import_ray()
    task = ray.remote(work)
    return list(ray.get([task.remote(shard, one, *others) for shard, one in zip(shards, each, strict=True)]))


def _scan(
    shard: Shard, sample: IntArray, preprocess: Preprocessing, directions: bool
) -> tuple[NDArray[np.float32], Tensor | None]:
    return scan_rows(shard.rows(), sample, preprocess, directions=directions, first_row=shard.start)


def _assign(shard: Shard, head: Head, preprocess: Preprocessing, scores: bool) -> tuple[IntArray, NDArray[np.float32]]:
    return assign_rows(shard.rows(), head, preprocess, scores=scores)


def _train_on_workers(work: WorkerConfig, on_step: Callable[[], None]) -> None:
    """Train on one actor per shard; all are started again if one dies, at most `_MAX_FAILURES` times."""
    ray = import_ray()
    reference, reported = ray.put(work), 0

    def report(steps: int) -> None:
        nonlocal reported
        for _ in range(reported, steps):
            on_step()
        reported = max(reported, steps)

    for failures_left in reversed(range(_MAX_FAILURES + 1)):
        with _started(len(work.shards)) as workers:
            nodes = ray.get([worker.node.remote() for worker in workers])
            address = ray.get(workers[0].free_address.remote())
            tasks = [
                worker.train.remote(reference, rank, address, nodes.count(nodes[rank]))
                for rank, worker in enumerate(workers)
            ]
            pending = tasks
            try:
                while pending:
                    done, pending = ray.wait(pending, timeout=_SECONDS_BETWEEN_POLLS)
                    ray.get(done)
                    report(ray.get(workers[0].n_steps.remote()))
                return
            except InputError:  # the user has to resolve it first
                raise
            except ray.exceptions.RayError:
                if not failures_left:
                    _raise_lost(tasks)
                    raise


def _raise_lost(tasks: list[Any]) -> None:
    """Raise the error of a worker that was lost: those of its peers say only that they wait for it in vain."""
    ray = import_ray()
    for task in ray.wait(tasks, num_returns=len(tasks), timeout=_SECONDS_TO_ANSWER)[0]:
        with contextlib.suppress(ray.exceptions.RayTaskError):
            ray.get(task)


@contextlib.contextmanager
def _started(n_workers: int) -> Iterator[list[Any]]:
    """Context with that many workers, all or none of which have their cores."""
    ray = import_ray()
    from ray.util.placement_group import placement_group, remove_placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    resources = ray.cluster_resources()
    cores = max(1, int(resources.get("CPU", 1)) // n_workers)
    gpus = int(resources.get("GPU", 0) >= n_workers)
    group = placement_group([{"CPU": cores, "GPU": gpus} if gpus else {"CPU": cores}] * n_workers)
    try:
        ray.get(group.ready())
        actor = ray.remote(num_cpus=cores, num_gpus=gpus, max_concurrency=2)(_TrainingWorker)
        yield [
            actor.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, index)).remote()
            for index in range(n_workers)
        ]
    finally:
        remove_placement_group(group)  # its actors are killed


class _TrainingWorker:
    """An actor that trains on one shard; a second thread of it answers how far it is."""

    def __init__(self) -> None:
        self._steps = 0

    def node(self) -> str:
        """The machine it runs on."""
        return str(import_ray().get_runtime_context().get_node_id())

    def free_address(self) -> str:
        """An address on its machine for torch.distributed."""
        host = str(import_ray().util.get_node_ip_address())
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as free:
            free.bind((host, 0))
            port = free.getsockname()[1]
        return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"

    def n_steps(self) -> int:
        """The steps of the training so far."""
        return self._steps

    def train(self, work: WorkerConfig, rank: int, address: str, workers_here: int) -> None:
        """Train together with the other workers; `workers_here` of them are on this machine."""
        import ray
        from torch import distributed

        device = torch.device("cuda", 0) if ray.get_gpu_ids() else CPU  # Ray shows each worker its own GPU alone
        distributed.init_process_group(
            "gloo" if device == CPU else "nccl", init_method=address, rank=rank, world_size=len(work.shards)
        )
        checkpoints = _WorkerCheckpoints(rank, device, work.storage, work.save_every)
        if checkpoints.has_ended():
            return
        head = _on(device, work.head)
        codes = np.array(ray.get(work.codes[rank]))
        memory = work.memory or default_memory_budget() // workers_here
        preprocess = replace(work.preprocess, device=device, components=_moved(work.preprocess.components, device))
        blocks = work.shards[rank].blocks(
            codes, len(head.prototypes), preprocess, _all_reduce(device), memory=memory, cache=work.cache
        )
        objective = replace(work.objective, class_shares=_moved(work.objective.class_shares, device))

        def on_step(step: int, value: dict[str, float]) -> None:
            self._steps = step + 1

        history = train(blocks, head, objective, work.schedule, on_step, checkpoints)
        checkpoints.end(TrainingState(head.parameters, history))


def _moved(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device)


def _on(device: torch.device, head: Head) -> Head:
    """A copy of the head: objects from the object store are read-only."""
    head = replace(head, prototypes=head.prototypes.to(device, copy=True))
    for name, value in head.transform.parameters.items():
        head.transform.parameters[name] = value.to(device, copy=True)
    return head


def _all_reduce(device: torch.device) -> Callable[[Tensor], Tensor]:
    from torch import distributed

    def all_reduce(total: Tensor) -> Tensor:
        if total.device == device:
            distributed.all_reduce(total)
            return total
        on_device = total.to(device)  # the all-reduce of GPUs takes no CPU tensors
        distributed.all_reduce(on_device)
        return total.copy_(on_device)

    return all_reduce


@contextlib.contextmanager
def _reading(storage: Path) -> Iterator[None]:
    """Turn the ValueError of a damaged checkpoint into one sentence."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise InputError(
            f"{storage} holds a checkpoint that cannot be read ({first_line(error)}): remove {storage.parent}, and the "
            "fit begins again."
        ) from error


class _WorkerCheckpoints:
    """Checkpoints of all workers: the first one writes and reads, and sends what it has read to the others."""

    def __init__(self, rank: int, device: torch.device, storage: Path, save_every: float) -> None:
        self._rank, self._device, self._storage = rank, device, storage
        self._save_every, self._saved = save_every, time.monotonic()

    def has_ended(self) -> bool:
        """Whether the training is complete."""
        return bool(self._from_first((self._storage / _END_FILE).is_file))

    def last(self, like: Mapping[str, Tensor]) -> TrainingState | None:
        path = self._storage / checkpoint.TRAINING_FILE
        data = self._from_first(lambda: path.read_bytes() if path.is_file() else None)
        with _reading(self._storage):
            return None if data is None else TrainingState.from_bytes(data, like)

    def due(self) -> bool:
        return time.monotonic() - self._saved >= self._save_every

    def save(self, state: TrainingState) -> None:
        self._write(checkpoint.TRAINING_FILE, state)
        self._saved = time.monotonic()

    def end(self, state: TrainingState) -> None:
        """Save the trained head."""
        self._write(_END_FILE, state)

    def _from_first(self, read: Callable[[], Any]) -> Any:
        from torch import distributed

        found = [None if self._rank else read()]
        distributed.broadcast_object_list(found, src=0, device=self._device)
        return found[0]

    def _write(self, name: str, state: TrainingState) -> None:
        if self._rank:
            return
        try:
            with replacing(self._storage / name) as file:
                file.write(state.to_bytes())
        except InputError as error:
            if error.__cause__ is None or not disk_is_full(error.__cause__):
                raise
            raise InputError(
                f"{self._storage} was not written, no space left on its disk: free some of it, and call it again to "
                "resume."
            ) from error
