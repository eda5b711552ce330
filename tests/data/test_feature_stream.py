"""A file in blocks: the same rows, ids and texts as when read whole, and one sentence where it is bad."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rpim import FeatureSet, InputError
from rpim.data.feature_stream import FeatureStream
from rpim.data.formats import column_stream
from rpim.data.formats.arrays import ArrayStream

N = 23
X = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
IDS = [f"r{i}" for i in range(N)]
TEXTS = [f'text {i}, "quoted"\nand long' * (i % 3 + 1) for i in range(N)]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Five rows a block, and as many bytes of .csv."""
    monkeypatch.setattr(column_stream, "BLOCK_ROWS", 5)
    monkeypatch.setattr(column_stream, "_CSV_BYTES", 600)


def npz(path, **arrays):
    np.savez(path, features=X, ids=IDS, texts=TEXTS, labels=np.arange(N), **arrays)


def npz_compressed(path):
    np.savez_compressed(path, X=X.astype(np.float64), id=np.arange(N) * 7)


def npz_by_column(path):
    np.savez(path, features=np.asfortranarray(X))


def npy(path):
    np.save(path, X.astype(">f8"))


def npy_by_column(path):
    np.save(path, np.asfortranarray(X))


def npy_of_integers(path):
    np.save(path, (X * 10).astype(np.int16))


def our_parquet(path):
    FeatureSet.from_arrays(X, ids=IDS, texts=TEXTS, metadata={"encoder": "dino"}).write(path)


def parquet_of_lists(path):
    texts = [None if i == 4 else f"{i}" for i in range(N)]
    table = pa.table({"embedding": pa.array(X.tolist()), "id": np.arange(N), "text": texts})
    pq.write_table(table, path, row_group_size=9)


def csv_with_everything(path):
    lines = ["id,label,f0,f1,text,f2,truth"]
    for i, (row, text) in enumerate(zip(X.tolist(), TEXTS, strict=True)):
        quoted = text.replace('"', '""')
        lines.append(f'{i:03d},7,{row[0]},{row[1]},"{quoted}",{row[2]},9')
    path.write_text("\n".join(lines) + "\n")


def csv_of_numbers_alone(path):
    np.savetxt(path, X, delimiter=",")


def csv_with_number_ids(path):
    path.write_text("id,a\n" + "".join(f"{100 - i},{x}\n" for i, x in enumerate(X[:, 0].tolist())))


def csv_with_ids_that_turn_into_text(path):
    path.write_text("id,a\n" + "".join(f"{'x' if i > 20 else ''}{i},{i + 1}.0\n" for i in range(N)))


FILES = {
    ".npz": (npz, npz_compressed, npz_by_column),
    ".npy": (npy, npy_by_column, npy_of_integers),
    ".parquet": (our_parquet, parquet_of_lists),
    ".csv": (csv_with_everything, csv_of_numbers_alone, csv_with_number_ids, csv_with_ids_that_turn_into_text),
}


@pytest.mark.parametrize(("suffix", "write"), [(suffix, write) for suffix, each in FILES.items() for write in each])
def test_blocks_are_the_file_in_pieces(suffix, write, tmp_path):
    path = tmp_path / f"rows{suffix}"
    write(path)
    whole, stream = FeatureSet.read(path), FeatureStream(path)
    blocks = list(stream)
    assert len(blocks) >= 5
    assert max(map(len, blocks)) <= 5
    assert [block.first_row for block in blocks] == np.cumsum([0, *map(len, blocks[:-1])]).tolist()
    np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), whole.X)
    ids = np.concatenate([block.ids for block in blocks])
    np.testing.assert_array_equal(ids, whole.ids)
    assert ids.dtype.kind == whole.ids.dtype.kind
    assert [text for block in blocks for text in block.texts or ()] == (whole.texts or [])
    assert all(block.metadata == whole.metadata for block in blocks)
    assert all(block.labels is None for block in blocks)
    assert stream.n_rows == (None if suffix == ".csv" else N)
    assert [len(block) for block in stream] == [len(block) for block in blocks]  # and once more


