"""
Confusion of known and new classes
==================================

Methods that do not balance the classes assign rows of new classes to known ones, or vice versa. In a confusion matrix
with the known classes first, these errors are in the two off-diagonal blocks.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits
from sklearn.metrics import confusion_matrix

from rpim import RPIM, SelfTraining

X, truth = load_digits(return_X_y=True)
labelled = (truth < 5) & (np.random.RandomState(0).rand(len(truth)) < 0.5)
y = np.where(labelled, truth, -1)


def matched_counts(found):
    """Count the rows by true and found class, with new classes in the order of the best matching."""
    counts = confusion_matrix(truth[~labelled], found[~labelled], labels=range(10))
    order = np.arange(10)
    order[5:] = 5 + linear_sum_assignment(counts[5:, 5:], maximize=True)[1]
    return counts[:, order]


figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained", sharey=True)
for axis, model in zip(axes, [SelfTraining(10, random_state=0), RPIM(10, random_state=0)], strict=True):
    counts = matched_counts(model.fit(X, y).labels_)
    axis.imshow(np.sqrt(counts), cmap="Blues")
    for i, j in np.argwhere(counts):
        axis.text(j, i, counts[i, j], ha="center", va="center", fontsize=7, color="k" if counts[i, j] < 90 else "w")
    axis.axhline(4.5, color="k", lw=1)
    axis.axvline(4.5, color="k", lw=1)
    wrong_side = counts[:5, 5:].sum() + counts[5:, :5].sum()
    axis.set(title=f"{type(model).__name__}: {wrong_side} known/new errors", xlabel="found (known | new)")
    axis.set(xticks=range(10), yticks=range(10), xticklabels=[*range(5), *(f"new {k}" for k in range(1, 6))])
    axis.tick_params(axis="x", rotation=60)
axes[0].set_ylabel("true digit (known above, new below)")
plt.show()
