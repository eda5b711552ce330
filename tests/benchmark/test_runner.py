"""rpim benchmark: the protocol, lists of classes, cells that are kept, and what interruptions leave."""

from __future__ import annotations

import collections
import contextlib
import csv
import dataclasses
import importlib.util
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from rpim import FeatureSet, InputError
from rpim.benchmark.cell import measure, peak_memory_mb
from rpim.benchmark.cells import CellFile, planned_cells
from rpim.benchmark.entries import Method, Split, read_splits
from rpim.benchmark.plan import make_plan
from rpim.benchmark.protocol import Case, split_features
from rpim.benchmark.protocol import make_case as case_of_parts
from rpim.benchmark.runner import run_cells
from rpim.benchmark.studies import Study
from rpim.benchmark.tables import records_of
from six_classes import TRUTH, rows, save

FAST_PIM = {"max_iter": 10, "n_members": 1, "n_init": 1, "trade_off": 0.1, "weight_decay": 0.01}


def make_case(features: FeatureSet, *arguments, **options) -> Case:
    return case_of_parts(split_features(features), *arguments, **options)


def read_csv(folder: str | Path) -> list[dict[str, str]]:
    with open(Path(folder) / "results.csv", newline="") as file:
        return list(csv.DictReader(file))


# The protocol


