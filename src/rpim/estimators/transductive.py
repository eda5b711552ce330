"""What the baselines of everyday practice share: they decide the classes of the rows of ``fit`` alone.

Spreading labels over a graph, or clustering a map, gives the rows of the fit a class each and has no rule for a new
row. ``labels_`` is what they decided. A new row gets the class of the nearest class mean, so ``predict`` on the rows
of the fit may differ from ``labels_``.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from sklearn.neighbors import NearestNeighbors
from torch import Tensor

from rpim.core.head import Head
from rpim.core.kmeans import Rule, class_means, kmeans
from rpim.data.labels import IntArray
from rpim.estimators.base import DiscoveryEstimator
from rpim.estimators.fitted import FloatArray
from rpim.estimators.gcd import nearest_centroid_head
from rpim.estimators.problem import FitProblem, Problem


class TransductiveEstimator(DiscoveryEstimator):
    """A method that decides row by row; a subclass offers ``_decide``, from a `Problem` to the class of each row."""

    temperature: float
    history_: list[dict[str, float]]

    @abstractmethod
    def _decide(self, problem: Problem) -> tuple[Tensor, int]:
        """The class of each unlabelled row, by number, and how many classes there are. (n_unlabelled,)

        There is one such row at least. Sets ``history_`` and ``n_iter_``.
        """

    def _discover(self, problem: FitProblem) -> Head:
        if len(problem.labels) == len(problem.x):
            self.history_, self.n_iter_ = [{"unlabelled": 0}], 1
            decided, n_classes = problem.labels[:0], problem.n_classes
        else:
            decided, n_classes = self._decide(problem)
        self._row_classes = torch.cat([problem.labels, decided.to(problem.labels)])
        means = class_means(problem.x, self._row_classes, problem.x.new_zeros(n_classes, problem.x.shape[1]))
        head = nearest_centroid_head(means, self.temperature)
        # More classes than different rows leave one without a row: it has no mean, and no probability.
        assert head.offsets is not None
        head.offsets[torch.bincount(self._row_classes, minlength=n_classes) == 0] = -torch.inf
        return head

    def _assign(self, problem: FitProblem) -> tuple[IntArray, FloatArray]:
        classes, scores = super()._assign(problem)
        classes[problem.rows] = self._row_classes.cpu().numpy()
        return classes, scores


def cluster_into_new(
    problem: Problem, novelty: Tensor, is_novel: Tensor, *, n_init: int, max_iter: int
) -> tuple[Tensor, Tensor]:
    """k-means of the unlabelled rows that look like no known class, into the new classes.

    Parameters
    ----------
    novelty : (n_unlabelled,)
        Novelty of each row; larger is less like a known class.
    is_novel : (n_unlabelled,)
        Whether a row is novel. If fewer rows than new classes are, the most novel rows are taken.

    Returns
    -------
    rows : (n_novel,)
        Numbers of the rows, among the unlabelled ones.
    classes : (n_novel,)
        The class of each, from n_known on.
    """
    unlabelled = problem.x[len(problem.labels) :]
    rows = torch.nonzero(is_novel).flatten()
    if len(rows) < problem.n_new:
        rows = novelty.topk(min(problem.n_new, len(unlabelled))).indices
    if problem.n_new == 0 or len(rows) == 0:
        empty = torch.empty(0, dtype=torch.long, device=unlabelled.device)
        return empty, empty
    found = kmeans(
        unlabelled[rows], problem.n_new, n_init=n_init, rule=Rule(max_iter=max_iter), generator=problem.generator
    )
    return rows, found.labels + problem.n_known


def nearest_row(rows: FloatArray, to: FloatArray) -> IntArray:
    """The number of the row nearest to each of some others."""
    nearest: IntArray = NearestNeighbors(n_neighbors=1).fit(rows).kneighbors(to, return_distance=False)[:, 0]
    return nearest
