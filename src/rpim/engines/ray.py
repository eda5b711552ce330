"""A fit spread over Ray's workers: each has a shard of the rows, and every sum over rows is an all-reduce.

Ray Train starts the workers, brings them together by torch.distributed, and starts them again where one dies; they
then go on from the last checkpoint. The numbers are those of one process, to rounding.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from torch import Tensor

from rpim._common.errors import InputError
from rpim._common.files import disk_is_full
from rpim._common.memory_budget import default_memory_budget
from rpim._common.ray import LOCAL, connected, imported_ray
from rpim._common.ray_failures import in_a_sentence, unprinted
from rpim._common.ray_tasks import spread_tasks
from rpim.core import checkpoint
from rpim.core.head import Head
from rpim.core.preprocessing import Preparation
from rpim.core.training import Objective, Schedule, train
from rpim.core.training_state import History, TrainingState
from rpim.data.labels import IntArray
from rpim.data.row_files import RowFiles
from rpim.engines.base import Rows, TrainingTask, assign_rows, sample_within, scan_rows
from rpim.engines.ray_rows import Shard, cut

_STATE_FILE, _END_FILE = "training.safetensors", "trained.safetensors"
_MOST_FAILURES = 5
_SECONDS_BETWEEN_LOOKS, _SECONDS_TO_ANSWER = 0.5, 10.0
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Work:
    """What every worker is told."""

    shards: list[Shard]
    codes: list[Any]  # references to the class of each row of a shard
    head: Head
    objective: Objective
    schedule: Schedule
    prepare: Preparation
    cache: bool
    memory: int | None
    storage: Path
    save_every: float
    ticker: Any


class RayEngine:
    """Rows on Ray workers, a shard each; see `Engine`."""

    def __init__(self, rows: Rows | ArrayLike, n_workers: int) -> None:
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
        """The rows in shards: an array is handed over once."""
        if self._shards is None:
            self._shards = cut(self.rows, self.n_workers)
        return self._shards

    def sample(self, codes: IntArray, n_classes: int, seed: int) -> IntArray:
        return sample_within(self.rows, codes, n_classes, seed)

    @in_a_sentence()
    def scan(
        self, sample: IntArray, prepare: Preparation, *, directions: bool
    ) -> tuple[NDArray[np.floating], Tensor | None]:
        inside = [sample[(sample >= shard.start) & (sample < shard.stop)] - shard.start for shard in self.shards]
        found = _on_each(_scan, self.shards, inside, replace(prepare, device=CPU), directions)
        grams = [gram for _, gram in found if gram is not None]
        total = torch.stack(grams).sum(dim=0).to(prepare.device) if grams else None
        return np.concatenate([values for values, _ in found]), total

    @in_a_sentence()
    def train(self, head: Head, task: TrainingTask) -> History:
        with contextlib.ExitStack() as stack:
            if task.checkpoint is None:
                storage = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rpim-")))
            else:
                storage = task.checkpoint.place_for_workers()
            ray = imported_ray()
            ticker = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_Ticker).remote()
            work = Work(
                shards=self.shards,
                codes=[ray.put(task.codes[shard.start : shard.stop]) for shard in self.shards],
                head=head,
                objective=task.objective,
                schedule=task.schedule,
                prepare=task.prepare,
                cache=task.cache,
                memory=self.rows.given_memory if isinstance(self.rows, RowFiles) else None,
                storage=storage,
                save_every=checkpoint.SAVE_EVERY,
                ticker=ticker,
            )
            stack.enter_context(unprinted())
            stack.enter_context(_watching(ticker, task.on_step))
            end = self._fit(work)
        for name, parameter in head.parameters.items():
            parameter.copy_(end.tensors[name])
        return end.history

    def _fit(self, work: Work) -> TrainingState:
        ray = imported_ray()
        from ray.train import CheckpointConfig, FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer

        resources = ray.cluster_resources()
        trainer = TorchTrainer(
            _train,
            train_loop_config={"work": ray.put(work)},
            scaling_config=ScalingConfig(
                num_workers=self.n_workers,
                use_gpu=resources.get("GPU", 0) >= self.n_workers,
                resources_per_worker={"CPU": max(1, int(resources.get("CPU", 1)) // self.n_workers)},
            ),
            run_config=RunConfig(
                name="training",  # of the same name and place, Ray Train goes on by itself
                storage_path=str(work.storage),
                failure_config=FailureConfig(max_failures=_MOST_FAILURES),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )
        with _interruptible():
            result = trainer.fit()
        if problem := ray.get(work.ticker.problem.remote()):
            raise InputError(problem)
        assert result.checkpoint is not None
        with result.checkpoint.as_directory() as folder:
            return TrainingState.from_bytes(Path(folder, _END_FILE).read_bytes())

    @in_a_sentence()
    def assign(self, head: Head, prepare: Preparation, *, scores: bool) -> tuple[IntArray, NDArray[np.float32]]:
        found = _on_each(_assign, self.shards, [head] * len(self.shards), replace(prepare, device=CPU), scores)
        return np.concatenate([classes for classes, _ in found]), np.concatenate([score for _, score in found])


@contextlib.contextmanager
def on_ray(address: str = LOCAL, workers: int | None = None) -> Iterator[Callable[[Rows | ArrayLike], RayEngine]]:
    """Connect to Ray, and give what spreads the rows of a fit of RIM, TIM, PIM or RPIM over its workers.

    Needs ``rpim[ray]``.

    Parameters
    ----------
    address : str
        "local" for this machine's cores; "auto" or HOST:PORT for a cluster.
    workers : int, optional
        One a core by default. Each has a shard of the rows: those of `RowFiles` are read by the workers themselves, so
        all machines must see the files; an array is sent to them. The members of a committee are tasks of the cluster.

    Examples
    --------
    >>> from rpim import RPIM, on_ray
    >>> with on_ray(workers=2) as spread:  # doctest: +SKIP
    ...     model = RPIM(n_classes=20).fit(spread(X), y)
    """
    with connected(address, workers) as n_workers, spread_tasks():
        yield partial(RayEngine, n_workers=n_workers)


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """A Ctrl-C is one here too: Ray Train ends the workers, then this process, and keeps the signal to itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, pressed = signal.getsignal(signal.SIGINT), False
    try:
        yield
    except SystemExit:
        pressed = True
    finally:
        signal.signal(signal.SIGINT, handler)
    if pressed:
        raise KeyboardInterrupt


