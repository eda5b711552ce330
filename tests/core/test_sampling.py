"""A sample of rows: as many as asked for, all small classes, and the same for the same seed."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rpim.core.sampling import LABELLED_ROWS_PER_CLASS, sample_rows


def test_the_sample_has_labelled_rows_of_each_class():
    codes = np.full(10_000, -1)
    codes[:3000:3] = 0
    codes[5000:5006] = 1  # a small class, of which a draw may have none
    sample = sample_rows(codes, 500, seed=1)
    assert (np.diff(sample) > 0).all()
    assert 500 <= len(sample) <= 530
    assert (codes[sample] == 1).sum() == 6
    assert abs((codes[sample] == 0).sum() / len(sample) - 0.1) < 0.05  # as many as among all rows, or so
    assert sample_rows(codes, 10_000, seed=1).tolist() == list(range(10_000))


def test_no_more_than_twenty_are_added_of_a_class():
    codes = np.repeat([0, 1, -1], [1000, 1000, 8000])
    assert len(sample_rows(codes, 10, seed=0)) <= 10 + 2 * LABELLED_ROWS_PER_CLASS


def test_the_seed_says_which_rows():
    codes = np.full(1000, -1)
    first, again, other = (sample_rows(codes, 50, seed).tolist() for seed in (3, 3, 4))
    assert first == again != other
    assert sample_rows(codes, 50, 3 + 2**32).tolist() == first, "seeds of torch may be larger than those of numpy"


@given(st.lists(st.integers(-1, 4), min_size=1, max_size=300), st.integers(1, 100), st.integers(0, 10))
@settings(max_examples=50, deadline=None)
def test_of_each_class_twenty_rows_or_all(codes, n_rows, seed):
    codes = np.array(codes)
    sample = sample_rows(codes, n_rows, seed)
    assert len(sample) >= min(n_rows, len(codes))
    assert (np.diff(sample) > 0).all()
    for c in range(codes.max() + 1):
        assert (codes[sample] == c).sum() >= min(LABELLED_ROWS_PER_CLASS, (codes == c).sum())
