"""
The terms of the objective during training
==========================================

`history_` has every term of the objective at each step. M falls towards -log K as all K classes are used, C falls as
predictions become confident, and the share of rows with a confident pseudo-label rises.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from rpim import RPIM

X, truth = load_digits(return_X_y=True)
labelled = (truth < 5) & (np.random.RandomState(0).rand(len(truth)) < 0.5)
model = RPIM(10, n_members=1, random_state=0).fit(X, np.where(labelled, truth, -1))

curves = {name: [step[name] for step in model.history_] for name in ("M", "C", "L_S", "confident")}
titles = {
    "M": "M: marginal entropy, negative",
    "C": "C: conditional entropy",
    "L_S": "L_S: cross-entropy with mixed labels",
    "confident": "share of confident rows",
}
figure, axes = plt.subplots(2, 2, figsize=(8, 5), layout="constrained", sharex=True)
for axis, (name, values) in zip(axes.flat, curves.items(), strict=True):
    axis.plot(values, color="#0072b2")
    axis.set_title(titles[name], fontsize="medium")
axes[0, 0].axhline(-np.log(10), ls=":", color="k", lw=1)
axes[0, 0].text(len(model.history_) - 1, -np.log(10), "-log K", va="bottom", ha="right")
for axis in axes[1]:
    axis.set_xlabel("step")
plt.show()
