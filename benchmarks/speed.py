"""How fast, against a plain reference on the same rows in the same run.

    make bench                       on scikit-learn's digits, a few minutes
    make bench DATA=FOLDER           on real embeddings (see benchmarks/protocol.py), about an hour on two cores

or one part of it:

    python benchmarks/speed.py --whole [--data FOLDER]    the whole procedure: time, accuracy, memory, matrix products
    python benchmarks/speed.py --step                     one step against its bare matrix products
    python benchmarks/speed.py --growth                   growth with N, D and K on synthetic rows
    python benchmarks/speed.py --memory                   peak memory on 200,000 synthetic rows

Every figure of speed is a ratio of two things measured in the same run; times are those of the machine at hand.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

import reference
from protocol import DATA_SETS, Case, digits, load
from rpim import PIM, RPIM, gcd_accuracy
from rpim.benchmark.cell import peak_memory_mb
from rpim.core.gradient import gradient
from rpim.core.head import Head
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.transforms import TRANSFORMS
from rpim.estimators import problem

PIM_OBJECTIVE = Objective(pseudo_labels=False, mixed_labels=False)
METHODS = {"PIM": PIM, "RPIM": RPIM}


def in_a_process_of_its_own(work: Callable[..., Any], *arguments: Any) -> Any:
    """So that its peak memory is its own, and no warm cache of another helps it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


# -- the whole procedure -------------------------------------------------------------------------------------------


def case_of(folder: Path | None, data_set: str, seed: int) -> Case:
    """A data set's rows, unit length, float32."""
    case = digits(seed) if folder is None else load(folder, data_set, seed)
    X = case.X.astype(np.float32)
    return Case(X / np.linalg.norm(X, axis=1, keepdims=True), case.y, case.truth, case.known, case.n_classes)


def whole_procedure(
    method: str, folder: Path | None, data_set: str, seed: int, timed: tuple[int, int]
) -> dict[str, float]:
    """One method, from rows to classes, with its search."""
    case = case_of(folder, data_set, seed)
    before = peak_memory_mb()
    if method == "reference":
        codes = {c: i for i, c in enumerate(case.known)}
        y = torch.tensor([codes.get(c, -1) for c in case.y])
        found = reference.pim(
            torch.from_numpy(case.X), y, case.n_classes, timed_restarts=timed[0], timed_steps=timed[1], seed=seed
        )
        seconds, labels = found.seconds, found.labels
    else:
        start = time.perf_counter()
        labels = METHODS[method](case.n_classes, random_state=seed).fit(case.X, case.y).labels_
        seconds = time.perf_counter() - start
    accuracy = gcd_accuracy(case.truth[case.hidden], labels[case.hidden], case.known)
    return {"seconds": seconds, "memory": peak_memory_mb() - before, **accuracy.as_dict()}


def share_in_products(method: str, folder: Path | None, data_set: str, seed: int) -> float:
    """The share of a fit's time that its matrix products take, on one core and with one training at a time."""
    torch.set_num_threads(1)
    case = case_of(folder, data_set, seed)
    start = time.perf_counter()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        METHODS[method](case.n_classes, random_state=seed).fit(case.X, case.y)
    seconds = time.perf_counter() - start
    products = {"aten::mm", "aten::addmm", "aten::addmm_", "aten::mv", "aten::addmv", "aten::addmv_"}
    return sum(op.self_cpu_time_total for op in found.key_averages() if op.key in products) / 1e6 / seconds