@pytest.fixture
def published():
    """benchmarks/protocol.py as a module."""
    path = Path(__file__).parents[2] / "benchmarks" / "protocol.py"
    spec = importlib.util.spec_from_file_location("published_protocol", path)
    module = sys.modules["published_protocol"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_protocol_is_that_of_the_published_measurements(published, tmp_path):
    """The very rows that benchmarks/protocol.py chooses, on a set where classes differ in size and order."""
    labels = np.random.RandomState(5).randint(0, 9, 200)
    X = np.random.RandomState(6).randn(200, 3)
    (tmp_path / "features").mkdir()
    np.savez(tmp_path / "features" / "banking77_minilm.npz", features=X, labels=labels, split=np.full(200, "train"))
    for seed in range(3):
        expected = published.load(tmp_path, "banking77", seed)
        case = make_case(FeatureSet.from_arrays(X, labels=labels), seed)
        np.testing.assert_array_equal(case.y, expected.y)
        np.testing.assert_array_equal(case.known, expected.known)
        np.testing.assert_array_equal(case.truth, expected.truth)
        assert case.n_classes == expected.n_classes == 9


def test_a_long_tail_falls_by_the_ratio_and_leaves_two_rows(published):
    truth = np.repeat(np.arange(3), 100)
    by_size = {
        ratio: sorted(np.bincount(truth[published.long_tail(truth, 3, ratio, seed=0)])) for ratio in (4.0, 100.0)
    }
    # 1, ratio^-1/2 and ratio^-1 of a hundred rows; the last of the second would be one row.
    assert by_size == {4.0: [25, 50, 100], 100.0: [2, 10, 100]}


def test_protocol_by_hand():
    """RandomState(1) permutes 4 classes as 3, 2, 0, 1; of 3 rows round(1.5) = 2 are labelled, of 2 rows one."""
    labels = np.array(["d", "c", "b", "a", "c", "d", "c", "b"])
    case = make_case(FeatureSet.from_arrays(np.eye(8), truth=labels), seed=1)
    random = np.random.RandomState(1)
    first, second = random.permutation([1, 4, 6])[:2], random.permutation([0, 5])[:1]
    assert case.known.tolist() == [2, 3]
    assert np.flatnonzero(case.y == 2).tolist() == sorted(first)
    assert np.flatnonzero(case.y == 3).tolist() == sorted(second)
    assert case.hidden.sum() == 5
    assert case.truth.tolist() == [3, 2, 1, 0, 2, 3, 2, 1]


def test_a_given_list_and_a_share_decide_the_known_classes():
    features = FeatureSet.from_arrays(np.random.RandomState(0).randn(40, 2), labels=np.arange(40) % 10)
    assert make_case(features, 3, Split((7, 1, 4))).known.tolist() == [1, 4, 7]
    assert len(make_case(features, 3, known_share=0.3).known) == 3
    assert len(make_case(features, 3, known_share=0.99).known) == 9
    with pytest.raises(InputError, match="1 of its 10 classes would be known"):
        make_case(features, 0, known_share=0.1)
    with pytest.raises(InputError, match=r"classes that the set has not \(10, 11\)"):
        make_case(features, 0, Split((1, 10, 11)))
    with pytest.raises(InputError, match="its class 8, 9 is called neither known nor unknown"):
        make_case(features, 0, Split((0, 1, 2, 3), (4, 5, 6, 7)))


def test_numbers_in_a_list_name_classes_written_as_text():
    features = FeatureSet.from_arrays(np.eye(6), labels=["1", "2", "10", "1", "2", "10"])
    assert make_case(features, 0, Split((1, 2))).known.tolist() == [0, 2]  # sorted as text: 1, 10, 2


def test_labels_of_its_own_are_used_as_they_are_whatever_the_seed():
    given = np.where((TRUTH < 3) & (np.arange(120) % 4 == 0), TRUTH, -1)
    features = FeatureSet.from_arrays(rows(0), labels=given, truth=TRUTH)
    for seed in (0, 1):
        case = make_case(features, seed)
        np.testing.assert_array_equal(case.y, given)
        assert case.known.tolist() == [0, 1, 2]
        assert case.n_classes == 6
    with pytest.raises(InputError, match="does not call known"):
        make_case(features, 0, Split((0, 1)))


def test_labels_that_disagree_with_the_truth():
    wrong = np.where(np.arange(120) % 2 == 0, TRUTH, -1)
    wrong[4] = 5
    with pytest.raises(InputError, match=r"labels and truth disagree in 1 row \(4\)"):
        make_case(FeatureSet.from_arrays(rows(0), labels=wrong, truth=TRUTH), 0)
    with pytest.raises(InputError, match="its labels are text and its truth is numbers"):
        make_case(FeatureSet.from_arrays(rows(0), labels=TRUTH.astype(str), truth=TRUTH), 0)
    with pytest.raises(InputError, match="neither labels nor truth"):
        make_case(FeatureSet.from_arrays(rows(0)), 0)


def test_the_fingerprint_knows_what_decides_a_result():
    features = FeatureSet.from_arrays(rows(0), truth=TRUTH)
    prints = {make_case(features, seed, known_share=share).fingerprint("x") for seed in (0, 1) for share in (0.5, 0.7)}
    assert len(prints) == 4
    assert make_case(features, 0).fingerprint("x") in prints
    assert make_case(features, 0).fingerprint("y") not in prints


# Measuring


def test_accuracy_and_confusion_by_hand():
    """Classes 0 and 1 are known, 2 and 3 are not. The last two rows do not count: labelled, and without a truth."""
    truth = np.array([0, 0, 1, 1, 2, 2, 2, 3, 3, 0, -1])
    found = np.array([0, 4, 1, 1, 4, 4, 0, 5, 1, 0, 5])
    y = np.array([-1] * 9 + [0, -1])
    features = FeatureSet.from_arrays(np.ones((11, 1)))
    record = measure(Case(features, y, truth, np.array([0, 1]), None), found, np.array([0, 1]))
    assert (record["rows"], record["labelled"], record["evaluated"]) == (11, 1, 9)
    # 0-0, 1-1, 2-4 and 3-5 match best: 1 + 2 + 2 + 1 of 9 rows, 3 of 4 known ones, 3 of 5 unknown ones.
    assert (record["all"], record["known"], record["unknown"]) == pytest.approx((6 / 9, 3 / 4, 3 / 5))
    assert record["unknown_in_known"] == 2 / 5  # a row of class 2 in 0 and one of class 3 in 1
    assert record["known_in_unknown"] == 1 / 4  # a row of class 0 in 4


def test_without_truth_nothing_is_measured():
    case = make_case(FeatureSet.from_arrays(np.eye(4), labels=[0, 1, -1, -1]), 0)
    assert case.n_classes is None
    record = measure(case, np.array([0, 1, 2, 2]), np.array([0, 1]))
    assert record["all"] is record["unknown_in_known"] is None
    assert record["evaluated"] == 0


@pytest.mark.slow
def test_peak_memory_is_a_peak():
    before = peak_memory_mb()
    np.ones(200 * 2**17)  # 200 MB for a moment
    after = peak_memory_mb()
    assert before is not None
    assert after is not None
    assert after >= before
    assert after >= 200


# Lists of classes


def test_lists_as_json(tmp_path):
    one, several = tmp_path / "one.json", tmp_path / "several.json"
    one.write_text('{"known": [3, 1], "unknown": [0, 2]}')
    assert read_splits(one).of("anything") == Split((3, 1), (0, 2))
    several.write_text('{"birds": {"known": ["owl", "jay"]}, "cars": {"known": [5, 6], "year": 2013}}')
    assert read_splits(several).of("birds") == Split(("owl", "jay"))
    assert read_splits(several).of("cars") == Split((5, 6))
    with pytest.raises(InputError, match=r"no list for the set 'brids': did you mean birds\?"):
        read_splits(several).of("brids")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_lists_as_gcd_publishes_them(tmp_path, protocol):
    path = tmp_path / "cub_osr_splits.pkl"
    unknown = {"Easy": [np.int64(7)], "Medium": (8, {9}), "Hard": collections.OrderedDict(a=[np.int32(-3), [300]])}
    held = {"known_classes": [np.int64(150), 70, np.uint8(200), np.array([2], ">i2")[0]], "unknown_classes": unknown}
    path.write_bytes(pickle.dumps(held, protocol))
    assert read_splits(path).of("cub") == Split((150, 70, 200, 2), (7, 8, 9, -3, 300))
    path.write_bytes(pickle.dumps({"Old": [4, 5], "New": [6]}, protocol))
    assert read_splits(path).of("herbarium") == Split((4, 5), (6,))


class Hostile:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_hostile_pickle_is_refused_and_nothing_runs(tmp_path, protocol):
    path, trace = tmp_path / "splits.pkl", tmp_path / "trace"
    for call in (
        Hostile(os.system, f"touch {trace}"),
        Hostile(eval, f"open({str(trace)!r}, 'w')"),
        Hostile(open, str(trace), "w"),
        Hostile(np.save, str(trace), [1]),
    ):
        path.write_bytes(pickle.dumps({"known_classes": [1, call]}, protocol))
        with pytest.raises(InputError, match=r"splits.pkl holds [\w.]+, and of a pickle nothing but lists") as refusal:
            read_splits(path)
        assert len(str(refusal.value).splitlines()) == 1
    assert os.listdir(tmp_path) == ["splits.pkl"]
    pickle.loads(pickle.dumps(Hostile(open, str(trace), "w"), protocol)).close()
    assert trace.exists()  # that is what plain unpickling would have done


def recursive() -> list[object]:
    nested: list[object] = []
    nested.append(nested)
    return nested


def bomb() -> list[object]:
    nested: list[object] = [1]
    for _ in range(60):
        nested = [nested, nested]
    return nested


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("s.pkl", pickle.dumps({"known_classes": [1.5]}), "a value of type float"),
        ("s.pkl", pickle.dumps({"known_classes": [np.float32(1)]}), "numbers that are not whole"),
        ("s.pkl", pickle.dumps({"known_classes": recursive()}), "more than lists of classes"),
        ("s.pkl", pickle.dumps({"known_classes": bomb()}), "more than 100,000 classes"),
        ("s.pkl", pickle.dumps({"known_classes": [1, 2]})[:-5], "cannot be read as a list of classes"),
        ("s.pkl", pickle.dumps([1, 2]), "lists no known classes"),
        ("s.json", b'{"known": [1, 2', "cannot be read"),
        ("s.json", b'{"known": [1, 2], "unknown": [2, 3]}', "calls class 2 both known and unknown"),
        ("s.json", b'{"known": [true]}', "a value of type bool"),
        ("s.json", b"{}", "lists no known classes"),
        ("s.txt", b"1 2", "which is no list of classes"),
    ],
)
def test_bad_lists(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_splits(tmp_path / name)


# Cells that are kept, and processes


def counted(cell, threads):
    """A cell that says which it is; one marked so fails, one dies."""
    if cell.method.name == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if cell.method.name == "fails":
        return {**cell.facts, "error": "as it should"}
    return {**cell.facts, "all": cell.seed / 10, "threads": threads, "pid": os.getpid()}


def planned(names=("a", "b"), seeds="0,1"):
    """Cells of methods with these names on a small set in the current folder."""
    plan = make_plan([save("set.npz")], methods="kmeans", seeds=seeds)
    methods = tuple(Method(name, "kmeans", {"n_init": ord(name[0])}) for name in names)
    return planned_cells(dataclasses.replace(plan, studies=(Study("test", "Test", methods),)))


@pytest.mark.slow
def test_cells_are_kept_and_not_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = planned()
    kept = CellFile(tmp_path / "out")
    run_cells(cells, kept, 2, work=counted)
    first = (tmp_path / "out" / "cells.jsonl").read_text()
    assert len(first.splitlines()) == 4
    assert len({json.loads(line)["pid"] for line in first.splitlines()}) == 4  # a process each
    assert kept.n_done(cells) == 4
    again = CellFile(tmp_path / "out")
    run_cells(cells, again, 2, work=counted)
    assert (tmp_path / "out" / "cells.jsonl").read_text() == first
    assert again.find(cells[0]) == kept.find(cells[0])


def test_a_torn_line_is_run_again_and_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = planned()
    run_cells(cells, CellFile(tmp_path / "out"), 1, work=counted)
    file = tmp_path / "out" / "cells.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    torn = b"".join(lines[:3]) + lines[3][:-20]
    file.write_bytes(torn)
    kept = CellFile(tmp_path / "out")
    assert [kept.done(cell) for cell in cells] == [True, True, True, False]
    run_cells(cells, kept, 1, work=counted)
    assert file.read_bytes().startswith(torn + b"\n")
    assert CellFile(tmp_path / "out").n_done(cells) == 4
    with file.open("ab") as end:
        end.write(b'\xff\xfe\n[]\n{"format": 99}\n')  # nor does anything else that is no cell do harm
    assert CellFile(tmp_path / "out").n_done(cells) == 4


def test_cells_of_other_data_or_parameters_are_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = CellFile(tmp_path / "out")
    run_cells(planned(["a"], "0"), kept, 1, work=counted)
    (cell,) = planned(["a"], "0")
    assert kept.done(cell)
    assert not kept.done(planned(["b"], "0")[0])
    save("other.npz", 1)
    (other,) = planned_cells(make_plan(["set=other.npz"], methods="kmeans", seeds="0"))
    assert other.key["set"] == cell.key["set"]
    assert not kept.done(other)
    assert not kept.done(dataclasses.replace(cell, method=Method("a", "kmeans", {"n_init": 3})))
    assert not kept.done(dataclasses.replace(cell, n_classes=None))


def test_a_cell_is_the_same_under_another_name(tmp_path, monkeypatch):
    """So it is with the lines of earlier versions, whose names were part of what a cell is."""
    monkeypatch.chdir(tmp_path)
    (cell,) = planned(["a"], "0")
    kept = CellFile(tmp_path / "out")
    kept.add({**cell.key, "method": "as it was called then", "all": 0.5})
    assert kept.done(cell)
    assert kept.done(dataclasses.replace(cell, method=dataclasses.replace(cell.method, name="b")))
    (record,) = records_of([cell], CellFile(tmp_path / "out"))
    assert (record["method"], record["all"]) == ("a", 0.5)


def test_a_cell_that_fails_or_dies_stops_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = planned(["fails", "a", "dies", "b"], "0")
    kept = CellFile(tmp_path / "out")
    run_cells(cells, kept, 2, work=counted)
    assert [kept.done(cell) for cell in cells] == [False, True, False, True]
    assert kept.find(cells[0])["error"] == "as it should"
    assert kept.find(cells[2])["error"] == "its process was ended by signal 9, for want of memory perhaps"
    kept.add({**cells[0].key, "all": 1.0})  # the next time it went well, and an error of an older call changes nothing
    kept.add({**cells[0].key, "error": "again"})
    assert CellFile(tmp_path / "out").find(cells[0])["all"] == 1.0


# Whole commands


def config(**methods) -> str:
    Path("config.json").write_text(json.dumps({"methods": methods, "seeds": [0]}))
    return "config.json"


def three_methods() -> str:
    return config(kmeans={}, gcd={"n_init": 2}, **{"PIM, 10 steps": {"method": "pim", **FAST_PIM}})


def pim_folder(name: str, mask_cls=TRUTH < 3) -> str:
    folder = Path(name) / "train"
    folder.mkdir(parents=True)
    mask_lab = (TRUTH < 3) & (np.arange(120) % 2 == 0)
    for file, array in (("all_feats", rows(0)), ("targets", TRUTH), ("mask_lab", mask_lab), ("mask_cls", mask_cls)):
        np.save(folder / f"{file}.npy", array)
    return name


def without_times(text: str) -> str:
    """The text of results.md without the last two of its eight columns on costs, seconds and peak MB."""
    return re.sub(r"(?m)^((?:\|[^|]*){6})\|[^|]*\|[^|]*\|$", r"\1", text)


def stable(folder: str | Path) -> list[dict[str, str]]:
    return [{k: v for k, v in row.items() if k not in ("seconds", "peak_mb")} for row in read_csv(folder)]


@pytest.fixture
def started(environment):
    """Start the real command, leading a process group of its own as it does on a terminal."""

    def start(*arguments: object) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "rpim.cli.main", "benchmark", *map(str, arguments)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )

    return start


