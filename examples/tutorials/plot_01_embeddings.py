"""
Embeddings and scikit-learn
===========================

You have an array of embeddings and some labels. We discover digits that have no labels, check how reliable the result
is, and save it.
"""

# %%
# The data
# --------
# The rows are the 64 pixels of handwritten digits. Digits 0 to 4 are known: half of their rows have a label. No row of
# 5 to 9 has one. An unlabelled row has the label -1, None, NaN or "".

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

digits = load_digits()
X, truth = digits.data, digits.target
labelled = (truth < 5) & (np.random.RandomState(0).rand(len(truth)) < 0.5)
y = np.where(labelled, truth, -1)
print(len(X), "rows,", labelled.sum(), "labelled")

# %%
# The fit
# -------
# `n_classes` counts known and new classes together. Without it the number is estimated; see the last section.

from rpim import RPIM

model = RPIM(n_classes=10, random_state=0).fit(X, y)
print("known:", model.known_classes_, "new:", model.new_classes_)

# %%
# `labels_` has a class for every row. Labelled rows keep their label. New classes have the next free integers; with
# string labels they are called new-1, new-2 and so on. Their most typical rows show what they are:

figure, axes = plt.subplots(5, 10, figsize=(7, 3.8), layout="constrained")
confidence = model.predict_proba(X).max(axis=1)
for line, name in zip(axes, model.new_classes_, strict=True):
    typical = np.flatnonzero(model.labels_ == name)
    typical = typical[np.argsort(-confidence[typical])][:10]
    for axis, row in zip(line, typical, strict=True):
        axis.imshow(digits.images[row], cmap="gray_r")
        axis.set(xticks=[], yticks=[])
    line[0].set_ylabel(f"class {name}", rotation=0, ha="right", va="center")
plt.show()

# %%
# How reliable is it?
# -------------------
# Four numbers need no true classes: the accuracy to expect on known classes, the stability of each class, the
# confidence of each row, and the labels that are probably wrong.

print(f"expected accuracy on known classes: {model.expected_accuracy_:.1%}")
for name, stability in zip(model.classes_, model.stability_, strict=True):
    rows = model.labels_ == name
    print(f"class {name}: {rows.sum():4} rows, confidence {confidence[rows].mean():.0%}, stability {stability:.0%}")
print("labels that are probably wrong:", len(model.label_issues_))

# %%
# If the stability of a class is below 60 %, the members of the committee disagree about it: inspect its rows.
#
# Here the truth is known, so the result can be scored. GCD accuracy matches found with true classes once, and counts
# the unlabelled rows:

from rpim import gcd_accuracy

print(gcd_accuracy(truth[~labelled], model.labels_[~labelled], known=range(5)))

# %%
# New rows, and scikit-learn
# --------------------------
# `RPIM` is a classifier: it predicts rows that it has not seen, and works in pipelines and with `clone`. In model
# selection use `gcd_scorer`, which matches discovered classes with labels that the fit did not see.

from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from rpim import gcd_scorer

half = np.arange(len(X)) % 2 == 0
pipeline = make_pipeline(PCA(40, random_state=0), RPIM(n_classes=10, n_members=4, random_state=0))
pipeline.fit(X[half], y[half])
print(f"accuracy on unseen rows: {gcd_scorer(pipeline, X[~half], truth[~half]):.1%}")

# %%
# Save and load
# -------------
# A `Discovery` is the result with its rows, ids and provenance. A run folder holds safetensors, JSON and Parquet.

import tempfile

from rpim import Discovery, FeatureSet

features = FeatureSet.from_arrays(X, labels=y)
discovery = Discovery.from_fit(model, features)
with tempfile.TemporaryDirectory() as folder:
    discovery.save(f"{folder}/run")
    again = Discovery.load(f"{folder}/run")
print(again)

# %%
# The number of classes
# ---------------------
# `estimate_n_classes` gives an estimate with a 95 % interval. The digits are well separated, so the interval is narrow.

from rpim import estimate_n_classes

count = estimate_n_classes(X, y, random_state=0)
print(f"{count.n_classes} classes, between {count.low} and {count.high}")
