"""
Is the confidence right?
========================

A row with a confidence of 80 % should be right eight times in ten. A single fit is too confident. In a committee,
members disagree about doubtful rows, and the average says so; it can also be too cautious, as on the right, where the
classes are round clouds of noise. :doc:`/results` has the calibration on real embeddings.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits, make_blobs

from rpim import RPIM, expected_calibration_error


def right_rows(truth, found):
    """Whether each row is in the class that is matched with its true one."""
    counts = np.zeros((10, 10), dtype=int)
    np.add.at(counts, (truth, found), 1)
    return linear_sum_assignment(counts, maximize=True)[1][truth] == found


figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained", sharey=True)
blobs = make_blobs(1500, n_features=64, centers=10, cluster_std=14.0, random_state=0)
for axis, (X, truth) in zip(axes, [load_digits(return_X_y=True), blobs], strict=True):
    labelled = (truth < 5) & (np.random.RandomState(0).rand(len(truth)) < 0.5)
    axis.plot([0, 1], [0, 1], ":", color="k", label="perfectly calibrated")
    for n_members, colour, name in [(1, "#d55e00", "single fit"), (16, "#0072b2", "committee of 16")]:
        model = RPIM(10, n_members=n_members, random_state=0).fit(X, np.where(labelled, truth, -1))
        confidence = model.predict_proba(X).max(axis=1)[~labelled]
        right = right_rows(truth, model.predict(X))[~labelled]
        error = expected_calibration_error(confidence, right)
        bins = np.minimum((confidence * 10).astype(int), 9)
        filled = [b for b in range(10) if (bins == b).sum() >= 15]
        means = [(confidence[bins == b].mean(), right[bins == b].mean()) for b in filled]
        axis.plot(*np.transpose(means), "o-", color=colour, label=f"{name}: ECE {error:.2f}, {right.mean():.0%} right")
    axis.set(xlabel="confidence", xlim=(0, 1.02), ylim=(0, 1.02))
    axis.legend(fontsize="small", loc="upper left")
axes[0].set(ylabel="share of right rows", title="handwritten digits")
axes[1].set(title="blobs in 64 dimensions")
plt.show()
