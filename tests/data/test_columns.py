"""Metadata columns: which are kept, in which files, and which are refused."""

from __future__ import annotations

import datetime
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rpim import FeatureSet, InputError
from rpim.embedding.sources import is_source, read_source
from rpim.runs.run_folder import features_of

X = np.eye(3, dtype=np.float32)


def listed(columns):
    """NaN as None, so that lists can be compared."""
    return {name: [None if value != value else value for value in values.tolist()] for name, values in columns.items()}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([3, 4, 5], [3.0, 4.0, 5.0]),
        ([3, None, 2.5], [3.0, None, 2.5]),
        (np.array([1, 2, 3], dtype=np.uint8), [1, 2, 3]),
        ([np.inf, np.nan, -1], [np.inf, None, -1.0]),  # -1 is a price, not a missing label
        (["Bern", None, ""], ["Bern", "", ""]),
        ([True, False, None], ["true", "false", ""]),
        (np.array([True, False, True]), ["true", "false", "true"]),
        ([datetime.date(2024, 1, 5), None, datetime.date(2024, 2, 1)], ["2024-01-05", "", "2024-02-01"]),
        (np.array(["2024-01-05", "NaT", "1999-12-31"], dtype="M8[D]"), ["2024-01-05", "", "1999-12-31"]),
        (["12", 13, 1.5], ["12", "13", "1.5"]),
        ([10**400, 1, 2], [str(10**400), "1", "2"]),
        (np.array([b"caf\xc3\xa9", b"\xff", b""]), ["café", "\ufffd", ""]),
        (np.ma.masked_array([1, 2, 3], [False, True, False]), [1.0, None, 3.0]),
        ([None, None, None], [None, None, None]),
    ],
)
def test_a_column_is_numbers_or_text(given, kept):
    features = FeatureSet.from_arrays(X, columns={"c": given})
    assert listed(features.columns) == {"c": kept}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"c": [1, 2]}, "The column 'c' has 2 values but X has 3 rows"),
        ({"c": "abc"}, "The column 'c' is not a flat list"),
        ({"c": np.eye(3)}, "The column 'c' is not a flat list"),
        ({"c": [[1], [2], [3]]}, "The column 'c' has values of type list: give numbers or text"),
        ({"Label": [1, 2, 3]}, "columns has 'Label', which is the name of another field in files: rename it"),
        ({"view_2": [1, 2, 3]}, "columns has 'view_2'"),
        ({3: [1, 2, 3]}, "columns has 3"),
    ],
)
def test_bad_columns(columns, message):
    with pytest.raises(InputError, match=message):
        FeatureSet.from_arrays(X, columns=columns)


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_they_are_written_and_read_and_chosen_with_their_rows(tmp_path, suffix):
    columns = {"city <b>": ["Bern", "", "Ulm"], "price": [3.5, np.nan, np.inf], "n" * 300: [1, 2, 3]}
    features = FeatureSet.from_arrays(X, columns=columns)
    assert features.fingerprint() == FeatureSet.from_arrays(X).fingerprint()
    features.write(tmp_path / f"f{suffix}")
    again = FeatureSet.read(tmp_path / f"f{suffix}")
    assert listed(again.columns) == listed(features.columns)
    assert again.columns["city <b>"].dtype == object  # not padded to the longest
    assert listed(again.subset([2, 0]).columns)["city <b>"] == ["Ulm", "Bern"]


def test_a_parquet_file_gives_its_scalars(tmp_path):
    table = pa.table(
        {
            "emb": pa.array(X.tolist()),
            "label": ["a", None, "b"],
            "city": pa.array(["Bern", None, "Bern"]).dictionary_encode(),
            "price": pa.array([3, None, 5]),
            "cost": pa.array([1, 2, 3]).cast(pa.decimal128(20)),
            "day": pa.array([datetime.date(2024, 1, 5), None, datetime.date(2024, 1, 6)]),
            "at": pa.array([1704457800000000000, None, None], pa.timestamp("ns", "Mars/Base")),  # a zone unknown here
            "ok": [True, None, False],
            "nothing": pa.nulls(3),
            "tags": [["x"], [], ["y"]],
            "raw": [b"1", b"2", b"3"],
            "record": [{"a": 1}] * 3,
            "__index_level_0__": [0, 1, 2],
        }
    )
    pq.write_table(table, tmp_path / "f.parquet")
    features = FeatureSet.read(tmp_path / "f.parquet")
    assert listed(features.columns) == {
        "city": ["Bern", "", "Bern"],
        "price": [3.0, None, 5.0],
        "cost": [1.0, 2.0, 3.0],
        "day": ["2024-01-05", "", "2024-01-06"],
        "at": ["2024-01-05 12:30:00.000000000", "", ""],
        "ok": ["true", "", "false"],
    }


