"""
Time against rows
=================

The time of a fit grows at most linearly with the rows. A committee takes longer than its members, because it also
compares their votes and the neighbors of each row. Members see at most 50,000 rows, or 100 per class.
"""

from time import perf_counter

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from rpim import GCD, RPIM, KMeans

METHODS = {
    "KMeans": KMeans(20, random_state=0),
    "GCD": GCD(20, random_state=0),
    "RPIM, single fit": RPIM(20, n_members=1, random_state=0),
    "RPIM, 4 members": RPIM(20, n_members=4, random_state=0),
}
numbers = [500, 1000, 2000, 4000]
seconds = {name: [] for name in METHODS}
for n_rows in numbers:
    X, truth = make_blobs(n_rows, n_features=64, centers=20, cluster_std=5.0, random_state=0)
    labelled = (truth < 10) & (np.random.RandomState(0).rand(n_rows) < 0.5)
    for name, model in METHODS.items():
        start = perf_counter()
        model.fit(X, np.where(labelled, truth, -1))
        seconds[name].append(perf_counter() - start)

figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for name, times in seconds.items():
    axis.plot(numbers, times, "o-", label=name)
axis.set(xscale="log", yscale="log", xlabel="rows (64 features, 20 classes)", ylabel="seconds, one core")
axis.set_xticks(numbers, [f"{n:,}" for n in numbers])
axis.minorticks_off()
axis.legend()
plt.show()
