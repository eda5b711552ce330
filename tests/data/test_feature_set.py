import dataclasses
import errno
import io
import json
import os
import pickle
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from rpim._common import files, hardware
from rpim._common.errors import InputError
from rpim.data import feature_set, row_files
from rpim.data.feature_set import FeatureSet
from rpim.data.feature_stream import FeatureStream
from rpim.data.formats import feature_files
from rpim.data.formats.label_files import read_labels
from rpim.data.formats.tables import CsvFile, FeatureTable
from rpim.data.row_files import RowFiles

X = np.array([[3.0, 4.0, 0.0], [0.0, 2.0, 0.0], [1.0, 1.0, 1.0], [-1.0, 0.5, 0.25]], dtype=np.float32)


def equal(a, b):
    """Same fields, same types."""
    np.testing.assert_array_equal(a.X, b.X)
    assert a.X.dtype == b.X.dtype
    for name in ("ids", "labels", "truth", "split"):
        ours, theirs = getattr(a, name), getattr(b, name)
        assert (ours is None) == (theirs is None), name
        if ours is not None:
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype.kind == theirs.dtype.kind, name
    assert len(a.views) == len(b.views)
    for ours, theirs in zip(a.views, b.views, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (a.texts, a.paths, a.metadata) == (b.texts, b.paths, b.metadata)
    return True


# ---- from_arrays


@pytest.mark.parametrize(
    ("given_labels", "kept", "labelled"),
    [
        ([5, -1, 7, 5], [5, -1, 7, 5], [1, 0, 1, 1]),
        ([5, None, 7, 5], [5, -1, 7, 5], [1, 0, 1, 1]),
        (["cat", None, "", "dog"], ["cat", "", "", "dog"], [1, 0, 0, 1]),
        (["cat", -1, np.nan, "dog"], ["cat", "", "", "dog"], [1, 0, 0, 1]),
        (np.array(["cat", None, "", "dog"], dtype=object), ["cat", "", "", "dog"], [1, 0, 0, 1]),
        (np.array([b"cat", b"", b"", b"dog"]), ["cat", "", "", "dog"], [1, 0, 0, 1]),
        ([None] * 4, [-1] * 4, [0] * 4),
    ],
)
def test_missing_labels_take_the_form_of_the_type(given_labels, kept, labelled):
    features = FeatureSet.from_arrays(X, labels=given_labels)
    assert features.labels.tolist() == kept
    assert features.labelled.tolist() == [bool(value) for value in labelled]
    assert features.n_labelled == sum(labelled)


def test_defaults():
    features = FeatureSet.from_arrays(X)
    assert features.ids.dtype == np.int64
    assert features.ids.tolist() == [0, 1, 2, 3]
    assert features.labels is None
    assert (len(features), features.n_features, features.n_labelled) == (4, 3, 0)
    assert features.metadata == {}


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_are_kept_without_a_copy(dtype):
    given_X = X.astype(dtype)
    features = FeatureSet.from_arrays(given_X)
    assert features.X.dtype == dtype
    assert np.shares_memory(features.X, given_X)


def test_ints_become_float32():
    assert FeatureSet.from_arrays(np.array([[1, 2], [3, 4]], dtype=np.uint8)).X.dtype == np.float32


def with_value(value, *rows):
    bad = X.copy()
    bad[list(rows), 1] = value
    return bad


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"X": with_value(np.nan, 1, 3)}, r"X has NaN, missing or infinite values in 2 rows \(1, 3\)"),
        ({"X": with_value(-np.inf, 2)}, r"infinite values in 1 row \(2\)"),
        ({"X": X[0]}, r"shape \(3,\), not two dimensions"),
        ({"X": X[:0]}, "has no rows"),
        ({"X": X[:, :0]}, "has no columns"),
        ({"X": np.array([["a", "b"]])}, "<U1 values, not numbers"),
        ({"X": np.array([[1, None]], dtype=object)}, "object array"),
        ({"X": [[1.0, 2.0], [3.0]]}, "cannot be made an array"),
        ({"X": X > 0}, "True/False values"),
        ({"X": X.astype(complex)}, "complex numbers"),
        ({"X": np.ma.masked_less(X, 0)}, "masked array"),
        ({"X": X, "labels": [1, 2]}, "labels has 2 values but X has 4 rows"),
        ({"X": X, "labels": [[1, 2]] * 4}, r"labels has shape \(4, 2\)"),
        ({"X": X, "labels": ["a", 1, "b", None]}, "labels mixes or holds values of type int, str"),
        ({"X": X, "labels": [2**70, None, 1, 1]}, "beyond 64 bits"),
        ({"X": X, "labels": np.zeros(4, dtype="datetime64[s]")}, "labels holds values of type datetime64"),
        ({"X": X, "truth": [1] * 5}, "truth has 5 values but X has 4 rows"),
        ({"X": X, "ids": ["a", "b", "c"]}, "ids has 3 values but X has 4 rows"),
        ({"X": X, "ids": ["a", "b", "a", "c"]}, "ids has 'a' more than once"),
        ({"X": X, "ids": ["a", "b", None, "c"]}, "ids mixes or holds values of type NoneType, str"),
        ({"X": X, "ids": [0.5, 1.0, 2.0, 3.0]}, "ids are of type float64"),
        ({"X": X, "texts": ["a"]}, "texts has 1 values but X has 4 rows"),
        ({"X": X, "texts": "abcd"}, "texts is one text"),
        ({"X": X, "texts": ["a", "b", 0, "d"]}, "texts has 0 in row 2"),
        ({"X": X, "paths": ["a"] * 5}, "paths has 5 values but X has 4 rows"),
        ({"X": X, "split": "train"}, r"split has shape \(\): give a flat list of 4 values"),
        ({"X": X, "split": ["train", 1, "test", None]}, "split mixes or holds values of type int, str"),
        ({"X": X, "views": [X[:2]]}, r"view_2 has shape \(2, 3\) but X has \(4, 3\)"),
        ({"X": X, "views": [X, X[:, :2]]}, r"view_3 has shape \(4, 2\)"),
        ({"X": X, "views": [with_value(np.nan, 0)]}, "view_2 has NaN"),
        ({"X": X, "metadata": {"when": object()}}, "metadata is not JSON"),
        ({"X": {}}, "X is an empty list: give a matrix of rows, or one per embedding"),
        ({"X": {"a": X, "b": X[:2]}}, "X has embeddings of 4, 2 rows: give embeddings of the same rows"),
        ({"X": {"a": X, "b": with_value(np.nan, 0)}}, "b has NaN"),
        ({"X": X, "metadata": {"embeddings": [{"name": "a", "width": 2}]}}, "widths are 2, but X has 3 columns"),
        ({"X": X, "metadata": {"embeddings": [{"name": "a"}]}}, "is no list of a name and a width each"),
        ({"X": X, "metadata": {"embeddings": [{"name": "a", "width": w} for w in (1, 2)]}}, "have the same name"),
    ],
)
def test_bad_arrays(arguments, message):
    with pytest.raises(InputError, match=message):
        FeatureSet.from_arrays(**arguments)


