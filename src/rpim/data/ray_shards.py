"""A folder of .parquet files, one for each span of rows, written by the workers of a cluster; it can be resumed.

OUTPUT.checkpoint/
  plan.json            the plan: only the same plan resumes
  part-00000.parquet   the rows of the first span, once it is complete
  part-00000.json      the result of the span: its number of rows, and the items that were skipped
OUTPUT/                the .parquet files, once all are complete
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rpim._common.errors import InputError
from rpim._common.files import check_writable, put_in_place, reading, replacing, writing
from rpim._common.progress import Progress
from rpim._common.ray import explain_ray_errors, import_ray, suppress_stdout
from rpim._common.work_folder import WorkFolder
from rpim.data.row_files import SHARD

MAX_TRIES = 3
"""How many workers may be lost over the same span before it is given up."""

MAX_FILES = 100_000
"""Numbers in names have five digits, so that names sort in the order of the rows."""
_FILES = (".parquet", ".npz", ".npy", ".csv", ".json")


class Span(NamedTuple):
    """The rows of one file."""

    number: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        """The name of the file, without suffix."""
        return f"part-{self.number:05d}"


@dataclass(frozen=True)
class ShardResult:
    """The number of rows in the file of a span, and the items that were skipped: id and reason."""

    n_rows: int
    skipped: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    """Time spent in the encoder or model."""


class ShardWriter(Protocol):
    """An encoder or model that writes the rows of spans."""

    def write(self, span: Span, file: Path) -> ShardResult:
        """Write the rows of a span; the file appears once it is complete, or never if there are none."""


class Shards:
    """The files of a folder in progress.

    Parameters
    ----------
    output : path of the folder
    plan : dict
        JSON-able; only the same plan resumes.
    n_rows, size : int
        The number of rows, in all and per file. It does not depend on the number of workers, which may change.
    what : str
        A name of the work, for errors.
    overwrite : bool
        Replace `output`, and the files of another plan.

    Raises
    ------
    InputError
        If there are files of another plan, or another process writes them.
    """

    def __init__(
        self, output: Path, plan: dict[str, Any], n_rows: int, size: int, what: str, overwrite: bool = False
    ) -> None:
        self.output = output.resolve()
        size = max(size, -(-n_rows // MAX_FILES))
        starts = range(0, n_rows, size)
        self.spans = [Span(number, start, min(start + size, n_rows)) for number, start in enumerate(starts)]
        self._work = WorkFolder(self.output, {**plan, "rows_a_file": size}, what, overwrite)
        self.folder = self._work.path
        for file in self.folder.glob("part-*.tries"):
            file.unlink()

    def done(self) -> dict[Span, ShardResult]:
        """The spans that are complete, and their results."""
        found = {}
        for span in self.spans:
            note = self.folder / f"{span.name}.json"
            if note.is_file():
                with reading(note, "remove it, and its rows are computed again"):
                    result = ShardResult(**json.loads(note.read_text(encoding="utf-8")))
                if result.n_rows == 0 or self.file(span).is_file():
                    found[span] = result
        return found

    def file(self, span: Span) -> Path:
        """The file of a span."""
        return self.folder / f"{span.name}.parquet"

    def remove(self) -> None:
        """Remove the folder in progress."""
        self._work.remove()

    def close(self) -> None:
        """Let other processes resume the work."""
        self._work.close()

    def finish(self) -> None:
        """Rename the folder to `output`, with its files numbered without a gap, so that a missing one is noticed."""
        with writing(self.output):
            for file in self.folder.iterdir():  # results, and temporary files of lost workers
                if not SHARD.fullmatch(file.name):
                    file.unlink()
            self._work.close()
            for number, file in enumerate(sorted(self.folder.glob("part-*.parquet"))):
                file.rename(file.with_stem(f"part-{number:05d}"))
            put_in_place(self.folder, self.output)


def check_folder(output: Path, overwrite: bool = False) -> None:
    """Check that a folder of shards may be written, before any work."""
    if output.suffix.lower() in _FILES:
        raise InputError(f"{output} is the name of a file, but --ray writes a folder of .parquet files: give a folder.")
    check_writable(output, overwrite, is_folder=True)
    if output.exists() and not (output.is_dir() and all(SHARD.fullmatch(file.name) for file in output.iterdir())):
        raise InputError(f"{output} holds more than shards of rows, so it is not overwritten: choose another name.")


def write_shards(
    shards: Shards,
    open_writer: Callable[[], ShardWriter],
    workers: int,
    *,
    gpus: bool = False,
    doing: str = "",
    verbose: bool = False,
) -> float:
    """Write the missing files on workers, and return the seconds that these spent in the encoder or model.

    Parameters
    ----------
    shards : Shards
    open_writer : callable
        Called once by each worker.
    gpus : bool
        Give each worker a GPU.

    Raises
    ------
    InputError
        If a worker raises one, the cluster runs out of memory or disk, or several workers are lost over the same rows.
    """
    ray = import_ray()
    done = shards.done()
    todo = [span for span in shards.spans if span not in done]
    seconds = 0.0
    with contextlib.ExitStack() as after_an_error, Progress(verbose, doing) as progress, explain_ray_errors():
        after_an_error.callback(shards.close)
        progress.expect(shards.spans[-1].stop if shards.spans else 0)
        progress.advance(sum(span.stop - span.start for span in done))
        if todo:
            with _quiet(ray):
                spans = ray.data.from_items([span._asdict() for span in todo], override_num_blocks=len(todo))
                results = spans.map_batches(
                    _Worker,
                    fn_constructor_args=(open_writer, shards.folder),
                    batch_size=1,
                    num_cpus=1,
                    num_gpus=1 if gpus else None,
                    compute=ray.data.ActorPoolStrategy(size=min(workers, len(todo))),
                )
                for row in results.iter_rows():
                    if row["problem"]:
                        raise InputError(row["problem"])
                    seconds += row["seconds"]
                    progress.advance(row["n_rows"])
        lacking = len(shards.spans) - len(shards.done())
        if lacking:
            raise InputError(
                f"{lacking} of the {len(shards.spans)} files that workers have written are not in {shards.folder}: "
                "give an output on a disk that all machines of the cluster share."
            )
        after_an_error.pop_all()
    return seconds


class _Worker:
    """A worker, which writes one span after the other."""

    def __init__(self, open_writer: Callable[[], ShardWriter], folder: Path) -> None:
        self._open, self._folder = open_writer, folder

    @cached_property
    def _writer(self) -> ShardWriter:
        return self._open()

    def __call__(self, spans: dict[str, Any]) -> dict[str, list[Any]]:
        (span,) = (Span(*map(int, values)) for values in zip(*(spans[name] for name in Span._fields), strict=True))
        problem, result = "", ShardResult(0)
        try:
            self._count_try(span)
            result = self._writer.write(span, self._folder / f"{span.name}.parquet")
            with replacing(self._folder / f"{span.name}.json") as file:
                file.write(json.dumps(asdict(result)).encode())
        except InputError as error:  # returned, because Ray Data passes on the text of exceptions alone
            problem = str(error)
        return {"problem": [problem], "seconds": [result.seconds], "n_rows": [span.stop - span.start]}

    def _count_try(self, span: Span) -> None:
        tries = self._folder / f"{span.name}.tries"
        with writing(tries), open(tries, "ab") as file:
            file.write(b".")
        if tries.stat().st_size > MAX_TRIES:
            raise InputError(
                f"{MAX_TRIES} workers were lost over the rows {span.start:,} to {span.stop - 1:,}, for want of memory "
                "perhaps: ask for fewer workers, or look for what is special about these rows."
            )


@contextlib.contextmanager
def _quiet(ray: Any) -> Iterator[None]:
    """Silence the progress bars, hints and warnings of Ray Data."""
    import ray.data

    context, log = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    wanted = {"enable_progress_bars": False, "print_on_execution_start": False, "enable_auto_log_stats": False}
    before = {name: getattr(context, name) for name in wanted if hasattr(context, name)}
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    for name in before:
        setattr(context, name, wanted[name])
    try:
        with suppress_stdout():
            yield
    finally:
        log.setLevel(level)
        for name, value in before.items():
            setattr(context, name, value)