def _on_each(work: Callable[..., Any], shards: list[Shard], each: list[Any], *others: Any) -> list[Any]:
    """A task for each shard; Ray does one again where its worker dies."""
    ray = imported_ray()
    task = ray.remote(work)
    return list(ray.get([task.remote(shard, one, *others) for shard, one in zip(shards, each, strict=True)]))


def _scan(
    shard: Shard, sample: IntArray, prepare: Preparation, directions: bool
) -> tuple[NDArray[np.float32], Tensor | None]:
    return scan_rows(shard.rows(), sample, prepare, directions=directions, first_row=shard.start)


def _assign(shard: Shard, head: Head, prepare: Preparation, scores: bool) -> tuple[IntArray, NDArray[np.float32]]:
    return assign_rows(shard.rows(), head, prepare, scores=scores)


def _train(config: dict[str, Any]) -> None:
    """What runs on every worker, again after a failure unless somebody has to do something about it first."""
    import ray

    work: Work = ray.get(config["work"])
    if ray.get(work.ticker.problem.remote()):
        return
    try:
        _train_shard(work)
    except InputError as error:
        ray.get(work.ticker.give_up.remote(str(error)))
        raise


def _train_shard(work: Work) -> None:
    import ray.train

    context = ray.train.get_context()
    rank = context.get_world_rank()
    checkpoints = _RayCheckpoints(rank, work.storage, work.save_every)
    if checkpoints.has_ended():
        return
    device = ray.train.torch.get_device()
    head = _on(device, work.head)
    codes = np.array(ray.get(work.codes[rank]))
    memory = work.memory or default_memory_budget() // context.get_local_world_size()
    prepare = replace(work.prepare, device=device, components=_moved(work.prepare.components, device))
    blocks = work.shards[rank].blocks(
        codes, len(head.prototypes), prepare, _all_reduce(device), memory=memory, cache=work.cache
    )
    objective = replace(work.objective, class_shares=_moved(work.objective.class_shares, device))

    def on_step(step: int, value: dict[str, float]) -> None:
        if rank == 0:
            work.ticker.tick.remote(step + 1)

    history = train(blocks, head, objective, work.schedule, on_step, checkpoints)
    checkpoints.end(TrainingState(head.parameters, history))


