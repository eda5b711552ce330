"""Run damaged and hostile input through rpim, in a process that is watched: ``python tests/shared/fuzzing.py``.

A case has to end within 20 seconds of a core and 2 GiB, with a result or an `InputError` of one line. It may write in
its own folder alone, may not leave temporary files, start a program, open a connection, or look up what a pickle names.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TextIO

from fuzz_cases import ODD_TEXT
from fuzz_work import KINDS, ROUND, write_originals

PATIENCE, MEMORY = 20, 2 << 30
_STARTUP = 600
_WRITES = {"os.remove": 1, "os.rename": 2, "os.mkdir": 1, "os.rmdir": 1, "os.symlink": 2, "os.link": 2, "os.chmod": 1}
_WRITES |= {"os.truncate": 1, "shutil.rmtree": 1, "sqlite3.connect": 1}
_NEVER = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "socket.connect", "socket.getaddrinfo")
_LEFT = re.compile(r"\.(tmp|lock|partial|old|checkpoint)$")


@dataclass
class Outcome:
    """Counts by kind and by how the cases ended, and the findings."""

    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    findings: list[str] = field(default_factory=list)

    def table(self) -> str:
        """One line per kind."""
        lines = [f"{'kind':<12}{'cases':>8}{'read':>8}{'refused':>9}{'found':>7}"]
        for kind, found in sorted(self.counts.items()):
            ends = (found.total(), found["read"], found["refused"], found["found"])
            lines.append(f"{kind:<12}{ends[0]:>8}{ends[1]:>8}{ends[2]:>9}{ends[3]:>7}")
        return "\n".join(lines)


def fuzz(folder: Path, seconds: float, first: int, kinds: list[str], keep: Path, n: int = 10**9) -> Outcome:
    """Run n cases, or as many as the time allows; the seed of a case is its number, counted from `first`.

    The files of a finding are stored in `keep`, each in a folder with the name of its case.
    """
    outcome, number, end = Outcome(), first, None
    (folder / "outside").mkdir(parents=True)
    (folder / "outside" / "secret.txt").write_text("secret\n")
    while number < first + n and (end is None or time.monotonic() < end):
        with contextlib.closing(_watched(folder, kinds, number, first + n)) as ends:
            next(ends)  # it has started
            end = end or time.monotonic() + seconds
            for how, why in ends:
                kind = kinds[number % len(kinds)]
                outcome.counts[kind][how] += 1
                if how == "found":
                    outcome.findings.append(f"{kind}:{number} {why}")
                    _store(folder, keep / f"{kind}-{number}", kind, number, why)
                number += 1
                if time.monotonic() > end:
                    break
    return outcome


def _watched(folder: Path, kinds: list[str], first: int, last: int) -> Generator[tuple[str, str], None, None]:
    """How the cases end that one process runs; if it dies or hangs, so does its last case."""
    for name in ("tmp", "home"):
        (folder / name).mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(folder / "tmp"), "HOME": str(folder / "home"), "OMP_NUM_THREADS": "1"}
    order = json.dumps({"kinds": kinds, "first": first, "last": last})
    with open(folder / "stderr", "w+") as err:
        command = [sys.executable, __file__, "--work", order]
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=err, text=True)
        lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=_pass_on, args=(process, lines), daemon=True).start()
        try:
            if lines.get(timeout=_STARTUP) != "ready\n":
                raise RuntimeError(f"the process that runs the cases did not start: {_end_of(err)}")
            yield "ready", ""
            while line := _next(lines, process.pid):
                how, why = json.loads(line)
                yield how, why
            if process.wait() != 0:
                yield "found", f"the process ended with {process.returncode}: {_end_of(err)}"
        except queue.Empty:
            yield "found", f"no end after {PATIENCE} s: {_end_of(err)}"
        finally:
            process.kill()
            process.wait()


def _next(lines: queue.Queue[str], number: int) -> str:
    """The next line of a process; raises queue.Empty if it hangs.

    It hangs if it had 20 seconds of a core or did nothing with them. On a busy machine they take longer, but not ten
    times as long.
    """
    start = before = _cpu_seconds(number)
    for _ in range(10):
        with contextlib.suppress(queue.Empty):
            return lines.get(timeout=PATIENCE)
        now = _cpu_seconds(number)
        if now - start > 0.9 * PATIENCE or now - before < 0.01 * PATIENCE:
            break
        before = now
    raise queue.Empty


def _cpu_seconds(number: int) -> float:
    with contextlib.suppress(OSError):
        facts = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()
        return (int(facts[11]) + int(facts[12])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _pass_on(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put("")


def _end_of(err: TextIO) -> str:
    err.seek(0)
    return err.read()[-3000:]


def _store(folder: Path, place: Path, kind: str, seed: int, why: str) -> None:
    """The files of a case, made again, since reading may have changed them."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    before = Path.cwd()
    os.chdir(place)
    try:
        KINDS[kind](Random(f"{kind}:{seed}"), folder / "originals", place)
    finally:
        os.chdir(before)
    (place / "why.txt").write_text(why + "\n", errors="backslashreplace")


