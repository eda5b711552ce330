"""
The transformation h
====================

PIM trains prototypes on the embeddings as they are (`h="none"`). RPIM also learns a transformation h of the embedding;
its default is the semantic bias, x + Bx + b scaled to unit length. The maps show the refined embeddings of four
transformations after single fits.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from rpim import RPIM, InfoMaxObjective, gcd_accuracy

X, truth = load_digits(return_X_y=True)
labelled = (truth < 5) & (np.random.RandomState(0).rand(len(truth)) < 0.5)
y = np.where(labelled, truth, -1)

figure, axes = plt.subplots(2, 2, figsize=(8, 7.4), layout="constrained")
for axis, h in zip(axes.flat, ["none", "semantic-bias", "linear-bias", "mlp"], strict=True):
    model = RPIM(10, n_members=1, objective=InfoMaxObjective(h=h), random_state=0).fit(X, y)
    accuracy = gcd_accuracy(truth[~labelled], model.labels_[~labelled], known=range(5))
    found = PCA(2).fit_transform(model.transform(X))
    points = axis.scatter(*found.T, c=truth, cmap="tab10", s=6)
    axis.set(title=f'h="{h}": All {accuracy.all:.0%}', xticks=[], yticks=[])
figure.colorbar(points, ax=axes, shrink=0.6, ticks=range(10), label="true digit (5 to 9 were never labelled)")
plt.show()
