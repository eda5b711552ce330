"""Draw the two pictures on the first page of the documentation, for light and dark pages, and both in one for README.

python examples/front_page.py docs/images
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.manifold import TSNE

from rpim import RPIM

COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00"]

X, truth = load_digits(n_class=6, return_X_y=True)
labelled = (truth < 4) & (np.random.RandomState(0).rand(len(truth)) < 0.15)
y = np.where(labelled, truth, -1)
model = RPIM(n_classes=6, random_state=0).fit(X, y)
places = TSNE(random_state=0).fit_transform(model.transform(X))

for theme, ink, grey, paper in [("light", "#222222", "#c4c4c4", "white"), ("dark", "#dddddd", "#5c5c5c", "#14181e")]:
    given, left = plt.subplots(figsize=(5, 3.6), layout="constrained")
    left.scatter(*places[~labelled].T, s=9, color=grey, linewidths=0)
    for name in model.known_classes_:
        left.scatter(*places[y == name].T, s=16, color=COLOURS[name], linewidths=0)
    left.set_title(f"given: {labelled.sum()} of {len(y):,} rows are labelled", color=ink)

    found, right = plt.subplots(figsize=(5, 3.6), layout="constrained")
    for name in model.classes_:
        new = name in model.new_classes_
        rows = places[model.labels_ == name]
        face = "none" if new else COLOURS[name]
        right.scatter(*rows.T, s=14, facecolors=face, edgecolors=COLOURS[name], linewidths=0.9)
        text = f"new-{name - 3}" if new else f"digit {name}"
        box = {"facecolor": paper, "alpha": 0.85, "edgecolor": "none", "pad": 1.5}
        right.text(*np.median(rows, axis=0), text, color=ink, ha="center", va="center", fontsize=11, bbox=box)
    right.set_title("found: a class for every row, two of them new", color=ink)

    for figure, name in [(given, "given"), (found, "found")]:
        figure.axes[0].set_axis_off()
        figure.savefig(Path(sys.argv[1]) / f"{name}-{theme}.png", dpi=150, transparent=True)

halves = [Image.open(Path(sys.argv[1]) / f"{name}-light.png") for name in ("given", "found")]
both = Image.new("RGB", (sum(half.width for half in halves), halves[0].height), "white")  # GitHub may be dark
for left, half in zip((0, halves[0].width), halves, strict=True):
    both.paste(half, (left, 0), half)
both.resize((both.width * 2 // 3, both.height * 2 // 3)).quantize(64).save(Path(sys.argv[1]) / "given-found.png")
