"""A folder of .parquet files, each of a span of the rows, made by the workers of a cluster; gone on with after a stop.

OUTPUT.parts/
  plan.json            what is being made: files of another work are not gone on with
  part-00000.parquet   the rows of the first span, there once it is whole
  part-00000.json      says that the span is done, how many rows it has, and what was left out
OUTPUT/                the .parquet files alone, once all of them are there
"""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from rpim._common.errors import InputError
from rpim._common.files import check_writable, put_in_place, reading, replacing, writing
from rpim._common.progress import Progress
from rpim._common.ray import imported_ray
from rpim._common.ray_failures import in_a_sentence, unprinted
from rpim._common.work_folder import PLAN_FILE, unfinished_folder
from rpim.data.row_files import SHARD

MAX_TRIES = 3
"""A span whose worker was lost is given to another one; after so many its rows are to blame."""

MAX_FILES = 100_000
"""As many as there are numbers of five digits, by which names are in the order of the rows."""
_FILES = (".parquet", ".npz", ".npy", ".csv", ".json")


class Span(NamedTuple):
    """Which rows go into which file."""

    number: int
    start: int
    stop: int

    @property
    def name(self) -> str:
        """The name of the file, without suffix; in the order of the rows."""
        return f"part-{self.number:05d}"


@dataclass(frozen=True)
class ShardResult:
    """What came of a span: the rows that it has in its file, and what was left out, by id, with the reason."""

    n_rows: int
    skipped: tuple[tuple[str, str], ...] = ()
    seconds: float = 0.0
    """Spent in what a worker is there for."""


class Maker(Protocol):
    """What a worker holds on to: an encoder, or a model."""

    def make(self, span: Span, file: Path) -> ShardResult:
        """Write the rows of a span, whole or not at all; no file where there are none."""


