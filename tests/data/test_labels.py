"""Labels in the user's own type: what counts as missing, and how new classes are named."""

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rpim import PIM, FeatureSet
from rpim._common.errors import InputError
from rpim.data.labels import encode_labels, label_array, name_new_classes, unlabelled_rows

NAN = float("nan")

# labels as given, their codes, the known classes
EXAMPLES = {
    "integers": ([3, -1, 0, 3], [1, -1, 0, 1], [0, 3]),
    "integers in an array": (np.array([3, -1, 0, 3], dtype=np.int16), [1, -1, 0, 1], [0, 3]),
    "unsigned integers": (np.array([3, 255, 0], dtype=np.uint8), [1, 2, 0], [0, 3, 255]),
    "integers and None": ([3, None, 0], [1, -1, 0], [0, 3]),
    "negative ones": ([-5, -1, 2], [0, -1, 1], [-5, 2]),
    "floats with NaN": ([0.0, NAN, 2.0, -1.0], [0, -1, 1, -1], [0.0, 2.0]),
    "halves": (np.array([0.5, NAN, 1.5]), [0, -1, 1], [0.5, 1.5]),
    "text": (["dog", "", "cat", "dog"], [1, -1, 0, 1], ["cat", "dog"]),
    "text in an array": (np.array(["dog", "", "cat"]), [1, -1, 0], ["cat", "dog"]),
    "text and None": (["dog", None, "cat"], [1, -1, 0], ["cat", "dog"]),
    "text and NaN": (["dog", NAN, "cat"], [1, -1, 0], ["cat", "dog"]),
    "text and -1": (["dog", -1, "cat"], [1, -1, 0], ["cat", "dog"]),
    "text and everything": (["dog", None, "", NAN, -1, "cat"], [1, -1, -1, -1, -1, 0], ["cat", "dog"]),
    "text that looks like a number": (["10", "", "9"], [0, -1, 1], ["10", "9"]),
    "text that looks like None": (["None", None, "nan"], [0, -1, 1], ["None", "nan"]),
    "objects": (np.array(["dog", None, "cat"], dtype=object), [1, -1, 0], ["cat", "dog"]),
    "a tuple": (("dog", "", "cat"), [1, -1, 0], ["cat", "dog"]),
    "integers and floats": (np.array([1, None, 2.5], dtype=object), [0, -1, 1], [1.0, 2.5]),
    "a series of text with NA": (pd.Series(["dog", pd.NA, "cat"]), [1, -1, 0], ["cat", "dog"]),
    "a string series": (pd.Series(["dog", pd.NA, "cat"], dtype="string"), [1, -1, 0], ["cat", "dog"]),
    "an object series": (pd.Series(["dog", None, pd.NA, ""], dtype=object), [0, -1, -1, -1], ["dog"]),
    "a nullable series": (pd.Series([3, pd.NA, 0], dtype="Int64"), [1, -1, 0], [0, 3]),
    "a float series": (pd.Series([3, None, 0]), [1, -1, 0], [0, 3]),
    "a categorical series": (pd.Series(["dog", None, "cat"], dtype="category"), [1, -1, 0], ["cat", "dog"]),
    "a series with an index of its own": (pd.Series(["b", "a"], index=[7, 7]), [1, 0], ["a", "b"]),
    "everything labelled": ([1, 0], [1, 0], [0, 1]),
    "nothing labelled": ([-1, -1], [-1, -1], []),
    "nothing labelled, as None": ([None, None], [-1, -1], []),
    "nothing at all": ([], [], []),
}


@pytest.mark.parametrize("which", list(EXAMPLES))
def test_examples(which):
    y, codes, known = EXAMPLES[which]
    found_codes, found_known = encode_labels(y)
    assert found_codes.tolist() == codes
    assert found_codes.dtype == np.int64
    assert found_known.tolist() == known
    assert unlabelled_rows(y).tolist() == [code == -1 for code in codes]
    assert unlabelled_rows(y).dtype == bool


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint16, np.float32])
def test_the_type_is_kept(dtype):
    _, known = encode_labels(np.array([2, 0], dtype=dtype))
    assert known.dtype == dtype
    assert name_new_classes(known, 2).dtype == dtype
    assert name_new_classes(known, 2).tolist() == [0, 2, 3, 4]


def test_text_known_classes_are_text():
    _, known = encode_labels(["a", None])
    assert known.dtype.kind == "U"


@pytest.mark.parametrize(
    "y",
    [
        ["cat", 3],
        ["cat", 3, None],
        np.array(["cat", 3.5], dtype=object),
        pd.Series(["cat", 3], dtype=object),
        ["cat", np.int64(3)],
        [datetime.date(2020, 1, 1), "cat"],
    ],
)
def test_text_and_numbers_do_not_mix(y):
    with pytest.raises(InputError, match=r"mix text and numbers.*one type"):
        encode_labels(y)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.one_of(st.none(), st.just(""), st.sampled_from(["a", "b", "ü", "a b"]))))
