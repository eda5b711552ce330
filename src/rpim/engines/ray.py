"""The engine for rows on Ray workers: each has a shard of the rows, and every sum over rows is an all-reduce.

Ray Train starts the workers, connects them by torch.distributed, and restarts them if one dies; they resume from the
last checkpoint. The results are those of one process up to rounding.
"""

from __future__ import annotations

import contextlib
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array
from torch import Tensor

from rpim._common.errors import InputError, first_line
from rpim._common.files import disk_is_full
from rpim._common.hardware import default_memory_budget
from rpim._common.parallel import ray_backend
from rpim._common.ray import LOCAL, connected, explain_ray_errors, import_ray, suppress_stdout
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

_STATE_FILE, _END_FILE = "training.safetensors", "trained.safetensors"
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
    counter: Any  # the actor of _StepCounter


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
            counter = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_StepCounter).remote()
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
                counter=counter,
            )
            stack.enter_context(suppress_stdout())
            stack.enter_context(_watching(counter, task.on_step))
            end = self._fit(work, head.parameters)
        for name, parameter in head.parameters.items():
            parameter.copy_(end.tensors[name])
        return end.history

    def _fit(self, work: WorkerConfig, like: Mapping[str, Tensor]) -> TrainingState:
        ray = import_ray()
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
                name="training",  # with the same name and storage Ray Train resumes by itself
                storage_path=str(work.storage),
                failure_config=FailureConfig(max_failures=_MAX_FAILURES),
                checkpoint_config=CheckpointConfig(num_to_keep=2),
            ),
        )
        with _interruptible():
            result = trainer.fit()
        if problem := ray.get(work.counter.problem.remote()):
            raise InputError(problem)
        assert result.checkpoint is not None
        with result.checkpoint.as_directory() as folder, _reading(work.storage):
            return TrainingState.from_bytes(Path(folder, _END_FILE).read_bytes(), like)

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


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt after Ctrl-C: Ray Train stops the workers, and then raises SystemExit."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, interrupted = signal.getsignal(signal.SIGINT), False
    try:
        yield
    except SystemExit:
        interrupted = True
    finally:
        signal.signal(signal.SIGINT, handler)
    if interrupted:
        raise KeyboardInterrupt


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


def _train(config: dict[str, Any]) -> None:
    """The training loop of every worker; not retried after an InputError, which the user has to resolve first."""
    import ray

    work: WorkerConfig = ray.get(config["work"])
    if ray.get(work.counter.problem.remote()):
        return
    try:
        _train_shard(work)
    except InputError as error:
        ray.get(work.counter.give_up.remote(str(error)))
        raise


def _train_shard(work: WorkerConfig) -> None:
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
    preprocess = replace(work.preprocess, device=device, components=_moved(work.preprocess.components, device))
    blocks = work.shards[rank].blocks(
        codes, len(head.prototypes), preprocess, _all_reduce(device), memory=memory, cache=work.cache
    )
    objective = replace(work.objective, class_shares=_moved(work.objective.class_shares, device))

    def on_step(step: int, value: dict[str, float]) -> None:
        if rank == 0:
            work.counter.advance.remote(step + 1)

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


class _RayCheckpoints:
    """Checkpoints by Ray Train: the first worker writes, and all workers must report."""

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
        """Whether the training is complete."""
        return self._read(_END_FILE) is not None

    def last(self, like: Mapping[str, Tensor]) -> TrainingState | None:
        data = self._read(_STATE_FILE)
        with _reading(self._storage):
            return None if data is None else TrainingState.from_bytes(data, like)

    def due(self) -> bool:
        return time.monotonic() - self._saved >= self._save_every

    def save(self, state: TrainingState) -> None:
        self._report(_STATE_FILE, state)
        self._saved = time.monotonic()

    def end(self, state: TrainingState) -> None:
        """Save the trained head."""
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
                "call it again to resume."
            ) from error


class _StepCounter:
    """An actor that counts the steps of the training, and knows why it was given up."""

    def __init__(self) -> None:
        self._steps, self._problem = 0, ""

    def advance(self, steps: int) -> None:
        self._steps = max(self._steps, steps)

    def steps(self) -> int:
        return self._steps

    def give_up(self, problem: str) -> None:
        self._problem = self._problem or problem

    def problem(self) -> str:
        return self._problem


@contextlib.contextmanager
def _watching(counter: Any, on_step: Callable[[], None]) -> Iterator[None]:
    """Context in which `on_step` is called for the steps that the workers take."""
    ray, ended = import_ray(), threading.Event()

    def watch() -> None:
        reported = 0
        while not ended.wait(_SECONDS_BETWEEN_POLLS):
            try:
                steps = ray.get(counter.steps.remote(), timeout=_SECONDS_TO_ANSWER)
            except ray.exceptions.RayError:  # the training itself reports the failure
                continue
            for _ in range(reported, steps):
                on_step()
            reported = max(reported, steps)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
