"""
Compare methods on your data
============================

Which method is best on *your* embeddings? Hide the labels of some known classes, run the methods, and see which one
finds these classes again. The true classes of unlabelled rows are not needed.
"""

# %%
# Hide known classes
# ------------------
# You have labels for some classes. We treat half of these classes as new and hide their labels, and half of the labels
# of the other classes. Several draws show the variance.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

import rpim

X, labels = load_digits(return_X_y=True)
X, labels = X[:1000], labels[:1000]


def hidden_split(seed):
    """Labels with half of the classes hidden, and half of the rows of the others."""
    random = np.random.RandomState(seed)
    known = random.permutation(10)[:5]
    y = np.where(np.isin(labels, known) & (random.rand(len(labels)) < 0.5), labels, -1)
    return y, known


# %%
# Run them
# --------
# All methods have the same interface. `rpim.RPIM` with a small committee is enough for a comparison.

METHODS = {
    "KMeans": lambda seed: rpim.KMeans(10, random_state=seed),
    "GCD": lambda seed: rpim.GCD(10, random_state=seed),
    "SelfTraining": lambda seed: rpim.SelfTraining(10, random_state=seed),
    "SpreadLabels": lambda seed: rpim.SpreadLabels(10, random_state=seed),
    "PIM": lambda seed: rpim.PIM(10, random_state=seed),
    "RPIM": lambda seed: rpim.RPIM(10, n_members=8, random_state=seed),
}
scores = {name: [] for name in METHODS}
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # some methods warn where they do not converge
    for seed in range(3):
        y, known = hidden_split(seed)
        for name, make in METHODS.items():
            found = make(seed).fit(X, y).labels_
            scores[name].append(rpim.gcd_accuracy(labels[y < 0], found[y < 0], known=known))

# %%
# Known and Unknown often trade off against each other, so look at both.

parts = {"Known": "#0072b2", "Unknown": "#e69f00", "All": "#444444"}
figure, axis = plt.subplots(figsize=(8, 3.8), layout="constrained")
for k, (part, colour) in enumerate(parts.items()):
    values = np.array([[100 * getattr(one, part.lower()) for one in scores[name]] for name in METHODS])
    at = np.arange(len(METHODS)) + 0.26 * (k - 1)
    axis.bar(at, values.mean(axis=1), 0.25, color=colour, label=part)
    axis.plot(np.repeat(at, 3), values.ravel(), ".", color="k", ms=4)
axis.set(xticks=range(len(METHODS)), xticklabels=METHODS, ylabel="accuracy (%)", ylim=(0, 118))
axis.legend(ncols=3, loc="upper left")
plt.show()

for name, results in scores.items():
    print(f"{name:13} All {np.mean([one.all for one in results]):.1%}")

# %%
# For files and more seeds, use ``rpim benchmark features.npz -o compared``: it runs each method in its own process,
# resumes after an interruption, and writes tables and a page of figures.
