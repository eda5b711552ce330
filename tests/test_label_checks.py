"""What is said of labels by members that did not see them: by hand."""

import math

import pytest
import torch

from rpim.methods.label_checks import LabelCheck

NAN = [math.nan] * 3


def check(probabilities, labels, n_known=2):
    return LabelCheck.of(torch.tensor(probabilities), torch.tensor(labels), n_known)


def test_a_label_is_suspect_where_another_class_is_as_likely_as_it_usually_is():
    found = check([
        [0.9, 0.1, 0.0],
        [0.7, 0.3, 0.0],  # of class 0 the members are sure by 0.8 on average
        [0.79, 0.21, 0.0],  # so that this is no reason to doubt the label 1
        [0.81, 0.19, 0.0],  # but this is
        [0.1, 0.9, 0.0],
    ], [0, 0, 1, 1, 1])  # fmt: skip
    assert found.suspect.tolist() == [False, False, False, True, False]
    assert found.predicted.tolist() == [0, 0, 0, 0, 1]
    assert found.quality.tolist() == pytest.approx([0.9, 0.7, 0.21, 0.19, 0.9])
    assert found.confidence.tolist() == pytest.approx([0.9, 0.7, 0.79, 0.81, 0.9])
    assert found.accuracy == pytest.approx(3 / 5)


def test_a_new_class_may_be_suggested_as_surely_as_known_ones_are_usually():
    rows = [[0.9, 0.1, 0.0], [0.1, 0.9, 0.0], [0.0, 0.1, 0.9], [0.3, 0.1, 0.6]]
    found = check(rows, [0, 1, 1, 0])
    # The labels get (0.9 + 0.9 + 0.1 + 0.3) / 4 = 0.55 on average.
    assert found.suspect.tolist() == [False, False, True, True]
    assert found.predicted.tolist()[2:] == [2, 2]


def test_labels_that_every_member_saw_are_not_checked():
    found = check([[0.9, 0.1, 0.0], NAN, [0.1, 0.9, 0.0], NAN], [0, 0, 1, 1])
    assert found.quality.isnan().tolist() == [False, True, False, True]
    assert found.suspect.tolist() == [False] * 4
    assert found.accuracy == 1.0


def test_where_no_label_was_hidden_nothing_is_said():
    found = check([NAN, NAN], [0, 1])
    assert math.isnan(found.accuracy)
    assert not found.suspect.any()
    assert found.ranked() == []


def test_a_class_without_a_checked_label_is_measured_by_the_others():
    # No label 1 was hidden; the usual confidence is that of class 0, 0.5 on average.
    found = check([[0.8, 0.2, 0.0], [0.2, 0.8, 0.0], NAN], [0, 0, 1])
    assert found.suspect.tolist() == [False, True, False]


def test_the_most_suspect_come_first():
    # Margins -0.8, -0.5, -0.9; the label's own probability alone would not tell the first from the second.
    rows = [[0.9, 0.1, 0.0], [0.6, 0.1, 0.3], [0.95, 0.05, 0.0], [0.3, 0.7, 0.0]]
    found = check(rows, [1, 1, 1, 0])
    found = LabelCheck(found.quality, found.predicted, found.confidence, torch.tensor([True, True, True, False]), 0.0)
    assert found.ranked() == [2, 0, 1]


def test_of_equal_rows_the_first_comes_first():
    rows = [[0.1, 0.9, 0.0]] * 3 + [[0.0, 0.2, 0.8]]
    found = check(rows, [0, 0, 0, 1])
    assert found.ranked()[1:] == [0, 1, 2] or found.ranked() == [0, 1, 2]


def test_a_check_to_tensors_and_back():
    found = check([[0.9, 0.1, 0.0], NAN, [0.7, 0.3, 0.0]], [0, 0, 1])
    back = LabelCheck.from_tensors(found.tensors())
    for name in ("quality", "predicted", "confidence", "suspect"):
        assert torch.equal(getattr(back, name).nan_to_num(9.0), getattr(found, name).nan_to_num(9.0))
    assert back.accuracy == found.accuracy
