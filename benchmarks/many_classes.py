"""More classes than our data sets have: weight decay and the scale of the initial prototypes.

    python benchmarks/many_classes.py --classes 1000 --rows-per-class 15 --noise 2 --steps 40
    python benchmarks/many_classes.py --classes 5000 --decays 0.0004 --steps 15
    python benchmarks/many_classes.py --data FOLDER --seeds 5 6 --decays 0.01 0.0067
    python benchmarks/many_classes.py --data FOLDER --seeds 1 2 3 --overlap

The first two train on synthetic rows around random centres in 128 directions, half of them known, and print the
accuracy every five steps: with the default scale of the prototypes and without, and with each weight decay. The third
fits two data sets as one (227 and 300 classes) with each weight decay. The last compares the default, which halves a
weight decay that empties classes, with a fixed one, where classes overlap: on such synthetic rows, and on all four data
sets as one (527 classes, 30 rows of each) with noise. FOLDER is that of benchmarks/protocol.py.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import torch
from sklearn.preprocessing import normalize

from protocol import DATA_SETS, Case, load
from rpim import RPIM, InfoMaxObjective, gcd_accuracy
from rpim.core.head import Head
from rpim.core.kmeans import merged_start
from rpim.core.objective import Objective
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.training import Schedule, train
from rpim.core.transforms import SemanticBias
from rpim.estimators.objective import decay_among, prototype_scale

N_FEATURES = 128
OVERLAPPING = ((196, 40, 2.5), (500, 30, 2.1), (1000, 30, 2.1))
"""Classes, rows per class, and noise of synthetic rows."""
NOISES = (0.0, 1.5, 2.0)
"""The length of the noise that is added to real rows of length one."""
N_COMMON, ROWS_PER_CLASS = 256, 30
"""Of the four data sets as one: directions of each, and rows per class."""
PAIRS = (("banking77", "clinc150"), ("cub200", "cifar100"))
"""Sets with the same encoder."""


def around_centres(n_classes: int, rows_per_class: int, noise: float, seed: int) -> Case:
    """Rows around random centres, whose standard deviation is 1; half of the rows of half of the classes labelled."""
    random = np.random.default_rng(seed)
    n_rows = n_classes * rows_per_class
    centres = random.standard_normal((n_classes, N_FEATURES), dtype=np.float32)
    truth = random.integers(0, n_classes, n_rows)
    X = centres[truth] + noise * random.standard_normal((n_rows, N_FEATURES), dtype=np.float32)
    labelled = (truth < n_classes // 2) & (random.random(n_rows) < 0.5)
    return Case(X, np.where(labelled, truth, -1), truth, np.arange(n_classes // 2), n_classes)


def synthetic(n_classes: int, rows_per_class: int, noise: float, decays: list[float], steps: int) -> None:
    """Train from one start with each weight decay and scale."""
    case = around_centres(n_classes, rows_per_class, noise, 0)
    order = np.argsort(case.hidden, kind="stable")
    x, truth = torch.nn.functional.normalize(torch.from_numpy(case.X[order])), case.truth[order]
    labels = torch.from_numpy(truth[: int((~case.hidden).sum())])
    known, hidden = case.known, slice(len(labels), None)
    start = merged_start(x, labels, n_classes, generator=torch.Generator().manual_seed(0))
    print("start", gcd_accuracy(truth[hidden], start.labels[hidden].numpy(), known), flush=True)
    rows = InMemoryBlocks(x, labels, n_classes, cache=False)
    for decay, scale in itertools.product(decays, (1.0, prototype_scale(n_classes))):
        head = Head(start.prototypes * scale, SemanticBias.initial(start.prototypes))

        def on_step(step: int, value: dict[str, float], head: Head = head) -> None:
            if step and step % 5 == 0:
                print(f"  {step:3}", gcd_accuracy(truth[hidden], head.predict(x)[hidden].numpy(), known), flush=True)

        print(f"weight decay {decay:g}, prototypes times {scale:.2f}", flush=True)
        train(rows, head, Objective(pipelined=True), Schedule(max_iter=steps + 1, weight_decay=decay), on_step)


def as_one(a: Case, b: Case) -> Case:
    """The rows and classes of both."""
    first = int(a.truth.max()) + 1
    return Case(
        np.concatenate([a.X, b.X]),
        np.concatenate([a.y, np.where(b.y < 0, -1, b.y + first)]),
        np.concatenate([a.truth, b.truth + first]),
        np.concatenate([a.known, b.known + first]),
        a.n_classes + b.n_classes,
    )


def joined(folder: Path, seeds: list[int], decays: list[float]) -> None:
    """Fit two data sets as one with each weight decay."""
    warnings.simplefilter("ignore", UserWarning)
    for (first, second), seed in itertools.product(PAIRS, seeds):
        case = as_one(load(folder, first, seed), load(folder, second, seed))
        for n_members, decay in itertools.product((1, 4), decays):
            objective = InfoMaxObjective(weight_decay=decay)
            model = RPIM(case.n_classes, n_members=n_members, random_state=0, objective=objective).fit(case.X, case.y)
            found = gcd_accuracy(case.truth[case.hidden], model.labels_[case.hidden], case.known)
            print(f"{first} + {second}, seed {seed}, {n_members} members, weight decay {decay:g}:", found, flush=True)


def all_as_one(folder: Path, seed: int, noise: float) -> Case:
    """The four data sets as one: some principal directions of each, rotated at random, with noise."""
    random = np.random.RandomState(seed)
    together = None
    for name in DATA_SETS:
        case = load(folder, name, seed)
        x = normalize(case.X.astype(np.float32))
        some = x[random.permutation(len(x))[:4000]]
        rotation = np.linalg.qr(random.standard_normal((N_COMMON, N_COMMON)))[0].astype(np.float32)
        x = normalize(x @ np.linalg.svd(some, full_matrices=False)[2][:N_COMMON].T) @ rotation
        drawn = [random.permutation(np.flatnonzero(case.truth == k))[:ROWS_PER_CLASS] for k in np.unique(case.truth)]
        kept = np.concatenate(drawn)
        case = Case(x[kept], case.y[kept], case.truth[kept], case.known, case.n_classes)
        together = case if together is None else as_one(together, case)
    added = noise / N_COMMON**0.5 * random.standard_normal(together.X.shape).astype(np.float32)
    return dataclasses.replace(together, X=together.X + added)


def overlap(folder: Path, seeds: list[int], n_members: int) -> None:
    """Default fits against fits with the weight decay that the default begins with."""
    warnings.simplefilter("ignore", UserWarning)
    print("rows  seed  weight decay: All/Known/Unknown, classes without a row")
    cases = [
        (f"{k} classes, noise {noise}", partial(around_centres, k, per_class, noise))
        for k, per_class, noise in OVERLAPPING
    ]
    cases += [(f"four sets, noise {noise}", partial(all_as_one, folder, noise=noise)) for noise in NOISES]
    for (name, make), seed in itertools.product(cases, seeds):
        case = make(seed=seed)
        for decay in (decay_among(case.n_classes, 0.01), "auto"):
            objective = InfoMaxObjective(weight_decay=decay)
            model = RPIM(case.n_classes, n_members=n_members, random_state=0, objective=objective).fit(case.X, case.y)
            found = gcd_accuracy(case.truth[case.hidden], model.labels_[case.hidden], case.known)
            empty = case.n_classes - len(np.unique(model.labels_))
            print(f"{name}  {seed}  {model.weight_decay_:.4g} ({decay}): {found}, {empty}", flush=True)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, default=[5, 6])
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--rows-per-class", type=int, default=20)
    parser.add_argument("--noise", type=float, default=1.5, help="standard deviation; that of the centres is 1")
    parser.add_argument("--decays", nargs="+", type=float, help="weight decays; that of --classes if none is given")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--overlap", action="store_true", help="overlapping classes")
    parser.add_argument("--members", type=int, default=4, help="of --overlap")
    chosen = parser.parse_args()
    decays = chosen.decays or [decay_among(chosen.classes, 0.01)]
    if chosen.overlap:
        overlap(chosen.data, chosen.seeds, chosen.members)
    elif chosen.data is None:
        synthetic(chosen.classes, chosen.rows_per_class, chosen.noise, decays, chosen.steps)
    else:
        joined(chosen.data, chosen.seeds, decays)


if __name__ == "__main__":
    main()
