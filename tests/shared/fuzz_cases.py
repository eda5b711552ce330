"""Damaged and hostile input: each kind makes files in a folder, from a seed, and names the call that reads them.

A case is (kind, seed) and nothing else: the same two give the same files. `ORIGINALS` are valid files of every format,
written once; a case copies some of them, damages the copy, and returns a function that reads it. That function returns,
or raises `InputError`; everything else is a finding (see fuzzing.py).
"""

from __future__ import annotations

import copy
import io
import json
import os
import pickle
import re
import shutil
import socket
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Read = Callable[[], object]
Kind = Callable[[Random, Path, Path], Read]
"""(random, originals, folder of the case) to the call; the current folder is that of the case."""

ODD_TEXT = "\x1b[2J\n"
ODD = [
    None, True, -1, 0, 1, 7, 2**31, 2**63, -(2**63), 10**30, 1e308, -0.0, 0.5, "", "x", "a\0b", "../../outside", "/",
    "NaN", "\ud800", ODD_TEXT, "=1+1", "x" * 5000, [], {}, [[]], [None], {"a": {"b": []}}, list(range(2000)),
    float("nan"), float("inf"),
]  # fmt: skip
NUMBERS = [b"-1", b"0", b"1e999", b"nan", b"9" * 20, b"2147483648", b"18446744073709551615", b'"', b"", b","]
NUMBERS += [b"[" * 100_000]
NAMES = [
    "a\nb.png",
    "\x1b[2J.png",
    "-o.png",
    "n" * 250 + ".png",
    "ü.PNG",
    "\udcff.png",
    " .png",
    "=1+1.png",
    "a'b\".jpg",
]


def damaged(random: Random, data: bytes) -> bytes:
    """One to four changes: bits, bytes, ranges, numbers in text and in binary."""
    for _ in range(random.choice([1, 1, 2, 4])):
        at = random.randrange(len(data) + 1)
        if random.random() < 0.4:  # headers and footers matter most
            at = min(len(data), random.choice([random.randrange(200), max(0, len(data) - random.randrange(1, 200))]))
        end = min(len(data), at + random.choice([1, 2, 4, 8, 64, 1000]))
        kind = random.randrange(8)
        if kind == 0 and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]
        elif kind == 1:
            data = data[:at] if random.random() < 0.5 else data[:at] + data[end:]
        elif kind == 2:
            data = data[:at] + random.randbytes(random.choice([1, 2, 8, 100])) + data[at:]
        elif kind == 3:
            data = data[:end] + data[at:]
        elif kind == 4:
            data = data[:at] + bytes(end - at) + data[end:]
        elif kind == 5:
            value = random.choice([0, 1, 0x7F, 0x80, 0xFF]).to_bytes(1, "little") * random.choice([1, 2, 4, 8])
            data = data[:at] + value + data[at + len(value) :]
        elif kind == 6 and (found := [*re.finditer(rb"\d+", data[:20_000])]):
            number = random.choice(found)
            data = data[: number.start()] + random.choice(NUMBERS) + data[number.end() :]
        elif kind == 7:
            data = data[:at] + random.choice(NUMBERS) + data[at:]
    return data


def damage(random: Random, file: Path) -> None:
    """Damage a file; now and then it becomes something that is no file, or empty."""
    what = random.randrange(60)
    data = file.read_bytes()
    if what < 6:
        file.unlink()
        _special(what, file)
    else:
        file.write_bytes(damaged(random, data))


def _special(what: int, place: Path) -> None:
    if what == 0:
        os.mkfifo(place)
    elif what == 1:
        place.mkdir()
    elif what == 2:
        place.symlink_to(place)
    elif what == 3:
        place.symlink_to(Path.cwd().parent / "outside" / "secret.txt")
    elif what == 4:
        with socket.socket(socket.AF_UNIX) as made:  # the path of a socket may have 107 bytes
            made.bind(os.path.relpath(place))
    else:
        place.touch()


def odd_values(random: Random, values: object) -> object:
    """JSON with one value, somewhere in it, replaced or removed."""
    places: list[tuple[object, object]] = []

    def visit(one: object) -> None:
        for key, below in one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ():
            places.append((one, key))
            visit(below)

    visit(values)
    if not places:
        return random.choice(ODD)
    inside, key = random.choice(places)
    if random.random() < 0.15:
        del inside[key]  # type: ignore[attr-defined]
    else:
        inside[key] = random.choice(ODD)  # type: ignore[index]
    return values


