"""One reader of .csv files: what it sniffs, and that it gives the cells that were written."""

import builtins
import csv
import io
import re

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rpim import FeatureSet, InputError
from rpim.cli.embed import read_data
from rpim.data.feature_stream import FeatureStream
from rpim.data.formats.tables import CsvFile, CsvTable, new_table, raw_csv
from rpim.embedding.sources import read_source


@pytest.fixture
def csv_file(tmp_path):
    def write(content):
        path = tmp_path / "t.csv"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return CsvFile(path)

    return write


@pytest.mark.parametrize(
    ("content", "delimiter", "header", "cells"),
    [
        ("a,b\n1,2\n", ",", ["a", "b"], [["1"], ["2"]]),
        ("a;b\n1,5;2\n", ";", ["a", "b"], [["1,5"], ["2"]]),
        ("a\tb, c\td\n1\t2\t3\n", "\t", ["a", "b, c", "d"], [["1"], ["2"], ["3"]]),
        ("\ufeffa,b\r\n1,2\r\n", ",", ["a", "b"], [["1"], ["2"]]),
        ('a,b\n"x, ""y""\nz",\n', ",", ["a", "b"], [['x, "y"\nz'], [""]]),
        ('"a\nname",b\n1,2\n', ",", ["a\nname", "b"], [["1"], ["2"]]),
        ("a,b\n1,2\n\n\n3,4", ",", ["a", "b"], [["1", "3"], ["2", "4"]]),
        ("a,b\nNA,null\n", ",", ["a", "b"], [["NA"], ["null"]]),
        ('a\n""\nx\n', ",", ["a"], [["", "x"]]),
        ("a,b\n", ",", ["a", "b"], [[], []]),
        ("a,b", ",", ["a", "b"], [[], []]),
        ("a,b\n\n\n", ",", ["a", "b"], [[], []]),
        ("", ",", [], []),
    ],
)
def test_cells_below_the_header(csv_file, content, delimiter, header, cells):
    file = csv_file(content)
    assert (file.delimiter, file.header, file.texts()) == (delimiter, header, cells)


def test_a_text_may_be_longer_than_a_block(csv_file):
    file = csv_file("text,label\n" + "long " * 500_000 + ",a\nshort,b\n")
    assert list(map(len, file.texts()[0])) == [2_500_000, 5]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n\n1,2,3\n", "row 1 has 3 columns but the header has 2: put texts with commas in quotes"),
        ('a;b\n"1\n1";2\n1\n', "row 1 has 1 columns but the header has 2: put texts with semicolons in quotes"),
        pytest.param(b"a,b\n" + b"1,2\n" * 50_000 + b"\xff,2\n", "not encoded in UTF-8 .*: save it as CSV", id="UTF-8"),
    ],
)
def test_rows_that_cannot_be_read(csv_file, content, message):
    with pytest.raises(InputError, match=message):
        csv_file(content).texts()


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1)


