"""Runs for looking at, and the explorer opened on one of them in headless chromium."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits, make_blobs

from rpim import RPIM, Discovery, FeatureSet, InfoMaxObjective
from rpim.cli.demo import digits

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
OBJECTIVE = InfoMaxObjective(trade_off=0.1, weight_decay=0.01)
QUICK = {"objective": OBJECTIVE, "n_members": 1, "n_init": 1, "random_state": 0}


def digits_run(folder: Path) -> Path:
    """scikit-learn's digits as image files, 0 to 4 known, with the map that the explorer would make in a minute."""
    from PIL import Image

    from rpim.explorer.workbench import MAP_FILE
    from rpim.runs.maps import two_dimensional

    features = digits()
    paths = []
    (folder / "digits").mkdir()
    for row, pixels in enumerate(load_digits().images):
        path = folder / "digits" / f"{row:04}.png"
        shades = (255 - pixels * 255 / 16).astype(np.uint8)
        Image.fromarray(shades).resize((96, 96), Image.Resampling.BICUBIC).save(path)
        paths.append(str(path))
    names = [Path(path).name for path in paths]
    features = FeatureSet.from_arrays(features.X, features.labels, names, paths=paths)
    features.write(folder / "digits.parquet")
    features = FeatureSet.read(folder / "digits.parquet")
    model = RPIM(10, objective=OBJECTIVE, random_state=0).fit(features.rows(), features.labels)
    discovery = Discovery.from_fit(model, features, source=folder / "digits.parquet")
    discovery.save(folder / "digits-run")
    np.save(folder / "digits-run" / MAP_FILE, two_dimensional(model.transform(features.rows())))
    return folder / "digits-run"


def synthetic_run(
    folder: Path,
    n_rows: int,
    n_classes: int = 200,
    n_features: int = 64,
    metadata: dict[str, Any] | None = None,
    columns: dict[str, Any] | None = None,
) -> Path:
    """Blobs with a short text each, half of the classes known; quickly fitted, because it is not about accuracy."""
    X, truth = make_blobs(n_rows, n_features=n_features, centers=n_classes, cluster_std=3.0, random_state=0)
    labelled = (truth < n_classes // 2) & (np.arange(n_rows) % 2 == 0)
    labels = np.where(labelled, np.char.add("class ", truth.astype(str)), "")
    features = FeatureSet.from_arrays(
        X.astype(np.float32),
        labels,
        texts=[f"an item of the kind {k}, number {i}" for i, k in enumerate(truth)],
        metadata=metadata,
        columns=columns,
    )
    path = folder / f"rows-{n_rows}.parquet"
    features.write(path)
    features = FeatureSet.read(path)
    model = RPIM(n_classes, max_iter=5, **QUICK).fit(features.rows(), features.labels)
    Discovery.from_fit(model, features, source=path).save(folder / f"run-{n_rows}")
    return folder / f"run-{n_rows}"


@contextlib.contextmanager
def explorer(run: Path) -> Iterator[str]:
    """``rpim explore`` on a run; the address with its key."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "rpim.cli.main", "explore", run, "--no-browser"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        yield next(line.strip() for line in process.stdout if line.startswith("http"))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