# The calls ------------------------------------------------------------------------------------------------------------


def read_features(path: Path, labels: Path | None = None) -> Read:
    from rpim import FeatureSet

    def read() -> None:
        found = FeatureSet.read(path, labels)
        rows = found.rows(normalize=False)
        assert rows.shape == (len(found), found.n_features)
        assert np.isfinite(rows).all()
        assert len(set(found.ids.tolist())) == len(found)

    return read


def rpim(*arguments: object) -> Read:
    """A whole command in this process, which has to end with 0, or with 2 and one line."""
    return lambda: _command([str(argument) for argument in arguments])


def _command(arguments: list[str]) -> None:
    import contextlib

    from rpim import InputError
    from rpim.cli.main import app

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            app(["--debug", *arguments])
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
    lines = err.getvalue().splitlines()
    if code == 2 and lines and lines[-1].startswith("rpim: "):
        raise InputError(lines[-1])
    assert code == 0, f"exit code {code} of rpim {' '.join(arguments)}: {err.getvalue()}"


def _one(*reads: Read) -> Callable[[Random], Read]:
    return lambda random: random.choice(reads)


# The kinds ------------------------------------------------------------------------------------------------------------


def _damaged_file(name: str) -> Kind:
    def make(random: Random, originals: Path, folder: Path) -> Read:
        shutil.copy(originals / name, folder / name)
        damage(random, folder / name)
        if random.random() < 0.8:
            return read_features(folder / name)
        return _one(
            rpim("predict", originals / "run", name, "-o", "out.csv"),
            rpim("discover", name, "--method", "kmeans", "--n-classes", 4, "--no-report", "-q", "-o", "out"),
        )(random)

    return make


def _inside_npz(random: Random, originals: Path, folder: Path) -> Read:
    """The arrays in an .npz, with right checksums around them."""
    with zipfile.ZipFile(originals / "f.npz") as before, zipfile.ZipFile(folder / "f.npz", "w") as after:
        target = random.choice(before.namelist())
        for name in before.namelist():
            data = before.read(name)
            after.writestr(name, damaged(random, data) if name == target else data)
    return read_features(folder / "f.npz")


def _odd_table(random: Random, originals: Path, folder: Path) -> Read:
    """A .parquet whose column has another type or other values, or is there twice."""
    _change_column(random, originals / "f.parquet", folder / "f.parquet")
    return read_features(folder / "f.parquet")


def _change_column(random: Random, source: Path, target: Path) -> None:
    table = pq.read_table(source)
    at, n = random.randrange(table.num_columns), table.num_rows
    name = table.column_names[at]
    values = [
        [random.choice([None, 1, -(2**63)])] * n, [random.choice([None, float("nan"), float("inf"), 1e300])] * n,
        [random.choice(["", "x", "a\0b", "\x1b[2J"])] * n, [[1.0] * random.choice([0, 1, 6])] * n, [[[1]]] * n,
        [{"a": 1}] * n, [b"\xff"] * n, [None] * n, [True] * n,
    ]  # fmt: skip
    changed = pa.array(random.choice(values))
    if random.random() < 0.2 and len(table.column(at)):
        changed = table.column(at).take(pa.array([random.randrange(n)] * n))
    table = table.remove_column(at)
    if random.random() < 0.9:
        table = table.add_column(at, name if random.random() < 0.9 else table.column_names[0], changed)
    pq.write_table(table, target)


def _pim(random: Random, originals: Path, folder: Path) -> Read:
    shutil.copytree(originals / "pim", folder / "pim")
    damage(random, random.choice(sorted((folder / "pim").iterdir())))
    return read_features(folder / "pim")


def _labels(random: Random, originals: Path, folder: Path) -> Read:
    name = random.choice(["l.npy", "l.csv", "l.txt", "l.json", "l.parquet"])
    if name == "l.json" and random.random() < 0.5:
        odd = odd_values(random, json.loads((originals / name).read_text()))
        (folder / name).write_text(json.dumps(odd))
    else:
        shutil.copy(originals / name, folder / name)
        damage(random, folder / name)
    run = originals / "run"
    return (
        read_features(originals / "f.npz", folder / name)
        if random.random() < 0.7
        else rpim("evaluate", run, "--truth", name)
    )