def test_only_the_first_bad_rows_are_listed(monkeypatch):
    monkeypatch.setattr(hardware, "BLOCK_VALUES", 6)  # two rows per block
    with pytest.raises(InputError, match=r"9 rows \(1, 2, 3, 4, 5, \.\.\.\)"):
        FeatureSet.from_arrays(np.vstack([X[:1], np.full((9, 3), np.nan)]))


# ---- rows, fingerprint, subset


@pytest.mark.parametrize("block_values", [3, hardware.BLOCK_VALUES])
def test_rows_are_of_length_one(monkeypatch, block_values):
    monkeypatch.setattr(hardware, "BLOCK_VALUES", block_values)
    original = X.copy()
    rows = FeatureSet.from_arrays(original).rows()
    np.testing.assert_allclose(rows[0], [0.6, 0.8, 0.0], rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-6)
    assert rows.dtype == np.float32
    assert rows.flags.c_contiguous
    np.testing.assert_array_equal(original, X)


def test_rows_of_extreme_size_are_normalized():
    rows = FeatureSet.from_arrays(np.array([[3e300, 4e300], [3e-310, 4e-310]])).rows(dtype=np.float64)
    np.testing.assert_allclose(rows, [[0.6, 0.8], [0.6, 0.8]])


def test_rows_as_they_are_is_a_copy():
    features = FeatureSet.from_arrays(np.asfortranarray(X))
    rows = features.rows(normalize=False)
    np.testing.assert_array_equal(rows, X)
    assert rows.flags.c_contiguous
    assert not np.shares_memory(rows, features.X)


def test_rows_of_a_view():
    features = FeatureSet.from_arrays(X, views=[X[::-1]])
    np.testing.assert_array_equal(features.rows(view=2), features.rows()[::-1])
    with pytest.raises(InputError, match="view 3 was asked for but the features have views 1 to 2"):
        features.rows(view=3)


def test_rows_of_zeros_cannot_be_normalized():
    features = FeatureSet.from_arrays(np.vstack([X, np.zeros((2, 3))]))
    assert features.rows(normalize=False).shape == (6, 3)
    with pytest.raises(InputError, match=r"X has 2 rows \(4, 5\) of zeros only"):
        features.rows()


def test_each_embedding_has_the_same_weight_and_none_may_be_zero():
    features = FeatureSet.from_arrays({"a": [[3.0, 4.0], [1.0, 0.0]], "b": [[-200.0], [0.0]]})
    assert (features.embeddings, features.widths) == ({"a": 2, "b": 1}, (2, 1))
    np.testing.assert_allclose(features.subset([0]).rows() ** 2, [[0.18, 0.32, 0.5]], rtol=1e-6)
    with pytest.raises(InputError, match=r"X has 1 row \(1\) of zeros only"):
        features.rows()
    same = FeatureSet.from_arrays(features.X)
    assert same.fingerprint() != features.fingerprint()


def test_rows_too_large_for_the_type():
    with pytest.raises(InputError, match="too large for float32"):
        FeatureSet.from_arrays(np.array([[1e300]])).rows(normalize=False)


def test_fingerprint_does_not_depend_on_type_or_blocks(monkeypatch):
    fingerprint = FeatureSet.from_arrays(X, labels=[1, 2, -1, -1]).fingerprint()
    assert len(fingerprint) == 64
    monkeypatch.setattr(hardware, "BLOCK_VALUES", 3)
    same = FeatureSet.from_arrays(
        np.asfortranarray(X.astype(np.float64)), labels=np.array([1, 2, -1, -1], dtype=np.int16), ids=np.arange(4)
    )
    assert same.fingerprint() == fingerprint


def test_rows_are_hashed_once(monkeypatch):
    features = FeatureSet.from_arrays(X, labels=[1, 2, -1, -1])
    passes = []
    monkeypatch.setattr(
        feature_set, "row_blocks_of", lambda X, size: (passes.append(size), row_files.row_blocks_of(X, size))[1]
    )
    assert features.fingerprint() == features.quick_fingerprint() == features.fingerprint()
    assert len(passes) == 1
    assert dataclasses.replace(features, labels=None).fingerprint() != features.fingerprint()
    assert len(passes) == 2


@pytest.mark.parametrize(
    "other",
    [
        {"X": with_value(9, 0)},
        {"X": X.reshape(3, 4), "labels": None, "ids": None},
        {"labels": ["ab", "c", "", ""]},
        {"labels": None},
        {"ids": ["p", "q", "r", "t"]},
    ],
)
def test_fingerprint_changes_with(other):
    base = {"X": X, "labels": ["a", "bc", "", ""], "ids": ["p", "q", "r", "s"]}
    assert FeatureSet.from_arrays(**base).fingerprint() != FeatureSet.from_arrays(**{**base, **other}).fingerprint()


