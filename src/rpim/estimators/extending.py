"""``extend``: a fitted InfoMax model learns from new rows; core/novelty.py finds the new classes."""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from torch import Tensor

from rpim._common.errors import InputError, some
from rpim._common.hardware import default_memory_budget
from rpim._common.progress import Progress
from rpim.core.checkpoint import History
from rpim.core.head import Head, least_fitting
from rpim.core.kmeans import class_means
from rpim.core.novelty import (
    NewBatch,
    PairSimilarity,
    added_interval,
    first_prototypes,
    is_there,
    n_classes_to_add,
    one_of_each,
    two_parts,
)
from rpim.core.row_blocks import InMemoryBlocks
from rpim.core.sampling import Exemplars, select_exemplars
from rpim.core.training import train
from rpim.data.labels import UNLABELLED, IntArray, encode_labels, label_array, name_new_classes, name_rows
from rpim.estimators.objective import Hyperparameters
from rpim.estimators.problem import Problem, caches_probabilities

if TYPE_CHECKING:
    from rpim.estimators.infomax import InfoMaxEstimator


@dataclass(frozen=True)
class Names:
    """The names of the classes after some of the new rows were labelled.

    A name that the model does not know is a class of its own, unless most of its rows are in one discovered class:
    then it is the name of that class.
    """

    classes: NDArray[Any]  # those that somebody has labelled rows of first
    n_known: int
    labels: IntArray  # (n,) numbers of the rows' labels among the classes, -1 where a row has none
    place: IntArray  # (n_old,) the number of each class that the model had


def name_classes(classes: NDArray[Any], n_known: int, y: NDArray[Any], predicted: IntArray) -> Names:
    """The classes under the names that were given, and the labels as their numbers.

    >>> y = np.array(["dog", "", "bird"])
    >>> named = name_classes(np.array(["cat", "new-1", "new-2"]), 1, y, predicted=np.array([2, 1, 0]))
    >>> named.classes.tolist(), named.labels.tolist(), named.place.tolist()
    (['cat', 'dog', 'bird', 'new-1'], [1, -1, 2], [0, 3, 1])
    """
    codes, given = encode_labels(y)
    if len(given) and (given.dtype.kind == "U") != (classes.dtype.kind == "U"):
        kinds = ("text", "numbers") if given.dtype.kind == "U" else ("numbers", "text")
        raise InputError(
            f"The new labels are {kinds[0]} ({some(given.tolist())}) but the classes are {kinds[1]}: give the same."
        )
    names: list[Any] = classes.tolist()
    known = set(range(n_known))
    number_of = {}
    # The name with most rows first, should two of them mean the same discovered class.
    for code in np.argsort(-np.bincount(codes[codes >= 0], minlength=len(given)), kind="stable").tolist():
        name = given[code].item()
        if name not in names:
            rows = predicted[codes == code]
            likely = int(np.bincount(rows).argmax())
            if likely not in known and 2 * int((rows == likely).sum()) > len(rows):
                names[likely] = name
            else:
                names.append(name)
        number_of[code] = names.index(name)
        known.add(number_of[code])
    order = sorted(range(len(names)), key=lambda number: (number not in known, number))
    place = np.argsort(order)
    labels = np.array([place[number_of[code]] if code >= 0 else UNLABELLED for code in codes.tolist()], dtype=np.int64)
    return Names(np.asarray([names[number] for number in order]), len(known), labels, place[: len(classes)])