def _texts(random: Random, originals: Path, folder: Path) -> Read:
    from rpim.embedding.sources import read_source

    name = random.choice(["t.csv", "t.json", "t.jsonl", "t.parquet"])
    shutil.copy(originals / name, folder / name)
    damage(random, folder / name)
    return lambda: read_source(folder / name)


def _pickles(random: Random, originals: Path, folder: Path) -> Read:
    from rpim.data.formats.arrays import load_pickle

    (folder / "p.pkl").write_bytes(damaged(random, (originals / "p.pkl").read_bytes()))
    return lambda: load_pickle(folder / "p.pkl", "a split", "give another")


def _benchmark(random: Random, originals: Path, folder: Path) -> Read:
    """The files that a benchmark reads beside its features."""
    from rpim.benchmark.plan import make_plan

    shutil.copy(originals / "truth.npz", folder / "f.npz")
    splits = {"f": {"known": ["ant", "bee"], "unknown": ["cat", "dog"]}}
    plan = {"methods": {"kmeans": {"n_init": 2}}, "sets": {"f": {"path": "f.npz", "n_classes": 4}}, "seeds": [0]}
    if random.random() < 0.5:
        splits = odd_values(random, splits)
    else:
        plan = odd_values(random, plan)
    (folder / "s.json").write_text(json.dumps(splits))
    (folder / "c.json").write_text(json.dumps(plan))
    if random.random() < 0.3:
        damage(random, folder / random.choice(["s.json", "c.json"]))
    return lambda: make_plan((), folder / "c.json", splits=folder / "s.json", jobs=1)


def _run_commands(random: Random, run: Path, originals: Path) -> Read:
    from rpim import Discovery
    from rpim.runs.versions import Versions

    def versions() -> None:
        opened = Versions(run)
        try:
            opened.state()
        finally:
            opened.store.close()

    return _one(
        lambda: Discovery.load(run),
        versions,
        rpim("classes", run),
        rpim("predict", run, originals / "f.npz", "-o", "out.csv"),
        rpim("export", run, "-o", "out.parquet"),
        rpim("export", run, "-o", "out.csv", "--decisions"),
        rpim("evaluate", run, "--truth", originals / "l.npy"),
    )(random)


def _run_bytes(random: Random, originals: Path, folder: Path) -> Read:
    shutil.copytree(originals / "run", folder / "run")
    damage(random, random.choice(sorted(file for file in (folder / "run").iterdir() if file.is_file())))
    return _run_commands(random, folder / "run", originals)


def _run_values(random: Random, originals: Path, folder: Path) -> Read:
    """A run folder whose files are valid, with a value in one of them that is odd."""
    run = folder / "run"
    shutil.copytree(originals / "run", run)
    name = random.choice(
        ["run.json"] * 3 + ["history.json", "assignments.parquet", "model.safetensors", "decisions.sqlite"]
    )
    if name.endswith(".json"):
        facts = json.loads((run / name).read_text())
        for _ in range(random.choice([1, 1, 2])):
            facts = copy.deepcopy(odd_values(random, facts))  # a second odd value may be put into the first
        (run / name).write_text(json.dumps(facts))
    elif name == "assignments.parquet":
        _change_column(random, run / name, run / name)
    elif name == "model.safetensors":
        _change_tensor(random, run / name)
    else:
        _change_database(random, run / name)
    return _run_commands(random, run, originals)


