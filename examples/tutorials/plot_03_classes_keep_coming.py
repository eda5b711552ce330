"""
Classes that keep coming
========================

Rows arrive in batches, and some batches bring classes that the model has not seen. `extend` adds these classes. It
does not need the rows of earlier batches: the model keeps a few exemplars of each class.
"""

# %%
# The stream
# ----------
# The first batch has eight of twelve classes, five of them with labels. Each later batch has rows of all classes so
# far, and two more classes.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from rpim import RPIM, gcd_accuracy

X, truth = make_blobs(2400, n_features=32, centers=12, cluster_std=3.0, random_state=0)
batch = np.random.RandomState(0).randint(0, 3, len(truth))
batch[(truth >= 8) & (batch == 0)] = 1
batch[(truth >= 10) & (batch == 1)] = 2
first = batch == 0
labelled = first & (truth < 5) & (np.random.RandomState(1).rand(len(truth)) < 0.5)
y = np.where(labelled, truth, -1)

# %%
# Fit, then extend
# ----------------
# A model that only predicts assigns the rows of a new class to old classes. `extend` estimates how many classes the
# unfamiliar rows form, and adds them. Names of existing classes do not change.

model = RPIM(n_classes=8, random_state=0).fit(X[first], y[first])
frozen = RPIM(n_classes=8, random_state=0).fit(X[first], y[first])
history = [("fit", len(model.classes_), 8, np.nan, np.nan)]
for number in (1, 2):
    rows = batch == number
    model.extend(X[rows])
    extended = gcd_accuracy(truth[rows], model.labels_, known=range(5)).all
    predicted = gcd_accuracy(truth[rows], frozen.predict(X[rows]), known=range(5)).all
    history.append((f"batch {number}", len(model.classes_), 8 + 2 * number, extended, predicted))
    print(f"batch {number}: {len(model.classes_)} classes, All {extended:.1%} (without extending {predicted:.1%})")

# %%
names, found, there, extended, predicted = zip(*history, strict=True)
figure, (left, right) = plt.subplots(1, 2, figsize=(8.5, 3.4), layout="constrained")
left.plot(names, there, "o:", color="k", label="true classes so far")
left.plot(names, found, "o-", color="#0072b2", label="classes of the model")
left.set(title="classes", ylim=(0, 14))
left.legend(loc="lower right")
right.plot(names[1:], [100 * a for a in extended[1:]], "o-", color="#0072b2", label="extend")
right.plot(names[1:], [100 * a for a in predicted[1:]], "o-", color="#d55e00", label="predict with the first model")
right.set(title="accuracy on the batch (%)", ylim=(0, 104))
right.legend(loc="lower right")
plt.show()

# %%
# Labels may come later as well
# -----------------------------
# `extend` takes labels: the name of an existing class, or a new name. A new name for rows that are mostly in one
# discovered class renames that class. After `extend`, confidence is too high and stability is unknown, because the head
# is trained without a committee: refit on all rows from time to time. In the terminal: ``rpim extend RUN NEW -o RUN2``.

more, more_truth = make_blobs(300, n_features=32, centers=12, cluster_std=3.0, random_state=0)
name = model.predict(more)[more_truth == 11][0]
given = np.where((more_truth == 11) & (np.arange(300) % 2 == 0), name, -1)
model.extend(more, given)
print("class", name, "is now known:", name in model.known_classes_)
