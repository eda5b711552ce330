"""
Photos in folders
=================

You have a folder of images, some of them sorted into subfolders. We embed them, find the classes of the others, and
look at the new classes. The encoder comes with the extra `images-offline` and needs no network.

The same in the terminal::

    rpim discover photos --n-classes 5 -o run

"""

# %%
# A folder of images
# ------------------
# The images are drawn here, so that nothing has to be downloaded: five kinds of scenes, in varying colours, places and
# sizes. Three kinds are known, with eight labelled images each. All other images are in a folder called `unlabelled`.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image, ImageDraw

KINDS = ["house", "tree", "boat", "balloon", "mountain"]


def draw(kind, random):
    """Draw one scene of 96 x 96 pixels."""

    def shade(*colour):
        return tuple(int(c) for c in np.clip(np.array(colour) + random.randint(-35, 36, 3), 0, 255))

    image = Image.new("RGB", (96, 96), shade(150, 200, 235))
    pen, x, s = ImageDraw.Draw(image), random.randint(30, 66), random.randint(14, 24)
    pen.rectangle([0, 70, 96, 96], fill=shade(40, 90, 170) if kind == "boat" else shade(90, 150, 70))
    if kind == "house":
        pen.rectangle([x - s, 72 - s, x + s, 74], fill=shade(200, 90, 70))
        pen.polygon([(x - s - 4, 72 - s), (x + s + 4, 72 - s), (x, 66 - 2 * s)], fill=shade(110, 60, 50))
        pen.rectangle([x - 4, 62, x + 4, 74], fill=shade(70, 50, 40))
    elif kind == "tree":
        pen.rectangle([x - 3, 72 - s, x + 3, 76], fill=shade(100, 70, 40))
        pen.ellipse([x - s, 62 - 2 * s, x + s, 74 - s], fill=shade(40, 120, 50))
    elif kind == "boat":
        pen.polygon([(x - s, 70), (x + s, 70), (x + s // 2, 80), (x - s // 2, 80)], fill=shade(130, 70, 40))
        pen.polygon([(x, 66 - 2 * s), (x, 68), (x + s, 68)], fill=shade(235, 235, 225))
    elif kind == "balloon":
        pen.ellipse([x - s, 10, x + s, 12 + 2 * s], fill=shade(220, 60, 60))
        pen.ellipse([x - s // 2, 10, x + s // 2, 12 + 2 * s], fill=shade(240, 200, 60))
        pen.rectangle([x - 4, 18 + 2 * s, x + 4, 24 + 2 * s], fill=shade(120, 80, 40))
    else:
        pen.polygon([(x - 2 * s, 72), (x + 2 * s, 72), (x, 62 - 2 * s)], fill=shade(110, 110, 120))
        pen.polygon(
            [(x - s // 2, 72 - 5 * s // 4 - 9), (x + s // 2, 72 - 5 * s // 4 - 9), (x, 62 - 2 * s)], fill="white"
        )
    return image


folder = Path(tempfile.mkdtemp())
photos, random = folder / "photos", np.random.RandomState(0)
for kind in KINDS:
    for number in range(20):
        labelled = kind in KINDS[:3] and number < 8
        place = photos / (kind if labelled else "unlabelled")
        place.mkdir(parents=True, exist_ok=True)
        draw(kind, random).save(place / f"{kind}-{number:02}.png")
for place in sorted(photos.iterdir()):
    print(f"{place.name}: {len(list(place.iterdir()))} images")

# %%
# Embed
# -----
# The labels are the names of the subfolders. The paths are kept, and no method uses them; here they contain the true
# class. In the terminal, DINOv2 is the default if the Hugging Face hub can be reached; ``--encoder`` chooses another
# one.

from rpim import FeatureSet, embed, read_source

report = embed(read_source(photos), "efficientnet-lite2", folder / "photos.parquet")
features = FeatureSet.read(folder / "photos.parquet")
print(features, "in", round(report.seconds), "s")

# %%
# Discover
# --------

from rpim import RPIM, Discovery

model = RPIM(n_classes=5, random_state=0).fit(features.rows(), features.labels)
discovery = Discovery.from_fit(model, features)
for one in discovery.classes_table():
    kind = "known" if one.known else "new  "
    print(f"{kind} {one.name:8} {one.rows:3} rows, confidence {one.mean_confidence:.0%}, stability {one.stability:.0%}")

# %%
# Look at them
# ------------
# The six most confident unlabelled images of each class, and the least confident one. The report and the explorer show
# the same. Drawings are easy: expect doubtful rows among real photographs.

figure, axes = plt.subplots(5, 7, figsize=(7.5, 5.6), layout="constrained")
for line, name in zip(axes, model.classes_, strict=True):
    rows = np.flatnonzero((discovery.labels == name) & ~features.labelled)
    rows = rows[np.argsort(-discovery.confidence[rows])]
    for axis, row in zip(line, [*rows[:6], rows[-1]], strict=True):
        axis.imshow(plt.imread(photos / features.paths[row]))
        axis.set(xticks=[], yticks=[])
    line[0].set_ylabel(name, rotation=0, ha="right", va="center")
plt.show()

# %%
# Check and name them
# -------------------
# The new classes have no names yet. Rename them in the explorer (``rpim explore run``), or label some of their rows in
# Python and refit. Then all classes are known, and confidence is calibrated on all of them.

from rpim import gcd_accuracy

truth = np.array([Path(path).name.rpartition("-")[0] for path in features.paths])
hidden = ~features.labelled
print(gcd_accuracy(truth[hidden], discovery.labels[hidden], known=KINDS[:3]))

named = features.labels.astype(object)
for name in model.new_classes_:
    rows = np.flatnonzero(discovery.labels == name)
    typical = rows[np.argsort(-discovery.confidence[rows])][:8]
    values, counts = np.unique(truth[typical], return_counts=True)
    named[typical] = values[counts.argmax()]  # you would look at the images and write a name
refit = RPIM(n_classes=5, random_state=0).fit(features.rows(), named)
print(refit.known_classes_, f"accuracy {np.mean(refit.labels_[hidden] == truth[hidden]):.1%}")
