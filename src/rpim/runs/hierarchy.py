"""The tree of the classes: classes that are similar, or that the model confuses, are merged first."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import linkage

from rpim._common.errors import InputError, short
from rpim._common.files import StrPath, check_export, replacing
from rpim.estimators.base import DiscoveryEstimator
from rpim.runs.assignments import Assignments, class_codes
from rpim.runs.class_summaries import ClassSummary, class_prototypes
from rpim.runs.keywords import FUNCTION_WORDS, stem, words_of
from rpim.runs.saved_model import json_value

SUFFIXES = (".json", ".nwk")
NAME_WORDS = 2
"""Number of keywords, or of classes, in the name of a group."""
MIN_SHARED = 0.34
"""A keyword names a group if this share of its classes has it."""
CONFUSION_WEIGHT = 6.0
"""How much confusion shortens a distance."""
SMALL, LARGE = 6, 24
"""With fewer classes than SMALL no groups are shown, from LARGE on groups of groups."""


class Group(NamedTuple):
    """A group of classes.

    Attributes
    ----------
    name : str
        Keywords that its classes share, or the names of its largest classes.
    classes : list
        Its classes, in the user's label type, in the order of the tree.
    """

    name: str
    classes: list[Any]


@dataclass(frozen=True)
class Hierarchy:
    """The tree of the classes that have rows. `Discovery.hierarchy` builds it.

    Node k < n is the class k; node n + i is made by merge i. The last node is the root.

    Parameters
    ----------
    classes : list
        The n classes, in the user's label type.
    known : list of bool
        Whether each of them is a known class.
    rows : list of int
        The number of rows of each.
    merges : list of tuple of int
        The two nodes of each of the n - 1 merges, the nearest first.
    heights : list of float
        The distance between these two nodes; it never decreases.
    names : list of str
        The name of each of the 2n - 1 nodes.
    """

    classes: list[Any]
    known: list[bool]
    rows: list[int]
    merges: list[tuple[int, int]]
    heights: list[float]
    names: list[str]

    @property
    def root(self) -> int:
        """The number of the root node."""
        return len(self.names) - 1

    def children(self, node: int) -> list[int]:
        """The two nodes that a node was merged of.

        Parameters
        ----------
        node : int
            The number of a node.

        Returns
        -------
        list of int
            Two nodes; empty for a class.
        """
        n = len(self.classes)
        if not 0 <= node < len(self.names):
            raise InputError(f"The tree has no node {node}: its nodes are 0 to {self.root}.")
        return [] if node < n else list(self.merges[node - n])

    def leaves(self, node: int) -> list[int]:
        """The classes below a node, as positions in `classes`.

        Parameters
        ----------
        node : int
            The number of a node.

        Returns
        -------
        list of int
            In the order of the tree.
        """
        found, waiting = [], [node]
        while waiting:  # a tree can be deeper than Python's recursion
            one = waiting.pop()
            below = self.children(one)
            if below:
                waiting += below[::-1]
            else:
                found.append(one)
        return found

    def nodes_at(self, n_groups: int) -> list[int]:
        """The nodes of a cut into groups.

        Parameters
        ----------
        n_groups : int
            How many.

        Returns
        -------
        list of int
            In the order of the tree.
        """
        n = len(self.classes)
        if not 1 <= n_groups <= n:
            raise InputError(f"The tree of {n} classes cannot be cut into {n_groups} groups: give 1 to {n}.")
        last = len(self.names) - n_groups  # the merges above it are undone
        found, waiting = [], [self.root]
        while waiting:
            one = waiting.pop()
            if one > last:
                waiting += self.children(one)[::-1]
            else:
                found.append(one)
        return found

    def cut(self, n_groups: int) -> list[Group]:
        """Cut the tree into groups of classes.

        Parameters
        ----------
        n_groups : int
            The number of groups, from 1 to the number of classes.

        Returns
        -------
        list of Group
            In the order of the tree: neighbors are similar.

        Raises
        ------
        InputError
            If there are fewer classes.
        """
        return [
            Group(self.names[node], [self.classes[k] for k in self.leaves(node)]) for node in self.nodes_at(n_groups)
        ]

    def levels(self) -> list[int]:
        """Choose the numbers of groups at which people read the tree, the coarsest first.

        Returns
        -------
        list of int
            None for few classes, one for some, two for many.
        """
        n = len(self.classes)
        if n < SMALL:
            return []
        return [round(n**0.5)] if n < LARGE else [round(n ** (1 / 3)), round(n ** (2 / 3))]

    def to_json(self) -> str:
        """The whole tree as JSON: nested nodes with name, height, rows and children, and below them classes.

        Returns
        -------
        str
            A JSON object.
        """
        n, made = len(self.classes), []
        for node, name in enumerate(self.names):
            if node < n:
                facts = {"class": json_value(self.classes[node]), "known": self.known[node], "rows": self.rows[node]}
                made.append({"name": name, **facts})
            else:
                below = [made[child] for child in self.children(node)]
                height = round(self.heights[node - n], 6)
                made.append(
                    {"name": name, "height": height, "rows": sum(one["rows"] for one in below), "children": below}
                )
        return _dumps(made[self.root])

    def to_newick(self) -> str:
        """The tree in Newick format, with the names of all nodes and branch lengths.

        Returns
        -------
        str
            One line, which programs for trees read.
        """
        n = len(self.classes)
        made: list[str] = []
        heights = [0.0] * n + self.heights
        above = {child: heights[n + i] for i, pair in enumerate(self.merges) for child in pair}
        for node, name in enumerate(self.names):
            quoted = "'" + " ".join(name.split()).replace("'", "''") + "'"
            below = ",".join(made[child] for child in self.children(node))
            length = f":{above[node] - heights[node]:.6g}" if node in above else ""
            made.append(f"({below}){quoted}{length}" if below else f"{quoted}{length}")
        return f"{made[self.root]};"

    def write(self, path: StrPath, *, overwrite: bool = False) -> None:
        """Write a .json or .nwk (Newick) file, atomically.

        Parameters
        ----------
        path : path of the file
            Its suffix decides the format.
        overwrite : bool
            Replace an existing file.
        """
        target = check_export(path, overwrite, SUFFIXES)
        text = self.to_json() if target.suffix.lower() == ".json" else self.to_newick()
        with replacing(target, overwrite) as file:
            file.write(f"{text}\n".encode())


def _dumps(tree: dict[str, Any]) -> str:
    """JSON of nested nodes; `json.dumps` would fail on a tree deeper than Python's recursion."""
    parts: list[str] = []
    waiting: list[dict[str, Any] | str] = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            parts.append(one)
            continue
        facts = json.dumps({name: value for name, value in one.items() if name != "children"}, ensure_ascii=False)
        if "children" not in one:
            parts.append(facts)
            continue
        parts.append(f'{facts[:-1]}, "children": [')
        first, second = one["children"]
        waiting += ["]}", second, ", ", first]
    return "".join(parts)