@pytest.mark.parametrize("index", [[3, 1], np.array([False, True, False, True]), slice(1, 4, 2)])
def test_subset(index):
    features = FeatureSet.from_arrays(
        X,
        labels=["a", "b", "", "d"],
        ids=[10, 11, 12, 13],
        truth=list("abcd"),
        views=[X + 1],
        texts=list("wxyz"),
        split=["train", "train", "test", "dev"],
    )
    chosen = [3, 1] if isinstance(index, list) else [1, 3]
    part = features.subset(index)
    np.testing.assert_array_equal(part.X, X[chosen])
    np.testing.assert_array_equal(part.views[0], X[chosen] + 1)
    assert part.ids.tolist() == [10 + i for i in chosen]
    assert part.labels.tolist() == ["abcd"[i] if i != 2 else "" for i in chosen]
    assert part.texts == ["wxyz"[i] for i in chosen]
    assert part.split.tolist() == [("train", "train", "test", "dev")[i] for i in chosen]
    assert part.paths is None


@pytest.mark.parametrize(
    ("index", "message"),
    [([9], "does not fit 4 rows"), ([], "does not fit|chooses no rows"), ([1, 1], "a row twice"), (2, "no rows")],
)
def test_bad_subset(index, message):
    with pytest.raises(InputError, match=message):
        FeatureSet.from_arrays(X).subset(index)


# ---- writing and reading back

KINDS = {
    "plain": {},
    "int labels": {"labels": [3, -1, 0, 3], "truth": [3, 1, 0, 3]},
    "text labels": {"labels": ["Käse", "", "x", "y"], "ids": ["a", "b", "c", "ü"]},
    "no label": {"labels": ["", "", "", ""]},
    "float labels": {"labels": [0.5, np.nan, 1.0, 2.0]},
    "float16": {"X": X.astype(np.float16)},
    "float64": {"X": X.astype(np.float64)},
    "big endian": {"X": X.astype(">f4")},
    "everything": {
        "views": [X + 1, X + 2],
        "texts": ["one", "", "a\nb", "ü" * 50],
        "paths": [Path("a/b.png"), "c.png", "d.png", None],
        "split": ["train", "test", "", "train"],
        "metadata": {"encoder": "dino", "sizes": [1, 2]},
        "ids": [7, 6, 5, 4],
    },
    "several embeddings": {"X": {"clip": X, "dino": 100 * X[:, :2]}, "metadata": {"encoder": "both"}},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_round_trip(tmp_path, monkeypatch, kind, suffix):
    monkeypatch.setattr(feature_files, "ROW_GROUP_VALUES", 6)
    features = FeatureSet.from_arrays(**{"X": X, **KINDS[kind]})
    features.write(tmp_path / f"f{suffix}")
    back = FeatureSet.read(tmp_path / f"f{suffix}")
    if kind == "big endian":  # parquet knows no byte order
        assert back.fingerprint() == features.fingerprint()
    else:
        assert equal(back, features)
    if suffix == ".parquet":
        assert pq.ParquetFile(tmp_path / "f.parquet").num_row_groups > 1
    assert [p.name for p in tmp_path.iterdir()] == [f"f{suffix}"]


words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=5)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), suffix=st.sampled_from([".npz", ".parquet"]))
def test_round_trip_of_anything(tmp_path, data, suffix):
    n, d = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 4))
    dtype = data.draw(st.sampled_from([np.float16, np.float32, np.float64]))
    finite = {"allow_nan": False, "allow_infinity": False}
    matrix = data.draw(hnp.arrays(dtype, (n, d), elements=st.floats(width=np.dtype(dtype).itemsize * 8, **finite)))
    rows = {"min_size": n, "max_size": n}
    features = FeatureSet.from_arrays(
        matrix,
        labels=data.draw(st.none() | st.lists(st.integers(-1, 9), **rows) | st.lists(words, **rows)),
        ids=data.draw(st.none() | st.lists(words, unique=True, **rows)),
        texts=data.draw(st.none() | st.lists(words, **rows)),
    )
    features.write(tmp_path / f"f{suffix}", overwrite=True)
    assert equal(FeatureSet.read(tmp_path / f"f{suffix}"), features)


def test_the_same_features_give_the_same_npz(tmp_path):
    for name in ("a.npz", "b.npz"):
        FeatureSet.from_arrays(X, labels=[1, 2, 3, -1]).write(tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_an_existing_file_is_not_overwritten(tmp_path):
    path = tmp_path / "f.npz"
    path.write_text("mine")
    with pytest.raises(InputError, match=r"f\.npz exists already"):
        FeatureSet.from_arrays(X).write(path)
    assert path.read_text() == "mine"
    FeatureSet.from_arrays(X).write(path, overwrite=True)
    assert len(FeatureSet.read(path)) == 4


def full_disk(*args, **kwargs):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_alone(tmp_path, monkeypatch, suffix, step):
    path = tmp_path / f"f{suffix}"
    path.write_text("old")
    monkeypatch.setattr(os, step, full_disk)
    with pytest.raises(InputError, match="was not written, no space left"):
        FeatureSet.from_arrays(X).write(path, overwrite=True)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "old"


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_disk_that_fills_while_writing_leaves_nothing(tmp_path, monkeypatch, suffix):
    class FullFile(io.FileIO):
        written = 0

        def write(self, data):
            self.written += memoryview(data).nbytes
            return full_disk() if self.written > 200 else super().write(data)

    monkeypatch.setattr(files, "open", lambda path, mode: FullFile(path, mode), raising=False)
    with pytest.raises(InputError, match="no space left"):
        FeatureSet.from_arrays(X).write(tmp_path / f"f{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        FeatureSet.from_arrays(X).write(tmp_path / "f.npz")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("f.csv", "'.csv', which cannot be written: give .npz or .parquet"),
        ("no/f.npz", "no is not a folder: create it first"),
    ],
)
def test_bad_write(tmp_path, name, message):
    with pytest.raises(InputError, match=message):
        FeatureSet.from_arrays(X).write(tmp_path / name)


def test_text_that_is_not_unicode_cannot_go_into_parquet(tmp_path):
    with pytest.raises(InputError, match="not valid Unicode"):
        FeatureSet.from_arrays(X, texts=["\ud800", "", "", ""]).write(tmp_path / "f.parquet")
    assert list(tmp_path.iterdir()) == []


# ---- the readers