def test_pims_folder(tmp_path):
    (tmp_path / "train").mkdir()
    masks = {"mask_lab": X[:, 0] > 0, "mask_cls": X[:, 0] < 9}
    for name, array in {"all_feats": X, "targets": np.arange(N), **masks}.items():
        np.save(tmp_path / "train" / f"{name}.npy", array)
    np.testing.assert_array_equal(np.concatenate([block.X for block in FeatureStream(tmp_path)]), X)


def test_the_column_that_is_wanted(tmp_path):
    np.savez(tmp_path / "two.npz", a=X, b=X[:, :2])
    assert next(iter(FeatureStream(tmp_path / "two.npz", feature_column="b"))).n_features == 2
    with pytest.raises(InputError, match="no array called features"):
        FeatureStream(tmp_path / "two.npz")
    np.save(tmp_path / "one.npy", X)
    with pytest.raises(InputError, match=r"feature_column\) is for \.npz and \.parquet files"):
        FeatureStream(tmp_path / "one.npy", feature_column="b")


def bad_npz(path, **change):
    np.savez(path, **{"features": X, **change})


def with_nan():
    x = X.copy()
    x[17, 1] = np.nan
    return x


def truncated(path, write, share=0.6):
    write(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def flipped(path):
    """An .npz with one byte of its stored matrix changed."""
    np.savez(path, features=X)
    content = bytearray(path.read_bytes())
    content[content.index(X[20].tobytes())] ^= 1
    path.write_bytes(bytes(content))


def lists(*rows):
    return pa.table({"embedding": pa.array(rows)})


THREE, TWO = [1.0, 2.0, 3.0], [1.0, 2.0]
BAD = {
    "NaN in .npz": ("f.npz", lambda p: bad_npz(p, features=with_nan()), r"f\.npz: X has NaN.* in 1 row \(17\)"),
    "NaN in .parquet": ("f.parquet", lambda p: pq.write_table(lists(*with_nan().tolist()), p), r"in 1 row \(17\)"),
    "NaN in .csv": ("f.csv", lambda p: np.savetxt(p, with_nan(), delimiter=","), r"in 1 row \(17\)"),
    "a cell missing in .csv": ("f.csv", lambda p: p.write_text("a,b\n" + "1.5,2\n" * 17 + ",2\n"), r"in 1 row \(17\)"),
    "text in .csv": ("f.csv", lambda p: p.write_text("a,b\n" + "1.5,2\n" * 99 + "x,2\n"), r"f\.csv cannot be read"),
    "a short line in .csv": ("f.csv", lambda p: p.write_text("a,b\n" + "1,2\n" * 99 + "1\n"), "lines of equal length"),
    "one dimension": ("f.npz", lambda p: bad_npz(p, features=X[0]), r"X has shape \(3,\), not two dimensions"),
    "three dimensions": ("f.npy", lambda p: np.save(p, X[None]), r"X has shape \(1, 23, 3\), not two dimensions"),
    "no rows in .npy": ("f.npy", lambda p: np.save(p, X[:0]), r"X has shape \(0, 3\), so it has no rows"),
    "no rows in .parquet": ("f.parquet", lambda p: pq.write_table(lists(THREE)[:0], p), r"f\.parquet has no rows"),
    "no rows in .csv": ("f.csv", lambda p: p.write_text("a,b\n"), r"f\.csv has no rows"),
    "empty .csv": ("f.csv", lambda p: p.write_text(""), r"f\.csv is empty"),
    "empty .npy": ("f.npy", lambda p: p.write_text(""), r"f\.npy is not an \.npy file"),
    "empty .parquet": ("f.parquet", lambda p: p.write_text(""), r"f\.parquet cannot be read"),
    "truncated .npy": ("f.npy", lambda p: truncated(p, npy), r"cannot be read \(it ends before its 23 rows do\)"),
    "truncated .npz": ("f.npz", lambda p: truncated(p, npz), r"f\.npz is not an \.npz file, or is truncated"),
    "truncated .parquet": ("f.parquet", lambda p: truncated(p, our_parquet), r"f\.parquet cannot be read"),
    "a wrong checksum": ("f.npz", flipped, r"f\.npz cannot be read \(Bad CRC-32"),
    "objects": ("f.npz", lambda p: bad_npz(p, features=X.astype(object)), "holds pickled objects, which are never"),
    "text": ("f.npz", lambda p: bad_npz(p, features=X.astype(str)), "values, not numbers"),
    "complex": ("f.npy", lambda p: np.save(p, X * 1j), "holds complex numbers"),
    "too few ids": ("f.npz", lambda p: bad_npz(p, ids=np.arange(9)), r"ids has shape \(9,\) but X has 23 rows"),
    "ids twice": ("f.npz", lambda p: bad_npz(p, ids=np.zeros(N, dtype=int)), "ids has 0 more than once"),
    "ids of floats": ("f.npz", lambda p: bad_npz(p, ids=np.arange(N) / 2), "ids are of type float64"),
    "other lengths within a block": (
        "f.parquet",
        lambda p: pq.write_table(lists(*[THREE] * 12, TWO), p),
        r"lists of different lengths \(3 in row 10, 2 in row 12\)",
    ),
    "other lengths from a block on": (
        "f.parquet",
        lambda p: pq.write_table(lists(*[THREE] * 10, TWO), p),
        r"3 features in its first rows but 2 from row 10 on",
    ),
    "null": ("f.parquet", lambda p: pq.write_table(lists(*[THREE] * 12, None), p), r"null in 1 rows \(12\)"),
    "nothing there": ("f.parquet", lambda p: None, "is not there or not a file"),
    "another suffix": ("f.txt", lambda p: p.write_text("1"), "which cannot be read as features"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_files_are_one_sentence_with_the_rows_of_the_file(case, tmp_path):
    name, write, message = BAD[case]
    write(tmp_path / name)
    with pytest.raises(InputError, match=message) as caught:
        list(FeatureStream(tmp_path / name))
    assert "\n" not in str(caught.value)


def test_rows_of_zeros_are_named_by_their_place_in_the_file(tmp_path):
    x = X.copy()
    x[[11, 13]] = 0
    np.save(tmp_path / "f.npy", x)
    blocks = list(FeatureStream(tmp_path / "f.npy"))
    with pytest.raises(InputError, match=r"2 rows \(11, 13\) of zeros only"):
        blocks[2].rows()
    assert blocks[2].subset([0]).first_row == 0


def test_the_number_of_rows_keeps_within_a_number_of_values(monkeypatch, tmp_path):
    monkeypatch.setattr(column_stream, "BLOCK_VALUES", 6)
    np.save(tmp_path / "f.npy", X)
    our_parquet(tmp_path / "f.parquet")
    for name in ("f.npy", "f.parquet"):
        assert {len(block) for block in FeatureStream(tmp_path / name)} == {1, 2}


def test_an_array_is_never_read_further_than_asked():
    file = io.BytesIO()
    np.save(file, X)
    file.seek(0)
    stream = ArrayStream(file)
    before = file.tell()
    np.testing.assert_array_equal(stream.take(2), X[:2])
    assert file.tell() == before + 2 * 3 * 4


def test_each_field_of_a_compressed_archive_is_read_on_from_where_it_was(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "f.npz", features=X, ids=IDS)
    opened = []
    monkeypatch.setattr(
        zipfile.ZipFile,
        "open",
        lambda self, name, *rest, of=zipfile.ZipFile.open: (opened.append(name), of(self, name, *rest))[1],
    )
    stream = FeatureStream(tmp_path / "f.npz")
    opened.clear()
    assert len(list(stream)) == 5
    assert opened == ["features.npy", "ids.npy"]