def build_hierarchy(
    assignments: Assignments, model: DiscoveryEstimator, summaries: Sequence[ClassSummary]
) -> Hierarchy:
    """Build the tree of the classes that have rows.

    Parameters
    ----------
    assignments : Assignments
        The rows, with their runner-up: what the model confuses.
    model : estimator
        The fitted estimator, with exemplars or prototypes.
    summaries : sequence of ClassSummary
        The classes, in the order of ``model.classes_``.

    Raises
    ------
    InputError
        If fewer than two classes have rows.
    """
    with_rows = [k for k, one in enumerate(summaries) if one.rows]
    if len(with_rows) < 2:
        had = f"Only the class {summaries[with_rows[0]].name!r} has rows" if with_rows else "No class has rows"
        raise InputError(f"{had}, so there is no tree: it takes two, so fit with more classes.")
    distances = class_distances(assignments, model)[np.ix_(with_rows, with_rows)]
    found = linkage(distances[np.triu_indices(len(with_rows), 1)], "ward")
    merges = [(int(a), int(b)) for a, b, _, _ in found.tolist()]
    leaves = [summaries[k] for k in with_rows]
    names = _names(leaves, merges)
    heights = np.maximum.accumulate(found[:, 2]).tolist()  # rounding must not make a branch negative
    return Hierarchy(
        [one.name for one in leaves],
        [one.known for one in leaves],
        [one.rows for one in leaves],
        merges,
        heights,
        names,
    )


def class_distances(assignments: Assignments, model: DiscoveryEstimator) -> NDArray[np.float64]:
    """The distance of each two classes: small if they are similar, or if rows waver between them. (K, K)"""
    vectors = class_vectors(model)
    has_vector: NDArray[np.bool_] = np.asarray(vectors.any(axis=1))
    centred = np.where(has_vector[:, None], vectors - vectors[has_vector].mean(axis=0), 0.0)
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    unit = centred / np.where(lengths > 0, lengths, 1.0)
    apart = (1.0 - unit @ unit.T).clip(min=0.0)  # 1 for a class without a vector
    distances = np.sqrt(apart * np.exp(-CONFUSION_WEIGHT * np.sqrt(confusion(assignments, model.classes_))))
    np.fill_diagonal(distances, 0.0)
    return np.asarray(distances)