@pytest.mark.parametrize("key", ["features", "X", "embeddings", "feats"])
def test_npz_names(tmp_path, key):
    np.savez(tmp_path / "f.npz", **{key: X, "y": [1, 2, -1, 4], "targets": [1, 2, 3, 4], "views": np.stack([X, X + 1])})
    features = FeatureSet.read(tmp_path / "f.npz")
    np.testing.assert_array_equal(features.X, X)
    assert features.labels.tolist() == [1, 2, -1, 4]
    assert features.truth.tolist() == [1, 2, 3, 4]
    np.testing.assert_array_equal(features.views[1], X + 1)


def test_npz_of_a_benchmark(tmp_path):
    more = {"label_names": ["a", "b"], "split": ["train", "test"] * 2, "nid_split": ["dev"] * 4, "texts": list("wxyz")}
    np.savez(tmp_path / "f.npz", features=X, labels=[0, 1, 1, -1], **more)
    features = FeatureSet.read(tmp_path / "f.npz")
    assert features.labels.tolist() == [0, 1, 1, -1]
    assert features.texts == list("wxyz")
    assert features.split.tolist() == ["train", "test", "train", "test"]
    assert FeatureSet.read(tmp_path / "f.npz", split_column="nid_split").split.tolist() == ["dev"] * 4
    with pytest.raises(InputError, match="has no column 'fold'"):
        FeatureSet.read(tmp_path / "f.npz", split_column="fold")


@pytest.mark.parametrize("given_split", [[0, 1, 1, 0], [b"0", b"1", b"1", b"0"]])
def test_parts_are_text_whatever_their_type_was(tmp_path, given_split):
    np.savez(tmp_path / "f.npz", features=X, split=given_split)
    assert FeatureSet.read(tmp_path / "f.npz").split.tolist() == ["0", "1", "1", "0"]


def test_parts_in_a_csv_or_a_parquet_file(tmp_path):
    (tmp_path / "f.csv").write_text("a,split,fold\n1,train,x\n2,test,y\n")
    assert FeatureSet.read(tmp_path / "f.csv").columns["fold"].tolist() == ["x", "y"]
    features = FeatureSet.read(tmp_path / "f.csv", split_column="fold")
    assert features.X.tolist() == [[1.0], [2.0]]
    assert features.split.tolist() == ["x", "y"]
    columns = {"a": X.tolist(), "split": list("pqrs"), "fold": ["x", None, "y", ""]}
    pq.write_table(pa.table(columns), tmp_path / "f.parquet")
    assert FeatureSet.read(tmp_path / "f.parquet").split.tolist() == list("pqrs")
    assert FeatureSet.read(tmp_path / "f.parquet", split_column="fold").split.tolist() == ["x", "", "y", ""]


@pytest.mark.parametrize("suffix", [".npz", ".parquet", ".csv", ".npy"])
def test_the_names_of_the_columns(tmp_path, suffix):
    path = tmp_path / f"f{suffix}"
    if suffix == ".csv":
        path.write_text("a,b,split\n1,2,train\n")
    elif suffix == ".npy":
        np.save(path, X)
    else:
        FeatureSet.from_arrays(X, split=["train"] * 4).write(path)
    expected = {
        ".csv": ["a", "b", "split"],
        ".npy": [],
        ".npz": ["features", "ids", "split", "metadata_json"],
        ".parquet": ["features", "id", "split"],
    }
    assert feature_files.column_names(path) == expected[suffix]


def test_npz_keys_can_be_chosen(tmp_path):
    np.savez(tmp_path / "f.npz", features=X, other=X + 1, labels=[0] * 4, fine=[1] * 4)
    features = FeatureSet.read(tmp_path / "f.npz", feature_column="other", label_column="fine")
    np.testing.assert_array_equal(features.X, X + 1)
    assert features.labels.tolist() == [1] * 4


def test_npy_stays_memory_mapped(tmp_path):
    np.save(tmp_path / "f.npy", X)
    features = FeatureSet.read(tmp_path / "f.npy")
    assert isinstance(features.X, np.memmap)
    assert isinstance(features.subset(slice(1, 3)).X, np.memmap)
    np.testing.assert_array_equal(features.X, X)


def write_labels(path, labels, ids=None):
    if path.suffix == ".npy":
        np.save(path, np.array(labels))
    elif path.suffix == ".json":
        path.write_text(json.dumps(labels))
    elif path.suffix == ".parquet":
        pq.write_table(pa.table({"label": labels} if ids is None else {"id": ids, "label": labels}), path)
    else:
        rows = labels if ids is None else ["id,label", *(f"{i},{label}" for i, label in zip(ids, labels, strict=True))]
        path.write_text("".join(f"{row}\n" for row in rows))


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".txt", ".json", ".parquet"])
@pytest.mark.parametrize("labels", [[3, -1, 0, 3], ["cat", "", "dog", "cat"]])
def test_labels_file(tmp_path, suffix, labels):
    np.save(tmp_path / "f.npy", X)
    write_labels(tmp_path / f"labels{suffix}", labels)
    features = FeatureSet.read(tmp_path / "f.npy", labels=tmp_path / f"labels{suffix}")
    assert features.labels.tolist() == labels
    assert isinstance(features.X, np.memmap)