def wait_for_cells(process: subprocess.Popen[str], file: Path, n: int) -> None:
    deadline = time.monotonic() + 300
    while not file.exists() or file.read_bytes().count(b"\n") < n:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def in_group(number: int) -> list[str]:
    """The commands of the processes of a group that are alive (Linux alone can say)."""
    alive = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, facts = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        state, _, group = facts.split()[:3]
        if int(group) == number and state not in "ZX":
            alive.append(name)
    return alive


@pytest.mark.slow
def test_killed_in_the_middle_and_finished_by_the_second_call(benchmark, started):
    """3 methods x 2 sets x 1 seed: SIGKILL after two cells, and the second call gives the table of one that ran on."""
    arguments = (save("birds.npz"), save("cars.npz", 1), "--config", three_methods(), "--jobs", 1)
    process = started(*arguments, "-o", "killed")
    try:
        wait_for_cells(process, Path("killed/cells.jsonl"), 2)
    finally:
        process.kill()
        process.communicate()
    before = Path("killed/cells.jsonl").read_bytes()
    assert 2 <= before.count(b"\n") < 6
    assert not Path("killed/results.md").exists()
    code, out, err = benchmark(*arguments, "-o", "killed")
    assert (code, err) == (0, "")
    assert Path("killed/cells.jsonl").read_bytes().startswith(before)  # nothing was run again
    assert len(Path("killed/cells.jsonl").read_bytes().splitlines()) == 6 + (not before.endswith(b"\n"))
    assert out == Path("killed/results.md").read_text()
    assert benchmark(*arguments, "-o", "whole")[0] == 0
    whole = Path("whole/results.md").read_text()
    assert without_times(out) == without_times(whole)
    assert stable("killed") == stable("whole")
    assert re.search(r"^\| PIM, 10 steps \| [*]*\d\d\.\d[*]*/[*]*\d\d\.\d[*]*/", whole, re.MULTILINE)
    for row in read_csv("whole"):
        assert float(row["all"]) > 0.5
        assert float(row["seconds"]) > 0
        assert 50 < float(row["peak_mb"]) < 2000
        assert int(row["trained_parameters"]) == 6 * 8
        assert row["trade_off"] == ("0.1" if row["estimator"] == "pim" else "")


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_an_interruption_ends_every_process(benchmark, sent, started):
    endless = {**FAST_PIM, "max_iter": 10**9, "preset": "paper"}
    process = started(save("birds.npz"), "--config", config(kmeans={}, pim=endless), "--jobs", 1, "-o", "out")
    try:
        wait_for_cells(process, Path("out/cells.jsonl"), 1)
        time.sleep(1.0)  # let the endless cell begin
        deadline = time.monotonic() + 120
        while Path("/proc/self/stat").exists() and len(in_group(process.pid)) < 3:  # the command, its server, the cell
            assert time.monotonic() < deadline
            time.sleep(0.05)
        if sent == signal.SIGINT:
            os.killpg(process.pid, sent)  # as a terminal does
        else:
            process.send_signal(sent)
        process.wait(timeout=120)
        deadline = time.monotonic() + 300
        while in_group(process.pid) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert in_group(process.pid) == []
        out, err = process.communicate(timeout=120)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if sent == signal.SIGINT:
        assert (process.returncode, out) == (130, "")
        assert err == "rpim: interrupted with 1 of 2 cells done; the same command resumes.\n"


