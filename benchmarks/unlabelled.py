"""Rows without any label: clustering accuracy, and the estimated number of groups.

    python benchmarks/unlabelled.py --data FOLDER --states 0
    python benchmarks/unlabelled.py --data FOLDER --states 0 1 2 3 4 --sets banking77 --methods RPIM K-means
    python benchmarks/unlabelled.py --data FOLDER --count --states 0 1 2 3 4

FOLDER holds ``features/*.npz`` (see benchmarks/protocol.py). Every method gets all rows and no label. Accuracy is that
of the one-to-one match of clusters and classes; rows that HDBSCAN calls noise count as wrong, and as a cluster of their
own in NMI and ARI. ``--count`` compares estimates of the number of classes instead. Every cell is appended to a .jsonl
file as soon as it is done, and cells that are there are not run again.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from cells import add_cell, is_done, read_cells
from protocol import DATA_SETS, load
from rpim import PIM, RIM, RPIM, KMeans, estimate_n_classes
from rpim.core.committee import nearest_neighbors
from rpim.core.kmeans import class_means, kmeans
from rpim.core.preprocessing import Preprocessing, principal_directions, suits_square_root
from rpim.metrics import adjusted_rand_index, clustering_accuracy, normalized_mutual_information

Labels = np.ndarray


def unit(X: np.ndarray) -> torch.Tensor:
    """Rows as the estimators see them."""
    return Preprocessing("sqrt" if suits_square_root(X) else True, None, torch.device("cpu"))(X)


def bertopic(X: np.ndarray, state: int) -> Labels:
    """BERTopic's default clustering: UMAP to five dimensions, HDBSCAN with at least ten rows a cluster."""
    from sklearn.cluster import HDBSCAN
    from umap import UMAP

    reduced = UMAP(n_neighbors=15, n_components=5, min_dist=0.0, metric="cosine", random_state=state).fit_transform(X)
    return HDBSCAN(min_cluster_size=10).fit_predict(reduced)


