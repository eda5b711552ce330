"""
Find wrong labels
=================

Some of your labels may be wrong. Every label is predicted by members of the committee that did not see it, and labels
that they contradict are listed. We plant errors, find them, correct them, and refit.
"""

# %%
# Plant errors
# ------------
# Of the labelled digits 0 to 4, one label in twelve is wrong.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from rpim import RPIM, gcd_accuracy

digits = load_digits()
X, truth, random = digits.data, digits.target, np.random.RandomState(0)
y = np.where((truth < 5) & (random.rand(len(truth)) < 0.4), truth, -1)
given = np.flatnonzero(y >= 0)
wrong = random.choice(given, size=len(given) // 12, replace=False)
y[wrong] = (y[wrong] + random.randint(1, 5, len(wrong))) % 5
print(len(given), "labels,", len(wrong), "wrong")

# %%
# Find them
# ---------
# An issue has the row number, the label, the class that the members suggest, and the probability of both.

model = RPIM(n_classes=10, random_state=0).fit(X, y)
for issue in model.label_issues_[:5]:
    print(f"row {issue.row}: label {issue.label} ({issue.label_quality:.1%}), suggested {issue.suggested}")
reported = np.array([issue.row for issue in model.label_issues_])
found = np.isin(wrong, reported).sum()
print(f"{len(reported)} reported; {found} of the {len(wrong)} wrong labels are among them.")

# %%
# To check more labels than the list has, sort all labels by `label_quality_`, lowest first. The curve shows the share
# of the wrong labels found after each number of labels read.

order = given[np.argsort(model.label_quality_[given])]
seen = np.cumsum(np.isin(order, wrong)) / len(wrong)
figure, axis = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
axis.plot(np.arange(1, len(order) + 1), 100 * seen, color="#0072b2", label="by label quality")
axis.plot([0, len(order)], [0, 100], ":", color="k", label="in random order")
axis.axvline(len(reported), color="#d55e00", ls="--", label="length of label_issues_")
axis.set(xlabel="labels read", ylabel="wrong labels found (%)")
axis.legend()
plt.show()

# %%
# Correct and refit
# -----------------
# If the suggestion is a new class, the row belongs to no known class, so we make it unlabelled. Read the rows before
# you accept suggestions; here we accept all. In the terminal: ``rpim classes RUN --label-issues``, then
# ``rpim classes RUN --accept ID``.

corrected = y.copy()
for issue in model.label_issues_:
    corrected[issue.row] = issue.suggested if issue.suggested in model.known_classes_ else -1
refit = RPIM(n_classes=10, random_state=0).fit(X, corrected)
hidden = ~np.isin(np.arange(len(X)), given)
for name, one in [("with wrong labels", model), ("corrected", refit)]:
    print(f"{name}: {gcd_accuracy(truth[hidden], one.labels_[hidden], known=range(5))}")
print("wrong labels left:", int((corrected[given] != truth[given]).sum() - (corrected[given] == -1).sum()))

# %%
# Here the correction helps known classes only. Some wrong labels are left: not all were reported, and accepting all
# suggestions also changed some correct labels.
