"""How fast: the package against a plain version of PIM's published procedure, on the same rows in one run.

    python benchmarks/speed.py --data FOLDER              whole procedures on real embeddings: ratio, accuracy, memory
    python benchmarks/speed.py --step                     one step against its bare matrix products
    python benchmarks/speed.py --growth                   growth with N, D and K on synthetic rows

Every figure is a ratio of two things measured in the same run; absolute times are those of the machine at hand.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import multiprocessing
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import reference
from protocol import DATA_SETS, load
from rpim import PIM, RPIM, gcd_accuracy
from rpim.engine import InMemory
from rpim.head import Head
from rpim.optimise import Objective, gradient
from rpim.transforms import TRANSFORMS

PIM_OBJECTIVE = Objective(pseudo_labels=False, mixed_labels=False)


def peak_mb() -> float:
    """The largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def whole_procedure(method: str, folder: Path, data_set: str, seed: int, timed: tuple[int, int]) -> dict[str, Any]:
    """One method, from rows to classes, in a process of its own so that its memory can be told."""
    case = load(folder, data_set, seed)
    X = case.X.astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    before = peak_mb()
    if method == "reference":
        codes = {c: i for i, c in enumerate(case.known)}
        y = torch.tensor([codes.get(c, -1) for c in case.y])
        found = reference.pim(
            torch.from_numpy(X), y, case.n_classes, timed_restarts=timed[0], timed_steps=timed[1], seed=seed
        )
        seconds, labels = found.seconds, found.labels
    else:
        model = (PIM if method == "PIM" else RPIM)(case.n_classes, random_state=seed)
        start = time.perf_counter()
        labels = model.fit(X, case.y).labels_
        seconds = time.perf_counter() - start
    accuracy = gcd_accuracy(case.truth[case.hidden], labels[case.hidden], case.known)
    return {"method": method, "data_set": data_set, "seed": seed, "seconds": seconds, "memory_mb": peak_mb() - before,
            "n_x_k_mb": len(X) * case.n_classes * 4 / 2**20, **accuracy.as_dict()}  # fmt: skip


def compare_procedures(folder: Path, data_sets: list[str], seeds: list[int], timed: tuple[int, int]) -> None:
    """Ratio of time, accuracy and memory of each method to the reference."""
    context = multiprocessing.get_context("spawn")
    for data_set in data_sets:
        rows: dict[str, list[dict[str, Any]]] = {}
        for seed in seeds:
            for method in ("reference", "PIM", "RPIM"):
                with context.Pool(1) as pool:
                    cell = pool.apply(whole_procedure, (method, folder, data_set, seed, timed))
                rows.setdefault(method, []).append(cell)
                print(json.dumps(cell), flush=True)
        base = np.mean([cell["seconds"] for cell in rows["reference"]])
        for method, cells in rows.items():
            mean = {key: np.mean([cell[key] for cell in cells]) for key in ("seconds", "memory_mb", "all", "known",
                                                                           "unknown", "n_x_k_mb")}  # fmt: skip
            print(
                f"{data_set:10} {method:10} {base / mean['seconds']:7.1f} times faster   "
                f"{100 * mean['all']:.1f}/{100 * mean['known']:.1f}/{100 * mean['unknown']:.1f}   "
                f"{mean['memory_mb']:.0f} MB over the rows ({mean['memory_mb'] / mean['n_x_k_mb']:.1f} N x K)"
            )


def clock(work: Callable[[], object], repeats: int = 7) -> float:
    """The median time of a call."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def synthetic(n: int, d: int, k: int, h: str) -> tuple[InMemory, Head]:
    """Random unit rows, half of a tenth of them labelled, and prototypes among them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.normalize(torch.randn(n, d, generator=generator), dim=1)
    prototypes = x[torch.randperm(n, generator=generator)[:k]].clone()
    labels = torch.randint(max(k // 2, 1), (n // 10,), generator=generator)
    return InMemory(x, labels, k), Head(prototypes, TRANSFORMS[h].initial(prototypes))


def bare_products(n: int, d: int, k: int, h: str) -> Callable[[], object]:
    """The matrix products of a step and nothing else."""
    x, w, g, s = torch.randn(n, d), torch.randn(k, d), torch.randn(n, k), torch.randn(d, d)
    if h == "none":
        return lambda: (x @ w.T, g.T @ x)
    # With the rows: logits, norms and the sums E and Q; then those of parameters with each other.
    return lambda: (x @ w.T, x @ s, g.T @ x, x.T @ x, w @ s, s.T @ s, w @ s.T, w.T @ w, s @ s)


def compare_steps() -> None:
    """A step against its bare matrix products, in turn so that both meet the same machine."""
    for name, n, d, k in (("banking77", 10_003, 256, 77), ("clinc150", 18_000, 256, 150), ("cub200", 5_994, 256, 200)):
        for method, h, objective in (("PIM", "none", PIM_OBJECTIVE), ("RPIM", "semantic-bias", Objective())):
            engine, head = synthetic(n, d, k, h)
            bare = bare_products(n, d, k, h)
            step = functools.partial(gradient, engine, head, objective)
            ratios = [clock(step, 3) / clock(bare, 3) for _ in range(5)]
            print(f"{name:10} {method:5} a step is {np.median(ratios):.2f} times its matrix products")


def growth() -> None:
    """Time of a step as one of N, D and K doubles: a ratio near two is linear."""
    for method, h, objective in (("PIM", "none", PIM_OBJECTIVE), ("RPIM", "semantic-bias", Objective())):
        for name, cases in (
            ("N", [(25_000 * 2**i, 128, 100) for i in range(4)]),
            ("D", [(20_000, 128 * 2**i, 100) for i in range(4)]),
            ("K", [(20_000, 128, 125 * 2**i) for i in range(4)]),
        ):
            times = []
            for n, d, k in cases:
                engine, head = synthetic(n, d, k, h)
                times.append(clock(functools.partial(gradient, engine, head, objective), 3))
            steps = ", ".join(f"{b / a:.2f}" for a, b in itertools.pairwise(times))
            sizes = ", ".join(str(case["NDK".index(name)]) for case in cases)
            print(f"{method:5} {name} = {sizes}: each doubling costs {steps}")


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="+", choices=DATA_SETS, default=["banking77", "clinc150"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--timed", nargs=2, type=int, default=(5, 200), metavar=("RESTARTS", "STEPS"),
                        help="what the reference runs of its 100 restarts and 1000 steps, scaled up")  # fmt: skip
    parser.add_argument("--step", action="store_true")
    parser.add_argument("--growth", action="store_true")
    arguments = parser.parse_args()
    if arguments.step:
        compare_steps()
    if arguments.growth:
        growth()
    if arguments.data:
        compare_procedures(arguments.data, arguments.sets, arguments.seeds, tuple(arguments.timed))


if __name__ == "__main__":
    main()