@pytest.mark.slow
def test_a_failing_cell_is_reported_and_the_rest_is_done(benchmark):
    x = rows(0)
    x[7] = 0.0
    np.savez("broken.npz", features=x, labels=TRUTH)
    arguments = (save("birds.npz"), "broken.npz", "-o", "out", "--methods", "kmeans,gcd", "--seeds", "0")
    code, out, err = benchmark(*arguments)
    assert code == 1
    reason = "X has 1 row (7) of zeros only, which cannot be normalized: remove or embed again."
    assert err == (
        f"rpim: kmeans on broken, seed 0: {reason}\nrpim: gcd on broken, seed 0: {reason}\n"
        "rpim: 2 of 4 cells failed; the same command retries them.\n"
    )
    assert f"* Failed: gcd on broken, seed 0: {reason}" in out
    assert [bool(row["all"]) for row in read_csv("out")] == [True, True, False, False]
    assert benchmark(*arguments)[0] == 1
    assert len(Path("out/cells.jsonl").read_text().splitlines()) == 6  # those that failed were tried again


@pytest.mark.slow
def test_pims_folder_and_a_set_without_truth(benchmark):
    partly = np.where((TRUTH < 3) & (np.arange(120) % 2 == 0), TRUTH, -1)
    save("secret.npz", labels=partly)
    Path("config.json").write_text(
        json.dumps(
            {
                "methods": ["kmeans"],
                "seeds": [0, 1],
                "sets": {"maps": pim_folder("maps"), "secret": {"path": "secret.npz", "n_classes": 6}},
            }
        )
    )
    code, out, err = benchmark("--config", "config.json", "-o", "out")
    assert (code, err) == (0, "")
    assert "secret has no truth for its unlabelled rows, so its accuracy is left out." in out
    table = read_csv("out")
    assert [(row["set"], row["labelled"], row["evaluated"]) for row in table] == [
        ("maps", "30", "90"),
        ("secret", "30", "0"),
        ("maps", "30", "90"),
        ("secret", "30", "0"),
    ]
    assert [row["all"] != "" for row in table] == [True, False, True, False]
    assert {row["n_classes"] for row in table} == {"6"}


