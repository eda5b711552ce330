"""
How many labels are needed?
===========================

Five digits have a few labelled rows each. Known classes need few labels. New classes have none, and gain less from more
labels of known classes. :doc:`/labels-needed` has the curves on real embeddings.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from rpim import RPIM, gcd_accuracy

warnings.simplefilter("ignore", UserWarning)  # with few labels, small committees warn about unstable classes
X, truth = load_digits(return_X_y=True)
numbers, results = [2, 5, 10, 20, 50], []
for n_labels in numbers:
    y = np.full(len(truth), -1)
    for digit in range(5):
        rows = np.random.RandomState(digit).permutation(np.flatnonzero(truth == digit))[:n_labels]
        y[rows] = digit
    model = RPIM(10, n_members=4, random_state=0).fit(X, y)
    accuracy = gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(5))
    results.append([accuracy.known, accuracy.unknown, model.expected_accuracy_])

# %%
# `expected_accuracy_` needs no truth: it is the accuracy of members on labels that they did not see.

known, unknown, expected = 100 * np.transpose(results)
figure, axis = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
axis.plot(numbers, known, "o-", color="#0072b2", label="Known")
axis.plot(numbers, expected, "x:", color="#0072b2", label="Known, as expected_accuracy_ estimates it")
axis.plot(numbers, unknown, "o-", color="#e69f00", label="Unknown")
axis.set(xscale="log", xlabel="labelled rows per known class", ylabel="accuracy (%)")
axis.set_xticks(numbers, [str(n) for n in numbers])
axis.minorticks_off()
axis.legend()
plt.show()
