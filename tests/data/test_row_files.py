"""Rows that stay on disk: read in order and by number, and damaged files named before any work."""

from functools import partial

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rpim._common.errors import InputError
from rpim.data.feature_set import FeatureSet
from rpim.data.row_files import RowFiles

MATRIX = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float16)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The same rows as one .npy, as one .parquet of several row groups, and as folders of uneven files of each kind."""
    folder = tmp_path_factory.mktemp("rows")
    np.save(folder / "one.npy", MATRIX)
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")

    def table(rows):
        return pa.table({"features": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 3)})

    parquet.write_table(table(MATRIX), folder / "one.parquet", row_group_size=7)
    for kind in ("npys", "parquets"):
        (folder / kind).mkdir()
    for number, part in enumerate(np.split(MATRIX, [20, 21, 21, 44])):
        np.save(folder / "npys" / f"part-{number}.npy", part)
        if len(part):
            parquet.write_table(table(part), folder / "parquets" / f"part-{number}.parquet", row_group_size=5)
    return {name: RowFiles(folder / name) for name in ("one.npy", "one.parquet", "npys", "parquets")}


@pytest.mark.parametrize("name", ["one.npy", "one.parquet", "npys", "parquets"])
@settings(max_examples=25, deadline=None)
@given(start=st.integers(0, 50), stop=st.integers(0, 60), size=st.integers(1, 60))
@example(start=0, stop=1, size=2)
@example(start=7, stop=9, size=1)
def test_blocks_are_the_rows_in_order(stored, name, start, stop, size):
    rows = stored[name]
    assert rows.shape == (50, 3)
    assert rows.dtype == np.float16
    found = list(rows.blocks(start, stop, size))
    np.testing.assert_array_equal(np.concatenate([MATRIX[:0], *(block for _, block in found)]), MATRIX[start:stop])
    assert [first for first, _ in found] == list(range(start, min(stop, 50), size))
    assert all(len(block) == size for _, block in found[:-1])


@pytest.mark.parametrize("name", ["one.npy", "one.parquet", "npys", "parquets"])
@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 50), min_size=2, max_size=4).map(sorted), size=st.integers(1, 60))
def test_a_span_is_a_matrix_of_its_own(stored, name, cuts, size):
    """And so is a span of a span, as a worker's share of a shard would be."""
    span = stored[name].span(cuts[0], cuts[-1])
    assert span.shape == (cuts[-1] - cuts[0], 3)
    found = list(span.blocks(size=size))
    np.testing.assert_array_equal(
        np.concatenate([MATRIX[:0], *(block for _, block in found)]), MATRIX[cuts[0] : cuts[-1]]
    )
    assert [first for first, _ in found] == list(range(0, len(span), size))
    inner = span.span(cuts[1] - cuts[0], len(span))
    np.testing.assert_array_equal(inner[:], MATRIX[cuts[1] : cuts[-1]])


@pytest.mark.parametrize("name", ["one.npy", "one.parquet", "npys", "parquets"])
def test_rows_by_number(stored, name):
    rows = stored[name]
    for chosen in ([3, 1, 49, 1], slice(5, 30), slice(None, None, 7), slice(-2, None), slice(9, 9), MATRIX[:, 0] > 0):
        np.testing.assert_array_equal(rows[chosen], MATRIX[chosen])
    assert rows.take(np.array([], dtype=int)).shape == (0, 3)


def test_a_span_that_ends_within_a_row_group_has_nothing_of_what_follows(stored):
    """Rows 0 to 6 are one row group: it is read two rows at a time, of which the first row alone is wanted."""
    ((first, block),) = stored["one.parquet"].blocks(0, 1, 2)
    assert first == 0
    np.testing.assert_array_equal(block, MATRIX[:1])
    assert list(stored["parquets"].pieces(19, 22)) == [
        (stored["parquets"].files[0], 19, 20),
        (stored["parquets"].files[1], 0, 1),
        (stored["parquets"].files[2], 0, 1),
    ]


def test_a_pass_that_is_left_early_ends_its_reader(stored):
    import threading

    before = threading.active_count()
    for _, _ in stored["npys"].blocks(size=1):
        break
    assert threading.active_count() == before


@pytest.fixture
def refused(raises_input_error):
    return partial(raises_input_error, RowFiles)


def test_a_missing_shard_is_named(tmp_path, refused):
    for number in (0, 1, 3):
        np.save(tmp_path / f"part-{number:05d}.npy", MATRIX)
    refused(r"lacks part-00002\.npy: write it again", tmp_path)
    (tmp_path / "part-00003.npy").rename(tmp_path / "part-00002.npy")
    assert len(RowFiles(tmp_path)) == 150
    (tmp_path / "part-00001.npy").rename(tmp_path / "others.npy")  # who names files otherwise has another order in mind
    assert len(RowFiles(tmp_path)) == 150


def test_bad_files_are_named(tmp_path, refused):
    refused("is not there", tmp_path / "gone.npy")
    (tmp_path / "empty").mkdir()
    refused("holds no .npy or .parquet files", tmp_path / "empty")
    folder = tmp_path / "shards"
    folder.mkdir()
    np.save(folder / "a.npy", MATRIX)
    np.save(folder / "b.npy", MATRIX[:, :2])
    refused("b.npy has 2 features a row but .*a.npy has 3 features", folder)
    np.save(folder / "b.npy", MATRIX.astype(np.float32))
    refused("b.npy has values of type float32 but .*a.npy has values of type float16", folder)
    whole = (folder / "a.npy").read_bytes()
    (folder / "b.npy").write_bytes(whole[:-100])
    refused("b.npy is truncated, after 33 of its 50 rows", folder)
    (folder / "b.npy").write_bytes(b"no")
    refused("b.npy is not an .npy file", folder)
    np.save(folder / "b.npy", np.zeros((3, 3), dtype=int))
    refused("b.npy holds values of type int64", folder)
    FeatureSet.from_arrays(MATRIX).write(folder / "b.parquet")
    refused("holds .npy and .parquet files", folder)
    (tmp_path / "c.parquet").write_bytes((folder / "b.parquet").read_bytes()[:-20])
    refused("c.parquet cannot be read", tmp_path / "c.parquet")
    (tmp_path / "d.csv").write_text("1,2\n")
    refused("cannot be read block by block", tmp_path / "d.csv")


def test_a_file_that_shrinks_while_it_is_read(tmp_path):
    np.save(tmp_path / "x.npy", MATRIX)
    rows = RowFiles(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", MATRIX[:10])
    with pytest.raises(InputError, match="has become shorter"):
        list(rows.blocks())
