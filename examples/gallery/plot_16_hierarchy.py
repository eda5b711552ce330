"""
The tree of the classes
=======================

`Discovery.hierarchy` builds a tree: similar classes, and classes that the model confuses, are merged first. Here there
are more classes than digits, so that some digits are cut into parts. The tree joins them.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from scipy.cluster.hierarchy import dendrogram
from sklearn.datasets import load_digits

from rpim import RPIM, Discovery, FeatureSet

warnings.simplefilter("ignore", UserWarning)  # some classes are unstable: there are too many
X, truth = load_digits(return_X_y=True)
y = np.where((truth < 5) & (np.random.RandomState(0).rand(len(truth)) < 0.5), truth, -1)
model = RPIM(14, n_members=4, random_state=0).fit(X, y)
discovery = Discovery.from_fit(model, FeatureSet.from_arrays(X, labels=y))
tree = discovery.hierarchy()

# %%
# Known classes have the name of their digit. A new class is shown with the digit of most of its rows, which the report
# shows to a user.

digit = {name: int(np.bincount(truth[discovery.labels == name]).argmax()) for name in tree.classes}
leaves = [str(name) if known else f"new ({digit[name]})" for name, known in zip(tree.classes, tree.known, strict=True)]
size = dict.fromkeys(range(len(leaves)), 1)
for node, (a, b) in enumerate(tree.merges, start=len(leaves)):
    size[node] = size[a] + size[b]
merges = zip(tree.merges, tree.heights, strict=True)
linkage = [[a, b, height, size[len(leaves) + i]] for i, ((a, b), height) in enumerate(merges)]

figure, axis = plt.subplots(figsize=(7, 4), layout="constrained")
dendrogram(np.array(linkage, dtype=float), labels=leaves, orientation="left", color_threshold=0, ax=axis)
axis.set_xlabel("distance of two groups")
plt.show()

# %%
# A cut into ten groups. ``rpim export RUN --hierarchy tree.json`` (or .nwk) writes the whole tree, and the explorer
# merges the classes of a group.

for group in tree.cut(10):
    print([leaves[tree.classes.index(name)] for name in group.classes])
