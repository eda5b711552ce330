"""What commands print and write: no control characters, and no formulas in .csv files unless asked for."""

import csv
import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from rpim import RPIM, Discovery, FeatureSet
from rpim.cli import terminal


@pytest.fixture
def hostile(tmp_path):
    """A run whose labels, ids and texts would clear the screen, or be run by a spreadsheet."""
    rng = np.random.default_rng(0)
    X = np.repeat(np.eye(4), 10, axis=0) + rng.normal(scale=0.01, size=(40, 4))
    names = np.array(["=HYPERLINK(1)", "ant\x1b[2J\x07", "new", "new"])[np.repeat(np.arange(4), 10)]
    features = FeatureSet.from_arrays(
        X,
        labels=np.where((np.arange(40) % 2 == 0) & (names != "new"), names, ""),
        ids=[f"@{i}\x9b" for i in range(40)],
        texts=[f"-text {i}\x1b]0;title\x07" for i in range(40)],
    )
    features.write(tmp_path / "f.npz")
    model = RPIM(4, n_members=2, max_iter=10, random_state=0).fit(features.rows(), features.labels)
    Discovery.from_fit(model, features, source=tmp_path / "f.npz").save(tmp_path / "run")
    return tmp_path / "run"


def test_no_command_prints_control_characters(hostile, command, monkeypatch):
    np.savez("odd\x1b[2J.npz", **{"key\x1b[2J": np.eye(3), "key\x9b": np.eye(3)})
    for arguments in (
        ("classes", hostile),
        ("discover", "odd\x1b[2J.npz", "-o", "run2"),
        ("--debug", "discover", "odd\x1b[2J.npz", "-o", "run2"),
        ("discover", "f.npz", "-o", "run2", "--n-classes", 4, "--n-members", 1, "--no-report"),
        ("extend", hostile, "f.npz", "-o", "run3", "--no-report"),
        ("classes", hostile, "--accept", "no\x1b[2J"),
    ):
        _, out, err = command(*arguments)
        assert out + err
        assert not [one for one in out + err if one in "\x07\x1b\x9b\r"], arguments


def test_the_parts_of_the_command_line_print_by_one_function():
    """`typer.echo` would print control characters."""
    files = Path(terminal.__file__).parent.glob("*.py")
    uses = {file.name: file.read_text().count("typer.echo(") for file in files}
    assert {name: n for name, n in uses.items() if n} == {"terminal.py": 1}


def test_formulas_in_csv_files_are_guarded(hostile, command):
    exports = (
        ("export", hostile, "-o", "rows.csv"),
        ("export", hostile, "-o", "decided.csv", "--decisions"),
        ("predict", hostile, "f.npz", "-o", "new.csv"),
        ("classes", hostile, "-o", "classes.csv"),
    )
    for arguments in exports:
        file = Path(arguments[arguments.index("-o") + 1])
        assert command(*arguments)[0] == 0
        cells = [cell for row in csv.reader(io.StringIO(file.read_text())) for cell in row]
        assert "'=HYPERLINK(1)" in cells
        assert not [cell for cell in cells if cell.startswith(("=", "@", "-t"))]
        assert command(*arguments, "--raw-csv", "--overwrite")[0] == 0
        cells = [cell for row in csv.reader(io.StringIO(file.read_text())) for cell in row]
        assert "=HYPERLINK(1)" in cells
        assert not [cell for cell in cells if cell.startswith("'")]


@pytest.mark.parametrize("options", [(), ("--raw-csv",), ("--decisions",)])
def test_our_own_csv_file_is_read_back(hostile, command, options):
    assert command("export", hostile, "-o", "rows.csv", *options)[0] == 0
    assert ("'=HYPERLINK(1)" in Path("rows.csv").read_text()) == (options != ("--raw-csv",))
    code, out, err = command("evaluate", hostile, "--truth", "rows.csv", "--truth-column", "label")
    assert (code, err) == (0, "")
    assert "All 100.0%" in out
    assert command("export", hostile, "-o", "rows.parquet")[0] == 0
    assert "=HYPERLINK(1)" in pq.read_table("rows.parquet").column("label").to_pylist()
