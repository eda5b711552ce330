"""New rows under the classes of a run: from every kind of file, whole or not at all, in little memory."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file, save_file

from rpim import RPIM, Discovery, FeatureSet, InfoMaxObjective, InputError, Predictor
from rpim.data.formats import column_stream

D, K = 128, 6
CENTRES = 2 * np.random.default_rng(0).normal(size=(K, D))


def rows(n: int, seed: int) -> np.ndarray:
    """Noisy rows around the centres."""
    random = np.random.default_rng(seed)
    return (CENTRES[np.arange(n) % K] + random.normal(size=(n, D))).astype(np.float32)


X = rows(600, 1)
NEW = rows(50, 2)
NAMES = np.array(["ant", "bee", "cat", "", "", ""])
Y = np.where(np.arange(600) % 4 < 2, NAMES[np.arange(600) % K], "")


def fitted(**metadata) -> Discovery:
    features = FeatureSet.from_arrays(X, labels=Y, metadata=metadata)
    model = RPIM(
        n_classes=K,
        objective=InfoMaxObjective(trade_off=0.1, weight_decay=0.01),
        n_members=1,
        n_init=1,
        max_iter=15,
        random_state=0,
    )
    return Discovery.from_fit(model.fit(features.rows(), Y), features)


@pytest.fixture(scope="module")
def discovery() -> Discovery:
    return fitted()


@pytest.fixture(scope="module")
def run(discovery, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    discovery.save(folder)
    return folder


@pytest.fixture
def predict(command, run):
    """Run ``rpim predict RUN`` with these arguments in an empty folder: exit code, standard output, standard error."""
    return partial(command, "predict", run)


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(column_stream, "BLOCK_ROWS", 7)


def test_a_predictor_needs_nothing_that_grows_with_the_run(discovery, run, tmp_path):
    for name in ("run.json", "model.safetensors"):
        (tmp_path / name).write_bytes((run / name).read_bytes())
    with pytest.raises(InputError, match=r"assignments\.parquet is missing"):
        Discovery.load(tmp_path)
    predictor = Predictor.load(tmp_path)
    assert predictor.model.predict_proba(NEW).tobytes() == discovery.model.predict_proba(NEW).tobytes()
    assert predictor.assign(NEW).labels.tolist() == discovery.predict(NEW).tolist()
    assert predictor.model.classes_.tolist() == ["ant", "bee", "cat", "new-1", "new-2", "new-3"]
    assert predictor.space.directions.tobytes() == discovery.space.directions.tobytes()
    assert Discovery.load(run).space.directions.tobytes() == discovery.space.directions.tobytes()


def write_npz(path):
    np.savez(path, features=NEW, ids=np.arange(50) * 2, texts=[f"text, {i}" for i in range(50)])


def write_parquet(path):
    FeatureSet.from_arrays(NEW, ids=[f"n{i}" for i in range(50)], paths=[f"{i}.png" for i in range(50)]).write(path)


def write_csv(path):
    np.savetxt(path, NEW, delimiter=",")


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("n.npz", write_npz),
        ("n.npy", lambda path: np.save(path, NEW)),
        ("n.parquet", write_parquet),
        ("n.csv", write_csv),
    ],
)
def test_blocks_give_what_all_rows_at_once_give(name, write, discovery, predict, small_blocks):
    write(Path(name))
    whole = discovery.assign(FeatureSet.read(name))
    assert len(set(whole.labels.tolist())) == K
    whole.write("whole.parquet")
    assert predict(name, "-o", "blocks.parquet") == (0, "The classes of the rows are in blocks.parquet.\n", "")
    expected, found = pq.read_table("whole.parquet"), pq.read_table("blocks.parquet")
    assert found.schema.equals(expected.schema)
    for column in expected.column_names:
        if column in ("confidence", "runner_up_confidence", "outlier"):  # a product of matrices is rounded by its size
            np.testing.assert_allclose(found[column].to_numpy(), expected[column].to_numpy(), rtol=1e-4)
        else:
            assert found[column].to_pylist() == expected[column].to_pylist()
    assert pq.ParquetFile("blocks.parquet").num_row_groups == 8  # of 50 rows, seven at a time
    code, out, err = predict(name)
    assert (code, err) == (0, "")
    assert [line["label"] for line in csv.DictReader(out.splitlines())] == whole.labels.tolist()
    assert predict(name, "-o", "blocks.csv") == (0, "The classes of the rows are in blocks.csv.\n", "")
    assert Path("blocks.csv").read_text() == out


def test_probabilities_and_refined_rows(discovery, predict, small_blocks):
    np.save("n.npy", NEW)
    model = discovery.model
    unit = FeatureSet.from_arrays(NEW).rows()
    assert predict("n.npy", "-o", "n.parquet", "--probabilities", "--refined") == (
        0,
        "The classes of the rows are in n.parquet.\n",
        "",
    )
    table = pq.read_table("n.parquet")
    assert json.loads(table.schema.metadata[b"rpim_classes"]) == model.classes_.tolist()
    np.testing.assert_allclose(np.stack(table["probabilities"].to_numpy()), model.predict_proba(unit), rtol=1e-4)
    np.testing.assert_allclose(np.stack(table["refined"].to_numpy()), model.transform(unit), atol=1e-6)
    assert table.column_names[-2:] == ["probabilities", "refined"]
    code, out, _ = predict("n.npy", "--probabilities")
    lines = list(csv.DictReader(out.splitlines()))
    assert code == 0
    assert [name for name in lines[0] if name.startswith("prob")] == [f"probability_{c}" for c in model.classes_]
    for line, expected in zip(lines, model.predict_proba(unit), strict=True):
        np.testing.assert_allclose([float(line[f"probability_{c}"]) for c in model.classes_], expected, rtol=1e-4)
        assert line["confidence"] == line[f"probability_{line['label']}"]
    for arguments in (("--refined",), ("--refined", "-o", "n.csv")):
        code, out, err = predict("n.npy", *arguments)
        assert (code, out) == (2, "")
        assert err == (
            "rpim: Refined rows are lists of numbers, which only a .parquet file can hold: give -o FILE.parquet.\n"
        )


def with_nan(row: int) -> np.ndarray:
    x = rows(13_000, 3)
    x[row, 1] = np.nan
    return x


def broken_page(path: str) -> None:
    """A parquet file whose bytes are wrong in the middle, and whose footer is whole."""
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows(5000, 3).ravel()), D)
    pq.write_table(pa.table({"x": column}), path, row_group_size=1000, use_dictionary=False)
    place = pq.ParquetFile(path).metadata.row_group(3).column(0).data_page_offset
    content = bytearray(Path(path).read_bytes())
    content[place : place + 64] = bytes(64)
    Path(path).write_bytes(bytes(content))


BAD = {
    "another width": (
        lambda: np.save("n.npy", NEW[:, :5]),
        "n.npy",
        "The rows have 5 features but the model was fitted on rows of 128: embed them with the same",
    ),
    "NaN far in": (
        lambda: np.save("n.npy", with_nan(12345)),
        "n.npy",
        "n.npy: X has NaN, missing or infinite values in 1 row (12345): remove or embed again.",
    ),
    "zeros far in": (
        lambda: np.save("n.npy", np.where(np.arange(13_000)[:, None] == 12345, 0, rows(13_000, 3))),
        "n.npy",
        "1 row (12345) of zeros only",
    ),
    "shuffled columns": (lambda: np.save("n.npy", NEW[:, ::-1]), "n.npy", "seem to come from another encoder"),
    "truncated": (lambda: Path("n.npy").write_bytes(b"\x93NUMPY\x01\x00"), "n.npy", "n.npy cannot be read"),
    "broken in the middle": (lambda: broken_page("n.parquet"), "n.parquet", "n.parquet cannot be read"),
    "empty": (lambda: Path("n.csv").write_text(""), "n.csv", "begins with a blank line: give a line per row."),
    "no rows": (lambda: np.save("n.npy", NEW[:0]), "n.npy", "X has shape (0, 128), so it has no rows"),
    "ids twice": (lambda: np.savez("n.npz", X=NEW, ids=[1] * 50), "n.npz", "ids has 1 more than once"),
    "nothing there": (lambda: None, "n.npz", "n.npz is not there or not a file"),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("output", ["out.csv", "out.parquet"])
def test_bad_rows_are_one_sentence_and_nothing_is_written(case, output, run, refused):
    make, name, message = BAD[case]
    make()
    before = sorted(os.listdir())
    refused(message, "predict", run, name, "-o", output)
    assert sorted(os.listdir()) == before


def test_an_output_that_is_there_stays_until_the_new_one_is_whole(predict):
    np.save("n.npy", with_nan(12345))
    np.save("good.npy", NEW)
    Path("out.csv").write_text("mine")
    assert "exists already" in predict("good.npy", "-o", "out.csv")[2]
    assert predict("n.npy", "-o", "out.csv", "--overwrite")[0] == 2
    assert Path("out.csv").read_text() == "mine"
    assert predict("good.npy", "-o", "out.csv", "--overwrite") == (0, "The classes of the rows are in out.csv.\n", "")
    assert len(Path("out.csv").read_text().splitlines()) == 51
    assert sorted(os.listdir()) == ["good.npy", "n.npy", "out.csv"]


def test_rows_that_seem_of_another_encoder_go_on_if_asked(discovery, predict):
    shuffled = NEW[:, ::-1]
    np.save("n.npy", shuffled)
    code, out, err = predict("n.npy", "--any-encoder")
    assert (code, err) == (0, "")
    assert len(out.splitlines()) == 51
    for call in (discovery.assign, discovery.predict):
        with pytest.raises(InputError, match="seem to come from another encoder"):
            call(shuffled)
        assert len(call(shuffled, any_encoder=True)) == 50
    assert len(discovery.model.predict(shuffled)) == 50  # scikit-learn's predict asks nothing
    assert len(discovery.predict(shuffled[:5])) == 5  # too few to tell


def test_names_of_encoders_are_compared(tmp_path):
    fitted(encoder="dino").save(tmp_path / "run")
    predictor = Predictor.load(tmp_path / "run")
    FeatureSet.from_arrays(NEW[:1], metadata={"encoder": "clip"}).write(tmp_path / "n.parquet")
    with pytest.raises(InputError, match="embedded by 'clip' but those of the run by 'dino': embed them with the same"):
        predictor.assign_file(tmp_path / "n.parquet", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
    predictor.assign_file(tmp_path / "n.parquet", tmp_path / "out.csv", any_encoder=True)
    FeatureSet.from_arrays(NEW[:1], metadata={"encoder": "dino"}).write(tmp_path / "same.npz")
    predictor.assign_file(tmp_path / "same.npz", tmp_path / "same.csv")
    assert (tmp_path / "same.csv").read_text() == (tmp_path / "out.csv").read_text()


def test_a_run_from_before_there_was_a_space_refuses_nothing(run, tmp_path):
    tensors = load_file(run / "model.safetensors")
    assert tensors.pop("space").shape == (D, D // 3)
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "run.json").write_bytes((run / "run.json").read_bytes())
    assert len(Predictor.load(tmp_path).assign(NEW[:, ::-1])) == 50


def test_a_space_of_another_width_is_a_damaged_run(run, tmp_path):
    tensors = load_file(run / "model.safetensors")
    save_file({**tensors, "space": tensors["space"][:9].copy()}, tmp_path / "model.safetensors")
    (tmp_path / "run.json").write_bytes((run / "run.json").read_bytes())
    with pytest.raises(InputError, match=r"damaged \(the space has 9 features, not 128\): run rpim discover again"):
        Predictor.load(tmp_path)


@pytest.mark.slow
def test_ctrl_c_in_the_middle_leaves_nothing(run, tmp_path, interrupt):
    np.save(tmp_path / "n.npy", rows(40, 3))
    script = """
