"""The tree of the classes: merges by hand, names at every level, cuts, files, and the command."""

from __future__ import annotations

import dataclasses
import json
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rpim import Discovery, InputError
from rpim.runs.assignments import Assignments
from rpim.runs.class_summaries import ClassSummary
from rpim.runs.hierarchy import Hierarchy, build_hierarchy, confusion

NAMES = np.array(["ant", "bee", "cat", "dog"])


def rows(labels, runner_up, runner_up_confidence=0.0) -> Assignments:
    n = len(labels)
    return Assignments(
        ids=np.arange(n),
        labels=NAMES[labels],
        known=np.asarray(labels) < 2,
        confidence=np.full(n, 0.5, np.float32),
        runner_up=NAMES[runner_up],
        runner_up_confidence=np.full(n, runner_up_confidence, np.float32),
        outlier=np.zeros(n, np.float32),
    )


def model(prototypes):
    head = SimpleNamespace(prototypes=torch.tensor(prototypes, dtype=torch.float32))
    return SimpleNamespace(classes_=NAMES, known_classes_=NAMES[:2], head_=head)


def summary(name, n_rows=1, known=True, keywords=(), suggested="") -> ClassSummary:
    return ClassSummary(name, suggested, "", known, n_rows, 0, 0.5, 0.0, 1.0, "", [], [], list(keywords))


PAIRS = [[1.0, 0.2, 0.0], [1.0, 0.0, 0.2], [-1.0, 0.2, 0.0], [-1.0, 0.0, 0.2]]
"""ant is near bee, cat is near dog."""
SQUARE = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]]
"""Every class has two neighbors at the same distance."""


def tree_of(prototypes, assignments, summaries=None) -> Hierarchy:
    return build_hierarchy(assignments, model(prototypes), summaries or [summary(name) for name in NAMES.tolist()])


def test_similar_prototypes_are_merged_first():
    tree = tree_of(PAIRS, rows([0, 1, 2, 3], [1, 0, 3, 2]))
    assert sorted(tree.merges[:2]) == [(0, 1), (2, 3)]
    assert [sorted(group.classes) for group in tree.cut(2)] == [["ant", "bee"], ["cat", "dog"]]
    assert all(a <= b for a, b in pairwise(tree.heights))


@pytest.mark.parametrize(
    ("ant_with", "pairs"), [(1, [["ant", "bee"], ["cat", "dog"]]), (3, [["ant", "dog"], ["bee", "cat"]])]
)
def test_between_equal_prototypes_confusion_decides(ant_with, pairs):
    partner = {0: ant_with, ant_with: 0}
    partner |= {k: ({1, 2, 3} - {ant_with, k}).pop() for k in (1, 2, 3) if k != ant_with}
    tree = tree_of(SQUARE, rows([0, 1, 2, 3], [partner[k] for k in range(4)], 0.4))
    assert sorted(sorted(group.classes) for group in tree.cut(2)) == pairs


def test_confusion_is_the_mean_probability_of_the_other_class_in_both_directions():
    shared = confusion(rows([0, 0, 0, 1], [1, 2, 1, 0], 0.25), NAMES)
    assert shared[0, 1] == shared[1, 0] == pytest.approx(3 * 0.25 / 4)
    assert shared[0, 2] == pytest.approx(0.25 / 3)  # cat has no row
    assert shared[2, 3] == 0.0


def test_groups_are_named_by_shared_keywords_or_by_their_largest_classes():
    summaries = [
        summary("ant", keywords=["lost card", "phone"]),
        summary("bee", keywords=["new cards", "post"]),
        summary("cat", 5, known=False),
        summary("dog", 9, known=False, suggested="big dog"),
    ]
    tree = tree_of(PAIRS, rows([0, 1, 2, 3], [1, 0, 3, 2]), summaries)
    assert tree.names[:4] == ["ant", "bee", "cat", "big dog"]
    assert {tree.names[4], tree.names[5]} == {"card", "big dog, cat"}
    assert tree.names[tree.root] == "card"  # two of four classes have it


def test_known_classes_come_first_in_a_name_of_classes():
    summaries = [summary("ant", 1), summary("bee", 2), summary("cat", 9, known=False), summary("dog", 8, known=False)]
    tree = tree_of(PAIRS, rows([0, 1, 2, 3], [1, 0, 3, 2]), summaries)
    assert tree.names[tree.root] == "bee, ant and 2 more"