@pytest.mark.parametrize("suffix", [".csv", ".txt", ".parquet"])
@pytest.mark.parametrize("ids", [None, ["p", "q", "r", "s"]])
def test_labels_by_id_in_any_order(tmp_path, suffix, ids):
    FeatureSet.from_arrays(X, ids=ids, labels=[9] * 4).write(tmp_path / "f.npz")
    names = ids or ["0", "1", "2", "3"]
    write_labels(tmp_path / f"labels{suffix}", ["dog", "cat"], [names[3], names[0]])
    features = FeatureSet.read(tmp_path / "f.npz", labels=tmp_path / f"labels{suffix}")
    assert features.labels.tolist() == ["cat", "", "", "dog"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("label\n7\n\n7\n-1\n", [7, -1, 7, -1]),
        ("007\n01\n\n2\n", ["007", "01", "", "2"]),
        ("1.0\nnan\n2.0\n-1\n", [1.0, None, 2.0, None]),
        ("cat\n-1\nNA\ndog\n", ["cat", "", "NA", "dog"]),
        ("file,fine,label\na,1,x\nb,2,x\nc,3,x\nd,,x\n", [1, 2, 3, -1]),
        ('"a, b"\n"c"\nd\ne\n', ["a, b", "c", "d", "e"]),
        ("\ufeffid,label\r\n0,a\r\n1,b\r\n2,c\r\n3,d\r\n", ["a", "b", "c", "d"]),
    ],
)
def test_labels_csv(tmp_path, text, expected):
    np.save(tmp_path / "f.npy", X)
    (tmp_path / "labels.csv").write_bytes(text.encode())
    labels = FeatureSet.read(
        tmp_path / "f.npy", labels=tmp_path / "labels.csv", label_column="fine" if "fine" in text else None
    ).labels
    assert [None if value != value else value for value in labels.tolist()] == expected


def test_a_line_of_a_txt_is_one_label(tmp_path):
    np.save(tmp_path / "f.npy", X)
    (tmp_path / "labels.txt").write_text('Smith, John\n"x\n\ny\n')
    features = FeatureSet.read(tmp_path / "f.npy", labels=tmp_path / "labels.txt")
    assert features.labels.tolist() == ["Smith, John", '"x', "", "y"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("l.csv", "id,label\n0,a\n8,b\n9,c\n", r"has 2 ids that the features have not \(8, 9\)"),
        ("l.csv", "id,label\n0,a\n0,b\n", "has the id '0' more than once"),
        ("l.csv", "id,label\n0\n", "row 1 has 1 columns but the header has 2"),
        ("l.csv", "0,a\n1,b\n", "several columns, and none is called label: give the header id,label"),
        ("l.csv", "intent,date\na,1\n", "several columns, and none is called label"),
        (
            "l.csv",
            "id,class\n0,a\n",
            "l.csv has no column label, labels or y among id, class: name one with --label-col",
        ),
        ("l.csv", "a\nb\n", "l.csv: labels has 2 values but X has 4 rows"),
        ("l.csv", b"\xff\xfe\n", "l.csv is not encoded in UTF-8 but probably in UTF-16: save it as CSV UTF-8"),
        ("l.json", "[1, 2", "l.json cannot be read"),
        ("l.json", '{"a": 1}', "holds a JSON dict"),
        ("l.json", '["a", 1, 2, 3]', "l.json: labels mixes or holds values of type int, str"),
        ("l.npy", "junk", "l.npy is not an .npy file"),
        ("l.parquet", "junk", "l.parquet cannot be read"),
        ("l.xls", "", "'.xls', which cannot be read as labels: give .npy, .csv, .tsv, .txt, .json or .parquet"),
        ("l.txt", None, "l.txt is not there"),
    ],
)
def test_bad_labels_file(tmp_path, name, content, message):
    np.save(tmp_path / "f.npy", X)
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=message):
        FeatureSet.read(tmp_path / "f.npy", labels=tmp_path / name)


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float16(), 3), pa.list_(pa.int8(), 3)]
)
def test_parquet_of_others(tmp_path, kind):
    whole = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]])
    table = pa.table(
        {
            "emb": pa.array(whole.tolist(), kind),
            "y": pa.array([5, None, 6, 5], pa.uint8()),
            "id": pa.array(["a", "b", "c", "d"]).dictionary_encode(),
            "text": ["w", None, "y", "z"],
            "width": [1, 2, 3, 4],
        }
    )
    pq.write_table(table, tmp_path / "f.parquet", row_group_size=3)
    features = FeatureSet.read(tmp_path / "f.parquet")
    np.testing.assert_array_equal(features.X, whole)
    assert features.X.dtype == (np.float32 if kind.value_type == pa.int8() else kind.value_type.to_pandas_dtype())
    assert features.labels.tolist() == [5, -1, 6, 5]
    assert features.ids.tolist() == ["a", "b", "c", "d"]
    assert features.texts == ["w", "", "y", "z"]


def test_parquet_columns_can_be_chosen(tmp_path):
    pq.write_table(pa.table({"a": X.tolist(), "b": (X + 1).tolist(), "kind": list("pqrs")}), tmp_path / "f.parquet")
    features = FeatureSet.read(tmp_path / "f.parquet", feature_column="b", label_column="kind")
    np.testing.assert_array_equal(features.X, X + 1)
    assert features.labels.tolist() == list("pqrs")


def test_a_folder_of_parquet_files_is_one_set(tmp_path):
    whole = FeatureSet.from_arrays(
        X.astype(np.float16),
        labels=[3, -1, 0, 3],
        ids=list("pqrs"),
        texts=["a", "", "c", "d"],
        views=[X + 1, X + 2],
        columns={"price": [1.5, None, 2.5, 3.0], "city": ["Ulm", "", "Bern", ""]},
        metadata={"encoder": "dino"},
    )
    (tmp_path / "rows").mkdir()
    for number, rows in enumerate((slice(0, 3), slice(3, 4))):
        whole.subset(rows).write(tmp_path / "rows" / f"part-{number:05d}.parquet")
    features = FeatureSet.read(tmp_path / "rows")
    assert features.X.dtype == np.float16
    assert features.fingerprint() == whole.fingerprint()
    assert equal(features, whole)
    on_disk = FeatureSet.read(tmp_path / "rows", memory="4kB")
    assert (on_disk.views, on_disk.labels.tolist()) == ((), [3, -1, 0, 3])
    np.testing.assert_array_equal(on_disk.columns["price"], whole.columns["price"])
    assert on_disk.columns["city"].tolist() == ["Ulm", "", "Bern", ""]
    np.testing.assert_array_equal(on_disk.X[:], whole.X)


