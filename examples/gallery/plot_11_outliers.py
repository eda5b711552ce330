"""
Rows that belong to no class
============================

`outlier_scores` are large for rows that fit no class. `abstain` leaves a share of the unlabelled rows without a class:
those with the largest scores.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from rpim import RPIM

X, truth = make_blobs(600, n_features=16, centers=6, cluster_std=1.5, random_state=0)
junk = np.random.RandomState(1).randn(40, 16) * 6
rows = np.vstack([X, junk])
y = np.array([f"class {c}" if c < 4 and i % 2 else "" for i, c in enumerate(truth)] + [""] * len(junk))

model = RPIM(n_classes=6, n_members=4, abstain=0.08, random_state=0).fit(rows, y)
left_out = model.labels_ == ""
print(f"{left_out.sum()} rows have no class, {left_out[600:].sum()} of them junk.")

# %%
scores = model.outlier_scores(rows)
figure, axis = plt.subplots(figsize=(7, 3.4), layout="constrained")
limits = (scores.min(), scores.max())
axis.hist(scores[:600], bins=40, range=limits, color="#0072b2", label="rows of six classes")
axis.hist(scores[600:], bins=40, range=limits, color="#d55e00", label="junk", alpha=0.8)
axis.axvline(model.outlier_threshold_, ls="--", color="k", label="threshold of abstain=0.08")
axis.set(xlabel="outlier score", ylabel="rows")
axis.legend()
plt.show()