import sys, time
from rpim.runs import predictor as prediction
from rpim.cli.main import main
from rpim.data.formats import column_stream
column_stream.BLOCK_ROWS = 10
assign = prediction.assign
def slowly(model, block):
    if block.first_row == 20:
        print("half", flush=True)
        time.sleep(60)
    return assign(model, block)
prediction.assign = slowly
main()
"""

    def begun():
        assert len(os.listdir(tmp_path)) == 3  # the beginning, under another name, and a lock

    end = interrupt(script, "predict", run, "n.npy", "-o", "out.parquet", says="half", then=begun)
    assert end == (130, "rpim: interrupted; no file was written.\n")
    assert os.listdir(tmp_path) == ["n.npy"]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is Linux's VmHWM")
def test_memory_does_not_grow_with_the_rows(run, tmp_path, environment):
    script = """
import sys
from rpim.benchmark.cell import peak_memory_mb
from rpim.data.formats import column_stream
from rpim.runs.predictor import Predictor
column_stream.BLOCK_ROWS = 1000  # a dozen blocks, after which no allocator needs more
Predictor.load(sys.argv[1]).assign_file(sys.argv[2], sys.argv[2] + ".out.parquet", probabilities=True)
print(peak_memory_mb())
"""
    peaks, sizes = [], []
    for n in (12_000, 96_000):
        path = tmp_path / f"{n}.parquet"
        column = pa.FixedSizeListArray.from_arrays(pa.array(np.tile(rows(12_000, 3), (n // 12_000, 1)).ravel()), D)
        pq.write_table(pa.table({"x": column}), path, use_dictionary=False)
        assert pq.ParquetFile(path).num_row_groups == 1  # the hard case
        done = subprocess.run(
            [sys.executable, "-c", script, run, path], env=environment, capture_output=True, text=True, check=True
        )
        assert pq.ParquetFile(f"{path}.out.parquet").metadata.num_rows == n
        peaks.append(float(done.stdout))
        sizes.append(n * D * 4 / 2**20)
    assert peaks[1] - peaks[0] < (sizes[1] - sizes[0]) / 4