def test_metadata_columns_that_would_fill_the_memory_stay_on_disk_too(tmp_path):
    """They may take a quarter of what is given, however much is free."""
    FeatureSet.from_arrays(X, columns={"price": [1.5, 2, 3, 4]}).write(tmp_path / "f.parquet")
    kept = FeatureSet.read(tmp_path / "f.parquet", memory=1000)
    assert isinstance(kept.X, RowFiles)
    assert kept.columns["price"].tolist() == [1.5, 2, 3, 4]
    with pytest.warns(UserWarning, match=r"The metadata columns of .*f\.parquet take about .*: they are not read"):
        on_disk = FeatureSet.read(tmp_path / "f.parquet", memory=100)
    assert isinstance(on_disk.X, RowFiles)
    assert on_disk.columns == {}
    assert FeatureSet.read(tmp_path / "f.parquet").columns["price"].tolist() == [1.5, 2, 3, 4]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"views": [X, X]}, "1.parquet has other columns than .*0.parquet"),
        ({"views": []}, "1.parquet has other columns than .*0.parquet"),
        ({"texts": list("abcd")}, "1.parquet has other columns than .*0.parquet"),
        ({"X": X[:, :2]}, "1.parquet has 2 features a row but .*0.parquet has 3"),
    ],
)
def test_files_of_a_folder_that_differ(tmp_path, second, message):
    given = {"X": X, "views": [X]}
    (tmp_path / "rows").mkdir()
    FeatureSet.from_arrays(**given).write(tmp_path / "rows" / "0.parquet")
    if "X" in second:
        second = {"X": second["X"], "views": [second["X"]]}
    FeatureSet.from_arrays(**{**given, **second}).write(tmp_path / "rows" / "1.parquet")
    with pytest.raises(InputError, match=message):
        FeatureSet.read(tmp_path / "rows")


def test_files_whose_views_are_of_different_width(tmp_path):
    for number, width in enumerate((3, 2)):
        table = pa.table({"features": X.tolist(), "view_2": X[:, :width].tolist()})
        (tmp_path / "rows").mkdir(exist_ok=True)
        pq.write_table(table, tmp_path / "rows" / f"{number}.parquet")
    with pytest.raises(InputError, match=r"1\.parquet has 2 numbers a row in view_2 but .*0\.parquet has 3"):
        FeatureSet.read(tmp_path / "rows")


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"a": [[1.0], [2.0, 3.0]]}, {}, r"'a' has lists of different lengths \(1 in row 0, 2 in row 1\)"),
        ({"a": [[1.0], None]}, {}, r"'a' is null in 1 rows \(1\)"),
        ({"a": [[1.0], [None]]}, {}, r"f.parquet: X has NaN, missing or infinite values in 1 row \(1\)"),
        ({"a": [1.0], "b": ["x"]}, {}, "no column of lists of numbers among a, b"),
        ({"a": [["x"]]}, {}, "no column of lists of numbers among a"),
        ({"a": [[1.0]], "b": [[1.0]]}, {}, r"several list columns \(a, b\).*feature_column"),
        ({"a": [[1.0]]}, {"feature_column": "c"}, "has no column 'c': it has 'a'"),
        ({"a": [[1.0]]}, {"label_column": "c"}, "has no column 'c': it has 'a'"),
        ({"a": [1.0]}, {"feature_column": "a"}, "'a' is of type double"),
        ({"a": [[1.0]], "y": [1], "label": [1]}, {}, r"several columns for labels \(y, label\)"),
        ({"a": pa.array([], pa.list_(pa.float32()))}, {}, "has no rows"),
        ({"a": [[], []]}, {"feature_column": "a"}, "'a' is of type list"),
    ],
)
def test_bad_parquet(tmp_path, columns, options, message):
    pq.write_table(pa.table(columns), tmp_path / "f.parquet")
    with pytest.raises(InputError, match=message):
        FeatureSet.read(tmp_path / "f.parquet", **options)


@pytest.mark.parametrize(
    ("text", "labels", "ids"),
    [
        ("1,2\n3,4.5\n", None, [0, 1]),
        ("0,1\n3,4\n", None, [0, 1]),
        ("a,b\n1,2\n3,4.5\n", None, [0, 1]),
        ("id,a,Label,b\nx1,1,cat,2\nx2,3,,4.5\n", ["cat", ""], ["x1", "x2"]),
        (",a,b,y\n5,1,2,0\n6,3,4.5,-1\n", [0, -1], [5, 6]),
        ("id,a,b\n007,1,2\n008,3,4.5\n", None, ["007", "008"]),
        ('\ufeffa,b,text\n1,2,"one,\ntwo"\n3,4.5,x\n', None, [0, 1]),
    ],
)
def test_csv(tmp_path, text, labels, ids):
    (tmp_path / "f.csv").write_text(text, encoding="utf-8")
    features = FeatureSet.read(tmp_path / "f.csv")
    expected = [[0, 1], [3, 4]] if text.startswith("0") else [[1, 2], [3, 4.5]]
    np.testing.assert_array_equal(features.X, expected)
    assert (None if labels is None else features.labels.tolist()) == labels
    assert features.ids.tolist() == ids
    assert features.texts == (["one,\ntwo", "x"] if "text" in text else None)


def test_csv_with_the_column_numbers_of_pandas(tmp_path):
    (tmp_path / "f.csv").write_text("0,1\n0.5,2\n")
    assert FeatureSet.read(tmp_path / "f.csv").X.tolist() == [[0.5, 2.0]]


def test_csv_labels_are_never_features(tmp_path):
    (tmp_path / "f.csv").write_text("a,label,fine\n1,0,x\n2,1,y\n")
    features = FeatureSet.read(tmp_path / "f.csv", label_column="fine")
    assert features.X.tolist() == [[1.0], [2.0]]
    assert features.labels.tolist() == ["x", "y"]


