"""Several encoders together against each of them alone, on the same rows.

    python benchmarks/encoders.py A.npz B.parquet --names all-MiniLM-L6-v2 all-mpnet-base-v2 --seeds 0 1 2

A and B are feature sets of the same items by two encoders (``rpim embed`` with one, then with the other), matched by
their ids; the first has the true classes as its labels. Rows that only one of them has are left out, and so are those
of a split "test". Half of the classes are known, and half of their rows labelled, as in benchmarks/protocol.py. Every
cell is appended to a .jsonl file as soon as it is done, and cells that are there are not run again.

alone     RPIM on the rows of one encoder
one       the rows of all encoders as one embedding: what one would do without support for several
together  RPIM().fit([A, B], y)
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

from cells import add_cell, is_done, read_cells
from rpim import RPIM, FeatureSet, gcd_accuracy
from rpim.benchmark.protocol import labelled_share


def same_rows(files: list[Path], per_class: int | None = None) -> tuple[list[np.ndarray], np.ndarray]:
    """The training rows that all files have, of each file, and their classes; at most so many per class, the first."""
    sets = [FeatureSet.read(file) for file in files]
    first = sets[0]
    keep = np.ones(len(first), dtype=bool) if first.split is None else first.split != "test"
    for other in sets[1:]:
        keep &= np.isin(first.ids, other.ids)
    if per_class is not None:
        for label in np.unique(first.labels[keep]):
            keep[np.flatnonzero(keep & (first.labels == label))[per_class:]] = False
    ids = first.ids[keep]
    found = []
    for features in sets:
        place = {name: number for number, name in enumerate(features.ids.tolist())}
        found.append(np.asarray(features.X, dtype=np.float32)[[place[name] for name in ids.tolist()]])
    return found, np.unique(first.labels[keep], return_inverse=True)[1]


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--names", nargs="+")
    parser.add_argument("--per-class", type=int, help="use the first rows of each class alone")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/encoders.jsonl"))
    arguments = parser.parse_args()
    names = arguments.names or [file.stem for file in arguments.files]
    parts, truth = same_rows(arguments.files, arguments.per_class)
    n_classes = int(truth.max()) + 1
    one = np.concatenate(parts, axis=1)
    variants = {**dict(zip(names, parts, strict=True)), "one": one, "together": parts}
    print(f"{len(truth):,} rows, {n_classes} classes")
    for seed in arguments.seeds:
        known = np.sort(np.random.RandomState(seed).permutation(n_classes)[: n_classes // 2])
        y = labelled_share(truth, known, 0.5, seed)
        for variant, X in variants.items():
            key = {"encoders": names, "rows": len(truth), "variant": variant, "seed": seed}
            if is_done(arguments.output, key):
                continue
            start = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                model = RPIM(n_classes, random_state=0).fit(X, y)
            seconds = round(time.perf_counter() - start, 1)
            found = gcd_accuracy(truth[y < 0], model.labels_[y < 0], known).as_dict()
            predicted = gcd_accuracy(truth[y < 0], model.predict(X)[y < 0], known).all
            add_cell(arguments.output, {**key, **found, "by_predict": predicted, "seconds": seconds})
    cells = [cell for cell in read_cells(arguments.output) if cell["encoders"] == names and cell["rows"] == len(truth)]
    print("| rows of | All | Known | Unknown |\n|---|---|---|---|")
    for variant in variants:
        of = [cell for cell in cells if cell["variant"] == variant and cell["seed"] in arguments.seeds]
        means = (100 * np.mean([cell[part] for cell in of]) for part in ("all", "known", "unknown"))
        print(f"| {variant} | " + " | ".join(f"{mean:.1f}" for mean in means) + " |")


if __name__ == "__main__":
    main()