@pytest.mark.slow
def test_classes_from_gcds_list_and_their_number_estimated(benchmark):
    Path("list.pkl").write_bytes(pickle.dumps({"known_classes": [1, 2, 4, 5], "unknown_classes": {"Easy": [0, 3]}}))
    arguments = ("--splits", "list.pkl", "--methods", "kmeans", "--seeds", "3", "--n-classes", "estimate")
    code, out, err = benchmark(f"birds={save('b.npz')}", "-o", "out", *arguments)
    assert (code, err) == (0, "")
    (row,) = read_csv("out")
    assert (row["set"], row["labelled"], row["n_classes"]) == ("birds", "40", "")
    assert int(row["n_classes_used"]) >= 4
    assert "* The number of classes was estimated on birds." in out


def clashing() -> tuple[str, ...]:
    os.mkdir("other")
    return save("b.npz"), save("other/b.npz")


def unlabelled() -> str:
    np.save("b.npy", rows(0))
    return "b.npy"


def masks() -> str:
    return pim_folder("maps", mask_cls=TRUTH < 2)


def json_file(content: str) -> tuple[str, ...]:
    Path("c.json").write_text(content)
    return save("b.npz"), "--config", "c.json"


def list_file(content: object) -> tuple[str, ...]:
    Path("s.json").write_text(json.dumps(content))
    return save("b.npz"), "--splits", "s.json"


