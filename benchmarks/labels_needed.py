"""How many labels and known classes are needed: accuracy against labels per class, and against known classes.

    python benchmarks/labels_needed.py --data FOLDER
    python benchmarks/labels_needed.py --data FOLDER --figure docs/images

FOLDER holds ``features/*.npz`` (see benchmarks/protocol.py). A seed orders the classes and the rows of each class. The
first classes are known, and the first rows of a known class are labelled, so a larger cell has all labels of a smaller
one. Labels come from one half of the rows of a class; accuracy is measured on the other half, so on the same rows in
every cell of a seed. The number of classes is given. Every cell is appended to a .jsonl file as soon as it is done, and
cells that are there are not run again. ``--figure`` draws the curves from that file and fits nothing.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cells import Cell, add_cell, is_done, read_cells
from protocol import load
from rpim import RPIM, gcd_accuracy

SETS = {"banking77": [1, 2, 5, 10, 20, 50], "cub200": [1, 2, 5, 10, 15]}
"""Labels per known class that are tried; a class with fewer rows in its half gives what it has."""
SHARES = [0.0, 0.1, 0.25, 0.5, 0.75, 0.9]
USUAL_LABELS, USUAL_SHARE = 10, 0.5
"""What is kept while the other one varies."""
TITLES = {"banking77": "BANKING77 (texts, 77 classes)", "cub200": "CUB-200 (birds, 200 classes)"}


def labelled_half(truth: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Order the classes, and number the rows within their class; -1 for rows that no cell may label."""
    random = np.random.RandomState(seed)
    order = random.permutation(truth.max() + 1)
    place = np.full(len(truth), -1)
    for one in range(truth.max() + 1):
        rows = random.permutation(np.flatnonzero(truth == one))
        half = rows[: len(rows) // 2]
        place[half] = np.arange(len(half))
    return order, place


def cells_of(data_set: str) -> Iterator[Cell]:
    """Labels per class and share of known classes of every cell of a data set."""
    for labels in SETS[data_set]:
        yield {"labels": labels, "share": USUAL_SHARE}
    for share in SHARES:
        if share != USUAL_SHARE:
            yield {"labels": USUAL_LABELS if share else 0, "share": share}


def measure(folder: Path, data_set: str, seed: int, cell: Cell, n_members: int) -> Cell:
    """Fit one cell and measure it."""
    case = load(folder, data_set, seed)
    order, place = labelled_half(case.truth, seed)
    known = np.sort(order[: round(cell["share"] * len(order))])
    given = np.isin(case.truth, known) & (place >= 0) & (place < cell["labels"])
    y, measured = np.where(given, case.truth, -1), place < 0
    model = RPIM(case.n_classes, n_members=n_members, random_state=seed)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(case.X, y if cell["share"] else None)
    seconds = time.perf_counter() - began
    accuracy = gcd_accuracy(case.truth[measured], model.labels_[measured], known=known).as_dict()
    return {
        **{name: round(float(value), 4) for name, value in accuracy.items()},
        "expected_accuracy": round(float(model.expected_accuracy_), 4),
        "confidence": round(float(model.predict_proba(case.X[measured]).max(axis=1).mean()), 4),
        "seconds": round(seconds, 1),
    }


def mean(cells: list[Cell], part: str) -> float:
    """Mean accuracy in percent; NaN where no row is of that kind."""
    return 100 * float(np.mean([cell[part] for cell in cells])) if cells else float("nan")


def table(cells: list[Cell]) -> str:
    """A row for each cell: means over seeds, with the standard deviation of All."""
    lines = ["| data set | known classes | labels per class | seeds | All | Known | Unknown |", "|---" * 7 + "|"]
    for data_set in SETS:
        for cell in cells_of(data_set):
            done = [one for one in cells if {"data_set": data_set, **cell}.items() <= one.items()]
            spread = 100 * float(np.std([one["all"] for one in done])) if done else float("nan")
            numbers = (
                f"{mean(done, 'all'):.1f} ± {spread:.1f} | {mean(done, 'known'):.1f} | {mean(done, 'unknown'):.1f}"
            )
            lines.append(f"| {data_set} | {cell['share']:.0%} | {cell['labels']} | {len(done)} | {numbers} |")
    return "\n".join(lines)


def draw(cells: list[Cell], folder: Path) -> None:
    """Draw both curves of both sets, for light and for dark pages."""
    import matplotlib.pyplot as plt

    for theme, ink, parts in [
        ("light", "#222222", {"known": "#0072b2", "unknown": "#b45f06", "all": "#444444"}),
        ("dark", "#dddddd", {"known": "#56b4e9", "unknown": "#e69f00", "all": "#c4c4c4"}),
    ]:
        colours = dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], ink)
        with plt.rc_context({**colours, "font.size": 11}):
            figure, axes = plt.subplots(2, 2, figsize=(9.5, 7), sharey="row", layout="constrained")
            for row, data_set in enumerate(SETS):
                grid = [{"data_set": data_set, **cell} for cell in cells_of(data_set)]
                by_labels = sorted((c for c in grid if c["share"] == USUAL_SHARE), key=lambda c: c["labels"])
                by_share = sorted((c for c in grid if c["labels"] in (0, USUAL_LABELS)), key=lambda c: c["share"])
                for column, (chosen, x) in enumerate([(by_labels, "labels"), (by_share, "share")]):
                    axis, at = axes[row, column], [c[x] * (100 if x == "share" else 1) for c in chosen]
                    of = [[one for one in cells if c.items() <= one.items()] for c in chosen]
                    for part, colour in parts.items():
                        middle = np.array([mean(o, part) for o in of])
                        ends = [[100 * f(one[part] for one in o) if o else np.nan for o in of] for f in (min, max)]
                        axis.fill_between(at, *ends, color=colour, alpha=0.18, linewidth=0)
                        style = ":" if part == "all" else "-"
                        axis.plot(at, middle, "o" + style, color=colour, label=part.capitalize(), ms=5)
                    if np.isfinite([mean(o, "all") for o in of]).sum() < 2:
                        axis.set_visible(False)  # not measured yet
                    axis.grid(alpha=0.25)
                    axis.set_facecolor("none")
                    axis.set_title(TITLES[data_set], fontsize=11)
                    if x == "labels":
                        axis.set(xscale="log", xlabel="labels per known class (half of the classes known)")
                        axis.set_ylabel("accuracy (%)")
                        axis.set_xticks(at, [str(n) for n in at])
                        axis.minorticks_off()
                    else:
                        axis.set(xlabel=f"classes that are known (%), {USUAL_LABELS} labels each", xticks=at)
            axes[0, 0].legend(frameon=False)
            figure.savefig(folder / f"labels-needed-{theme}.png", dpi=110, transparent=True)
            plt.close(figure)


def main() -> None:
    """Run what is missing, or draw what is there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--figure", type=Path, metavar="FOLDER", help="draw the curves into this folder; fit nothing")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/labels_needed.jsonl"))
    arguments = parser.parse_args()
    for seed in arguments.seeds if arguments.figure is None else []:
        for data_set in arguments.sets:
            for cell in cells_of(data_set):
                key = {"data_set": data_set, "seed": seed, "n_members": arguments.members, **cell}
                if not is_done(arguments.output, key):
                    done = measure(arguments.data, data_set, seed, cell, arguments.members)
                    add_cell(arguments.output, {**key, **done})
    cells = [one for one in read_cells(arguments.output) if one["seed"] in arguments.seeds]
    cells = [one for one in cells if one["n_members"] == arguments.members]
    if arguments.figure is not None:
        draw(cells, arguments.figure)
    print(table(cells))


if __name__ == "__main__":
    main()