def temi(X: np.ndarray, k: int, state: int, steps: int = 200, beta: float = 0.6) -> Labels:
    """The idea of TEMI (Adaloglou, Michels, Kalisch and Kollmann, BMVC 2023) with one linear head.

    Pairs of neighbors should agree on a class, more so on a rare one: maximize the pointwise mutual information
    log sum_k (q_k(x) q_k(x'))^beta / q_k, over one of 25 neighbors drawn for each row.
    """
    x = unit(X)
    x = x @ principal_directions(x, min(256, x.shape[1]))
    generator = torch.Generator().manual_seed(state)
    neighbors = nearest_neighbors(torch.nn.functional.normalize(x, dim=1), 25)
    weights = kmeans(x, k, generator=generator).centroids.clone().requires_grad_()
    optimizer = torch.optim.Adam([weights], lr=5e-3)
    for _ in range(steps):
        q = torch.softmax(25.0 * x @ weights.T, dim=1)
        pair = q[neighbors[torch.arange(len(x)), torch.randint(25, (len(x),), generator=generator)]]
        loss = -torch.log(((q * pair) ** beta / q.mean(dim=0).clamp_min(1e-8)).sum(dim=1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return (x @ weights.detach().T).argmax(dim=1).numpy()


def turtle(X: np.ndarray, k: int, state: int, steps: int = 200, inner: int = 5, gamma: float = 10.0) -> Labels:
    """The idea of TURTLE (Gadetsky, Jiang and Brbić, ICML 2024) with linear maps, on raw and centred rows.

    The labelling that linear classifiers in every representation fit with the largest margin: classifiers take a few
    steps towards the present labelling, then the labelling takes one towards what they predict. The entropy of its
    mean, with the weight gamma, keeps classes from collapsing.
    """
    x = unit(X)
    x = x @ principal_directions(x, min(256, x.shape[1]))
    spaces = [torch.nn.functional.normalize(rows, dim=1) for rows in (x, x - x.mean(dim=0))]
    clusters = kmeans(spaces[0], k, generator=torch.Generator().manual_seed(state)).labels
    tasks = [class_means(rows, clusters, rows.new_zeros(k, rows.shape[1])).requires_grad_() for rows in spaces]
    classifiers = [torch.zeros_like(task).requires_grad_() for task in tasks]
    of_tasks, of_classifiers = torch.optim.Adam(tasks, lr=1e-3), torch.optim.Adam(classifiers, lr=5e-2)

    def labelling() -> torch.Tensor:
        return sum(torch.softmax(25.0 * rows @ task.T, dim=1) for rows, task in zip(spaces, tasks, strict=True)) / 2

    def misfit(target: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
        logits = (25.0 * rows @ each.T for rows, each in zip(spaces, weights, strict=True))
        return sum(torch.nn.functional.cross_entropy(each, target) for each in logits)

    for _ in range(steps):
        target = labelling().detach()
        for _ in range(inner):
            of_classifiers.zero_grad()
            misfit(target, classifiers).backward()
            of_classifiers.step()
        of_tasks.zero_grad()
        target = labelling()
        mean = target.mean(dim=0)
        (misfit(target, [each.detach() for each in classifiers]) + gamma * (mean * mean.log()).sum()).backward()
        of_tasks.step()
    return labelling().argmax(dim=1).numpy()


def clusterings(k: int, state: int) -> dict[str, Callable[[np.ndarray], Labels]]:
    """Each method by name."""

    def fitted(method: Any) -> Callable[[np.ndarray], Labels]:
        return lambda X: method(k, random_state=state).fit(X).labels_

    return {
        "K-means": fitted(KMeans),
        "RIM": fitted(RIM),
        "PIM": fitted(PIM),
        "RPIM": fitted(RPIM),
        "TEMI, one linear head": lambda X: temi(X, k, state),
        "TURTLE, linear, two representations": lambda X: turtle(X, k, state),
        "UMAP + HDBSCAN (BERTopic)": lambda X: bertopic(X, state),
    }


def counts(state: int) -> dict[str, Callable[[np.ndarray], int]]:
    """Each estimate of the number of classes by name; silhouette and HDBSCAN look at 4,000 rows."""

    def some(X: np.ndarray) -> np.ndarray:
        rows = np.random.RandomState(state).permutation(len(X))[:4000]
        x = unit(X[rows])
        x = x @ principal_directions(x, min(128, x.shape[1]))
        return torch.nn.functional.normalize(x - x.mean(dim=0), dim=1).numpy()

    def silhouette(X: np.ndarray) -> int:
        from sklearn.metrics import silhouette_score

        x = some(X)
        tried = sorted({round(k) for k in np.geomspace(5, 500, 16)})
        clusters = {
            k: kmeans(torch.from_numpy(x), k, generator=torch.Generator().manual_seed(state)).labels for k in tried
        }
        return max(tried, key=lambda k: silhouette_score(x, clusters[k].numpy(), sample_size=2000, random_state=state))

    def eigengap(X: np.ndarray) -> int:
        from scipy.sparse import csr_matrix, diags
        from scipy.sparse.linalg import eigsh

        x = torch.from_numpy(some(X))
        neighbors = nearest_neighbors(x, 10).numpy()
        ends = np.repeat(np.arange(len(x)), 10), neighbors.ravel()
        graph = csr_matrix((np.ones(neighbors.size), ends), shape=(len(x), len(x)))
        graph = graph.maximum(graph.T)
        scale = diags(np.asarray(graph.sum(axis=1)).ravel() ** -0.5)
        values = np.sort(eigsh(scale @ graph @ scale, k=400, which="LA", return_eigenvectors=False))[::-1]
        return 2 + int((values[1:-1] - values[2:]).argmax())

    def hdbscan(X: np.ndarray) -> int:
        return int(bertopic(X, state).max()) + 1

    return {
        "rpim": lambda X: estimate_n_classes(X, np.full(len(X), -1), random_state=state).n_classes,
        "silhouette, k-means": silhouette,
        "eigengap, 10 neighbors": eigengap,
        "UMAP + HDBSCAN (BERTopic)": hdbscan,
    }


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", choices=list(DATA_SETS), default=list(DATA_SETS))
    parser.add_argument("--states", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", metavar="METHOD", help="as they are called in the table")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/unlabelled.jsonl"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    task = "count" if arguments.count else "cluster"
    for state in arguments.states:
        for name in arguments.sets:
            case = load(arguments.data, name, 0)
            methods: dict[str, Any] = counts(state) if arguments.count else clusterings(case.n_classes, state)
            for method, run in methods.items():
                if arguments.methods and method not in arguments.methods:
                    continue
                key = {"task": task, "data_set": name, "method": method, "state": state}
                if is_done(arguments.output, key):
                    continue
                start = time.perf_counter()
                found = run(case.X)
                seconds = round(time.perf_counter() - start, 1)
                cell = {"n_classes": case.n_classes, "found": found} if arguments.count else scores(case.truth, found)
                add_cell(arguments.output, {**key, **cell, "seconds": seconds})
    cells = [c for c in read_cells(arguments.output) if c["task"] == task and c["state"] in arguments.states]
    print("| method | " + " | ".join(arguments.sets) + " |\n|---" + "|---" * len(arguments.sets) + "|")
    for method in dict.fromkeys(c["method"] for c in cells):
        shown = []
        for name in arguments.sets:
            of = [c for c in cells if (c["method"], c["data_set"]) == (method, name)]
            if arguments.count:
                shown.append(", ".join(str(c["found"]) for c in of) + (f" of {of[0]['n_classes']}" if of else ""))
            else:
                means = [100 * np.mean([c[part] for c in of]) for part in ("accuracy", "nmi", "ari")]
                shown.append("/".join(f"{value:.1f}" for value in means))
        print(f"| {method} | " + " | ".join(shown) + " |")


def scores(truth: np.ndarray, found: np.ndarray) -> dict[str, float]:
    """Accuracy of the best one-to-one match, NMI and ARI."""
    given = np.where(found < 0, found.max() + 1 + np.arange(len(found)), found)  # noise matches no class
    return {
        "accuracy": round(clustering_accuracy(truth, given), 4),
        "nmi": round(normalized_mutual_information(truth, found), 4),
        "ari": round(adjusted_rand_index(truth, found), 4),
    }


if __name__ == "__main__":
    main()