def _moved(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device)


def _on(device: torch.device, head: Head) -> Head:
    """A head of this worker's own: what comes out of the object store cannot be written to."""
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
        there = total.to(device)  # a GPU's all-reduce knows nothing of the CPU
        distributed.all_reduce(there)
        return total.copy_(there)

    return all_reduce


class _RayCheckpoints:
    """How far the training is, kept by Ray Train; the first worker writes, and all have to take part."""

    def __init__(self, rank: int, storage: Path, save_every: float) -> None:
        self._rank, self._storage = rank, storage
        self._save_every, self._saved = save_every, time.monotonic()

    def _read(self, name: str) -> bytes | None:
        import ray.train

        checkpoint = ray.train.get_checkpoint()
        if checkpoint is None:
            return None
        with checkpoint.as_directory() as folder:
            path = Path(folder, name)
            return path.read_bytes() if path.is_file() else None

    def has_ended(self) -> bool:
        """Whether nothing is left to be done."""
        return self._read(_END_FILE) is not None

    def last(self) -> TrainingState | None:
        data = self._read(_STATE_FILE)
        return None if data is None else TrainingState.from_bytes(data)

    def due(self) -> bool:
        return time.monotonic() - self._saved >= self._save_every

    def save(self, state: TrainingState) -> None:
        self._report(_STATE_FILE, state)
        self._saved = time.monotonic()

    def end(self, state: TrainingState) -> None:
        """Keep what was trained."""
        self._report(_END_FILE, state)

    def _report(self, name: str, state: TrainingState) -> None:
        import ray.train

        if self._rank:
            ray.train.report({})
            return
        try:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, name).write_bytes(state.to_bytes())
                ray.train.report({}, checkpoint=ray.train.Checkpoint.from_directory(folder))
        except OSError as error:
            if not disk_is_full(error):
                raise
            raise InputError(
                f"{error.filename or self._storage} was not written, no space left on its disk: free some of it, and "
                "call it again to go on."
            ) from error


class _Ticker:
    """An actor that knows how many steps have been taken, and why there will be no more."""

    def __init__(self) -> None:
        self._steps, self._problem = 0, ""

    def tick(self, steps: int) -> None:
        self._steps = max(self._steps, steps)

    def steps(self) -> int:
        return self._steps

    def give_up(self, problem: str) -> None:
        self._problem = self._problem or problem

    def problem(self) -> str:
        return self._problem


@contextlib.contextmanager
def _watching(ticker: Any, on_step: Callable[[], None]) -> Iterator[None]:
    """Within it, steps that workers take are told here."""
    ray, over = imported_ray(), threading.Event()

    def watch() -> None:
        told = 0
        while not over.wait(_SECONDS_BETWEEN_LOOKS):
            try:
                steps = ray.get(ticker.steps.remote(), timeout=_SECONDS_TO_ANSWER)
            except ray.exceptions.RayError:  # it is the training that says what has failed
                continue
            for _ in range(told, steps):
                on_step()
            told = max(told, steps)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
