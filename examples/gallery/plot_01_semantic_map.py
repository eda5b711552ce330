"""
Before and after: a map of the rows
===================================

Left, the input: embeddings, some of them labelled. Right, the output: a class for every row, and embeddings refined by
the learned transformation h. Both maps are the first two principal components.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from rpim import RPIM, gcd_accuracy

X, truth = load_digits(n_class=6, return_X_y=True)
labelled = (truth < 4) & (np.random.RandomState(0).rand(len(truth)) < 0.3)
y = np.where(labelled, truth, -1)  # 30 % of 0 to 3 are labelled; 4 and 5 are new

model = RPIM(n_classes=6, n_members=8, random_state=0).fit(X, y)
accuracy = gcd_accuracy(truth[~labelled], model.labels_[~labelled], known=range(4))

# %%
# `transform` gives the refined embeddings. A filled disc is a known class, a ring is a new one.

colours = plt.get_cmap("tab10").colors
unit = X / np.linalg.norm(X, axis=1, keepdims=True)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4.2), layout="constrained")
before = PCA(2).fit_transform(unit)
left.scatter(*before[~labelled].T, s=8, color="#bbbbbb", label="unlabelled")
for name in model.known_classes_:
    left.scatter(*before[y == name].T, s=12, color=colours[name], label=name)
left.set_title(f"Before: {labelled.sum()} of {len(y)} rows labelled")

after = PCA(2).fit_transform(model.transform(X))
for name in model.classes_:
    new = name in model.new_classes_
    face = "none" if new else colours[name]
    rows = after[model.labels_ == name].T
    right.scatter(*rows, s=12, facecolors=face, edgecolors=[colours[name]], label=f"{name} (new)" if new else name)
right.set_title(f"After: {accuracy.all:.0%} of the unlabelled rows correct")
for axis in (left, right):
    axis.set(xticks=[], yticks=[])
    axis.legend(fontsize="small", loc="best", framealpha=0.8)
plt.show()
