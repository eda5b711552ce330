"""Which outputs may be written, and what is said of the others."""

import os

import pytest

from rpim._common.errors import InputError
from rpim._common.files import check_export, check_writable


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").write_text("mine")
    (tmp_path / "dir.csv").mkdir()


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("there.csv", {}, "there.csv exists already: choose another name, or say --overwrite (overwrite=True)."),
        ("there.csv", {"overwrite": None}, "there.csv exists already: choose another name."),
        ("dir.csv", {}, "dir.csv exists already: choose another name, or say --overwrite (overwrite=True)."),
        ("dir.csv", {"overwrite": True}, "dir.csv exists already: choose another name, or say --overwrite (overwrite"),
        (
            "a.txt",
            {"suffixes": (".csv", ".json")},
            "a.txt has the suffix '.txt', which cannot be written: give .csv or",
        ),
        ("a", {"suffixes": [".a", ".b", ".c"]}, "a has the suffix '', which cannot be written: give .a, .b or .c."),
        ("a", {"suffixes": [".a"]}, "a has the suffix '', which cannot be written: give .a."),
        ("no/a.csv", {}, "no/a.csv cannot be written, because no is not a folder: create it first."),
        ("there.csv/a", {"is_folder": True}, "because there.csv is not a folder: create it first."),
    ],
)
def test_outputs_that_may_not_be_written(path, options, message):
    with pytest.raises(InputError) as error:
        check_writable(path, **options)
    assert message in str(error.value)


def test_outputs_that_may_be_written(tmp_path):
    assert check_writable("new.csv", suffixes=[".csv"]).name == "new.csv"
    assert check_writable("NEW.CSV", suffixes=[".csv"]).name == "NEW.CSV"
    assert check_writable("there.csv", True)
    assert check_writable("dir.csv", True, is_folder=True)
    assert check_writable("no/such/folder", None, is_folder=True, parents=True)
    assert check_export(tmp_path / "new.parquet") == tmp_path / "new.parquet"


def test_a_folder_without_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match=f"because you may not write in {tmp_path}: choose another"):
        check_writable("new.csv")
