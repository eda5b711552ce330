"""
Classes that come later
=======================

`extend` learns from new rows without the old ones. Existing classes keep their names. Rows that fit none of them form
new classes. Here two digits arrive after the first fit.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from rpim import RPIM

X, truth = load_digits(return_X_y=True)
late = (truth >= 8) | (np.random.RandomState(1).rand(len(truth)) < 0.2)  # 8 and 9, and a fifth of the others
labelled = ~late & (truth < 5) & (np.random.RandomState(0).rand(len(truth)) < 0.5)
y = np.where(labelled, truth, -1)

model = RPIM(n_classes=8, n_members=8, random_state=0).fit(X[~late], y[~late])
before = model.classes_.tolist()
model.extend(X[late])
print(f"{len(before)} classes before, {len(model.classes_)} after.")

# %%
# The late rows: true digit against class. Classes to the right of the line were added, and digits below it are new.

counts = np.array([[((truth[late] == d) & (model.labels_ == c)).sum() for c in model.classes_] for d in range(10)])
figure, axis = plt.subplots(figsize=(6, 4.4), layout="constrained")
axis.imshow(np.sqrt(counts), cmap="Blues")
for i, j in np.argwhere(counts):
    axis.text(j, i, counts[i, j], ha="center", va="center", fontsize=8, color="k" if counts[i, j] < 90 else "w")
axis.axvline(len(before) - 0.5, color="#d55e00", lw=2)
axis.axhline(7.5, color="#d55e00", lw=2)
axis.set(yticks=range(10), xticks=range(len(model.classes_)), xticklabels=model.classes_)
axis.set(xlabel="class after extend", ylabel="true digit (8 and 9 are new)")
plt.show()
