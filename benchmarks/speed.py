"""How fast, against a plain reference on the same rows in the same run.

    make bench                       on scikit-learn's digits, a few minutes
    make bench DATA=FOLDER           on real embeddings (see benchmarks/protocol.py), about an hour on two cores

or one part of it:

    python benchmarks/speed.py --whole [--data FOLDER]    the whole procedure: time, accuracy, memory, matrix products
    python benchmarks/speed.py --step                     one step against its bare matrix products
    python benchmarks/speed.py --growth [--plot PNG]      growth with N, D, K and members on synthetic rows
    python benchmarks/speed.py --memory                   peak memory on 200,000 synthetic rows

Every figure of speed is a ratio of two things measured in the same run; times are those of the machine at hand.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import multiprocessing
import time
import warnings
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
from rpim.core.row_blocks import InMemoryBlocks, block_rows, padded
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


def clock(work: Callable[[], object], repeats: int = 7, now: Callable[[], float] = time.perf_counter) -> float:
    """The median time of a call."""
    work()
    times = []
    for _ in range(repeats):
        start = now()
        work()
        times.append(now() - start)
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


def wide_against_apart(d: int, k: int) -> float:
    """How many times as fast the products of a block with its rows are as one wide product, as in `core.fused`."""
    n = block_rows(k, d, 10**6)
    x, w, p, s, weighted = (torch.randn(*shape) for shape in ((n, d), (k, d), (n, k), (d, d), (n, d)))
    width = padded(k) + d
    all_w, all_p = torch.randn(width, d), torch.randn(n, width)
    logits, product, e, q = torch.empty(n, k), torch.empty(n, d), torch.zeros(k, d), torch.zeros(d, d)
    out, sums = torch.empty(n, width), torch.zeros(width, d)

    def apart() -> None:
        torch.mm(x, w.T, out=logits)
        torch.mm(x, s, out=product)
        e.addmm_(p.T, x)
        q.addmm_(weighted.T, x)

    def wide() -> None:
        torch.mm(x, all_w.T, out=out)
        sums.addmm_(all_p.T, x)

    return clock(apart, 51) / clock(wide, 51)


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
    for k in (77, 150, 200):
        ratio = wide_against_apart(128, k)
        print(f"With 128 directions and {k} classes, one wide product is {ratio:.2f} times as fast as two.")
    x, w = torch.randn(10_003, 384), torch.randn(77, 384)
    low_x, low_w = x.bfloat16(), w.bfloat16()
    ratio = clock(lambda: low_x @ low_w.T) / clock(lambda: x @ w.T)
    print(f"\nA bfloat16 product takes {ratio:.1f} times as long as a float32 one on this machine.\n", flush=True)


# -- growth and memory ---------------------------------------------------------------------------------------------


GROWTH = {"N": 5_000, "D": 128, "K": 25, "members": 4}
"""The first values of what doubles three times; the others have the values of `FIXED`."""
FIXED = {"N": 10_000, "D": 256, "K": 50, "members": 16}


def growth(plot: Path | None) -> None:
    """CPU time of a step and of a default fit as one of N, D, K and the members doubles: a ratio of two is linear."""
    print("| method | what doubles | each doubling multiplies the CPU time by |\n|---|---|---|")
    curves: dict[str, dict[str, tuple[list[int], list[float]]]] = {}
    for method, names in (("PIM, a step", "NDK"), ("RPIM, a step", "NDK"), ("RPIM, a default fit", GROWTH)):
        for name in names:
            sizes = [GROWTH[name] * 2**i for i in range(4)]
            work = fit_seconds if method.endswith("fit") else functools.partial(step_seconds, method.split(",")[0])
            seconds = [in_a_process_of_its_own(work, {**FIXED, name: size}) for size in sizes]
            ratios = ", ".join(f"{b / a:.2f}" for a, b in itertools.pairwise(seconds))
            print(f"| {method} | {name} = {', '.join(map(str, sizes))} | {ratios} |", flush=True)
            curves.setdefault(name, {})[method] = sizes, seconds
    if plot is not None:
        draw_growth(curves, plot)


def step_seconds(method: str, sizes: dict[str, int]) -> float:
    """CPU seconds of a step, one thread."""
    torch.set_num_threads(1)
    h, objective = ("none", PIM_OBJECTIVE) if method == "PIM" else ("semantic-bias", Objective())
    engine, head = synthetic(sizes["N"], sizes["D"], sizes["K"], h)
    return clock(functools.partial(gradient, engine, head, objective), 9, time.process_time)


def fit_seconds(sizes: dict[str, int]) -> float:
    """CPU seconds of a default fit."""
    X, y = rows_and_labels(sizes["N"], sizes["D"], sizes["K"])
    warnings.simplefilter("ignore", UserWarning)
    start = time.process_time()
    RPIM(sizes["K"], n_members=sizes["members"], random_state=0).fit(X, y)
    return time.process_time() - start


def draw_growth(curves: dict[str, dict[str, tuple[list[int], list[float]]]], path: Path) -> None:
    """One panel for each of N, D, K and the members, both axes logarithmic; a dotted line grows linearly."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, len(curves), figsize=(11, 3.2), sharey=True, layout="constrained")
    colours = dict(zip(curves["N"], ("#0072b2", "#e69f00", "#009e73"), strict=True))
    for panel, (name, by_method) in zip(panels, curves.items(), strict=True):
        for method, (sizes, seconds) in by_method.items():
            panel.loglog(sizes, seconds, marker="o", label=method, color=colours[method])
            panel.loglog(sizes, [seconds[0] * size / sizes[0] for size in sizes], ":", color="gray", linewidth=1)
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize="small")
        panel.minorticks_off()
        panel.set_xlabel("members of the committee" if name == "members" else name)
    panels[0].set_ylabel("CPU seconds")
    panels[0].set_yticks([10.0**i for i in range(-2, 3)], ["0.01", "0.1", "1", "10", "100"])
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.savefig(path, dpi=110)


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


def memory_of_a_fit(n: int, d: int, k: int, cached: bool) -> float:
    """Peak memory above the rows of a short fit, in MB."""
    X, y = rows_and_labels(n, d, k)
    RPIM(2, n_members=1, max_iter=2).fit(X[:100], np.arange(100) % 3 - 1)
    if not cached:
        problem.caches_probabilities = lambda *_: False
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
    parser.add_argument("--plot", type=Path, metavar="PNG", help="draw the growth")
    for part in ("whole", "step", "growth", "memory"):
        parser.add_argument(f"--{part}", action="store_true")
    wanted = parser.parse_args()
    everything = not (wanted.whole or wanted.step or wanted.growth or wanted.memory)
    if wanted.step or everything:
        compare_steps()
    if wanted.growth or everything:
        growth(wanted.plot)
    if wanted.memory or everything:
        memory()
    if wanted.whole or everything:
        data = Path(wanted.data) if wanted.data else None
        compare_procedures(data, wanted.sets if data else ["digits"], wanted.seeds, tuple(wanted.timed))


if __name__ == "__main__":
    main()