def extend(model: InfoMaxEstimator, X: ArrayLike, y: ArrayLike | None) -> None:
    """Learn from new rows; see `InfoMaxEstimator.extend`."""
    rows = model._rows_like_fitted(X)
    given = np.full(len(rows), "" if model.classes_.dtype.kind == "U" else UNLABELLED) if y is None else y
    given = label_array(given, "y", len(rows))
    exemplars: Exemplars | None = getattr(model, "exemplars_", None)
    if exemplars is None:
        raise InputError("The model has no exemplars, because an older version fitted it: refit it.")
    exemplars = _one_prototype_per_class(model, exemplars)
    x = torch.cat([part for _, part in model._blocks(rows)])
    named = name_classes(model.classes_, len(model.known_classes_), given, model.head_.predict(x).cpu().numpy())
    order = np.argsort(named.labels < 0, kind="stable")  # labelled rows first
    labels = torch.from_numpy(named.labels[order][named.labels[order] >= 0]).to(x.device)
    x = x[torch.from_numpy(order).to(x.device)]
    labelled, unlabelled = x[: len(labels)], x[len(labels) :]
    exemplars = exemplars.renumbered(torch.from_numpy(named.place).to(x.device), len(named.classes))
    generator = torch.Generator().manual_seed(int(check_random_state(model.random_state).randint(2**31 - 1)))
    with Progress(model.verbose, "looking for new classes") as progress:
        head = _with_names(model.head_, named, labelled, labels)
        familiar_classes = head.predict(unlabelled)
        batch = NewBatch(unlabelled, exemplars.unfamiliarity(head.outlier_scores(unlabelled), familiar_classes))
        similarity = PairSimilarity.among(exemplars, generator)
        n_classes = len(named.classes) + n_classes_to_add(batch, similarity, generator)
        problem = Problem(
            torch.cat([exemplars.rows, x]),
            torch.cat([exemplars.classes, labels]),
            len(named.classes),
            n_classes,
            generator,
            progress,
        )
        if problem.n_new:
            found = first_prototypes(head.transform(batch.pool), problem.n_new, generator)
            head.prototypes = torch.cat([head.prototypes, _as_long_as(found, head.prototypes)])
        model.history_ = _train(model, head, problem, _shares(familiar_classes, batch, problem))
        if similarity is not None and problem.n_new:
            there = _which_are_there(head.predict(unlabelled), labelled, named, batch, similarity, problem)
            if not bool(there.all()):
                head.prototypes = head.prototypes[torch.cat([there.new_ones(problem.n_known), there])]
                problem.n_classes = len(head.prototypes)
                model.history_ += _train(model, head, problem, _shares(familiar_classes, batch, problem))
    added = (0.0, 0.0)
    if similarity is not None and problem.n_new:
        added = added_interval(problem.n_new, batch, similarity)
    _set_interval(model, named, problem.n_new, added)
    before = model.classes_
    model.head_, model.n_iter_, model.n_classes_ = head, len(model.history_), problem.n_classes
    model.classes_ = name_new_classes(named.classes, problem.n_new, _last_number(model))
    model.known_classes_, model.new_classes_ = model.classes_[: named.n_known], model.classes_[named.n_known :]
    now = model.classes_[named.place]
    model.renamed_ = {old: new for old, new in zip(before.tolist(), now.tolist(), strict=True) if old != new}
    if similarity is not None:
        _warn_of_two_in_one(model, head.predict(unlabelled), unlabelled, problem, similarity)
    found = torch.cat([labels, head.predict(unlabelled)])
    scores = head.outlier_scores(unlabelled) if model.abstain else unlabelled.new_empty(0)
    left_out, model.outlier_threshold_ = least_fitting(scores.cpu().numpy(), model.abstain)
    found[torch.from_numpy(left_out).to(x.device) + len(labels)] = UNLABELLED
    model.exemplars_ = _updated_exemplars(exemplars, problem, found, len(labels), head)
    assigned = np.empty(len(x), dtype=np.int64)
    assigned[order] = found.cpu().numpy()
    model.labels_ = name_rows(assigned, model.classes_)
    # The head was trained further, on other rows: what a committee found no longer holds.
    model.n_members_, model.label_issues_ = 1, []
    model.label_quality_ = np.full(len(x), np.nan, dtype=np.float32)
    for name in ("stability_", "expected_accuracy_", "n_classes_curve_"):
        if hasattr(model, name):
            delattr(model, name)


def _last_number(model: Any) -> int:
    """The last number of a new class: one that was renamed leaves its number behind, which is not that of another."""
    if not len(model.known_classes_):
        return 0
    found = [re.fullmatch(r"new-([0-9]+)", str(name)) for name in model.new_classes_]
    return max([len(found), *(int(match[1]) for match in found if match)])


def _set_interval(model: InfoMaxEstimator, named: Names, n_added: int, added: tuple[float, float]) -> None:
    """Set the interval of the number of classes: the errors before and those of the added classes are independent."""
    estimated = hasattr(model, "n_classes_low_")
    if not estimated and not n_added:
        return
    below = max(0, model.n_classes_ - model.n_classes_low_) if estimated else 0
    above = max(0, model.n_classes_high_ - model.n_classes_) if estimated else 0
    n_classes = len(named.classes) + n_added
    low = round(n_classes - math.hypot(below, n_added - added[0]))
    model.n_classes_low_ = max(low, named.n_known)
    model.n_classes_high_ = round(n_classes + math.hypot(above, added[1] - n_added))


def _one_prototype_per_class(model: InfoMaxEstimator, exemplars: Exemplars) -> Exemplars:
    """After a merge, replace the prototypes of a class by their mean, which the training starts from."""
    classes: IntArray | None = getattr(model, "class_of_prototype_", None)
    if classes is None:
        return exemplars
    missing = np.setdiff1d(np.arange(len(model.classes_)), classes)
    if len(missing):
        raise InputError(
            f"The model does not know {some(model.classes_[missing].tolist())}, made by hand in the explorer: refit it "
            "there first, or give --as-found."
        )
    old = model.head_
    places = torch.from_numpy(classes).to(old.prototypes.device)
    summed = old.prototypes.new_zeros(len(model.classes_), old.prototypes.shape[1])
    means = _as_long_as(summed.index_add_(0, places, old.prototypes), old.prototypes)
    model.head_ = Head(means, old.transform, old.temperature, calibration=old.calibration)
    del model.class_of_prototype_
    return exemplars.renumbered(places, len(model.classes_))


