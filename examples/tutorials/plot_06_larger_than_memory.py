"""
More rows than fit into memory
==============================

Your rows are in `.npy` or `.parquet` files that do not fit into memory. With `RowFiles` they stay on disk: fit and
prediction read them in blocks.
"""

# %%
# Files
# -----
# A folder of files is one matrix, in the order of the file names. float16 halves its size. Here it is small.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from rpim import RPIM, Discovery, FeatureSet, Predictor, RowFiles, gcd_accuracy

X, truth = make_blobs(12_000, n_features=32, centers=16, cluster_std=5.0, random_state=0)
labelled = (truth < 8) & (np.random.RandomState(0).rand(len(truth)) < 0.2)
y = np.where(labelled, truth, -1)

folder = Path(tempfile.mkdtemp())
(folder / "rows").mkdir()
for number, part in enumerate(np.array_split(X.astype(np.float16), 6)):
    np.save(folder / "rows" / f"part-{number:05}.npy", part)

rows = RowFiles(folder / "rows", memory="2GB")
print(rows.shape, rows.dtype, "in", len(rows.files), "files")

# %%
# Fit
# ---
# `memory` is the memory budget of the whole fit. The committee is trained on a sample of up to 50,000 rows (or 100 per
# class), and the head on all rows, block by block. `sample_rows_` is the number of rows that were held in memory.

model = RPIM(n_classes=16, n_members=4, random_state=0).fit(rows, y)
print(model.sample_rows_, "rows in memory;", gcd_accuracy(truth[~labelled], model.labels_[~labelled], known=range(8)))

# %%
# In the terminal, ``rpim discover rows/ --labels labels.npy --memory 2GB -o run`` does the same, writes a checkpoint
# while it runs, and resumes after an interruption. ``--ray`` spreads the rows over cores or machines.
#
# Predict a file
# --------------
# `Predictor` only needs the run folder, and reads the new rows in blocks.

features = FeatureSet.from_arrays(rows, labels=y)
Discovery.from_fit(model, features).save(folder / "run")
new, new_truth = make_blobs(3000, n_features=32, centers=16, cluster_std=5.0, random_state=0)
np.save(folder / "new.npy", new.astype(np.float16))
Predictor.load(folder / "run").assign_file(folder / "new.npy", folder / "classes.csv")
print((folder / "classes.csv").read_text().splitlines()[:3])

# %%
# The confidence of the rows in known and in new classes:

confidence = model.predict_proba(X).max(axis=1)
new_rows = np.isin(model.labels_, model.new_classes_)
figure, axis = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
axis.hist([confidence[~new_rows], confidence[new_rows]], bins=30, stacked=True, color=["#0072b2", "#e69f00"])
axis.legend(["known classes", "new classes"], loc="upper left")
axis.set(xlabel="confidence", ylabel="rows")
plt.show()
