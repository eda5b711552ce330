"""
Find wrong labels
=================

Every label is predicted by members of the committee that did not see it. `label_issues_` lists those that are probably
wrong. Here a twentieth of the labels are wrong on purpose.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from rpim import RPIM

digits = load_digits()
truth, random = digits.target, np.random.RandomState(0)
y = np.where((truth < 5) & (random.rand(len(truth)) < 0.6), truth, -1)
wrong = random.choice(np.flatnonzero(y >= 0), size=int(0.05 * (y >= 0).sum()), replace=False)
y[wrong] = (y[wrong] + random.randint(1, 5, len(wrong))) % 5

model = RPIM(10, n_members=8, random_state=0).fit(digits.data, y)
reported = [issue.row for issue in model.label_issues_]
hits = len(set(reported) & set(wrong.tolist()))
print(f"{len(wrong)} labels are wrong; {len(reported)} were reported, {hits} of these are wrong.")

# %%
# The most suspect rows, with the label given and the class suggested.

figure, axes = plt.subplots(2, 6, figsize=(9, 3.6), layout="constrained")
for axis, issue in zip(axes.flat, model.label_issues_, strict=False):
    axis.imshow(digits.images[issue.row], cmap="gray_r")
    axis.set_title(f"label {issue.label}\nsuggested {issue.suggested}", fontsize="small")
for axis in axes.flat:
    axis.set_axis_off()
plt.show()

# %%
# `label_quality_` is the probability of each label by the members that did not see it.

figure, axis = plt.subplots(figsize=(7, 3), layout="constrained")
good = np.setdiff1d(np.flatnonzero(y >= 0), wrong)
axis.hist(model.label_quality_[good], bins=30, range=(0, 1), color="#0072b2", label="right labels")
axis.hist(model.label_quality_[wrong], bins=30, range=(0, 1), color="#d55e00", label="wrong labels")
axis.set(xlabel="label quality", ylabel="labels", yscale="log")
axis.legend()
plt.show()