def class_vectors(model: DiscoveryEstimator) -> NDArray[np.float64]:
    """The mean refined embedding of the exemplars of each class, or without any its prototype. (K, D)

    Zeros for a class that was made by hand.
    """
    exemplars = getattr(model, "exemplars_", None)
    if exemplars is None or not len(exemplars.rows):
        prototypes: NDArray[np.float64] = class_prototypes(model).double().numpy()
        return prototypes
    rows = model.head_.transform(exemplars.rows.to(model.head_.prototypes)).detach().cpu().double().numpy()
    of_prototype = getattr(model, "class_of_prototype_", np.arange(len(model.head_.prototypes)))
    codes = of_prototype[exemplars.classes.cpu().numpy()]
    summed = np.zeros((len(model.classes_), rows.shape[1]))
    np.add.at(summed, codes, rows)
    means: NDArray[np.float64] = summed / np.bincount(codes, minlength=len(summed)).clip(min=1)[:, None]
    return means


def confusion(assignments: Assignments, classes: NDArray[Any]) -> NDArray[np.float64]:
    """The mean probability that rows of one class give to the other as runner-up, in both directions. (K, K)"""
    n = len(classes)
    own, other = class_codes(assignments.labels, classes), class_codes(assignments.runner_up, classes)
    seen = (own >= 0) & (other >= 0)
    given = np.zeros((n, n))
    np.add.at(given, (own[seen], other[seen]), assignments.runner_up_confidence[seen])
    sizes = np.bincount(own[own >= 0], minlength=n)
    both = given + given.T
    shared: NDArray[np.float64] = both / np.maximum(sizes[:, None] + sizes[None, :], 1)
    return shared


def _names(leaves: Sequence[ClassSummary], merges: Sequence[tuple[int, int]]) -> list[str]:
    """The name of each node: that of a class, or keywords that the classes of a group share, or its largest classes."""
    below: list[list[int]] = [[k] for k in range(len(leaves))]
    for a, b in merges:
        below.append(below[a] + below[b])
    titles = [title(one) for one in leaves]
    words = [_stems(one.keywords) for one in leaves]
    everywhere = Counter(word for found in words for word in found)
    names = list(titles)
    for group in below[len(leaves) :]:
        shared = _shared_words([words[k] for k in group], everywhere)
        if shared:
            names.append(", ".join(shared))
            continue
        names.append(name_by_classes(group, titles, [one.known for one in leaves], [one.rows for one in leaves]))
    return names


def name_by_classes(group: Sequence[int], titles: Sequence[str], known: Sequence[bool], rows: Sequence[int]) -> str:
    """The names of the largest classes of a group, known ones first, and how many more there are."""
    largest = sorted(group, key=lambda k: (not known[k], -rows[k]))[:NAME_WORDS]
    more = f" and {len(group) - NAME_WORDS} more" if len(group) > NAME_WORDS else ""
    return ", ".join(short(titles[k], 40) for k in largest) + more


def title(one: ClassSummary) -> str:
    """The decided name of a class, else the suggested one, else the name that the fit gave."""
    return str(one.name) if one.found_name else one.suggested_name or str(one.name)


def _stems(keywords: Sequence[str]) -> dict[str, str]:
    """The words of keywords by their stem."""
    found: dict[str, str] = {}
    for word in (word for phrase in keywords for word in words_of(phrase)):
        if word not in FUNCTION_WORDS:
            found.setdefault(stem(word), word)
    return found


def _shared_words(of_classes: Sequence[dict[str, str]], everywhere: Counter[str]) -> list[str]:
    """The words that most classes of a group have and few others, in their most frequent form."""
    inside = Counter(key for found in of_classes for key in found)
    needed = max(2, MIN_SHARED * len(of_classes))
    ranked = sorted(
        (key for key, n in inside.items() if n >= needed), key=lambda key: (-(inside[key] ** 2) / everywhere[key], key)
    )
    forms = {key: Counter(found[key] for found in of_classes if key in found) for key in ranked[:NAME_WORDS]}
    return [min(used, key=lambda form: (-used[form], len(form), form)) for used in forms.values()]
