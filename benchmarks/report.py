"""How large the report of many rows is and how long it takes: 100,000 rows of 200 classes, texts and pictures.

    python benchmarks/report.py [ROWS]

The pictures are noise, which no format can make small: the worst case for the size. Needs the extra `report`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from rpim import RPIM, Discovery, FeatureSet, InfoMaxObjective, write_report

N_CLASSES, N_KNOWN, N_FEATURES = 200, 100, 64


def fitted(n_rows: int) -> tuple[Discovery, FeatureSet]:
    """A short fit: what it finds does not matter here."""
    random = np.random.RandomState(0)
    truth = random.randint(N_CLASSES, size=n_rows)
    X = (random.randn(N_CLASSES, N_FEATURES)[truth] + random.randn(n_rows, N_FEATURES)).astype(np.float32)
    words = np.array([f"word{k}" for k in range(5_000)])
    texts = [" ".join(row) for row in words[random.randint(len(words), size=(n_rows, 30))].tolist()]
    names = np.array([f"class-{k}" for k in range(N_CLASSES)])[truth]
    labels = np.where((truth < N_KNOWN) & (random.rand(n_rows) < 0.5), names, "")
    features = FeatureSet.from_arrays(X, labels=labels, texts=texts, truth=names)
    model = RPIM(
        N_CLASSES,
        objective=InfoMaxObjective(trade_off=0.1, weight_decay=0.01),
        n_members=1,
        n_init=1,
        max_iter=10,
        random_state=0,
    )
    return Discovery.from_fit(model.fit(features.rows(), features.labels), features), features


def main() -> None:
    """Print what it takes with texts alone, and with pictures."""
    n_rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    discovery, features = fitted(n_rows)
    noise = np.random.RandomState(0).randint(256, size=(50, 112, 112, 3)).astype(np.uint8)
    pictures = [noise[row % 50] for row in range(n_rows)]
    with tempfile.TemporaryDirectory() as folder:
        for name, given in (("texts", None), ("pictures", pictures)):
            start = time.process_time()
            page = write_report(discovery, Path(folder) / f"{name}.html", features=features, pictures=given)
            seconds = time.process_time() - start
            print(f"{n_rows:,} rows with {name}: {page.stat().st_size / 1e6:.1f} MB, {seconds:.1f} s of a processor")


if __name__ == "__main__":
    main()