def test_codes_lead_back_to_the_labels(y):
    codes, known = encode_labels(y)
    assert known.tolist() == sorted({label for label in y if label})
    assert [known[code] if code >= 0 else None for code in codes] == [label or None for label in y]


@settings(deadline=None, max_examples=50)
@given(st.lists(st.integers(-3, 9), min_size=1))
def test_codes_lead_back_to_the_numbers(y):
    codes, known = encode_labels(y)
    assert [known[code] if code >= 0 else -1 for code in codes] == y


# -- naming ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "n_new", "expected"),
    [
        (["cat", "dog"], 2, ["cat", "dog", "new-1", "new-2"]),
        (["cat", "new-1"], 2, ["cat", "new-1", "new-2", "new-3"]),
        (["cat", "new-2"], 2, ["cat", "new-2", "new-1", "new-3"]),
        (["cat"], 0, ["cat"]),
        ([0, 4], 2, [0, 4, 5, 6]),
        ([-7, -5], 2, [-7, -5, 0, 1]),  # never -1, which means "no label"
        ([0.5, 2.5], 2, [0.5, 2.5, 3.0, 4.0]),
        ([0.0, 2.0], 1, [0.0, 2.0, 3.0]),
        ([3], 0, [3]),
    ],
)
def test_names_of_new_classes(known, n_new, expected):
    known = np.array(known)
    names = name_new_classes(known, n_new)
    assert names.tolist() == expected
    assert names.dtype.kind == known.dtype.kind


def test_a_number_too_large_for_its_type_widens_it():
    assert name_new_classes(np.array([127], dtype=np.int8), 1).tolist() == [127, 128]


def test_names_without_any_known_class():
    assert name_new_classes(encode_labels([-1, -1])[1], 3).tolist() == [0, 1, 2]
    assert name_new_classes(encode_labels(["", ""])[1], 2).tolist() == ["group-1", "group-2"]


@settings(deadline=None, max_examples=50)
@given(
    known=st.sets(st.sampled_from(["a", "b"] + [f"new-{i}" for i in range(6)]), min_size=1),
    n_new=st.integers(0, 5),
)
def test_no_name_is_given_twice(known, n_new):
    names = name_new_classes(np.array(sorted(known)), n_new).tolist()
    assert names[: len(known)] == sorted(known)
    assert len(set(names)) == len(names) == len(known) + n_new


@settings(deadline=None, max_examples=50)
@given(known=st.sets(st.integers(-9, 50), min_size=1), n_new=st.integers(0, 5))
def test_no_number_is_given_twice(known, n_new):
    names = name_new_classes(np.array(sorted(known)), n_new).tolist()
    assert len(set(names)) == len(names) == len(known) + n_new
    assert -1 not in names[len(known) :]


# One rule for what has no label, and numbers that leave none for new classes


@pytest.mark.parametrize("labels", [["cat", "-1", "dog", ""], np.array(["cat", "-1", "dog", ""])])
def test_the_text_of_minus_one_is_unlabelled_everywhere(labels, tmp_path):
    assert unlabelled_rows(labels).tolist() == [False, True, False, True]
    assert encode_labels(labels)[1].tolist() == ["cat", "dog"]
    assert label_array(labels, "labels", 4).tolist() == ["cat", "", "dog", ""]
    lines = "".join(f"{k}.5,{label}\n" for k, label in enumerate(labels))
    (tmp_path / "f.csv").write_text(f"f0,label\n{lines}")
    assert FeatureSet.read(tmp_path / "f.csv").labels.tolist() == ["cat", "", "dog", ""]


@pytest.mark.parametrize(
    "labels",
    [
        [0, 2**63 - 1, -1],
        np.array([0, 2**64 - 1], dtype=np.uint64),
        np.array([0.0, 1e300, np.nan]),
        [0, 10**30, None],
        [0, -(2**63)],
    ],
)
def test_numbers_that_leave_none_for_new_classes_are_refused(labels):
    with pytest.raises(InputError, match=r"The labels go up to .*: give smaller ones, or text\."):
        encode_labels(labels)


def test_large_numbers_are_labels(blobs):
    x, truth = blobs([20] * 4, 8)
    y = np.where(np.arange(80) % 2 == 0, truth.numpy() + 2**62 - 3, -1)
    assert PIM(6, random_state=0).fit(x.numpy(), y).classes_.tolist() == [2**62 + k for k in range(-3, 3)]
