"""
How many members does a committee need?
=======================================

A single fit depends on its initialization. Each grey point is a fit with another seed; the line is their mean. More
members reduce the variance over seeds, and take longer. :doc:`/results` has the same on real embeddings.
"""

import warnings
from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from rpim import RPIM, gcd_accuracy

X, truth = load_digits(return_X_y=True)
labelled = (truth < 5) & (np.random.RandomState(0).rand(len(truth)) < 0.5)
y = np.where(labelled, truth, -1)

warnings.simplefilter("ignore", UserWarning)  # small committees warn about unstable classes
sizes, seeds = [1, 4, 16], range(3)
accuracies, seconds = [], []
for n_members in sizes:
    start = perf_counter()
    models = [RPIM(10, n_members=n_members, random_state=seed).fit(X, y) for seed in seeds]
    seconds.append((perf_counter() - start) / len(seeds))
    found = [gcd_accuracy(truth[~labelled], model.labels_[~labelled], known=range(5)).all for model in models]
    accuracies.append([100 * one for one in found])

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.6), layout="constrained")
for n_members, points in zip(sizes, accuracies, strict=True):
    left.plot([n_members] * len(points), points, "o", color="#999999", alpha=0.7)
left.plot(sizes, np.mean(accuracies, axis=1), "-", color="#0072b2")
left.set(xscale="log", xlabel="members", ylabel="All (%)", title="accuracy")
right.plot(sizes, seconds, "o-", color="#d55e00")
right.set(xscale="log", xlabel="members", ylabel="seconds per fit", title="cost", ylim=(0, None))
for axis in (left, right):
    axis.set_xticks(sizes, [str(n) for n in sizes])
    axis.minorticks_off()
plt.show()