@given(
    st.lists(
        st.tuples(*[TEXTS.filter(lambda cell: not re.match(r"'+[=+\-@\t]", cell))] * 2),  # those lose a quote
        max_size=6,
    ),
    st.sampled_from(",;\t"),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_python_writes_is_read_back(csv_file, rows, delimiter):
    written = io.StringIO(newline="")
    csv.writer(written, delimiter=delimiter, lineterminator="\n").writerows([("text", "label"), *rows])
    assert csv_file(written.getvalue()).texts() == [[row[j] for row in rows] for j in range(2)]


@given(
    st.lists(
        st.builds("".join, st.tuples(st.sampled_from(["", "=", "'", "'=", "-", "@", "+", "\t"]), TEXTS)), max_size=6
    )
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_we_write_is_read_back_and_runs_no_formula(csv_file, cells):
    for is_raw in (False, True):
        written = io.StringIO(newline="")
        with raw_csv(is_raw):
            CsvTable(written).append({"text": cells, "label": np.array(cells, dtype=object)})
        if is_raw:
            assert list(csv.reader(io.StringIO(written.getvalue(), newline="")))[1:] == [[cell] * 2 for cell in cells]
        else:
            assert csv_file(written.getvalue()).texts() == [cells, cells]
            stored = list(csv.reader(io.StringIO(written.getvalue(), newline="")))[1:]
            assert not [cell for row in stored for cell in row if cell[0] in "=@\t"]


def test_formulas_in_names_of_columns_and_in_features(tmp_path):
    names = ["=HYPERLINK(1)", "+ant", "-1", "-bee"]
    with new_table(tmp_path / "f.csv") as table:
        table.append({"id": ["@a", "@b", "c", "d"], "label": names, "=x": np.arange(4.0), "z": np.ones(4)})
    text = (tmp_path / "f.csv").read_text()
    assert text.splitlines()[:4] == [
        "id,label,'=x,z",
        "'@a,'=HYPERLINK(1),0.0,1.0",
        "'@b,'+ant,1.0,1.0",
        "c,-1,2.0,1.0",
    ]
    features = FeatureSet.read(tmp_path / "f.csv")
    assert features.ids.tolist() == ["@a", "@b", "c", "d"]
    assert features.labels.tolist() == [*names[:2], "", "-bee"]
    blocks = list(FeatureStream(tmp_path / "f.csv"))
    assert [name for block in blocks for name in block.ids.tolist()] == ["@a", "@b", "c", "d"]


def test_on_a_terminal_control_characters_are_not_printed(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for file, shown in ((Terminal(), "a�[2J"), (io.StringIO(), "a\x1b[2J")):
        CsvTable(file).append({"label\x1b": ["a\x1b[2J"]})
        assert file.getvalue().splitlines()[1] == shown


def test_features_may_be_delimited_by_semicolons_or_tabs(tmp_path):
    for delimiter in ";\t":
        (tmp_path / "f.csv").write_text("id,a,b,label\nx,1,2.5,cat\ny,3,4,\n".replace(",", delimiter))
        features = FeatureSet.read(tmp_path / "f.csv")
        np.testing.assert_array_equal(features.X, [[1, 2.5], [3, 4]])
        assert (features.ids.tolist(), features.labels.tolist()) == (["x", "y"], ["cat", ""])


def test_labels_may_be_delimited_by_semicolons(tmp_path):
    np.save(tmp_path / "f.npy", np.eye(2))
    (tmp_path / "l.csv").write_text("id;label\n1;a, b\n0;c\n")
    assert FeatureSet.read(tmp_path / "f.npy", tmp_path / "l.csv").labels.tolist() == ["c", "a, b"]
    (tmp_path / "l.csv").write_text("c; d\na\n")  # one per line
    assert FeatureSet.read(tmp_path / "f.npy", tmp_path / "l.csv").labels.tolist() == ["c; d", "a"]


@pytest.fixture
def opened(monkeypatch):
    """The names of the files that Python has opened since."""
    names = []
    real = builtins.open
    monkeypatch.setattr(
        builtins, "open", lambda file, *rest, **more: (names.append(str(file)), real(file, *rest, **more))[1]
    )
    return names


@pytest.mark.parametrize("content", ["id,a,b,label\nx,1,2,cat\ny,3,4,\n", "id,text,label\nx,Hi,cat\ny,Bye,\n"])
def test_discover_sniffs_a_file_once(tmp_path, content, opened):
    (tmp_path / "t.csv").write_text(content)
    opened.clear()
    columns = {"label_column": None, "feature_column": None, "text_column": None, "encoder": None, "weights": None}
    assert read_data(tmp_path / "t.csv", None, **columns).labels.tolist() == ["cat", ""]
    assert [name for name in opened if name.endswith("t.csv")] == [str(tmp_path / "t.csv")]


def test_labels_and_their_metadata_are_read_once(tmp_path, opened):
    (tmp_path / "t.csv").write_text("text\nHi\nBye\n")
    (tmp_path / "l.csv").write_text("id,label,price\n0,a,3.5\n")
    opened.clear()
    items = read_source(tmp_path / "t.csv", labels=tmp_path / "l.csv")
    assert items.labels.tolist() == ["a", ""]
    np.testing.assert_array_equal(items.columns["price"], [3.5, np.nan])
    assert [name for name in opened if name.endswith("l.csv")] == [str(tmp_path / "l.csv")]
