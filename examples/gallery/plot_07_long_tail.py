"""
Classes of different sizes
==========================

The objective prefers classes of equal size. With a long tail this assumption splits large classes. By default
(`class_sizes="auto"`) a committee assumes equal sizes only as far as its members find them equal.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from rpim import RPIM, InfoMaxObjective, gcd_accuracy

sizes = [400, 320, 240, 160, 100, 60, 40, 30]
X, truth = make_blobs(sizes, n_features=16, cluster_std=4.0, random_state=3)
known = [0, 2, 4, 6]
labelled = np.isin(truth, known) & (np.random.RandomState(0).rand(len(truth)) < 0.5)
y = np.where(labelled, truth, -1)

figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), layout="constrained", sharey=True)
for axis, assumption in zip(axes, ["equal", "estimated", "auto"], strict=True):
    objective = InfoMaxObjective(class_sizes=assumption)
    model = RPIM(8, n_members=4, objective=objective, random_state=0).fit(X, y)
    accuracy = gcd_accuracy(truth[~labelled], model.labels_[~labelled], known=known)
    found = sorted(((model.labels_ == name).sum() for name in model.classes_), reverse=True)
    axis.bar(range(8), sizes, color="#cccccc", label="true sizes")
    axis.plot(range(8), found, "o-", color="#0072b2", label="found sizes")
    used = "" if assumption != "auto" else f' = "{model.class_sizes_}"'
    axis.set_title(f'"{assumption}"{used}: All {accuracy.all:.0%}', fontsize="medium")
    axis.set_xlabel("class, by size")
axes[0].set_ylabel("rows")
axes[0].legend()
plt.show()
