"""Prediction by workers: row by row what a single process gives, for every kind of file whose spans can be read."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rpim import RPIM, Discovery, FeatureSet, InfoMaxObjective, InputError
from rpim.data.feature_stream import FeatureSpans
from rpim.data.formats import column_stream
from rpim.runs import predictor as prediction
from rpim.runs.predictor import predict_on_ray

D, K = 128, 6
CENTRES = 2 * np.random.default_rng(0).normal(size=(K, D))


def rows(n, seed):
    return (CENTRES[np.arange(n) % K] + np.random.default_rng(seed).normal(size=(n, D))).astype(np.float32)


X, NEW = rows(600, 1), rows(50, 2)
Y = np.where(np.arange(600) % 4 < 2, np.array(["ant", "bee", "cat", "", "", ""])[np.arange(600) % K], "")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    features = FeatureSet.from_arrays(X, labels=Y)
    model = RPIM(
        K,
        objective=InfoMaxObjective(trade_off=0.1, weight_decay=0.01),
        n_members=1,
        n_init=1,
        max_iter=15,
        random_state=0,
    )
    folder = tmp_path_factory.mktemp("runs") / "run"
    Discovery.from_fit(model.fit(features.rows(), Y), features).save(folder)
    return folder


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(column_stream, "BLOCK_ROWS", 7)
    monkeypatch.setattr(prediction, "FILES", 3)


def write_folder(path, n_files=3):
    path.mkdir()
    ids, texts = np.array([f"n{i}" for i in range(50)]), [f"text {i}" for i in range(50)]
    for number, part in enumerate(np.array_split(np.arange(50), n_files)):
        features = FeatureSet.from_arrays(NEW[part], ids=ids[part], texts=[texts[i] for i in part])
        features.write(path / f"part-{number}.parquet")


def test_spans_of_files_are_the_rows_with_what_stands_beside_them(tmp_path, small_blocks):
    write_folder(tmp_path / "new")
    spans = FeatureSpans(tmp_path / "new")
    for start, stop in ((0, 50), (0, 1), (16, 18), (3, 40), (49, 50)):
        blocks = list(spans.blocks(start, stop))
        assert [block.first_row for block in blocks] == list(range(start, stop, 7))
        assert [name for block in blocks for name in block.ids] == [f"n{i}" for i in range(start, stop)]
        assert [text for block in blocks for text in block.texts] == [f"text {i}" for i in range(start, stop)]
        np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), NEW[start:stop])
    FeatureSet.from_arrays(NEW, paths=["x"] * 50).write(tmp_path / "new" / "part-3.parquet")
    with pytest.raises(InputError, match=r"part-3\.parquet has other columns than .*part-0\.parquet"):
        FeatureSpans(tmp_path / "new")


def read(path):
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    tables = [pq.read_table(file) for file in files]
    assert all(table.schema.equals(tables[0].schema, check_metadata=True) for table in tables)
    return tables[0].schema, {name: [v for t in tables for v in t[name].to_pylist()] for name in tables[0].column_names}


@pytest.mark.parametrize("kind", ["npy", "folder"])
def test_every_row_is_what_a_single_process_gives(kind, ray_here, run, command, small_blocks):
    new = Path("new.npy" if kind == "npy" else "new")
    np.save(new, NEW) if kind == "npy" else write_folder(new)
    extra = ["--probabilities", "--refined"] if kind == "folder" else []
    written = "The classes of the rows are in {}.\n".format
    assert command("predict", run, new, "-o", "spread", "--ray", "--workers", 2, *extra) == (0, written("spread"), "")
    assert command("predict", run, new, "-o", "unspread.parquet", *extra) == (0, written("unspread.parquet"), "")
    found, expected = read(Path("spread")), read(Path("unspread.parquet"))
    assert found[0].equals(expected[0], check_metadata=True)
    assert found[1] == expected[1]  # every bit: the blocks are the same ones
    assert len(found[1]["label"]) == 50
    assert len(list(Path("spread").iterdir())) == 3  # of 8 blocks, three a file
    assert sorted(path.name for path in Path().iterdir()) == sorted([new.name, "spread", "unspread.parquet"])


def test_bad_rows_and_files_are_named(ray_here, run, tmp_path, small_blocks):
    broken = NEW.copy()
    broken[30, 3] = np.nan
    np.save(tmp_path / "new.npy", broken)
    with pytest.raises(InputError, match=r"new\.npy: X has NaN, missing or infinite values in 1 row \(30\)"):
        predict_on_ray(run, tmp_path / "new.npy", tmp_path / "out", 2)
    assert not (tmp_path / "out").exists()
    write_folder(tmp_path / "new")
    (tmp_path / "new" / "part-1.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"part-1\.parquet cannot be read"):
        predict_on_ray(run, tmp_path / "new", tmp_path / "out", 1)


@pytest.mark.parametrize(
    ("message", "new", "arguments"),
    [
        ("give -o FOLDER", "new.npy", ["--ray"]),
        ("--workers is the number of Ray workers", "new.npy", ["-o", "out.csv", "--workers", 2]),
        ("is the name of a file", "new.npy", ["-o", "out.csv", "--ray"]),
        ("new.csv has the suffix '.csv', which cannot be read block by block", "new.csv", ["-o", "out", "--ray"]),
        ("seem to come from another encoder", "other.npy", ["-o", "out", "--ray"]),
        ("is not there", "gone.npy", ["-o", "out", "--ray"]),
    ],
)
def test_bad_input_is_said_before_the_work(message, new, arguments, ray_here, run, refused):
    np.save("new.npy", NEW)
    np.save("other.npy", NEW[:, ::-1].copy())
    np.savetxt("new.csv", NEW, delimiter=",")
    refused(message, "predict", run, new, *arguments)
    assert sorted(path.name for path in Path().iterdir()) == ["new.csv", "new.npy", "other.npy"]
