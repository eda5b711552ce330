"""Run the remaining cells in parallel, each in its own process or as a Ray task, and store their records."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from rpim._common.errors import first_line
from rpim._common.progress import Progress
from rpim._common.ray import explain_ray_errors, explanation, import_ray, suppress_stdout
from rpim.benchmark.cells import Cell, CellFile
from rpim.benchmark.plan import cores
from rpim.benchmark.protocol import SplitFeatures, split_features
from rpim.benchmark.results import Record
from rpim.runs.run_folder import uninterrupted

CellFunction = Callable[[Cell, int], Record]


def run_cells(
    cells: Sequence[Cell], kept: CellFile, jobs: int, *, work: CellFunction | None = None, verbose: bool = False
) -> None:
    """Run the cells that `kept` does not have, and add them to it one by one as they finish.

    A failed cell is stored as an error and does not stop the others. When this function ends, also by Ctrl-C, its
    processes end; if it is killed, they notice and end.

    Parameters
    ----------
    cells : sequence of Cell
    kept : CellFile
    jobs : int
        How many at once; each gets its part of the cores.
    work : function of a cell and a number of threads, optional
        What makes the record; `run_cell`, which leaves its outcome beside `kept`, unless given. Processes import it,
        so it is a function of a module.
    verbose : bool
        Show progress on a terminal.
    """
    todo = [cell for cell in cells if not kept.done(cell)]
    if not todo:
        return
    context = _context()
    running: list[_Running] = []
    # Depends only on the number of jobs, so that a resumed benchmark computes the same.
    threads = max(1, cores() // jobs)
    with CellProgress(verbose) as progress:
        progress.expect(len(todo))
        try:
            for count in range(len(todo)):
                progress.stage(f"{len(cells) - len(todo) + count} of {len(cells)} cells")
                while len(running) < min(jobs, len(todo) - count):
                    cell = kept.with_trade_off(todo[count + len(running)])
                    running.append(_start(context, work, cell, threads, kept.path.parent))
                finished = _first_to_finish(running, progress)
                running.remove(finished)
                kept.add(finished.record())
                progress.advance(1)
        finally:
            for other in running:
                other.end()


class CellProgress(Progress):
    """Judges the time left by all cells, of which one may take longer than the last half minute that rich looks at."""

    def __enter__(self) -> Progress:
        super().__enter__()
        if self._bar is not None:
            self._bar.speed_estimate_period = float("inf")
        return self


@dataclass(eq=False)
class _Running:
    """A cell that is being worked on."""

    cell: Cell
    process: Any
    answer: Connection

    def record(self) -> Record:
        """What the process says; an error where it ended without a word."""
        try:
            record: Record = json.loads(self.answer.recv_bytes())
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            how = f"was ended by signal {-code}, for want of memory perhaps" if code < 0 else f"ended with code {code}"
            return {**self.cell.facts, "error": f"its process {how}"}
        self.process.join()
        return record

    def end(self) -> None:
        """Stop it."""
        self.process.terminate()
        self.process.join()


def _context() -> Any:
    """Processes that share nothing with this one; where it can be had, forked off one that has imported torch."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["rpim.benchmark.cell"])
    with uninterrupted():  # Ctrl-C reaches every process of the terminal; those that ignore it leave it to this one
        forkserver.ensure_running()
    return context


def _start(context: Any, work: CellFunction | None, cell: Cell, threads: int, folder: Path) -> _Running:
    answer, send = context.Pipe(duplex=False)
    process = context.Process(target=_serve, args=(work, cell, threads, folder, send), daemon=True)
    process.start()
    send.close()
    return _Running(cell, process, answer)


def _first_to_finish(running: list[_Running], progress: Progress) -> _Running:
    while not (ready := wait([one.answer for one in running], timeout=1.0)):
        progress.advance(0)  # updates the elapsed time
    return next(one for one in running if one.answer in ready)


def _serve(work: CellFunction | None, cell: Cell, threads: int, folder: Path, send: Connection) -> None:
    """The main function of a child process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if work is None:
        from rpim.benchmark.cell import run_cell

        work = functools.partial(run_cell, folder=folder)
    send.send_bytes(json.dumps(work(cell, threads)).encode())


def _end_with_parent() -> None:
    """Exit if the parent was killed."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


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
        cell = kept.with_trade_off(cell)
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
