"""Decisions: what each does to a state, worked out by hand, and that it can be written down."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpim import InputError
from rpim.runs.decisions import Accept, Junk, Merge, Move, Rename, Split, State, decode, encode


def rows(*numbers):
    return np.array(numbers, dtype=np.int32)


@pytest.fixture
def state():
    """Six rows: cat cat dog new-1 new-1 and one that fits no class."""
    return State.of_classes(
        np.array(["cat", "cat", "dog", "new-1", "new-1", ""]), np.array(["cat", "dog", "new-1"]), n_known=2
    )


def test_a_state_begins_with_what_the_fit_found(state):
    assert state.names() == ["cat", "cat", "dog", "new-1", "new-1", ""]
    assert state.sizes() == {0: 2, 1: 1, 2: 2}
    assert [info.known for info in state.classes.values()] == [True, True, False]
    assert not any(info.reviewed or info.accepted for info in state.classes.values())


def test_rename_is_the_final_label(state):
    after = Rename(2, "  red   panda ").apply(state)
    assert after.names()[3:5] == ["red panda", "red panda"]
    assert after.classes[2].reviewed
    assert state.names()[3] == "new-1"  # the state before is as it was


@pytest.mark.parametrize("name", ["", "  ", "a\x00b", "x" * 201])
def test_a_name_is_visible_and_not_too_long(state, name):
    with pytest.raises(InputError, match="1 to 200 printable characters"):
        Rename(2, name).apply(state)


def test_two_classes_cannot_have_one_name(state):
    with pytest.raises(InputError, match=r"Another class is already called dog: .* or merge"):
        Rename(2, "dog").apply(state)
    assert Rename(1, "dog").apply(state).classes[1].name == "dog"  # its own name is no other's


def test_accept_and_reopen(state):
    assert Accept(2).apply(state).classes[2].accepted
    assert not Accept(2, accepted=False).apply(Accept(2).apply(state)).classes[2].accepted


def test_merge_makes_the_others_part_of_the_first(state):
    after = Merge((2, 0)).apply(state)
    assert after.names() == ["new-1", "new-1", "dog", "new-1", "new-1", ""]
    assert sorted(after.classes) == [1, 2]
    assert after.classes[2].known  # because one of them was
    with pytest.raises(InputError, match="no longer exists"):
        Rename(0, "x").apply(after)
    with pytest.raises(InputError, match="select at least two"):
        Merge((1, 1)).apply(state)


def test_split_keeps_part_zero_and_names_the_others(state):
    named = Rename(1, "cat (2)").apply(state)
    after = Split(0, rows(0, 1), rows(0, 1), first=3).apply(named)
    assert after.names() == ["cat", "cat (3)", "cat (2)", "new-1", "new-1", ""]
    assert not after.classes[3].known
    assert after.next_class == 4
    with pytest.raises(InputError, match="too similar"):
        Split(0, rows(0, 1), rows(0, 0), first=3).apply(state)


def test_move_to_a_class_or_a_new_one(state):
    after = Move(rows(1, 5), to=1).apply(state)
    assert after.names() == ["cat", "dog", "dog", "new-1", "new-1", "dog"]
    assert after.by_hand.tolist() == [False, True, False, False, False, True]
    new = Move(rows(3), to=3, name="fox").apply(after)
    assert new.names()[3] == "fox"
    assert new.next_class == 4
    with pytest.raises(InputError, match="no longer exists"):
        Move(rows(1), to=9).apply(state)


@pytest.mark.parametrize("bad", [rows(), rows(-1), rows(6)])
def test_rows_that_are_not_there_are_refused(state, bad):
    for decision in (Move(bad, to=1), Junk(bad)):
        with pytest.raises(InputError, match="not among the 6 rows of the run"):
            decision.apply(state)


@pytest.mark.parametrize(
    "decision",
    [
        Move(rows(1), 0, "owl"),
        Move(rows(1), 2**31 - 2, "owl"),
        Split(0, rows(0, 1), rows(0, 1), first=1),
        Split(0, rows(0, 1), rows(0, 1), first=9),
        Split(0, rows(0, 1), rows(0, 2_000_000), first=3),
        Split(0, rows(0, 1), rows(-1, 1), first=3),
    ],
)
def test_a_new_class_has_the_next_number(state, decision):
    """Stored decisions may be of anybody; found by fuzzing."""
    with pytest.raises(ValueError, match=r"a new class has the number|not numbered one after the other"):
        decision.apply(state)


def test_junk_has_no_label_and_remembers_its_class(state):
    after = Junk(rows(0, 3)).apply(state)
    assert after.names() == ["", "cat", "dog", "", "new-1", ""]
    assert after.sizes() == {0: 1, 1: 1, 2: 1}
    assert Junk(rows(0), junk=False).apply(after).names()[0] == "cat"
    assert Move(rows(0), to=1).apply(after).names()[0] == "dog"  # who moves a row wants it


def test_every_decision_says_what_it_does(state):
    said = [
        decision.describe(state)
        for decision in (
            Rename(2, "fox"),
            Accept(0),
            Accept(0, accepted=False),
            Merge((0, 1)),
            Split(0, rows(0, 1), rows(0, 1), 3),
            Move(rows(1), 1),
            Move(rows(1, 2), 3, "fox"),
            Junk(rows(1)),
            Junk(rows(1), junk=False),
        )
    ]
    assert said == [
        "rename new-1 to fox",
        "accept cat",
        "reopen cat",
        "merge dog into cat",
        "split cat into 2",
        "move 1 row to dog",
        "move 2 rows to the new class fox",
        "mark 1 row as junk",
        "restore 1 row from junk",
    ]


row_sets = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=30).map(lambda values: rows(*values))


@given(row_sets, st.data())
@settings(max_examples=50, deadline=None)
def test_what_is_written_down_is_read_again(some, data):
    parts = rows(*data.draw(st.lists(st.integers(0, 9), min_size=len(some), max_size=len(some))))
    decisions = (
        Rename(1, "naïve <b>\u2028"),
        Accept(3, False),
        Merge((4, 1, 2)),
        Move(some, 3),
        Move(some, 3, "x"),
        Junk(some, False),
        Split(7, some, parts, 12),
    )
    for decision in decisions:
        again = decode(*encode(decision))
        assert type(again) is type(decision)
        for name, value in vars(decision).items():
            np.testing.assert_array_equal(getattr(again, name), value)


def test_neighboring_rows_take_few_bytes():
    assert len(encode(Junk(np.arange(200_000, dtype=np.int32)))[1]) < 2_000


def test_a_thousand_decisions_on_200_000_rows_take_seconds_at_most():
    state = State.of_classes(np.arange(200_000) % 200, np.arange(200), n_known=100)
    start = time.monotonic()
    for k in range(1000):
        state = Move(rows(k, k + 1000), to=k % 200).apply(state)
    assert state.by_hand.sum() == 2000
    assert time.monotonic() - start < 10
