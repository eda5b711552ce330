"""
What to label next
==================

`Discovery.suggest` chooses rows whose labels help a refit most: typical rows of new classes first, then rows of classes
with many expected errors. Three digits are known at first. Accuracy is measured on a third of the rows, which are never
labelled.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from rpim import RPIM, Discovery, FeatureSet, gcd_accuracy

warnings.simplefilter("ignore", UserWarning)  # small committees warn about unstable classes
X, truth = load_digits(return_X_y=True)
random = np.random.RandomState(0)
held_out = random.rand(len(truth)) < 1 / 3
first = np.where((truth < 3) & ~held_out & (random.rand(len(truth)) < 0.2), truth, -1)


def fit(y):
    """The discovery, and its accuracy on the rows that are held out."""
    model = RPIM(10, n_members=4, random_state=0).fit(X, y)
    found = Discovery.from_fit(model, FeatureSet.from_arrays(X, labels=y))
    return found, gcd_accuracy(truth[held_out], found.labels[held_out], known=range(3)).all


# %%
# The same number of labels, suggested and at random.

discovery, start = fit(first)
features, numbers = FeatureSet.from_arrays(X, labels=first), [10, 20, 40]
suggested = [one.row for one in discovery.suggest(40, features, exclude=np.flatnonzero(held_out))]
unlabelled = random.permutation(np.flatnonzero((first < 0) & ~held_out))
curves = {"suggested": [start], "random": [start]}
for n in numbers:
    for name, rows in (("suggested", suggested[:n]), ("random", unlabelled[:n])):
        y = first.copy()
        y[rows] = truth[rows]
        curves[name].append(fit(y)[1])

# %%
# ``rpim suggest RUN -n 50 -o label_me.csv`` does this in the terminal, and the explorer has a queue of these rows.

figure, axis = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
for (name, accuracy), colour in zip(curves.items(), ("#0072b2", "#e69f00"), strict=True):
    axis.plot([0, *numbers], 100 * np.array(accuracy), "o-", color=colour, label=name)
axis.set(xlabel="labels added", ylabel="All on rows that are held out (%)", xticks=[0, *numbers])
axis.legend()
plt.show()
