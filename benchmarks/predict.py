"""Prediction on new rows: what rows of another encoder look like to a run, and memory as the file grows.

python benchmarks/predict.py                   memory alone
python benchmarks/predict.py --data FOLDER     encoders as well, on FOLDER/features/*.npz (see protocol.py)
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from protocol import DATA_SETS
from rpim import RPIM, Discovery, FeatureSet, Predictor
from rpim.benchmark.cell import peak_memory_mb
from rpim.runs.saved_model import MIN_FITTED_ROWS, EmbeddingSpace
from speed import in_a_process_of_its_own, rows_and_labels

PAIRS = (("banking77", "clinc150"), ("clinc150", "banking77"), ("cub200", "cifar100"), ("cifar100", "cub200"))
"""A run, and another subject under the same encoder."""
SIZES = (32, 100, 1000)
N_DRAWS = 20


def spread(values: list[float]) -> str:
    """The least and the largest."""
    return f"{min(values):.1f} to {max(values):.1f}"


def alignments(run: FeatureSet, other: FeatureSet, n_fitted: int | None, random: np.random.Generator) -> list[str]:
    """How rows of the same encoder, with other columns and of tf-idf lie in the directions of a run."""
    train = np.flatnonzero(run.split == "train")
    space = EmbeddingSpace.of(run.subset(train if n_fitted is None else random.permutation(train)[:n_fitted]))

    def of(X: np.ndarray, n: int) -> float:
        value = space.alignment(FeatureSet.from_arrays(random.permutation(X)[:n]))
        assert value is not None
        return value

    both, width = (run.X, other.X), run.n_features
    rotations = [np.linalg.qr(random.normal(size=(width, width)))[0] for _ in range(6)]
    shuffled = [of(X[:, random.permutation(width)], n) for n in SIZES for X in both for _ in range(N_DRAWS)]
    classes = [other.X[other.labels == c] for c in np.unique(other.labels)]
    single = [of(np.repeat(X, 2, axis=0), 2 * len(X)) for X in classes]  # twice: some have fewer rows than are judged
    words = "—"
    if run.texts is not None:
        counts = TfidfVectorizer().fit_transform(run.texts)
        X = TruncatedSVD(width, random_state=0).fit_transform(counts)
        words = spread([of(X, n) for n in SIZES for _ in range(N_DRAWS)])
    return [
        spread([of(other.X, n) for n in SIZES for _ in range(N_DRAWS)]),
        f"{min(single):.1f}",
        spread(shuffled),
        spread([of(X @ rotation, 1000) for X in both for rotation in rotations]),
        words,
    ]


def encoders(folder: Path) -> None:
    """The table of docs/results.md."""
    sets = {name: FeatureSet.read(folder / "features" / f"{file}.npz") for name, file in DATA_SETS.items()}
    print(
        "| run | rows | other subject, same encoder | its single classes, the least | columns shuffled | rotated "
        "| tf-idf, 384 directions |\n|---|---|---|---|---|---|---|"
    )
    for n_fitted in (None, MIN_FITTED_ROWS):
        for run, other in PAIRS:
            cells = alignments(sets[run], sets[other], n_fitted, np.random.default_rng(0))
            print(f"| {run} | {n_fitted or 'all'} | {' | '.join(cells)} |", flush=True)


def memory_of_a_prediction(run: str, new: str, whole: bool) -> float | None:
    """Peak of a process that predicts the rows of a file, all probabilities included where they are streamed."""
    predictor = Predictor.load(run)
    if whole:
        predictor.assign(FeatureSet.read(new)).write(f"{new}.out.parquet", overwrite=True)
    else:
        predictor.assign_file(new, f"{new}.out.parquet", probabilities=True, overwrite=True)
    return peak_memory_mb()


def memory() -> None:
    """The table of docs/performance.md: one row group, which is the hard case."""
    X, y = rows_and_labels(20_000, 128, 6)
    print("| rows | their features | rpim predict | the file read whole |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        features = FeatureSet.from_arrays(X[:1000], labels=y[:1000])
        model = RPIM(6, n_members=1, max_iter=15, random_state=0)
        Discovery.from_fit(model.fit(features.rows(), y[:1000]), features).save(f"{folder}/run")
        for times in (1, 8, 32):
            lists = pa.FixedSizeListArray.from_arrays(pa.array(np.tile(X, (times, 1)).ravel()), X.shape[1])
            pq.write_table(pa.table({"features": lists}), f"{folder}/new.parquet", use_dictionary=False)
            arguments = (f"{folder}/run", f"{folder}/new.parquet")
            used = [in_a_process_of_its_own(memory_of_a_prediction, *arguments, whole) for whole in (False, True)]
            print(
                f"| {times * len(X)} | {times * X.nbytes / 2**20:.0f} MB | {used[0]:.0f} MB | {used[1]:.0f} MB |",
                flush=True,
            )


def main() -> None:
    """Run what there is data for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    folder = parser.parse_args().data
    memory()
    if folder is not None:
        encoders(folder)


if __name__ == "__main__":
    main()