def compare_procedures(folder: Path | None, data_sets: list[str], seeds: list[int], timed: tuple[int, int]) -> None:
    """Time, accuracy and memory of each method against the reference, as a Markdown table."""
    print("\n| data | method | times faster | All/Known/Unknown | peak memory above the rows | in matrix products |")
    print("|---|---|---|---|---|---|")
    for data_set in data_sets:
        base = 0.0
        for method in ("reference", *METHODS):
            runs = [in_a_process_of_its_own(whole_procedure, method, folder, data_set, s, timed) for s in seeds]
            mean = {key: float(np.mean([run[key] for run in runs])) for key in runs[0]}
            base = base or mean["seconds"]
            accuracy = "/".join(f"{100 * mean[part]:.1f}" for part in ("all", "known", "unknown"))
            share = "—"
            if method in METHODS:
                share = f"{100 * in_a_process_of_its_own(share_in_products, method, folder, data_set, seeds[0]):.0f} %"
            print(
                f"| {data_set} | {method} ({mean['seconds']:.0f} s) | {base / mean['seconds']:.0f} | {accuracy} | "
                f"{mean['memory']:.0f} MB | {share} |",
                flush=True,
            )


# -- a step --------------------------------------------------------------------------------------------------------


def clock(work: Callable[[], object], repeats: int = 7) -> float:
    """The median time of a call."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def synthetic(n: int, d: int, k: int, h: str) -> tuple[InMemoryBlocks, Head]:
    """Random unit rows, a tenth of them labelled, and prototypes among them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(n, d, generator=generator), dim=1)
    prototypes = x[torch.randperm(n, generator=generator)[:k]].clone()
    labels = torch.randint(max(k // 2, 1), (n // 10,), generator=generator)
    return InMemoryBlocks(x, labels, k), Head(prototypes, TRANSFORMS[h].initial(prototypes))


def bare_products(n: int, d: int, k: int, h: str) -> Callable[[], object]:
    """The matrix products of a step and nothing else."""
    x, w, g, s = torch.randn(n, d), torch.randn(k, d), torch.randn(n, k), torch.randn(d, d)
    if h == "none":
        return lambda: (x @ w.T, g.T @ x)
    # With the rows: logits, norms and the sums E and Q; then those of parameters with each other.
    return lambda: (x @ w.T, x @ s, g.T @ x, x.T @ x, w @ s, s.T @ s, w @ s.T, w.T @ w, s @ s)


def compare_steps() -> None:
    """A step against its bare matrix products, in turn so that both meet the same machine."""
    print("| rows of | N x D, K | PIM: step / products | RPIM: step / products |\n|---|---|---|---|")
    for name, n, d, k in (
        ("banking77", 10_003, 384, 77),
        ("clinc150", 18_000, 384, 150),
        ("cub200", 5_994, 1280, 200),
        ("banking77, 256 directions", 10_003, 256, 77),
        ("clinc150, 256 directions", 18_000, 256, 150),
        ("cub200, 256 directions", 5_994, 256, 200),
    ):
        found = []
        for h, objective in (("none", PIM_OBJECTIVE), ("semantic-bias", Objective())):
            engine, head = synthetic(n, d, k, h)
            bare = bare_products(n, d, k, h)
            step = functools.partial(gradient, engine, head, objective)
            ratios = [clock(step, 5) / clock(bare, 5) for _ in range(7)]
            found.append(f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
        print(f"| {name} | {n} x {d}, {k} | {found[0]} | {found[1]} |", flush=True)
    x, w = torch.randn(10_003, 384), torch.randn(77, 384)
    low_x, low_w = x.bfloat16(), w.bfloat16()
    ratio = clock(lambda: low_x @ low_w.T) / clock(lambda: x @ w.T)
    print(f"\nA bfloat16 product takes {ratio:.1f} times as long as a float32 one on this machine.\n", flush=True)


# -- growth and memory ---------------------------------------------------------------------------------------------


def growth() -> None:
    """Time of a step as one of N, D and K doubles: a ratio of two is linear."""
    print("| method | what doubles | each doubling multiplies the time by |\n|---|---|---|")
    for method, h, objective in (("PIM", "none", PIM_OBJECTIVE), ("RPIM", "semantic-bias", Objective())):
        for name, cases in (
            ("N", [(25_000 * 2**i, 128, 100) for i in range(4)]),
            ("D", [(20_000, 128 * 2**i, 100) for i in range(4)]),
            ("K", [(20_000, 128, 125 * 2**i) for i in range(4)]),
        ):
            times = []
            for n, d, k in cases:
                engine, head = synthetic(n, d, k, h)
                times.append(clock(functools.partial(gradient, engine, head, objective), 5))
            sizes = ", ".join(str(case["NDK".index(name)]) for case in cases)
            ratios = ", ".join(f"{b / a:.2f}" for a, b in itertools.pairwise(times))
            print(f"| {method}, a step | {name} = {sizes} | {ratios} |", flush=True)
    times = [in_a_process_of_its_own(time_of_a_fit, 20_000, 128 * 2**i, 100) for i in range(4)]
    ratios = ", ".join(f"{b / a:.2f}" for a, b in itertools.pairwise(times))
    print(f"| RPIM, a whole fit without search | D = 128, 256, 512, 1024 | {ratios} |", flush=True)


def rows_and_labels(n: int, d: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Noisy rows around k directions; a tenth of the first half of the classes is labelled."""
    random = np.random.default_rng(0)
    truth = random.integers(k, size=n)
    X = random.standard_normal((n, d), dtype=np.float32)
    X *= 1.0 / np.sqrt(d)
    centres = random.standard_normal((k, d), dtype=np.float32) / np.sqrt(d)
    for start in range(0, n, 10_000):
        X[start : start + 10_000] += centres[truth[start : start + 10_000]]
    y = np.where((truth < k // 2) & (random.random(n) < 0.1), truth, -1)
    y[:k] = np.arange(k) % (k // 2)
    return X, y


def time_of_a_fit(n: int, d: int, k: int) -> float:
    """Seconds of a single fit of RPIM of 20 steps."""
    X, y = rows_and_labels(n, d, k)
    start = time.perf_counter()
    RPIM(k, n_members=1, max_iter=20, random_state=0).fit(X, y)
    return time.perf_counter() - start


def memory_of_a_fit(n: int, d: int, k: int, cached: bool) -> float:
    """Peak memory above the rows of a short fit, in MB."""
    X, y = rows_and_labels(n, d, k)
    RPIM(2, n_members=1, max_iter=2).fit(X[:100], np.arange(100) % 3 - 1)
    if not cached:
        problem.default_memory_budget = lambda: 0
    before = peak_memory_mb()
    RPIM(k, n_members=1, max_iter=2, random_state=0).fit(X, y)
    return peak_memory_mb() - before


def memory() -> None:
    """Peak memory above the rows against the size of one N x K matrix."""
    print("\n| rows | classes | one N x K | above the rows | with little memory | 4 N x K + 500 MB |")
    print("|---|---|---|---|---|---|")
    for n, d, k in ((200_000, 256, 100), (200_000, 256, 500), (200_000, 1024, 100)):
        used = [in_a_process_of_its_own(memory_of_a_fit, n, d, k, cached) for cached in (True, False)]
        one = n * k * 4 / 2**20
        print(
            f"| {n} x {d} | {k} | {one:.0f} MB | {used[0]:.0f} MB | {used[1]:.0f} MB | {4 * one + 500:.0f} MB |",
            flush=True,
        )


def main() -> None:
    """Run what was asked for, or everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=DATA_SETS, default=["banking77", "clinc150"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument(
        "--timed",
        nargs=2,
        type=int,
        default=(5, 200),
        metavar=("RESTARTS", "STEPS"),
        help="what the reference runs of its 100 restarts and 1000 steps; its time is scaled up",
    )
    for part in ("whole", "step", "growth", "memory"):
        parser.add_argument(f"--{part}", action="store_true")
    wanted = parser.parse_args()
    everything = not (wanted.whole or wanted.step or wanted.growth or wanted.memory)
    if wanted.step or everything:
        compare_steps()
    if wanted.growth or everything:
        growth()
    if wanted.memory or everything:
        memory()
    if wanted.whole or everything:
        data = Path(wanted.data) if wanted.data else None
        compare_procedures(data, wanted.sets if data else ["digits"], wanted.seeds, tuple(wanted.timed))


if __name__ == "__main__":
    main()
