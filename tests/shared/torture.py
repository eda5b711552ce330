"""Kill every long command with SIGKILL at random times, and check that nothing is lost: ``make torture``.

After each kill the same command is run again. It has to end with 0, or say that its output exists already; the output
has to be that of a command that was never killed; and no other file may be left. Of the explorer's decisions, each that
the server has acknowledged has to be in the run.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet as pq
from safetensors import safe_open

ENCODER = ("--encoder", "test_vit", "--weights", "../data/vit.safetensors", "-q")
COMMANDS = {
    "discover": "discover ../data/f.npz --n-classes 6 --no-report -q -o run",
    "embed": f"embed ../data/images {' '.join(ENCODER)} --workers 0 --batch-size 4 -o out.npz",
    "extend": "extend ../data/run ../data/new.npz --no-report -q -o run",
    "predict": "predict ../data/run ../data/f.npz --as-found -o out.csv",
    "benchmark": "benchmark ../data/truth.npz --methods kmeans,gcd --seeds 0,1 --jobs 1 -o out",
    "finetune": f"finetune ../data/images {' '.join(ENCODER)} --epochs 3 --batch-size 8 --views 2 -o out.safetensors",
}
_MAIN = "from rpim.cli.main import main; main()"


def write_data(folder: Path) -> None:
    """Six classes of rows, images in three classes, and the weights of a small ViT."""
    import torch
    from PIL import Image
    from safetensors.torch import save_file

    from rpim.embedding.weights import library

    random = np.random.RandomState(0)
    truth = np.arange(480) % 6
    X = (3 * np.eye(16)[truth] + random.randn(480, 16)).astype(np.float32)
    words = np.array(["ant", "bee", "cat", "dog", "elk", "fox"])[truth]
    folder.mkdir()
    np.savez(folder / "f.npz", X=X, labels=np.where((truth < 4) & (np.arange(480) % 5 < 2), words, ""))
    np.savez(folder / "new.npz", X=X[:60] + 0.1, labels=np.full(60, ""))
    np.savez(folder / "truth.npz", X=X, labels=words)
    for number in range(48):
        place = folder / "images" / ("ant", "bee", "unlabelled")[number % 3]
        place.mkdir(parents=True, exist_ok=True)
        pixels = random.randint(0, 256, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    torch.manual_seed(0)
    save_file(library("timm").create_model("test_vit").state_dict(), folder / "vit.safetensors")
    end = _start("discover f.npz --n-classes 6 --no-report -q -o run", folder).wait()
    assert end == 0, "the run to work on was not written"


def _start(command: str, folder: Path) -> subprocess.Popen[str]:
    """The command in a process group of its own, in the folder."""
    with open(folder / "../said.txt", "a") as said:
        return subprocess.Popen(
            [sys.executable, "-c", _MAIN, *command.split()],
            cwd=folder,
            stdout=subprocess.PIPE if command.startswith("explore") else said,
            stderr=said,
            text=True,
            start_new_session=True,
        )


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill the process, and a moment later what it has started."""
    process.kill()
    process.wait()
    time.sleep(0.2)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def contents(folder: Path) -> dict[str, object]:
    """What is in each file, as far as it does not depend on the time."""
    found: dict[str, object] = {}
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        name, suffix = str(file.relative_to(folder)), file.suffix
        if suffix == ".safetensors":
            with safe_open(file, "np") as tensors:
                found[name] = {key: tensors.get_tensor(key).tobytes() for key in sorted(tensors.keys())}
        elif suffix == ".npz":
            with np.load(file) as arrays:
                found[name] = {key: arrays[key].tobytes() for key in arrays.files if key != "metadata_json"}
        elif suffix == ".parquet":
            found[name] = pq.read_table(file).to_pydict()
        else:
            found[name] = file.read_bytes() if file.name == "out.csv" or suffix == ".npy" else None
    return found