def test_a_folder_of_parquet_files_gives_what_all_of_them_have(tmp_path):
    (tmp_path / "rows").mkdir()
    for k, others in enumerate(({"city": ["a", "b", "c"], "x1": [1, 2, 3]}, {"city": ["d", "e", "f"]})):
        columns = {"emb": pa.array((X + k).tolist()), **others}
        pq.write_table(pa.table(columns), tmp_path / "rows" / f"{k}.parquet")
    assert listed(FeatureSet.read(tmp_path / "rows").columns) == {"city": list("abcdef")}
    on_disk = FeatureSet.read(tmp_path / "rows", memory="4kB")
    assert (listed(on_disk.columns), len(on_disk)) == ({"city": list("abcdef")}, 6)


def test_an_npz_gives_keys_with_one_value_per_row_alone(tmp_path):
    np.savez(
        tmp_path / "f.npz",
        features=X,
        label_names=["a", "b"],
        images=np.zeros((3, 4, 4)),
        views=[10, 20, 30],
        city=["Bern", "Ulm", ""],
        what=np.array([None, {}, []], dtype=object),
    )
    features = FeatureSet.read(tmp_path / "f.npz")
    assert listed(features.columns) == {"views": [10, 20, 30], "city": ["Bern", "Ulm", ""]}
    assert features.views == ()


@pytest.mark.parametrize(
    ("text", "columns", "n_features"),
    [
        ("a,city,b\n1,Bern,2\n3,,4\n", {"city": ["Bern", ""]}, 2),
        ("a,day,b\n1,2024-01-05,2\n3,2024-01-06,4\n", {"day": ["2024-01-05", "2024-01-06"]}, 2),
        ("a,price\n1,3.5\n3,4\n", {}, 2),  # a number is a feature
    ],
)
def test_a_csv_file_gives_its_columns_of_words(tmp_path, text, columns, n_features):
    (tmp_path / "f.csv").write_text(text)
    features = FeatureSet.read(tmp_path / "f.csv")
    assert (listed(features.columns), features.n_features) == (columns, n_features)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,?\n3,NA\n", "f.csv"),  # marks of missing numbers make no column of words
        ("a,b\n1,x\n3,4\n", "invalid value 'x'"),
        ("text,label,price,city\nHi,a,3,Bern\n", r"few numbers a row \(price\).*say --text-column text, or leave"),
    ],
)
def test_what_may_be_meant_otherwise_is_no_column(tmp_path, text, message):
    (tmp_path / "f.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        FeatureSet.read(tmp_path / "f.csv")


def test_tables_of_texts_keep_theirs(tmp_path):
    (tmp_path / "t.csv").write_text("text;label;city\nHi;a;Bern\nBye;;\n")
    assert is_source(tmp_path / "t.csv")
    assert listed(read_source(tmp_path / "t.csv").columns) == {"city": ["Bern", ""]}
    (tmp_path / "p.csv").write_text("text,price,zip,topic\nHi,3.5,0041,x\nBye,,12,y\n")
    assert is_source(tmp_path / "p.csv")
    items = read_source(tmp_path / "p.csv", text_column="text", label_column="topic")
    assert listed(items.columns) == {"price": [3.5, None], "zip": ["0041", "12"]}
    (tmp_path / "f.csv").write_text("text,a,b,c,d,e,f,g,h\nHi,1,2,3,4,5,6,7,8\n")
    assert not is_source(tmp_path / "f.csv")  # an embedding of eight numbers, with its text
    lines = [{"text": "Hi", "n": 1, "tags": ["x"]}, {"text": "Bye", "ok": True}]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert listed(read_source(tmp_path / "t.jsonl").columns) == {"n": [1.0, None], "ok": ["", "true"]}
    pq.write_table(pa.table({"text": ["Hi"], "at": [datetime.date(2024, 1, 5)]}), tmp_path / "t.parquet")
    assert listed(read_source(tmp_path / "t.parquet").columns) == {"at": ["2024-01-05"]}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_list_of_labels_brings_its_columns_to_the_images(tmp_path, suffix):
    (tmp_path / "images").mkdir()
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / "images" / name)
    table = pa.table({"path": ["b.png"], "label": ["owl"], "price": [3.5], "city": ["Bern"]})
    if suffix == ".csv":
        (tmp_path / "l.csv").write_text("path,label,price,city\nb.png,owl,3.5,Bern\n")
    else:
        pq.write_table(table, tmp_path / "l.parquet")
    items = read_source(tmp_path / "images", labels=tmp_path / f"l{suffix}")
    assert listed(items.columns) == {"price": [None, 3.5], "city": ["", "Bern"]}


def test_a_run_finds_them_with_its_features(animals):
    given = FeatureSet.read(animals.parent / "animals.npz")
    again = FeatureSet.from_arrays(
        given.X, given.labels, given.ids, texts=given.texts, columns={"price": np.arange(120)[::-1]}
    )
    again.subset(np.arange(120)[::-1]).write(animals.parent / "other.parquet")
    assert features_of(animals, animals.parent / "other.parquet").columns["price"].tolist() == list(range(119, -1, -1))
