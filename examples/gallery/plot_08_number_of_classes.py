"""
How many classes are there?
===========================

`estimate_n_classes` uses the share of labelled rows among the neighbors of labelled rows, and gives a 95 % interval.
Here the true number varies, and half of the classes are known.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from rpim import estimate_n_classes

numbers = [10, 20, 30, 40, 60]
counts = []
for n in numbers:
    X, truth = make_blobs(60 * n, n_features=32, centers=n, cluster_std=2.0, random_state=n)
    labelled = (truth < n // 2) & (np.random.RandomState(0).rand(len(truth)) < 0.5)
    counts.append(estimate_n_classes(X, np.where(labelled, truth, -1), random_state=0))

# %%
# It assumes that new classes are, on average, as large as known ones, as they are here.

figure, axis = plt.subplots(figsize=(5, 4.2), layout="constrained")
middle = np.array([count.n_classes for count in counts])
low, high = (np.array([getattr(count, name) for count in counts]) for name in ("low", "high"))
axis.plot([0, 70], [0, 70], ":", color="k", label="true number")
interval = [middle - low, high - middle]
axis.errorbar(numbers, middle, yerr=interval, fmt="o", color="#0072b2", capsize=4, label="estimate")
axis.plot(numbers, [n // 2 for n in numbers], "x", color="#999999", label="known classes")
axis.set(xlabel="true number of classes", ylabel="estimated number of classes")
axis.legend()
plt.show()