def torture(kind: str, home: Path, kills: int, random: Random, report: Counter[str], findings: list[str]) -> None:
    """Kill one command `kills` times, each in a folder of its own."""
    command, place = COMMANDS[kind], home / "work"

    def fresh() -> None:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()

    fresh()
    start = time.monotonic()
    assert _start(command, place).wait() == 0, (home / "said.txt").read_text()[-2000:]
    duration, expected = time.monotonic() - start, contents(place)
    for _ in range(kills):
        fresh()
        process, delay = _start(command, place), duration * random.uniform(0.4, 1.0)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        report["ended before" if process.poll() is not None else "killed"] += 1
        _kill(process)
        left = sorted(str(path.relative_to(place)) for path in place.rglob("*"))
        (home / "said.txt").write_text("")
        end = _start(command, place).wait()
        said = (home / "said.txt").read_text()
        report["output was there" if end == 2 and "exists already" in said else f"rerun {end}"] += 1
        found = contents(place)
        wrong = []
        if end != 0 and not (end == 2 and "exists already" in said):
            wrong.append(f"the rerun ended with {end}: {said.strip()[-300:]}")
        wrong += [f"left {name}" for name in sorted(set(found) - set(expected))]
        wrong += [f"lacks {name}" for name in sorted(set(expected) - set(found))]
        wrong += [f"another {name}" for name in sorted(expected) if name in found and found[name] != expected[name]]
        if wrong:
            findings.append(f"{kind}, killed after {delay:.2f} s of {duration:.2f} with {left}: {'; '.join(wrong)}")


def torture_explorer(home: Path, kills: int, random: Random, report: Counter[str], findings: list[str]) -> None:
    """Rename a class again and again, and kill the server meanwhile."""
    run = home / "work" / "run"
    shutil.rmtree(home / "work", ignore_errors=True)
    shutil.copytree(home / "data" / "run", run)
    acknowledged: list[str] = []
    for number in range(kills):
        process = _start("explore run --no-browser", run.parent)
        try:
            _rename(process, acknowledged, number, random.uniform(0.05, 2.0))
        finally:
            _kill(process)
        report["killed"] += 1
        with contextlib.closing(sqlite3.connect(run / "decisions.sqlite")) as database:
            names = [json.loads(body)["name"] for (body,) in database.execute("SELECT body FROM decisions")]
        lost = [name for name in acknowledged if name not in names]
        if lost:
            findings.append(f"explore lost {len(lost)} of {len(acknowledged)} decisions: {lost[:5]}")
        if len(names) > len(acknowledged) + number + 1:
            findings.append(f"explore has {len(names)} decisions, but {len(acknowledged)} were acknowledged")
    end = _start("classes run", run.parent).wait()
    if end != 0:
        findings.append(f"rpim classes ended with {end} after the kills")
    allowed = {"decisions.sqlite", "map.npy", *(path.name for path in (home / "data" / "run").iterdir())}
    strays = sorted({path.name for path in run.iterdir()} - allowed)
    if strays:
        findings.append(f"explore left {strays}")
    report["acknowledged decisions"] += len(acknowledged)


def _rename(process: subprocess.Popen[str], acknowledged: list[str], number: int, seconds: float) -> None:
    assert process.stdout is not None
    address = next(line for line in process.stdout if line.startswith("http://")).strip()
    link = urlsplit(address)
    origin = f"http://{link.netloc}"
    connection = http.client.HTTPConnection(link.netloc, timeout=20)
    connection.request("GET", f"/?{link.query}")
    answer = connection.getresponse()
    cookie = (answer.getheader("set-cookie") or "").partition(";")[0]
    answer.read()
    headers = {"cookie": cookie, "origin": origin, "content-type": "application/json"}
    end = time.monotonic() + seconds
    while time.monotonic() < end or not acknowledged:
        name = f"name-{number}-{len(acknowledged)}"
        facts = {
            "key": f"key-{number}-{len(acknowledged):06}",
            "version": 0,
            "kind": "rename",
            "number": 4,
            "name": name,
        }
        connection.request("POST", "/api/decisions", json.dumps(facts), headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()[:300]
        answer.read()
        acknowledged.append(name)
    facts |= {"key": f"last-{number}-key", "name": f"last-{number}"}
    connection.request("POST", "/api/decisions", json.dumps(facts), headers)  # killed before its answer is read


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill the commands of rpim at random times.")
    parser.add_argument("--kills", type=int, default=10, help="how often each command is killed")
    parser.add_argument("--seed", type=int, help="of the times (default: at random)")
    parser.add_argument("--kinds", nargs="*", default=[*COMMANDS, "explore"], choices=[*COMMANDS, "explore"])
    given = parser.parse_args()
    seed = Random().randrange(10**6) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    os.environ["OMP_NUM_THREADS"] = "1"
    findings: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write_data(home / "data")
        for kind in given.kinds:
            report: Counter[str] = Counter()
            random = Random(f"{kind}:{seed}")
            if kind == "explore":
                torture_explorer(home, given.kills, random, report, findings)
            else:
                torture(kind, home, given.kills, random, report, findings)
            print(f"{kind:<10}", ", ".join(f"{how} {n}" for how, n in sorted(report.items())), flush=True)
    print("\n".join(findings) if findings else "nothing was lost and nothing was left")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
