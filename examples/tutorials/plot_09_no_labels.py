"""
No labels at all
================

None of your rows is labelled. We find groups, look at them, name those that we recognize, and refit. The second fit is
an ordinary discovery: it has known classes, and finds the others.

The same in the terminal::

    rpim discover digits.npz -o run
    rpim explore run               # rename groups, then refit

"""

# %%
# Find groups
# -----------
# Without labels all classes are new, and their number is estimated. There is no expected accuracy, because it needs
# held-out labels.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from rpim import RPIM, gcd_accuracy

digits = load_digits()
X, truth = digits.data, digits.target
model = RPIM(random_state=0).fit(X)
print(len(model.classes_), "groups; expected accuracy:", model.expected_accuracy_)

# %%
# The estimate counts groups that are reproducible on halves of the rows. It misses classes that are hard to separate,
# so for fine classes it is far too small (:doc:`/results`). If you know the number, give it as `n_classes`.
#
# Look at them
# ------------
# The eight most confident rows of each group, its size, and its stability: how well the members of the committee agree
# about it.

confidence = model.predict_proba(X).max(axis=1)
figure, axes = plt.subplots(len(model.classes_), 8, figsize=(5.5, 0.62 * len(model.classes_)), layout="constrained")
for line, name, stability in zip(axes, model.classes_, model.stability_, strict=True):
    rows = np.flatnonzero(model.labels_ == name)
    for axis, row in zip(line, rows[np.argsort(-confidence[rows])][:8], strict=True):
        axis.imshow(digits.images[row], cmap="gray_r")
        axis.set(xticks=[], yticks=[])
    line[0].set_ylabel(f"group {name} ({len(rows)}), {stability:.0%}", rotation=0, ha="right", va="center")
plt.show()

# %%
# Name what you recognize
# -----------------------
# A stable group is mostly one class. We name it, which labels thirty of its rows at once. An unstable group mixes
# several digits, so we label ten of its rows one by one. A person would look at the images; this script looks up the
# true digits.
#
# Label rows *at random* within a group, not the most typical ones: the estimated number of classes, the expected
# accuracy and the calibration of the confidence assume that the labelled rows of a class are like its other rows.

names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
y = np.full(len(X), "", dtype=object)
random = np.random.RandomState(0)
for group, stability in zip(model.classes_, model.stability_, strict=True):
    rows = random.permutation(np.flatnonzero(model.labels_ == group))
    if stability > 0.9:
        y[rows[:30]] = names[np.bincount(truth[rows[:30]]).argmax()]
    else:
        y[rows[:10]] = names[truth[rows[:10]]]
print({str(name): int((y == name).sum()) for name in np.unique(y) if name})

# %%
# Refit
# -----
# Now some rows are labelled, and we have seen ten digits. The confidence is calibrated on labels that members did not
# see, and there is an expected accuracy. The rows of a stable group got one label together, so some labels are wrong;
# they are listed.

refit = RPIM(n_classes=10, random_state=0).fit(X, y)
print("known:", ", ".join(refit.known_classes_))
print(f"expected accuracy: {refit.expected_accuracy_:.0%}")
print(len(refit.label_issues_), "labels are probably wrong")

# %%
# Here the true digits are known. The accuracy of the groups is that of their best match with digits.

hidden = y == ""
for title, found, known in [("groups", model.labels_, []), ("after naming", refit.labels_, refit.known_classes_)]:
    print(f"{title}: {gcd_accuracy(names[truth[hidden]], found[hidden], known=known).all:.1%} are correct")
print((y != "").sum(), "labels were given, most of them thirty at a time")

# %%
# Why at random?
# --------------
# With labels, the number of classes is estimated from the share of labelled rows among the neighbors of labelled rows.
# Typical rows lie close together, so this share is not that of the class. We label thirty rows of each stable group,
# once at random and once the most typical ones, and estimate:

from rpim import estimate_n_classes

for title, order in [("at random", random.permutation(len(X))), ("the most typical", np.argsort(-confidence))]:
    some = np.full(len(X), -1)
    for group in model.classes_[model.stability_ > 0.9]:
        some[order[model.labels_[order] == group][:30]] = group
    count = estimate_n_classes(X, some, random_state=0)
    print(f"{title}: {count.n_classes} classes, between {count.low} and {count.high}")
