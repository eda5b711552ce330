"""
On Ray
======

You have more rows than fit on one machine, or several machines. Within `on_ray`, each worker has a shard of the rows.
Workers exchange only sums over rows, so the result is that of one process. Here Ray runs on this machine with one
worker. Install the extra `ray`.

The same in the terminal::

    rpim discover rows/ --labels labels.npy --n-classes 12 --ray --workers 1 -o run
    rpim discover rows/ --labels labels.npy --n-classes 12 --ray 10.0.0.1:6379 -o run

"""

# %%
# The rows
# --------
# Twelve classes, of which six are known. The rows are in files, which the workers read themselves. On a cluster all
# machines must see the files under the same path.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from rpim import RPIM, RowFiles, gcd_accuracy, on_ray

X, truth = make_blobs(2000, n_features=24, centers=12, cluster_std=4.0, random_state=0)
labelled = (truth < 6) & (np.random.RandomState(0).rand(len(truth)) < 0.3)
y = np.where(labelled, truth, -1)

folder = Path(tempfile.mkdtemp())
for number, part in enumerate(np.array_split(X.astype(np.float32), 3)):
    np.save(folder / f"part-{number:05}.npy", part)

# %%
# Fit on Ray
# ----------
# `on_ray` starts Ray, or connects to a cluster by its address. At the end of the block it stops Ray, or disconnects.
# `spread` takes `RowFiles` or an array. The members of the committee run as tasks, and the distilled head is trained on
# all shards together.

import time

model = RPIM(n_classes=12, n_members=4, random_state=0)
began_on_ray = time.perf_counter()
with on_ray(workers=1) as spread:
    started = time.perf_counter()
    model.fit(spread(RowFiles(folder)), y)
    fitted = time.perf_counter()
print(f"Ray started in {started - began_on_ray:.0f} s, fitted in {fitted - started:.0f} s")
print(gcd_accuracy(truth[~labelled], model.labels_[~labelled], known=range(6)))

# %%
# The same fit in this process
# ----------------------------
# With one worker the numbers are the same. Several workers sum the rows in another order, so their results agree up to
# rounding.

began = time.perf_counter()
here = RPIM(n_classes=12, n_members=4, random_state=0).fit(X.astype(np.float32), y)
alone = time.perf_counter() - began
difference = np.abs(model.predict_proba(X) - here.predict_proba(X)).max()
print(f"the same class for {np.mean(model.labels_ == here.labels_):.1%} of the rows")
print(f"largest difference of a probability: {difference:.1e}")

# %%
# When does it pay off?
# ---------------------
# Not if the rows fit into the memory of one machine: here, starting Ray, and torch in every worker, takes longer than
# the fit. :doc:`/scale` says which engine to use when, with measurements, and what happens if a worker or a machine is
# lost.

figure, axis = plt.subplots(figsize=(6.5, 2.2), layout="constrained")
axis.barh(["on Ray", "in this process"], [started - began_on_ray, 0], color="#bbbbbb", label="start Ray")
axis.barh(["on Ray", "in this process"], [fitted - started, alone], left=[started - began_on_ray, 0], label="fit")
axis.set(xlabel="seconds")
axis.legend()
plt.show()