def _change_tensor(random: Random, file: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    name = random.choice(sorted(tensors))
    value = tensors.pop(name)
    changes = [
        lambda: value * float("nan"), lambda: value.double(), lambda: value.long(), lambda: value[:0],
        lambda: value * 1e38, lambda: value * 0, lambda: value.bool(), lambda: torch.zeros(()), lambda: value[None],
        lambda: value.bfloat16(), lambda: value.reshape(-1),
    ]  # fmt: skip
    if random.random() < 0.9:
        tensors[name if random.random() < 0.9 else "more"] = random.choice(changes)().contiguous()
    save_file(tensors, file)


def _change_database(random: Random, file: Path) -> None:
    database = sqlite3.connect(file)
    table = random.choice(["decisions", "pointers", "requests", "settings"])
    columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
    column = random.choice(columns)
    if table == "decisions" and random.random() < 0.5:
        number, body = random.choice(database.execute("SELECT number, body FROM decisions").fetchall())
        odd = json.dumps(odd_values(random, json.loads(body)))
        statement, values = "UPDATE decisions SET body = ? WHERE number = ?", (odd, number)
    elif random.random() < 0.1:
        statement, values = (
            random.choice([f"DROP TABLE {table}", f"DELETE FROM {table}", "PRAGMA user_version = 99"]),
            (),
        )
    else:
        value = random.choice([-1, 0, 1, 2, 2**62, 1.5, "x", "", "{}", "[" * 5000, b"\xff\x00", b"", None])
        statement, values = f"UPDATE OR IGNORE {table} SET {column} = ?", (value,)
    try:
        with database:
            database.execute(statement, values)
    except sqlite3.Error:  # a constraint; then the run is as it was
        pass
    finally:
        database.close()


def _images(random: Random, originals: Path, folder: Path) -> Read:
    """A folder with links, FIFOs, odd names, and damaged images among good ones."""
    from rpim.embedding.embed import embed
    from rpim.embedding.sources import read_source

    (folder / "images").mkdir()
    for number, pixels in enumerate(sorted((originals / "images").iterdir())):
        place = folder / "images" / random.choice(["", "ant", "bee", "a b", "\x1b[31m", "train"])
        place.mkdir(exist_ok=True)
        name = random.choice(NAMES) if random.random() < 0.2 else pixels.name
        if not (place / name).exists():
            data = pixels.read_bytes()
            (place / name).write_bytes(damaged(random, data) if random.random() < 0.5 else data)
        if random.random() < 0.15 and not (odd := place / f"odd{number}.png").exists():
            _special(random.randrange(6), odd)
    if random.random() < 0.2:
        (folder / "images" / "up").symlink_to(random.choice(["../../outside", "..", "."]))

    def read() -> None:
        items = read_source(folder / "images")
        embed(items, colours(), folder / "out.npz", workers=0)
        read_features(folder / "out.npz")()

    return read


def colours() -> object:
    """An encoder that costs nothing: the mean of each channel, and one."""
    from rpim.embedding.encoders import Encoder
    from rpim.embedding.pictures import Preprocessing

    class Colours(Encoder):
        kind, name, weights, weights_hash, batch_size = "images", "colours", None, "0" * 64, 4
        prepare = Preprocessing(size=8, crop=1.0)

        def encode(self, prepared: list[object]) -> object:
            means = np.asarray(prepared, dtype=np.float32).mean(axis=(2, 3))  # (n, 3)
            return np.hstack([means, np.ones((len(means), 1), np.float32)])

        def describe(self) -> dict[str, object]:
            return {}

    return Colours()


def _weights(random: Random, originals: Path, folder: Path) -> Read:
    from rpim.embedding.open_encoder import open_encoder

    name = random.choice(["net.onnx", "vit.safetensors"])
    shutil.copy(originals / name, folder / name)
    damage(random, folder / name)
    if name == "net.onnx":
        return lambda: open_encoder("images", str(folder / name))
    return lambda: open_encoder("images", "test_vit", folder / name)


KINDS: dict[str, Kind] = {
    "npz": _damaged_file("f.npz"),
    "inside-npz": _inside_npz,
    "npy": _damaged_file("f.npy"),
    "parquet": _damaged_file("f.parquet"),
    "odd-table": _odd_table,
    "csv": _damaged_file("f.csv"),
    "pim": _pim,
    "labels": _labels,
    "texts": _texts,
    "pickles": _pickles,
    "benchmark": _benchmark,
    "run-bytes": _run_bytes,
    "run-values": _run_values,
    "images": _images,
    "weights": _weights,
}
SLOW = ("images", "weights")


# The originals --------------------------------------------------------------------------------------------------------


def write_originals(folder: Path) -> None:
    """Valid files of every format, and a small run with decisions."""
    from rpim import RPIM, Discovery, FeatureSet, InfoMaxObjective
    from rpim.runs.decision_store import Store
    from rpim.runs.decisions import Merge, Move, Rename

    folder.mkdir()
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(4), 12)
    X = (4 * np.eye(6)[truth] + random.randn(48, 6)).astype(np.float32)
    words = np.array(["ant", "bee", "cat", "dog"])[truth]
    labels = np.where((truth < 2) & (np.arange(48) % 2 == 0), words, "")
    ids, texts = [f"row-{i}" for i in range(48)], [f"{word} number {i}" for i, word in enumerate(words)]
    features = FeatureSet.from_arrays(X, labels=labels, ids=ids, texts=texts, columns={"price": range(48)})
    features.write(folder / "f.npz")
    features.write(folder / "f.parquet")
    np.savez(folder / "truth.npz", X=X, labels=words)
    np.save(folder / "f.npy", X)
    np.savetxt(folder / "f.csv", X, delimiter=",", header=",".join("abcdef"), comments="")
    model = RPIM(4, objective=InfoMaxObjective(trade_off=0.1), n_members=1, n_init=1, max_iter=5, random_state=0)
    read = FeatureSet.read(folder / "f.npz")
    model.fit(read.rows(), read.labels)
    Discovery.from_fit(model, read, source=folder / "f.npz").save(folder / "run")
    store = Store(folder / "run")
    for number, decision in enumerate([Rename(2, "wren"), Merge((2, 3)), Move(np.array([1, 5]), 0)]):
        store.add(0, decision, f"key-{number:04}", number)
    store.close()
    (folder / "pim").mkdir()
    arrays = {"all_feats": X, "targets": truth, "mask_lab": labels != "", "mask_cls": truth < 2}
    for name, values in arrays.items():
        np.save(folder / "pim" / f"{name}.npy", values)
    _write_tables(folder, ids, texts, words)
    with open(folder / "p.pkl", "wb") as file:
        pickle.dump({"labels": [1, 2, np.int64(3)], "data": np.arange(12, dtype=np.uint8), "old": {"a", "b"}}, file)
    _write_images(folder / "images")
    _write_weights(folder)