class Shards:
    """The files of a folder that is being made.

    Parameters
    ----------
    output : path of the folder to be
    plan : dict
        JSON-able: whatever has to be the same for files to belong together.
    n_rows, size : int
        Of how many rows, and how many a file; not by the number of workers, which may be another when it is gone on.
    what : str
        What a person calls the work.
    overwrite : bool
        Replace `output`, and what was begun by another plan.

    Raises
    ------
    InputError
        If another plan has begun there.
    """

    def __init__(
        self, output: Path, plan: dict[str, Any], n_rows: int, size: int, what: str, overwrite: bool = False
    ) -> None:
        self.output = output.resolve()
        size = max(size, -(-n_rows // MAX_FILES))
        starts = range(0, n_rows, size)
        self.spans = [Span(number, start, min(start + size, n_rows)) for number, start in enumerate(starts)]
        self.folder = unfinished_folder(self.output, {**plan, "rows_a_file": size}, what, overwrite)
        for file in self.folder.glob("part-*.tries"):
            file.unlink()

    def done(self) -> dict[Span, ShardResult]:
        """The spans that need not be made again, and what came of them."""
        found = {}
        for span in self.spans:
            note = self.folder / f"{span.name}.json"
            if note.is_file():
                with reading(note, "remove it, and its rows are made again"):
                    made = ShardResult(**json.loads(note.read_text(encoding="utf-8")))
                if made.n_rows == 0 or self.file(span).is_file():
                    found[span] = made
        return found

    def file(self, span: Span) -> Path:
        """Where the rows of a span are."""
        return self.folder / f"{span.name}.parquet"

    def remove(self) -> None:
        """Leave nothing behind, where there is nothing to write."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def finish(self) -> None:
        """Let the folder take its place, its files numbered without a gap: one that is missing later is noticed."""
        with writing(self.output):
            for file in self.folder.iterdir():  # notes, and what lost workers have left
                if not SHARD.fullmatch(file.name) and file.name != PLAN_FILE:
                    file.unlink()
            (self.folder / PLAN_FILE).unlink()
            for number, file in enumerate(sorted(self.folder.glob("part-*.parquet"))):
                file.rename(file.with_stem(f"part-{number:05d}"))
            put_in_place(self.folder, self.output)


def check_folder(output: Path, overwrite: bool = False) -> None:
    """Raise where a folder of shards may not be written; known before any work."""
    if output.suffix.lower() in _FILES:
        raise InputError(f"{output} is the name of a file, but --ray writes a folder of .parquet files: give a folder.")
    check_writable(output, overwrite, is_folder=True)
    if output.exists() and not (output.is_dir() and all(SHARD.fullmatch(file.name) for file in output.iterdir())):
        raise InputError(f"{output} holds more than shards of rows, so it is not overwritten: choose another name.")


def make_shards(
    shards: Shards,
    open_maker: Callable[[], Maker],
    workers: int,
    *,
    gpus: bool = False,
    doing: str = "",
    verbose: bool = False,
) -> float:
    """Have the files made that are not there, by so many workers; the seconds that they spent in what they are for.

    Parameters
    ----------
    shards : Shards
    open_maker : callable
        Called once by each worker, for what it holds on to.
    gpus : bool
        Give each worker a GPU.

    Raises
    ------
    InputError
        If a worker says what is wrong, the cluster runs out of memory or disk, or the same rows end worker by worker.
    """
    ray = imported_ray()
    done = shards.done()
    todo = [span for span in shards.spans if span not in done]
    seconds = 0.0
    with Progress(verbose, doing) as progress, in_a_sentence():
        progress.expect(shards.spans[-1].stop if shards.spans else 0)
        progress.advance(sum(span.stop - span.start for span in done))
        if todo:
            with _quiet(ray):
                spans = ray.data.from_items([span._asdict() for span in todo], override_num_blocks=len(todo))
                made = spans.map_batches(
                    _Worker,
                    fn_constructor_args=(open_maker, shards.folder),
                    batch_size=1,
                    num_cpus=1,
                    num_gpus=1 if gpus else None,
                    compute=ray.data.ActorPoolStrategy(size=min(workers, len(todo))),
                )
                for row in made.iter_rows():
                    if row["problem"]:
                        raise InputError(row["problem"])
                    seconds += row["seconds"]
                    progress.advance(row["n_rows"])
    lacking = len(shards.spans) - len(shards.done())
    if lacking:
        raise InputError(
            f"{lacking} of the {len(shards.spans)} files that workers have written are not in {shards.folder}: give an "
            "output on a disk that all machines of the cluster share."
        )
    return seconds


class _Worker:
    """The life of a worker: one span after the other."""

    def __init__(self, open_maker: Callable[[], Maker], folder: Path) -> None:
        self._open, self._folder = open_maker, folder

    @cached_property
    def _maker(self) -> Maker:
        return self._open()

    def __call__(self, spans: dict[str, Any]) -> dict[str, list[Any]]:
        (span,) = (Span(*map(int, values)) for values in zip(*(spans[name] for name in Span._fields), strict=True))
        problem, made = "", ShardResult(0)
        try:
            self._count_try(span)
            made = self._maker.make(span, self._folder / f"{span.name}.parquet")
            with replacing(self._folder / f"{span.name}.json") as file:
                file.write(json.dumps(asdict(made)).encode())
        except InputError as error:  # as a value: of what is raised, Ray Data passes on the text alone
            problem = str(error)
        return {"problem": [problem], "seconds": [made.seconds], "n_rows": [span.stop - span.start]}

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
    """No progress bars, hints and warnings of Ray Data."""
    import ray.data

    context, log = ray.data.DataContext.get_current(), logging.getLogger("ray.data")
    wanted = {"enable_progress_bars": False, "print_on_execution_start": False, "enable_auto_log_stats": False}
    before = {name: getattr(context, name) for name in wanted if hasattr(context, name)}
    level = log.level
    log.setLevel(logging.CRITICAL + 1)
    for name in before:
        setattr(context, name, wanted[name])
    try:
        with unprinted():
            yield
    finally:
        log.setLevel(level)
        for name, value in before.items():
            setattr(context, name, value)