# The process that runs the cases --------------------------------------------------------------------------------------


def work(kinds: list[str], first: int, last: int) -> None:
    """Run cases until killed, and say how each ended."""
    import resource  # not on Windows

    folder = Path.cwd()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    if not (folder / "complete").exists():
        shutil.rmtree(folder / "originals", ignore_errors=True)
        write_originals(folder / "originals")
        (folder / "complete").touch()
    for kind in sorted(set(kinds)):  # imports, and what libraries create once
        _run(folder, kind, -1, [])
    shutil.rmtree(folder / "tmp")
    (folder / "tmp").mkdir()
    watch = _Watch(folder)
    sys.addaudithook(watch)
    with open("/proc/self/statm") as file:
        in_use = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY, in_use + MEMORY))
    answers.write("ready\n")
    for number in range(first, last):
        faulthandler.dump_traceback_later(PATIENCE - 2)
        answers.write(json.dumps(_run(folder, kinds[number % len(kinds)], number, watch.seen)) + "\n")
        faulthandler.cancel_dump_traceback_later()


def _run(folder: Path, kind: str, seed: int, seen: list[str]) -> tuple[str, str]:
    from rpim import InputError

    place = folder / "case"
    os.chdir(folder)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    os.chdir(place)
    read = KINDS[kind](Random(f"{kind}:{seed}"), folder / "originals", place)
    before = _files(place)
    seen.clear()
    try:
        read()
        how, why = "read", ""
    except InputError as error:
        how, why = "refused", str(error)
        if "\n" in why.replace(ODD_TEXT, "") or not why.strip():  # what is quoted may have lines; commands join them
            how = "found"
    except BaseException:
        how, why = "found", traceback.format_exc().rstrip()
    new = _files(place) - before
    wrong = list(seen)
    wrong += [f"left {name}" for name in new if _LEFT.search(name)]
    wrong += [f"wrote {name} and refused" for name in new if how == "refused" and name.startswith("out")]
    wrong += [f"left {file} in the temporary folder" for file in sorted(_files(folder / "tmp"))]
    if (folder / "outside" / "secret.txt").read_text() != "secret\n" or len(_files(folder / "outside")) > 1:
        wrong.append("changed a file outside")
    return ("found", "; ".join([*wrong, why])) if wrong else (how, why)


def _files(folder: Path) -> set[str]:
    return {os.path.relpath(os.path.join(top, name), folder) for top, _, names in os.walk(folder) for name in names}


class _Watch:
    """Notes what a case may not do, as far as Python is asked to do it."""

    def __init__(self, folder: Path) -> None:
        self.allowed = (str(folder / "case"), f"{folder / 'tmp'}{os.sep}", os.devnull)
        self.seen: list[str] = []

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes | os.PathLike) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self._check(event, path)
        elif event in _WRITES:
            for path in arguments[: _WRITES[event]]:
                if isinstance(path, str | bytes | os.PathLike):
                    self._check(event, path)
        elif event in _NEVER or event == "pickle.find_class":
            self.seen.append(f"{event} {arguments!r:.200}")

    def _check(self, event: str, path: Any) -> None:
        name = os.path.join(os.path.realpath(os.path.dirname(os.path.abspath(os.fsdecode(path)))), "")
        full = name + os.path.basename(os.fsdecode(path))
        if not full.startswith(self.allowed):
            self.seen.append(f"{event} {full}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Fuzz the readers of rpim.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, help="first seed (default: at random)")
    parser.add_argument("--kinds", nargs="*", default=ROUND, choices=list(KINDS))
    parser.add_argument("--replay", metavar="KIND:SEED", help="one case again")
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"), help="folder for the files of the findings")
    parser.add_argument("--work", type=json.loads, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        work(**given.work)
        return 0
    kinds, seed, n = given.kinds, given.seed, 10**9
    if given.replay:
        kind, _, number = given.replay.partition(":")
        kinds, seed, n = [kind], int(number), 1
    seed = Random().randrange(10**6, 10**9) if seed is None else seed
    print(f"first seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        outcome = fuzz(Path(folder) / "fuzz", given.minutes * 60, seed, kinds, given.keep.resolve(), n)
    print(outcome.table())
    for finding in outcome.findings:
        print(f"\n{finding.splitlines()[0]} … {finding.splitlines()[-1]}")
    if outcome.findings:
        print(f"\nTheir files are in {given.keep}; make fuzz REPLAY=KIND:SEED repeats one.")
    return bool(outcome.findings)


if __name__ == "__main__":
    sys.exit(main())