def _write_tables(folder: Path, ids: list[str], texts: list[str], labels: np.ndarray) -> None:
    np.save(folder / "l.npy", labels)
    named = {"id": ids, "label": labels.tolist()}
    (folder / "l.csv").write_text("id,label\n" + "".join(f"{i},{c}\n" for i, c in zip(ids, labels, strict=True)))
    (folder / "l.txt").write_text("".join(f"{label}\n" for label in labels))
    (folder / "l.json").write_text(json.dumps(labels.tolist()))
    pq.write_table(pa.table(named), folder / "l.parquet")
    rows = [{"id": i, "text": t, "label": str(c)} for i, t, c in zip(ids, texts, labels, strict=True)]
    (folder / "t.csv").write_text("id,text,label\n" + "".join(f'{r["id"]},"{r["text"]}",{r["label"]}\n' for r in rows))
    (folder / "t.json").write_text(json.dumps(rows))
    (folder / "t.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), folder / "t.parquet")


def _write_images(folder: Path) -> None:
    from PIL import Image

    folder.mkdir()
    random = np.random.RandomState(0)
    for suffix in ("png", "jpg", "gif", "bmp", "tiff", "webp", "ppm", "jp2"):
        Image.fromarray(random.randint(0, 256, (12, 9, 3), dtype=np.uint8)).save(folder / f"image.{suffix}")
    Image.fromarray(random.randint(0, 256, (5, 9), dtype=np.uint8)).convert("P").save(folder / "palette.png")
    Image.fromarray(random.randint(0, 256, (5, 9, 4), dtype=np.uint8)).save(folder / "alpha.png")
    (folder / "page.eps").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n")


def _write_weights(folder: Path) -> None:
    import onnx
    import torch
    from onnx import TensorProto, helper, numpy_helper
    from safetensors.torch import save_file

    from rpim.embedding.weights import library

    weight = numpy_helper.from_array(np.ones((192, 3), np.float32), "w")
    nodes = [helper.make_node("Flatten", ["pixels"], ["flat"]), helper.make_node("MatMul", ["flat", "w"], ["row"])]
    image = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, 8, 8])
    row = helper.make_tensor_value_info("row", TensorProto.FLOAT, ["n", 3])
    graph = helper.make_graph(nodes, "g", [image], [row], [weight])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "net.onnx")
    torch.manual_seed(0)
    save_file(library("timm").create_model("test_vit").state_dict(), folder / "vit.safetensors")
