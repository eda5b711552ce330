"""What is said of labels by members that did not see them: by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rpim.estimators.label_checks import LabelCheck

NAN = [math.nan] * 3


def check(probabilities, labels):
    return LabelCheck.of(torch.tensor(probabilities), torch.tensor(labels))


def test_what_is_said_of_each_label():
    found = check([[0.9, 0.1, 0.0], [0.7, 0.3, 0.0], [0.8, 0.15, 0.05], [0.1, 0.2, 0.7]], [0, 1, 1, 1])
    assert found.quality.tolist() == pytest.approx([0.9, 0.3, 0.15, 0.2])
    assert found.predicted.tolist() == [0, 0, 0, 2]
    assert found.confidence.tolist() == pytest.approx([0.9, 0.7, 0.8, 0.7])
    assert found.accuracy == 0.25


def test_labels_that_are_contradicted_as_often_as_the_probabilities_say_are_not_suspect():
    # Of ten rows that are class 0 by 0.8 two are expected to be class 1.
    assert not check([[0.8, 0.2]] * 10, [0] * 8 + [1] * 2).suspect.any()
    found = check([[0.99, 0.01]] * 10 + [[0.01, 0.99]] * 10, [0] * 8 + [1] * 12)
    assert found.suspect.tolist() == [False] * 8 + [True] * 2 + [False] * 10


def test_one_wrong_label_among_sure_ones_is_found():
    found = check([[0.999, 0.001]] * 50 + [[0.001, 0.999]] * 50, [0] * 49 + [1] * 51)
    assert torch.nonzero(found.suspect).flatten().tolist() == [49]
    assert found.predicted[49] == 0


def test_a_label_that_is_the_likeliest_class_is_never_suspect():
    found = check([[0.5, 0.4, 0.1], [0.1, 0.2, 0.7], [0.3, 0.6, 0.1]], [0, 2, 1])
    assert not found.suspect.any()
    assert found.accuracy == 1.0


def test_a_new_class_may_be_suggested():
    found = check([[0.99, 0.01, 0.0]] * 20 + [[0.0, 0.01, 0.99]] + [[0.01, 0.99, 0.0]] * 20, [0] * 20 + [1] * 21)
    assert found.ranked() == [20]
    assert found.predicted[20] == 2


def test_labels_that_every_member_saw_are_not_checked():
    found = check([[0.9, 0.1, 0.0], NAN, [0.1, 0.9, 0.0], NAN], [0, 0, 1, 1])
    assert found.quality.isnan().tolist() == [False, True, False, True]
    assert found.suspect.tolist() == [False] * 4
    assert found.accuracy == 1.0


def test_where_no_label_was_hidden_nothing_is_said():
    found = check([NAN, NAN], [0, 1])
    assert math.isnan(found.accuracy)
    assert found.quality.isnan().all()
    assert not found.suspect.any()
    assert found.ranked() == []


def test_the_most_suspect_come_first():
    # Margins -0.8, -0.5, -0.9; the label's own probability alone would not tell the first from the second.
    found = check([[0.9, 0.1, 0.0], [0.6, 0.1, 0.3], [0.95, 0.05, 0.0], [0.3, 0.7, 0.0]], [1, 1, 1, 0])
    found = LabelCheck(found.quality, found.predicted, found.confidence, torch.tensor([True, True, True, False]), 0.0)
    assert found.ranked() == [2, 0, 1]


def test_of_equal_rows_the_first_comes_first():
    found = check([[0.99, 0.01]] * 300 + [[0.01, 0.99]] * 100, [1] * 40 + [0] * 260 + [1] * 100)
    assert 30 < len(found.ranked()) <= 40
    assert found.ranked() == list(range(len(found.ranked())))


@given(st.integers(0, 40), st.integers(0, 10))
@settings(max_examples=20, deadline=None)
def test_about_as_many_are_suspect_as_are_wrong(n_wrong, seed):
    """Labels drawn from the probabilities, and some more of them drawn from the other classes."""
    random = np.random.RandomState(seed)
    p = random.dirichlet([0.2] * 4, 400)
    labels = (random.rand(400, 1) > p.cumsum(axis=1)).sum(axis=1).clip(max=3)
    labels[:n_wrong] = (labels[:n_wrong] + random.randint(1, 4, n_wrong)) % 4
    found = LabelCheck.of(torch.from_numpy(p), torch.from_numpy(labels))
    assert int(found.suspect.sum()) <= int((found.predicted != torch.from_numpy(labels)).sum())
    assert abs(int(found.suspect.sum()) - n_wrong) <= 25


def test_a_check_to_tensors_and_back():
    found = check([[0.99, 0.01, 0.0]] * 10 + [NAN, [0.98, 0.02, 0.0]], [0] * 11 + [1])
    assert found.suspect.any()
    back = LabelCheck.from_tensors(found.tensors())
    for name in ("quality", "predicted", "confidence", "suspect"):
        assert torch.equal(getattr(back, name).nan_to_num(9.0), getattr(found, name).nan_to_num(9.0))
    assert back.accuracy == found.accuracy
