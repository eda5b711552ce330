"""
Is the confidence right?
========================

Of the rows with a confidence of 80 %, eight in ten should be correct. A single fit is overconfident, above all if
classes overlap, as on the right, where noise was added to the digits. The members of a committee disagree about
doubtful rows, so the confidence of a committee is lower there. :doc:`/results` has the calibration on real embeddings.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_digits

from rpim import RPIM, expected_calibration_error


def right_rows(truth, found):
    """Whether each row is in the class that is matched with its true one."""
    counts = np.zeros((10, 10), dtype=int)
    np.add.at(counts, (truth, found), 1)
    return linear_sum_assignment(counts, maximize=True)[1][truth] == found


figure, axes = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained", sharey=True)
digits, truth = load_digits(return_X_y=True)
noise = np.random.RandomState(0).randn(*digits.shape)
for axis, X in zip(axes, [digits, digits + 4 * noise], strict=True):
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
        axis.plot(*np.transpose(means), "o-", color=colour, label=f"{name}: ECE {error:.2f}, All {right.mean():.0%}")
    axis.set(xlabel="confidence", xlim=(0, 1.02), ylim=(0, 1.02))
    axis.legend(fontsize="small", loc="upper left")
axes[0].set(ylabel="share of correct rows", title="handwritten digits")
axes[1].set(title="digits with noise")
plt.show()
