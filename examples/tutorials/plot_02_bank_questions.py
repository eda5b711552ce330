"""
Questions to a bank
===================

You have texts, some of them labelled. We embed 120 questions to a bank, recognize five known intents, and discover the
others, with keywords and suggested names. The encoder comes with the extra `text-offline` and needs no network. The
data are in :download:`questions.csv`.

The same in the terminal::

    rpim discover questions.csv --n-classes 8 -o run

"""

# %%
# Embed
# -----
# `read_source` reads a table with the columns `text` and `label`; unlabelled rows have an empty label. `embed` writes
# the embeddings to a file. All other columns are kept as metadata, which no method uses. Here one of them holds the
# true intent, so that we can check the result.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from rpim import FeatureSet, embed, read_source

items = read_source("questions.csv")  # beside this script
with tempfile.TemporaryDirectory() as folder:
    report = embed(items, "all-MiniLM-L6-v2", Path(folder) / "questions.parquet")
    features = FeatureSet.read(Path(folder) / "questions.parquet")
print(features, "in", round(report.seconds), "s")

# %%
# Discover
# --------
# There are eight intents. We give the number, because an estimate from so few rows is rough.

from rpim import RPIM, Discovery

model = RPIM(n_classes=8, random_state=0).fit(features.rows(), features.labels)
discovery = Discovery.from_fit(model, features)
for one in discovery.classes_table():
    if not one.known:
        print(f"{one.name}: {one.rows} rows, stability {one.stability:.0%}, suggested name: {one.suggested_name}")
        print("   keywords:", ", ".join(one.keywords))

# %%
# A suggested name consists of words that distinguish the class from the others. It does not rename the class.
#
# Read the rows
# -------------
# For each new class, the three questions with the highest confidence, and the one with the lowest.

import numpy as np

for name in model.new_classes_:
    rows = np.flatnonzero(discovery.labels == name)
    rows = rows[np.argsort(-discovery.confidence[rows])]
    print(name)
    for row in [*rows[:3], rows[-1]]:
        print(f"  {discovery.confidence[row]:.0%}  {features.texts[row]}")

# %%
# Check
# -----
# Rows: the true intents. Columns: the classes found.

from rpim import gcd_accuracy

truth, hidden = features.columns["intent"].astype(str), ~features.labelled
print(gcd_accuracy(truth[hidden], discovery.labels[hidden], known=model.known_classes_))

intents = [*model.known_classes_, *sorted(set(truth) - set(model.known_classes_))]
counts = np.array([[((truth == t) & (discovery.labels == c)).sum() for c in model.classes_] for t in intents])
figure, axis = plt.subplots(figsize=(6.5, 4.6), layout="constrained")
axis.imshow(counts, cmap="Blues")
for i, j in np.argwhere(counts):
    axis.text(j, i, counts[i, j], ha="center", va="center", color="k" if counts[i, j] < 10 else "w")
axis.set(xticks=range(8), yticks=range(8), xticklabels=model.classes_, yticklabels=intents)
axis.tick_params(axis="x", rotation=40)
axis.set(xlabel="found", ylabel="true intent")
plt.show()

# %%
# Next: `discovery.save("run")`, then `rpim explore run` in the terminal to rename, merge and correct the classes in the
# browser, or `write_report(discovery, "report.html", features=features)` for a page to share.
