"""Rows that do not fit: time per step, memory, growth with the rows, workers against one process, exactness.

    python benchmarks/scale.py --folder SCRATCH                     a step over 10 million rows, and three smaller sizes
    python benchmarks/scale.py --folder SCRATCH --workers           two Ray workers against one process
    python benchmarks/scale.py --folder SCRATCH --commands          rpim embed and predict, with and without two workers
    python benchmarks/scale.py --lost-node                          a machine of a cluster that is lost in the training
    python benchmarks/scale.py --classes 500 1000 2000              what grows with the number of classes
    python benchmarks/scale.py --folder SCRATCH --discover 10000    rpim discover of --rows rows with so many classes
    python benchmarks/scale.py --data FOLDER --exact                the same numbers in memory, streamed and on workers
    python benchmarks/scale.py --data FOLDER --all-rows             what training on all rows adds to a committee

SCRATCH gets float16 rows around 200 centres (2.6 GB for 10 million of 128 features) and keeps them for the next time.
Every fit, a single one, runs in a process of its own, so that its largest memory is its own. FOLDER holds
``features/*.npz`` (see benchmarks/protocol.py).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import clone

if TYPE_CHECKING:
    from rpim.estimators.infomax import InfoMaxEstimator

N_FEATURES, N_CLASSES = 128, 200
LABELLED = 0.5  # of the rows of known classes
FIXED = {"n_members": 1, "n_init": 1}
STEPS = {
    "PIM": ("none", {"pseudo_labels": False, "mixed_labels": False}),
    "RPIM, a single fit": ("semantic-bias", {}),
    "RPIM, after a committee": ("semantic-bias", {"pipelined": True}),
}
"""The steps that are timed: the transformation and the objective of each."""


def make_rows(folder: Path, n_rows: int, n_classes: int = N_CLASSES) -> tuple[Path, Path]:
    """A file of rows and one of their labels, -1 where there is none; the first half of the classes is known."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{n_rows}" if n_classes == N_CLASSES else f"{n_rows}-{n_classes}"
    rows, labels = folder / f"rows-{name}.npy", folder / f"labels-{name}.npy"
    if labels.exists():
        return rows, labels
    random = np.random.default_rng(0)
    centres = random.standard_normal((n_classes, N_FEATURES), dtype=np.float32)
    truth = random.integers(0, n_classes, n_rows)
    np.save(folder / f"truth-{name}.npy", truth)
    out = np.lib.format.open_memmap(rows, "w+", np.float16, (n_rows, N_FEATURES))
    for start in range(0, n_rows, 100_000):
        part = truth[start : start + 100_000]
        noise = random.standard_normal((len(part), N_FEATURES), dtype=np.float32)
        out[start : start + 100_000] = centres[part] + 1.5 * noise
    out.flush()
    labelled = (truth < n_classes // 2) & (random.random(n_rows) < LABELLED)
    np.save(labels, np.where(labelled, truth, -1))
    return rows, labels


def read_seconds(path: Path, *, cold: bool) -> float:
    """One pass over the file in the blocks that a step reads, from the disk or from the system's cache."""
    from rpim.data.row_files import RowFiles

    if cold:
        with open(path, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start = time.perf_counter()
    for _ in RowFiles(path).blocks():
        pass
    return time.perf_counter() - start


def fit_once(task: dict[str, object]) -> dict[str, object]:
    """A fit, in this process: seconds of each stage, of a step (the median), and the largest memory."""
    import torch

    from rpim import PIM, RPIM
    from rpim._common.progress import progress_listener
    from rpim.benchmark.cell import peak_memory_mb
    from rpim.data.row_files import RowFiles

    torch.set_num_threads(int(task["threads"]))
    stages: list[tuple[str, list[float]]] = []

    def listen(description: str, share: float) -> None:
        if not stages or stages[-1][0] != description:
            stages.append((description, []))
        stages[-1][1].append(time.perf_counter())

    method = {"PIM": PIM, "RPIM": RPIM}[str(task["method"])]
    model = method(N_CLASSES, random_state=0, max_iter=task["steps"], **FIXED)
    place = contextlib.nullcontext(lambda rows: rows)
    if task.get("workers"):
        from rpim import on_ray

        place = on_ray(workers=int(task["workers"]))
    with place as spread:
        start = time.perf_counter()
        with progress_listener(listen):
            model.fit(spread(RowFiles(str(task["rows"]), memory=str(task["memory"]))), np.load(str(task["labels"])))
        total = time.perf_counter() - start
    ticks = dict(stages)["training"]
    return {
        **task,
        "total": total,
        "steps": model.n_iter_,
        "peak": peak_memory_mb() * 1024**2,
        "step": (ticks[-1] - ticks[1]) / max(len(ticks) - 2, 1),  # without the first, which has to warm up
        "stages": {name: times[-1] - times[0] for name, times in stages},
    }


def in_a_process(**task: object) -> dict[str, object]:
    """What `fit_once` or `steps_once` says, from a process of its own."""
    command = [sys.executable, __file__, "--task", json.dumps(task, default=str)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def steps_once(task: dict[str, object]) -> dict[str, object]:
    """Some steps over rows on disk, in this process: seconds of one (the median), and the largest memory."""
    import torch

    from rpim.benchmark.cell import peak_memory_mb
    from rpim.core.head import Head
    from rpim.core.objective import Objective
    from rpim.core.preprocessing import Preprocessing
    from rpim.core.training import Schedule, train
    from rpim.core.transforms import TRANSFORMS
    from rpim.data.row_files import RowFiles
    from rpim.engines.base import SAMPLE_ROWS, bytes_for_rows
    from rpim.engines.on_disk import StreamedBlocks

    torch.set_num_threads(int(task["threads"]))
    h, terms = STEPS[str(task["step"])]
    rows, codes = RowFiles(str(task["rows"]), memory=str(task["memory"])), np.load(str(task["labels"]))
    preprocess = Preprocessing(normalize=True, components=None, device=torch.device("cpu"))
    prototypes = preprocess(rows[:N_CLASSES])
    memory = bytes_for_rows(rows, min(SAMPLE_ROWS, len(rows)))
    blocks = StreamedBlocks(rows, codes, N_CLASSES, N_FEATURES, preprocess, preprocess.device, memory=memory)
    head = Head(prototypes, TRANSFORMS[h].initial(prototypes))
    times = [(time.perf_counter(), time.process_time())]
    train(
        blocks,
        head,
        Objective(**terms),
        Schedule(max_iter=int(task["n_steps"]) + 1),  # the first has more passes, and has to warm up
        lambda *_: times.append((time.perf_counter(), time.process_time())),
    )
    wall, cpu = np.median(np.diff(times, axis=0)[1:], axis=0)
    return {"wall": wall, "cpu": cpu, "peak": peak_memory_mb() * 1024**2, "kept": memory / (4 * N_FEATURES * len(rows))}


def sizes(folder: Path, largest: int, memory: str, n_steps: int, threads: int) -> None:
    """A step of each kind over four sizes, each twice the one before."""
    print(f"{N_FEATURES} features, float16, {N_CLASSES} classes, --memory {memory}, {threads} threads; seconds and GB")
    print("step                          rows  read cold  warm    step  of processors  growth  rows in memory   peak")
    for step in STEPS:
        before = None
        for n_rows in (largest // 8, largest // 4, largest // 2, largest):
            rows, labels = make_rows(folder, n_rows)
            cold, warm = read_seconds(rows, cold=True), read_seconds(rows, cold=False)
            task = {"step": step, "rows": rows, "labels": labels, "memory": memory, "n_steps": n_steps}
            found = in_a_process(**task, threads=threads)
            growth = "" if before is None else f"{found['cpu'] / before:.2f}"
            before = found["cpu"]
            print(
                f"{step:23} {n_rows:>10,}  {cold:9.2f} {warm:5.2f} {found['wall']:7.2f}  {found['cpu']:13.2f}  "
                f"{growth:>6}  {min(found['kept'], 1.0):14.0%}  {found['peak'] / 1e9:5.2f}",
                flush=True,
            )


def against_workers(folder: Path, n_rows: int, steps: int, memory: str) -> None:
    """One process with one thread and with two, and two workers with one each, all reading from the file."""
    rows, labels = make_rows(folder, n_rows)
    print(f"{n_rows:,} rows, {steps} steps, --memory {memory}; seconds")
    print("method  where                   step   whole fit")
    for method in ("PIM", "RPIM"):
        task = {"method": method, "rows": rows, "labels": labels, "memory": memory, "steps": steps}
        for name, threads, workers in (("one thread", 1, None), ("two threads", 2, None), ("two workers", 1, 2)):
            found = in_a_process(**task, threads=threads, workers=workers)
            print(f"{method:6}  {name:18}  {found['step']:7.3f}  {found['total']:9.1f}", flush=True)


def commands(folder: Path, n_rows: int, n_texts: int = 6000) -> None:
    """Whole commands, seconds: texts to features, and the classes of rows."""
    from embedding import lines
    from rpim import PIM, Discovery, FeatureSet

    rows, labels = make_rows(folder, n_rows)
    some = np.load(rows, mmap_mode="r")[:20_000].astype(np.float32)
    features = FeatureSet.from_arrays(some, labels=np.load(labels)[:20_000])
    model = PIM(N_CLASSES, **FIXED, random_state=0, max_iter=5).fit(features.rows(), features.labels)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        run, texts = Path(scratch, "run"), Path(scratch, "texts.csv")
        Discovery.from_fit(model, features).save(run)
        with open(texts, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["text"])
            writer.writerows([line] for line in lines(n_texts).content)
        print("command     items  without  two workers")
        for name, n, words in (("embed", n_texts, [texts]), ("predict", n_rows, [run, rows])):
            seconds = []
            for ray in ([], ["--ray", "--workers", "2"]):
                output = Path(scratch, f"{name}-{len(seconds)}" + ("" if ray else ".parquet"))
                start = time.perf_counter()
                command = [sys.executable, "-m", "rpim.cli.main", name, *words, "-o", output, *ray]
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
                seconds.append(time.perf_counter() - start)
            print(f"{name:8} {n:>8,}  {seconds[0]:7.1f}  {seconds[1]:11.1f}", flush=True)


def lost_node() -> None:
    """Four nodes of Ray on this machine, each with a raylet of its own; one with a worker is killed in the training."""
    import ray
    from ray.cluster_utils import Cluster

    from rpim import RPIM, InfoMaxObjective, on_ray
    from rpim.core import checkpoint

    random = np.random.default_rng(0)
    truth = random.integers(0, 12, 2000)
    x = random.standard_normal((12, 64))[truth] + random.standard_normal((2000, 64))
    y = np.where((truth < 6) & (random.random(2000) < LABELLED), truth, -1)
    model = RPIM(
        12, preset="paper", objective=InfoMaxObjective(trade_off=0.1, weight_decay=0.01), n_init=1, random_state=0
    )
    whole = clone(model).fit(x, y)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(3)]
    checkpoint.SAVE_EVERY = 0.0
    lost: list[str] = []

    def kill(kept: Path) -> None:
        while not (kept / "workers" / "training.safetensors").exists():
            time.sleep(0.1)
        actors = ray._private.state.actors().values()
        busy = {a["Address"]["NodeID"] for a in actors if a["ActorClassName"] == "_TrainingWorker"}
        node = next(node for node in nodes if node.node_id in busy)
        cluster.remove_node(node, allow_graceful=False)
        lost.append(node.node_id)

    with tempfile.TemporaryDirectory() as scratch:
        place = checkpoint.Checkpoint(Path(scratch, "run"), {})
        threading.Thread(target=kill, args=[place.folder], daemon=True).start()
        with on_ray(cluster.address, workers=2) as spread:
            model.fit(spread(x), y, checkpoint=place)
    cluster.shutdown()
    distance, equal = apart(whole, model)
    print(f"{len(lost)} node lost: prototypes {distance:.1e} from those of one process, {equal:.2%} equal labels")


def apart(one: InfoMaxEstimator, other: InfoMaxEstimator) -> tuple[float, float]:
    """How far the prototypes of two fits are from each other, relative, and the share of rows with the same label."""
    distance = (one.head_.prototypes - other.head_.prototypes).norm() / one.head_.prototypes.norm()
    return float(distance), float((one.labels_ == other.labels_).mean())


def exact(folder: Path, data_sets: list[str]) -> None:
    """A whole fit, with searches and start: how far prototypes and labels are from those of the fit in memory."""
    from protocol import load
    from rpim import PIM, RPIM
    from rpim._common.ray import connected
    from rpim.data.row_files import RowFiles
    from rpim.engines.ray import RayEngine

    print("data set   method  where         prototypes  equal labels  steps")
    with tempfile.TemporaryDirectory() as scratch, connected(workers=3):
        for data_set in data_sets:
            case = load(folder, data_set, 0)
            for number, part in enumerate(np.split(case.X, [len(case.X) // 7, len(case.X) // 2])):
                np.save(Path(scratch, f"{number}.npy"), part.astype(np.float32))
            for method in (PIM, RPIM):
                whole = method(case.n_classes, random_state=0).fit(case.X, case.y)
                rows = RowFiles(scratch)
                for name, X in (("streamed", rows), *((f"{n} workers", RayEngine(rows, n)) for n in (1, 2, 3))):
                    other = method(case.n_classes, random_state=0).fit(X, case.y)
                    distance, equal = apart(whole, other)
                    print(
                        f"{data_set:9}  {method.__name__:6}  {name:12}  {distance:10.1e}  {equal:12.4%}  "
                        f"{whole.n_iter_}/{other.n_iter_}",
                        flush=True,
                    )


def all_rows(folder: Path, data_sets: list[str], seeds: list[int]) -> None:
    """Accuracy of the head of a committee of a quarter of the rows, and after further training on all rows."""
    import torch

    from protocol import load
    from rpim import RPIM
    from rpim.core.row_blocks import InMemoryBlocks
    from rpim.core.sampling import sample_rows
    from rpim.core.training import train
    from rpim.metrics import gcd_accuracy

    class OfAQuarter(RPIM):
        def _committee_rows(self, problem):
            return self._some(problem, 4)

        def _some(self, problem, part):
            n_labelled = len(problem.labels)
            codes = np.concatenate([problem.labels.numpy(), np.full(len(problem.x) - n_labelled, -1)])
            return torch.from_numpy(sample_rows(codes, len(problem.x) // part, problem.generator.initial_seed()))

        def _discover(self, problem):
            start = problem.start = self._start(problem)
            self._set_found(start)
            schedule = self._schedule(start.hyperparameters)
            objective = self._training_objective(start.hyperparameters, start.shares)
            pipelined = dataclasses.replace(objective, pipelined=True)

            def trained(head, terms, rows=slice(None)):
                head = head.copy()
                labels = problem.labels[rows[rows < len(problem.labels)]] if torch.is_tensor(rows) else problem.labels
                steps = len(train(InMemoryBlocks(problem.x[rows], labels, problem.n_classes), head, terms, schedule))
                return head, steps

            half, _ = trained(start.head, pipelined, self._some(problem, 2))
            heads = [(start.head, 0), trained(start.head, objective), trained(start.head, pipelined), (half, 0)]
            heads.append(trained(half, pipelined))
            n_labelled = len(problem.labels)
            self.found = [(head.predict(problem.x[n_labelled:]).numpy(), steps) for head, steps in heads]
            self.rows = problem.rows[n_labelled:]
            return start.head

    print("data set   seed  committee  all rows: own passes  pipelined  equal labels  half: pipelined  then all rows")
    for data_set in data_sets:
        for seed in seeds:
            case = load(folder, data_set, seed)
            model = OfAQuarter(case.n_classes, random_state=seed).fit(case.X, case.y)
            scores = [gcd_accuracy(case.truth[model.rows], classes, case.known).all for classes, _ in model.found]
            words = [
                f"{score:.1%}" + f", {steps} steps" * (steps > 0)
                for score, (_, steps) in zip(scores, model.found, strict=True)
            ]
            words.insert(3, f"{(model.found[1][0] == model.found[2][0]).mean():.1%}")
            print(f"{data_set:9}  {seed:4}  " + "  ".join(words), flush=True)


def many_classes(counts: list[int]) -> None:
    """Processor seconds of what a member of a committee does, with 50 rows per class, half of the classes known."""
    import torch

    from rpim.core.committee import best_match
    from rpim.core.gradient import gradient
    from rpim.core.head import Head
    from rpim.core.kmeans import merged_start
    from rpim.core.objective import Objective
    from rpim.core.row_blocks import InMemoryBlocks
    from rpim.core.transforms import SemanticBias

    torch.set_num_threads(1)
    print("classes    rows  initial clusters  a step  a match  memory to combine 100 rows per class")
    for n_classes in counts:
        generator = torch.Generator().manual_seed(0)
        truth = torch.arange(50 * n_classes) % n_classes
        truth = torch.cat([truth[truth < n_classes // 2][: 12 * n_classes], truth])[: 50 * n_classes]
        centres = torch.randn(n_classes, N_FEATURES, generator=generator)
        x = centres[truth] + 1.5 * torch.randn(len(truth), N_FEATURES, generator=generator)
        x = torch.nn.functional.normalize(x, dim=1)
        labels = truth[: 12 * n_classes]
        times = [time.process_time()]
        start = merged_start(x, labels, n_classes, generator=generator)
        times.append(time.process_time())
        head = Head(start.prototypes, SemanticBias.initial(start.prototypes))
        gradient(InMemoryBlocks(x, labels, n_classes, cache=False), head, Objective())
        times.append(time.process_time())
        best_match(torch.rand(n_classes, n_classes, generator=generator))
        times.append(time.process_time())
        clusters, step, match = np.diff(times)
        size = 24 * 100 * n_classes**2 / 1e9
        print(
            f"{n_classes:7,} {len(x):>7,}  {clusters:14.1f} s {step:5.1f} s {match:6.2f} s  {size:.1f} GB", flush=True
        )


def discover(folder: Path, n_rows: int, n_classes: int, memory: str) -> None:
    """The whole of `rpim discover` on that many rows and classes: time, largest memory, accuracy."""
    from rpim import Discovery, gcd_accuracy

    rows, labels = make_rows(folder, n_rows, n_classes)
    run = folder / f"run-{n_rows}-{n_classes}"
    command = [
        Path(sys.executable).with_name("rpim"),
        "discover",
        rows,
        "--labels",
        labels,
        "--n-classes",
        n_classes,
        "--memory",
        memory,
    ]
    start = time.perf_counter()
    process = subprocess.Popen([*map(str, command), "--output", str(run), "--overwrite"])
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        sys.exit(f"rpim discover ended with {os.waitstatus_to_exitcode(status)}")
    discovery, y = Discovery.load(run), np.load(labels)
    truth = np.load(str(labels).replace("labels-", "truth-"))
    found = gcd_accuracy(truth[y < 0], discovery.assignments.labels[y < 0], range(n_classes // 2))
    print(
        f"{n_rows:,} rows, {n_classes:,} classes, --memory {memory}: {seconds:.0f} s, CPU "
        f"{used.ru_utime + used.ru_stime:.0f} s, at most {used.ru_maxrss / 1e6:.2f} GB, "
        f"{discovery.model.n_iter_} steps over all rows, {found}"
    )


def main() -> None:
    """Parse and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="where rows are written")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--workers", action="store_true", help="two workers against one process, on --rows / 10")
    parser.add_argument("--commands", action="store_true", help="rpim embed and predict, with and without workers")
    parser.add_argument("--lost-node", action="store_true", help="a machine that is lost in the training")
    parser.add_argument("--data", type=Path, help="a folder of real embeddings")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--classes", type=int, nargs="+", help="the cost of many classes")
    parser.add_argument("--discover", type=int, metavar="CLASSES", help="a whole command")
    parser.add_argument("--all-rows", action="store_true", help="a committee of a quarter of the rows, then all rows")
    parser.add_argument("--data-sets", nargs="+", default=["banking77", "cub200"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 6], help="of --all-rows")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.task:
        task = json.loads(given.task)
        print(json.dumps(steps_once(task) if "step" in task else fit_once(task)))
    elif given.exact:
        exact(given.data, given.data_sets)
    elif given.classes:
        many_classes(given.classes)
    elif given.discover:
        discover(given.folder, given.rows, given.discover, given.memory)
    elif given.all_rows:
        all_rows(given.data, given.data_sets, given.seeds)
    elif given.lost_node:
        lost_node()
    elif given.commands:
        commands(given.folder, given.rows // 10)
    elif given.workers:
        against_workers(given.folder, given.rows // 10, given.steps, given.memory)
    else:
        sizes(given.folder, given.rows, given.memory, given.steps, given.threads)


if __name__ == "__main__":
    main()
