"""
All classes are known
=====================

You know all classes and only want to label the other rows. With `n_classes` equal to the number of known classes, no
new classes are sought: every row gets one of the given labels, with a confidence, and wrong labels are found.

The same in the terminal, where 10 is the number of classes in the labels::

    rpim discover digits.npz --n-classes 10 -o run

"""

# %%
# Few labels of every class
# -------------------------
# Each of the ten digits has five labelled rows.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

X, truth = load_digits(return_X_y=True)
random = np.random.RandomState(0)
y = np.full(len(X), -1)
for digit in range(10):
    y[random.permutation(np.flatnonzero(truth == digit))[:5]] = digit
hidden = y < 0
print((~hidden).sum(), "of", len(y), "rows are labelled")

# %%
# Fit
# ---

from rpim import RPIM

model = RPIM(n_classes=10, random_state=0).fit(X, y)
print("known:", model.known_classes_, "new:", model.new_classes_)
print(f"correct: {np.mean(model.labels_[hidden] == truth[hidden]):.1%} of the unlabelled rows")
print(f"expected from held-out labels: {model.expected_accuracy_:.1%}")

# %%
# Compare with scikit-learn
# -------------------------
# All classes are known, so plain accuracy can be computed, and scikit-learn's methods apply. On the digits, label
# spreading is better: it follows chains of similar rows. Compare on your own data.

from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier

others = {
    "LogisticRegression on the labelled rows": LogisticRegression(max_iter=2000).fit(X[~hidden], y[~hidden]),
    "SelfTrainingClassifier": SelfTrainingClassifier(LogisticRegression(max_iter=2000)).fit(X, y),
    "LabelSpreading": LabelSpreading(kernel="knn", n_neighbors=15).fit(X, y),
}
for name, other in others.items():
    print(f"{name}: {np.mean(other.predict(X[hidden]) == truth[hidden]):.1%}")

# %%
# Use the confidence
# ------------------
# Accept rows above a confidence, and have a person label the others. The curves show the accuracy on the accepted rows.

figure, axis = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
share = np.arange(1, hidden.sum() + 1) / hidden.sum()
for name, one in {"RPIM": model, **others}.items():
    probabilities = one.predict_proba(X[hidden])
    right = one.classes_[probabilities.argmax(axis=1)] == truth[hidden]
    order = np.argsort(-probabilities.max(axis=1), kind="stable")
    accuracy = 100 * np.cumsum(right[order]) / np.arange(1, len(order) + 1)
    axis.plot(100 * share[50:], accuracy[50:], label=name)
axis.set(xlabel="rows accepted, most confident first (%)", ylabel="correct among them (%)")
axis.legend(loc="lower left")
plt.show()

# %%
# What if a class has no labels?
# ------------------------------
# Then its rows get one of the given labels, too. If you are not sure, leave `n_classes` out, so that the number of
# classes is estimated (:doc:`plot_01_embeddings`). Outlier scores help too: `abstain=0.05` leaves the 5 % of the rows
# with the largest scores without a class.

careful = RPIM(n_classes=10, abstain=0.05, random_state=0).fit(X, y)
given = hidden & (careful.labels_ != -1)
print(f"correct: {np.mean(careful.labels_[given] == truth[given]):.1%} of {given.sum()} rows")