def _with_names(old: Head, named: Names, labelled: Tensor, labels: Tensor) -> Head:
    """A head of its own with a prototype for every class that has a name: those that it had, and means of rows."""
    transform = type(old.transform)({name: value.clone() for name, value in old.transform.parameters.items()})
    prototypes = old.prototypes.new_zeros(len(named.classes), old.prototypes.shape[1])
    if len(labelled):
        prototypes = _as_long_as(class_means(transform(labelled), labels, prototypes), old.prototypes)
    prototypes[torch.from_numpy(named.place).to(prototypes.device)] = old.prototypes
    return Head(prototypes, transform, old.temperature, calibration=old.calibration)


def _as_long_as(directions: Tensor, prototypes: Tensor) -> Tensor:
    """Scale directions to the mean norm of trained prototypes, which sets how confident predictions can be."""
    longer: Tensor = torch.nn.functional.normalize(directions, dim=1).mul_(prototypes.norm(dim=1).mean())
    return longer


def _which_are_there(
    found: Tensor, labelled: Tensor, named: Names, batch: NewBatch, similarity: PairSimilarity, problem: Problem
) -> Tensor:
    """Which of the new classes have enough rows that are of no other class, found or named just now. (new,)"""
    fresh = torch.ones(problem.n_classes, dtype=torch.bool, device=found.device)
    fresh[torch.from_numpy(named.place).to(found.device)] = False
    numbers = torch.nonzero(fresh).flatten()  # those that somebody has named first
    labels = problem.labels[len(problem.labels) - len(labelled) :]
    x, classes = torch.cat([labelled, batch.x]), torch.cat([labels, found])
    rows = fresh[classes]
    compact = torch.cumsum(fresh, 0) - 1
    one = one_of_each(x[rows], compact[classes[rows]], len(numbers), similarity, problem.generator)
    as_one = torch.arange(problem.n_classes, device=found.device)
    as_one[numbers] = numbers[one]
    return is_there(batch, as_one[found], problem.n_known, problem.n_classes)


def _warn_of_two_in_one(
    model: InfoMaxEstimator, found: Tensor, unlabelled: Tensor, problem: Problem, similarity: PairSimilarity
) -> None:
    """Warn of added classes whose rows are probably of two classes: their confidence does not show it."""
    for number in range(problem.n_known, problem.n_classes):
        sizes = two_parts(unlabelled[found == number], similarity, problem.generator)
        if sizes is not None:
            warnings.warn(
                f"The added class {model.classes_[number]} may be two, of about {sizes[0]} and {sizes[1]} rows: "
                "inspect it, and split it in the explorer or label some rows of both.",
                UserWarning,
                stacklevel=4,
            )


def _shares(familiar_classes: Tensor, batch: NewBatch, problem: Problem) -> Tensor:
    """Assumed class shares: exemplars are balanced, but a batch may be all of one class. (K,)"""
    counts = torch.bincount(problem.labels, minlength=problem.n_classes).to(problem.x.dtype) + 1.0
    n_new = batch.n_new_rows if problem.n_new else 0.0
    familiar = batch.unfamiliarity.argsort()[: round(len(batch.x) - n_new)]
    counts += torch.bincount(familiar_classes[familiar], minlength=problem.n_classes)
    counts[problem.n_known :] += n_new / max(problem.n_new, 1)
    return counts / counts.sum()


def _train(model: InfoMaxEstimator, head: Head, problem: Problem, shares: Tensor) -> History:
    found = Hyperparameters(model.trade_off_, model.beta_, model.weight_decay_, model.class_sizes_)
    schedule = model._schedule(found)
    problem.progress.stage("training")
    problem.progress.expect(schedule.max_iter)
    cache = caches_probabilities(len(problem.x), problem.n_classes, default_memory_budget())
    engine = InMemoryBlocks(problem.x, problem.labels, problem.n_classes, cache=cache)
    objective = model._training_objective(found, shares)
    return train(engine, head, objective, schedule, lambda *_: problem.progress.advance(1))


def _updated_exemplars(exemplars: Exemplars, problem: Problem, found: Tensor, n_labelled: int, head: Head) -> Exemplars:
    """Select exemplars of each class from the old ones and the new rows."""
    classes = torch.cat([exemplars.classes, found])
    labelled = torch.cat([exemplars.labelled, torch.arange(len(found), device=found.device) < n_labelled])
    first = torch.argsort((~labelled).to(torch.int8), stable=True)
    scores = head.outlier_scores(problem.x)
    return select_exemplars(
        problem.x[first], classes[first], int(labelled.sum()), problem.n_classes, scores[first], problem.generator
    )