def test_csv_whose_decimals_come_late(tmp_path):
    """Arrow guesses types from the first megabyte, in which these are ints."""
    (tmp_path / "f.csv").write_text("1,2\n" * 400_000 + "0.5,2\n")
    assert FeatureSet.read(tmp_path / "f.csv").X[-1].tolist() == [0.5, 2.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f.csv is empty"),
        ("a,b\n1,2\n3\n", "f.csv cannot be read .*give lines of equal length"),
        ("a,b\n1,2\n3,x\n", "f.csv cannot be read .*invalid value 'x'.*numbers in every column but label"),
        ("a,b\n1,2\n3,\n", r"f.csv: X has NaN, missing or infinite values in 1 row \(1\)"),
        ("a,b\n", "has no rows"),
        ("a,a\n1,2\n", "two columns of the same name"),
        (
            "id,label\n1,2\n",
            r"has no column of numbers, only id \('1'\) and label \('2'\): give features",
        ),
    ],
)
def test_bad_csv(tmp_path, text, message):
    (tmp_path / "f.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        FeatureSet.read(tmp_path / "f.csv")


def pim_folder(folder, **changes):
    arrays = {
        "all_feats": X,
        "mask_lab": np.array([True, False, False, False]),
        "mask_cls": np.array([True, True, False, False]),
        "targets": np.array([4, 4, 7, 8]),
    } | changes
    folder.mkdir(parents=True)
    for name, array in arrays.items():
        if array is not None:
            np.save(folder / f"{name}.npy", array)


@pytest.mark.parametrize("inner", ["", "train"])
def test_pim_folder(tmp_path, inner):
    pim_folder(tmp_path / "maps" / inner)
    features = FeatureSet.read(tmp_path / "maps")
    assert isinstance(features.X, np.memmap)
    assert features.labels.tolist() == [4, -1, -1, -1]
    assert features.truth.tolist() == [4, 4, 7, 8]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mask_cls": np.array([False, True, False, False])}, r"mask_cls.npy calls 1 rows \(0\) new"),
        ({"mask_cls": np.array([True, False, False, False])}, r"mask_cls.npy calls 1 rows \(1\) new"),
        ({"mask_lab": None, "targets": None}, "lacks mask_lab.npy, targets.npy"),
        ({"mask_lab": np.array([True])}, r"mask_lab.npy has shape \(1,\) but all_feats.npy has 4 rows"),
        ({"mask_lab": np.array([0, 1, 2, 3])}, "mask_lab.npy is not a mask"),
        ({"mask_lab": np.zeros(4, "V1")}, "mask_lab.npy is not a mask"),
        ({"targets": np.array([0.5, 1, 2, 3])}, "targets.npy holds fractions: give the number"),
        ({"targets": np.array([0.0, np.nan, 2, 3])}, "targets.npy holds NaN or infinity: give the number"),
        ({"targets": np.array(["a", "b", "c", "d"])}, "targets.npy holds <U1 values"),
    ],
)
def test_bad_pim_folder(tmp_path, changes, message):
    pim_folder(tmp_path / "maps", **changes)
    with pytest.raises(InputError, match=message):
        FeatureSet.read(tmp_path / "maps")


# ---- files that are not what they say


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".parquet"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.9])
def test_truncated(tmp_path, suffix, share):
    path = tmp_path / f"f{suffix}"
    if suffix == ".npy":
        np.save(path, X)
    else:
        FeatureSet.from_arrays(X).write(path)
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    with pytest.raises(InputError, match=rf"f\{suffix} (cannot be read|is not an)"):
        FeatureSet.read(path)


def test_corrupt_npz(tmp_path):
    FeatureSet.from_arrays(X).write(tmp_path / "f.npz")
    data = bytearray((tmp_path / "f.npz").read_bytes())
    data[200] ^= 0xFF  # within the first matrix
    (tmp_path / "f.npz").write_bytes(data)
    with pytest.raises(InputError, match=r"f.npz cannot be read \(Bad CRC-32"):
        FeatureSet.read(tmp_path / "f.npz")


def test_corrupt_npy_header(tmp_path):
    np.save(tmp_path / "f.npy", X)
    (tmp_path / "f.npy").write_bytes((tmp_path / "f.npy").read_bytes().replace(b"}", b"("))
    with pytest.raises(InputError, match=r"f\.npy cannot be read"):
        FeatureSet.read(tmp_path / "f.npy")


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".npy pickle", ".npz pickle"])
def test_a_pickle_is_never_loaded(tmp_path, suffix):
    trap, path = tmp_path / "trap", tmp_path / f"f{suffix.split()[0]}"
    array = np.array([[Hostile(trap)]], dtype=object)
    if "pickle" in suffix:
        path.write_bytes(pickle.dumps(Hostile(trap)))
    elif suffix == ".npz":
        np.savez(path, features=array)
    else:
        np.save(path, array)
    expected = "is not an" if "pickle" in suffix else "holds pickled objects, which are never loaded"
    with pytest.raises(InputError, match=expected):
        FeatureSet.read(path)
    assert not trap.exists()
    pickle.loads(pickle.dumps(Hostile(trap)))
    assert trap.exists()  # so it would have been


def test_a_pickled_label_file_is_never_loaded(tmp_path):
    np.save(tmp_path / "f.npy", X)
    np.save(tmp_path / "l.npy", np.array([Hostile(tmp_path / "trap")] * 4, dtype=object))
    with pytest.raises(InputError, match=r"l\.npy holds pickled objects"):
        FeatureSet.read(tmp_path / "f.npy", labels=tmp_path / "l.npy")
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("none.npz", {}, "none.npz is not there"),
        ("f.xyz", {}, "'.xyz', which cannot be read as features: give .npz, .npy, .parquet, .csv, .tsv or PIM"),
        ("f.npy", {"label_column": "a"}, r"--label-column \(label_column\) is for files with columns"),
        ("f.npy", {"split_column": "a"}, "split_column is for files with columns"),
        ("f.npy", {"feature_column": "a"}, r"--feature-column \(feature_column\) is for .npz and .parquet"),
        ("none.npy", {}, "none.npy is not there"),
    ],
)
def test_bad_path(tmp_path, name, options, message):
    np.save(tmp_path / "f.npy", X)
    (tmp_path / "f.xyz").touch()
    with pytest.raises(InputError, match=message):
        FeatureSet.read(tmp_path / name, **options)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"a": X},
            "f.npz has no array called features, X, embeddings or feats among a: name one with --feature-c",
        ),
        ({"X": X, "feats": X}, r"several columns for X \(X, feats\): keep one or choose with --feature-column"),
        ({"X": X, "labels": [1]}, "f.npz: labels has 1 values but X has 4 rows"),
        ({"X": X, "metadata_json": "{"}, "f.npz cannot be read"),
    ],
)
def test_bad_npz(tmp_path, arrays, message):
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(InputError, match=message):
        FeatureSet.read(tmp_path / "f.npz")