def other_content() -> tuple[str, ...]:
    os.mkdir("thesis")
    Path("thesis/chapter.txt").write_text("once")
    return save("b.npz"), "-o", "thesis"


BAD_INPUT = {
    "method": (lambda: (save("b.npz"), "--methods", "rpim,pmi"), "The method 'pmi' is unknown: did you mean pim?"),
    "no set": (lambda: (), "No feature set is given"),
    "set": (lambda: (save("banking.npz"), "bankng.npz"), "bankng.npz is not there: did you mean banking.npz?"),
    "same names": (clashing, "b.npz and other/b.npz would both be called 'b': name them, by NAME=PATH."),
    "no labels": (unlabelled, "The set 'b': it has neither labels nor truth"),
    "masks": (masks, "make the two masks agree"),
    "disagree": (
        lambda: save("b.npz", labels=np.where(TRUTH == 5, -1, TRUTH), truth=np.roll(TRUTH, 1)),
        "The set 'b': labels and truth disagree in 5 rows (0, 20, 40, 60, 80)",
    ),
    "seed": (lambda: (save("b.npz"), "--seeds", "0,one"), "The seed 'one' is no whole number"),
    "share": (lambda: (save("b.npz"), "--known-share", "1.5"), "known_share is 1.5: give a share"),
    "few known": (lambda: (save("b.npz"), "--known-share", "0.2"), "1 of its 6 classes would be known"),
    "number": (lambda: (save("b.npz"), "--n-classes", "7"), "n_classes is '7': say given or estimate."),
    "jobs": (lambda: (save("b.npz"), "--jobs", "0"), "jobs is 0: give a number of cells at once"),
    "key": (lambda: json_file('{"method": ["pim"]}'), "the entry 'method' is unknown: did you mean methods?"),
    "not JSON": (lambda: json_file("methods = pim"), "c.json cannot be read"),
    "parameter": (
        lambda: json_file('{"methods": {"pim": {"max_itr": 3}}}'),
        "The method 'pim': the parameter 'max_itr' is unknown: did you mean max_iter?",
    ),
    "value": (
        lambda: json_file('{"methods": {"pim": {"max_iter": -3}}}'),
        "The method 'pim': The 'max_iter' parameter of PIM must be",
    ),
    "parameter of RPIM alone": (
        lambda: json_file('{"methods": {"pim": {"eta": 0.1}}}'),
        "The method 'pim': the parameter 'eta' is unknown",
    ),
    "value of the objective": (
        lambda: json_file('{"methods": {"rpim": {"objective__eta": -1.0}}}'),
        "The method 'rpim': The 'eta' parameter of InfoMaxObjective must be",
    ),
    "against the preset": (
        lambda: json_file('{"methods": {"rpim": {"preset": "paper", "n_members": 16}}}'),
        "The method 'rpim': n_members=16 contradicts preset='paper', which has n_members=1",
    ),
    "seed of a method": (
        lambda: json_file('{"methods": {"pim": {"random_state": 3}}}'),
        "The method 'pim' sets random_state, which the benchmark sets itself",
    ),
    "list for another": (lambda: list_file({"bees": {"known": [1]}}), "has no list for the set 'b': it has bees."),
    "list of others": (lambda: list_file({"known": [1, 77]}), "classes that the set has not (77)"),
    "other content": (other_content, "thesis exists and is not a benchmark (it has no cells.jsonl)"),
    "output is a file": (lambda: (save("b.npz"), "-o", "b.npz"), "b.npz is a file: give a folder"),
    "no folder": (lambda: (save("b.npz"), "-o", "no/such/out"), "is not a folder: create it first"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_sentence_and_leaves_nothing(case, refused):
    make, message = BAD_INPUT[case]
    made = make()
    arguments = (made,) if isinstance(made, str) else made
    before = sorted(os.listdir())
    refused(message, "benchmark", *arguments, *(() if "-o" in arguments else ("-o", "out")))
    assert sorted(os.listdir()) == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_that_may_not_be_written(benchmark):
    save("b.npz")
    os.mkdir("locked", 0o500)
    for output in ("locked", "locked/out"):
        code, _, err = benchmark("b.npz", "-o", output)
        assert (code, "you may not write in" in err) == (2, True)


def test_help_does_without_torch(environment):
    script = (
        "import sys\nfrom rpim.cli.main import app\n"
        "try:\n    app(['benchmark', '--help'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "assert not {'torch', 'sklearn'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stderr) == (0, "")


def test_gcds_draw_of_the_labelled_half_by_hand():
    """All rows of known classes together, numpy's seed 0 whatever the seed; an odd one out stays unlabelled."""
    labels = np.array([2, 0, 1, 0, 2, 1, 0, 2, 1, 1, 0])
    features = FeatureSet.from_arrays(np.eye(11), labels=labels)
    known = Split((0, 2))
    rows = np.flatnonzero(labels != 1)  # seven
    np.random.seed(0)  # as GCD's code does
    drawn = rows[np.random.choice(range(7), replace=False, size=(3,))]
    for seed in (0, 5):
        case = make_case(features, seed, known, labelled_half="gcd")
        assert np.flatnonzero(case.y >= 0).tolist() == sorted(drawn)
    assert (case.y[drawn] == labels[drawn]).all()