def test_a_class_without_rows_is_not_in_the_tree():
    summaries = [summary("ant"), summary("bee"), summary("cat", 0), summary("dog")]
    tree = tree_of(PAIRS, rows([0, 1, 3], [1, 0, 1]), summaries)
    assert tree.classes == ["ant", "bee", "dog"]
    assert tree.leaves(tree.root) in ([0, 1, 2], [2, 0, 1])


@pytest.mark.parametrize(
    ("sizes", "message"), [((0, 0, 7, 0), "Only the class 'cat' has rows"), ((0,) * 4, "No class has")]
)
def test_one_class_makes_no_tree(sizes, message):
    summaries = [summary(name, n) for name, n in zip(NAMES.tolist(), sizes, strict=True)]
    with pytest.raises(InputError, match=f"{message}.*, so there is no tree"):
        tree_of(PAIRS, rows([2], [1]), summaries)


@pytest.mark.parametrize("n_groups", [0, 5])
def test_a_cut_outside_the_tree_is_refused(n_groups):
    tree = tree_of(PAIRS, rows([0, 1, 2, 3], [1, 0, 3, 2]))
    with pytest.raises(InputError, match=f"4 classes cannot be cut into {n_groups} groups: give 1 to 4"):
        tree.cut(n_groups)
    with pytest.raises(InputError, match="no node 7: its nodes are 0 to 6"):
        tree.children(7)


def chain(n: int) -> Hierarchy:
    merges = [(0, 1), *((k, n + k - 2) for k in range(2, n))]
    heights = [float(k) for k in range(1, n)]
    return Hierarchy(list(range(n)), [True] * n, [1] * n, merges, heights, [f"n{k}" for k in range(2 * n - 1)])


def test_every_cut_has_each_class_once_and_as_many_groups_as_asked_for():
    tree = chain(9)
    for n_groups in range(1, 10):
        groups = tree.cut(n_groups)
        assert len(groups) == n_groups
        assert sorted(one for group in groups for one in group.classes) == list(range(9))


def test_a_tree_deeper_than_the_recursion_of_python_can_be_written():
    tree = chain(3000)
    assert tree.to_json().count('"class"') == tree.to_newick().count("(") + 1 == 3000
    assert len(tree.leaves(tree.root)) == 3000


def test_levels_fit_the_number_of_classes():
    assert [chain(n).levels() for n in (3, 9, 125)] == [[], [3], [5, 25]]


def test_json_and_newick_have_the_tree_by_hand():
    tree = Hierarchy(["it's", 7.0, "c"], [True, False, True], [3, 1, 2], [(0, 1), (2, 3)], [0.5, 2.0],
                     ["it's", "7", "c", "it's, 7", "c,\n all"])  # fmt: skip
    assert tree.to_newick() == "('c':2,('it''s':0.5,'7':0.5)'it''s, 7':1.5)'c, all';"
    found = json.loads(tree.to_json())
    assert (found["rows"], found["height"], [one["rows"] for one in found["children"]]) == (6, 2.0, [2, 4])
    assert found["children"][0] == {"name": "c", "class": "c", "known": True, "rows": 2}


def test_the_command_writes_both_formats_and_refuses_others(animals, command, refused):
    assert command("export", animals, "--hierarchy", "-o", "tree.json")[0] == 0
    assert command("export", animals, "--hierarchy", "-o", "tree.nwk")[0] == 0
    tree = Discovery.load(animals).hierarchy()
    assert Path("tree.json").read_text() == tree.to_json() + "\n"
    newick = Path("tree.nwk").read_text()
    assert sorted(re.findall(r"[(,]'([a-z0-9-]+)'", newick)) == ["ant", "bee", "cat", "dog", "elk"]
    refused("tree.json exists already", "export", animals, "--hierarchy", "-o", "tree.json")
    refused("give .json or .nwk", "export", animals, "--hierarchy", "-o", "tree.csv")
    refused("give one of them", "export", animals, "--hierarchy", "--decisions", "-o", "x.json")


def test_the_tree_of_a_discovery_has_its_classes_and_rows(animals):
    found = Discovery.load(animals)
    tree = found.hierarchy()
    assert tree.classes == found.classes.tolist()
    assert dict(zip(tree.classes, tree.rows, strict=True)) == {one.name: one.rows for one in found.classes_table()}
    assert tree is found.hierarchy()
    assert dataclasses.asdict(tree)["known"] == [True, True, True, False, False]
