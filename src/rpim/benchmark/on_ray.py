"""The cells of a benchmark as Ray tasks, which share one copy of each feature set per machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rpim._common.errors import first_line
from rpim._common.ray import import_ray
from rpim._common.ray_failures import explain_ray_errors, explanation, suppress_stdout
from rpim.benchmark.cells import Cell, CellFile
from rpim.benchmark.protocol import SplitFeatures, split_features
from rpim.benchmark.results import Record
from rpim.benchmark.runner import CellFunction, CellProgress


def run_cells_on_ray(
    cells: Sequence[Cell], kept: CellFile, workers: int, *, work: CellFunction | None = None, verbose: bool = False
) -> None:
    """`run_cells` by the workers of the cluster that this process has joined.

    Each cell is a task, in a process that ends with it, so that its peak of memory is its own: that has the rows in
    it, although all cells of a machine share them. What it leaves for the figures goes beside `kept`, and there are
    figures where all machines share that disk. Whatever ends this function, also Ctrl-C, ends the tasks.

    Parameters
    ----------
    cells, kept, work, verbose
        As in `run_cells`.
    workers : int
        How many cells at once; each gets its part of the cores.
    """
    todo = [cell for cell in cells if not kept.done(cell)]
    if not todo:
        return
    ray = import_ray()
    threads = _threads(ray, workers)
    # A process a task; one that was lost is an error of its cell, as it would be tried again by the same command.
    task = ray.remote(num_cpus=threads, max_calls=1, max_retries=0)(_record)
    shared: dict[str, Any] = {}
    running: dict[Any, Cell] = {}

    def start(cell: Cell) -> None:
        if cell.data.name not in shared:
            shared[cell.data.name] = ray.put(split_features(cell.data.read()))
        running[task.remote(cell, shared[cell.data.name], threads, kept.path.parent.resolve(), work)] = cell

    with CellProgress(verbose) as progress, explain_ray_errors(), suppress_stdout():
        progress.expect(len(todo))
        waiting = iter(todo)
        try:
            for count in range(len(todo)):
                progress.stage(f"{len(cells) - len(todo) + count} of {len(cells)} cells")
                for cell in waiting:
                    start(cell)
                    if len(running) == workers:
                        break
                while not (ready := ray.wait(list(running), timeout=1.0)[0]):
                    progress.advance(0)  # updates the elapsed time
                kept.add(_answer(ray, ready[0], running.pop(ready[0])))
                progress.advance(1)
        finally:
            for other in ray.wait(list(running), num_returns=len(running), timeout=0)[1] if running else ():
                ray.cancel(other, force=True)


def _record(cell: Cell, parts: SplitFeatures, threads: int, folder: Path, work: CellFunction | None) -> Record:
    """The body of a Ray task."""
    if work is None:
        from rpim.benchmark.cell import run_cell

        work = partial(run_cell, folder=folder, parts=parts)
    return work(cell, threads)


def _answer(ray: Any, task: Any, cell: Cell) -> Record:
    """What a task says; an error where it ended without a word."""
    try:
        record: Record = ray.get(task)
        return record
    except ray.exceptions.WorkerCrashedError:
        error = "its process was ended, for want of memory perhaps"
    except ray.exceptions.RayError as failure:
        error = explanation(failure) or f"{type(failure).__name__}: {first_line(failure)}"
    return {**cell.facts, "error": error}


def _threads(ray: Any, workers: int) -> int:
    """The cores of each of so many tasks, of which no machine has fewer."""
    sizes = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
    return max(1, min(sum(sizes) // workers, *(size for size in sizes if size)))