def test_an_npz_with_something_else_in_it(tmp_path):
    with zipfile.ZipFile(tmp_path / "f.npz", "w") as archive:
        archive.writestr("features", b"text")
    with pytest.raises(InputError, match=r"X holds .* not numbers"):
        FeatureSet.read(tmp_path / "f.npz")


def test_pyarrow_is_not_imported_until_needed(environment):
    code = "import sys, rpim.data.feature_set; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0


def test_pims_targets_are_whole_numbers_stored_as_floats(tmp_path):
    """As GCD's code writes them: np.append makes float64 of everything."""
    targets, mask = np.array([4.0, 4.0, 7.0, 8.0]), np.array([1.0, 1.0, 0.0, 0.0])
    pim_folder(tmp_path / "vit_dino_cub_best" / "train", targets=targets, mask_cls=mask)
    features = FeatureSet.read(tmp_path / "vit_dino_cub_best")
    assert features.truth.dtype.kind == "i"
    assert features.truth.tolist() == [4, 4, 7, 8]
    assert features.labels.tolist() == [4, -1, -1, -1]


# Sizes that files declare


def test_the_memory_budget_holds_for_an_npz_before_it_is_read(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "f.npz", X=np.zeros((20_000, 100), np.float32), y=np.zeros(20_000, np.int64))
    assert (tmp_path / "f.npz").stat().st_size < 50_000
    with pytest.raises(InputError, match=r"f\.npz takes about 64MB of memory, and 10MB may be used: save the rows as"):
        FeatureSet.read(tmp_path / "f.npz", memory="10MB")
    assert len(FeatureSet.read(tmp_path / "f.npz", memory="100MB")) == 20_000
    monkeypatch.setattr("rpim._common.hardware.default_memory_budget", lambda: 1_000_000)
    with pytest.raises(InputError, match="and 1MB may be used"):
        FeatureSet.read(tmp_path / "f.npz")


def test_a_parquet_file_that_grows_in_memory_stays_on_disk(tmp_path, monkeypatch):
    rows = pa.FixedSizeListArray.from_arrays(pa.array(np.ones(4_000_000, np.float32)), 200)
    pq.write_table(pa.table({"features": rows, "label": ["a", "b"] * 10_000}), tmp_path / "f.parquet")
    assert (tmp_path / "f.parquet").stat().st_size < 100_000
    monkeypatch.setattr("rpim.data.row_files.default_memory_budget", lambda: 1_000_000)
    monkeypatch.setattr("rpim.data.feature_set.SURELY_FITS", 1_000_000)
    assert isinstance(FeatureSet.read(tmp_path / "f.parquet").X, RowFiles)


def test_metadata_that_grows_in_memory_is_refused(tmp_path):
    rows = pa.FixedSizeListArray.from_arrays(pa.array(np.eye(1000, 2, dtype=np.float32).ravel()), 2)
    table = {"features": rows, **{f"column {k}": np.zeros(1000) for k in range(600)}}
    pq.write_table(pa.table(table), tmp_path / "f.parquet")
    with pytest.raises(InputError, match=r"f\.parquet takes about 5MB of memory, and 3MB may be used"):
        FeatureSet.read(tmp_path / "f.parquet", memory="3MB")


@pytest.mark.parametrize("columns", [{}, {"id": np.arange(10_000)}])
def test_labels_that_grow_in_memory_are_refused(tmp_path, monkeypatch, columns):
    pq.write_table(pa.table({**columns, "label": np.zeros(10_000, dtype=np.int64)}), tmp_path / "y.parquet")
    monkeypatch.setattr("rpim._common.hardware.default_memory_budget", lambda: 10_000)
    message = r"y\.parquet takes about \d+KB of memory, and 10KB may be used: give fewer rows"
    with pytest.raises(InputError, match=message):
        read_labels(tmp_path / "y.parquet", np.arange(10_000), None)


@pytest.mark.slow
def test_the_time_for_a_csv_grows_with_its_columns_and_not_with_their_square(tmp_path):
    n = 20_000
    lines = [
        ",".join(["label", *(f"f{k}" for k in range(n))]),
        *(",".join([name, *["0.5"] * n]) for name in ("a", "b", "")),
    ]
    (tmp_path / "f.csv").write_text("\n".join(lines))
    layout = FeatureTable.of(CsvFile(tmp_path / "f.csv"), {})
    begin = time.process_time()
    layout._options()
    assert time.process_time() - begin < 0.5  # 2 s if every name was looked for in a list
    assert FeatureSet.read(tmp_path / "f.csv").X.shape == (3, n)


def test_a_row_of_a_csv_may_be_longer_than_a_block(tmp_path):
    (tmp_path / "f.csv").write_text("text,f0,f1\n" + f"{'x' * 3_000_000},1.0,2.0\n" * 3)
    assert len(FeatureSet.read(tmp_path / "f.csv")) == 3
    assert sum(map(len, FeatureStream(tmp_path / "f.csv"))) == 3


def test_the_footer_of_each_parquet_file_is_parsed_once(tmp_path, monkeypatch):
    (tmp_path / "rows").mkdir()
    for number in range(3):
        FeatureSet.from_arrays(X, ids=[f"{number}-{k}" for k in range(4)]).write(
            tmp_path / "rows" / f"{number}.parquet"
        )
    parsed = []

    class Counted(pq.ParquetFile):
        def __init__(self, source, *, metadata=None, **given):
            super().__init__(source, metadata=metadata, **given)
            parsed.extend([] if metadata is not None else [Path(source).name])

    monkeypatch.setattr(pq, "ParquetFile", Counted)
    feature_files.read_shards([*sorted((tmp_path / "rows").iterdir())], None, None, None, in_memory=False, memory=4000)
    assert parsed == ["0.parquet", "1.parquet", "2.parquet"]
