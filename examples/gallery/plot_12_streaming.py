"""
Rows on disk
============

With `RowFiles` the rows stay in their files. The committee is trained on a sample that fits into the memory budget, and
its head on all rows, block by block. Here the budget is too small for all rows.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from rpim import RPIM, RowFiles, gcd_accuracy

X, truth = make_blobs(6000, n_features=32, centers=12, cluster_std=7.0, random_state=0)
X = X.astype(np.float32)
labelled = (truth < 6) & (np.random.RandomState(0).rand(len(truth)) < 0.3)
y = np.where(labelled, truth, -1)

fits = {"in memory": RPIM(12, n_members=2, random_state=0).fit(X, y)}
with tempfile.TemporaryDirectory() as folder:
    for number, part in enumerate(np.array_split(X, 4)):
        np.save(Path(folder) / f"part-{number:05}.npy", part)
    for memory in ("145MB", "147MB", "150MB"):
        rows = RowFiles(folder, memory=memory)  # one matrix, in the order of the files' names
        fits[f"on disk, {memory}"] = RPIM(12, n_members=2, random_state=0).fit(rows, y)

# %%
# `sample_rows_` is the number of rows that were held in memory.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3), layout="constrained", sharey=True)
held = left.barh(list(fits), [model.sample_rows_ for model in fits.values()], color="#999999")
left.bar_label(held, fmt="{:,.0f}", padding=2)
left.set(title=f"rows in memory, of {len(X):,}", xlim=(0, 7400))
scores = [gcd_accuracy(truth[~labelled], model.labels_[~labelled], known=range(6)).all for model in fits.values()]
bars = right.barh(list(fits), [100 * score for score in scores], color="#0072b2")
right.bar_label(bars, fmt="%.1f", padding=2)
right.set(title="accuracy on the unlabelled rows (%)", xlim=(0, 112))
left.invert_yaxis()
plt.show()
