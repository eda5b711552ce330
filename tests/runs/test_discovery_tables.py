"""The rows of a discovery as a DataFrame: values, types, metadata columns, and what is missing."""

from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest

from rpim import Discovery, InputError, load_version
from rpim.runs.discovery_tables import data_frame

pandas = pytest.importorskip("pandas")


@pytest.fixture
def discovery(animals_features, animals_model):
    return Discovery.from_fit(animals_model, animals_features)


def test_every_row_is_in_the_data_frame_with_its_metadata(discovery, animals_features):
    table = discovery.to_pandas()
    assert table["id"].tolist() == discovery.ids.tolist()
    assert table["label"].tolist() == discovery.labels.tolist()
    assert table["label"].cat.categories.tolist() == ["ant", "bee", "cat", "new-1", "new-2"]
    assert table["given"].isna().tolist() == (animals_features.labels == "").tolist()
    assert table["given"].dropna().tolist() == [one for one in animals_features.labels.tolist() if one]
    np.testing.assert_array_equal(table["confidence"], discovery.confidence)
    assert table["runner_up"].tolist() == discovery.assignments.runner_up.tolist()
    assert (table["known"].dtype, table["text"].tolist()) == (bool, animals_features.texts)
    assert table["city <i>"].tolist()[:2] == ["<b>Bern</b>", "Ulm"]
    assert table["city <i>"].dtype == "category"
    assert table["price"].tolist() == [*range(119), np.inf]


def test_missing_values_and_texts_that_do_not_repeat():
    columns = {
        "label": np.ma.masked_array([7, 9, -1], [False, False, True]),
        "price": np.ma.masked_array([1.0, 0.0, 2.0], [False, True, False]),
        "note": np.ma.masked_array(np.array(["a", "b", ""], dtype=object), [False, False, True]),
    }
    table = data_frame(columns, {"label": [7, 9]})
    assert table["label"].cat.categories.tolist() == [7, 9]
    assert table["label"].isna().tolist() == [False, False, True]
    assert table["price"].isna().tolist() == [False, True, False]
    assert table["note"].dtype != "category"
    assert table["note"].isna().tolist() == [False, False, True]


def test_a_run_that_was_read_has_the_metadata_columns_of_its_features(animals):
    for loaded in (Discovery.load(animals), load_version(animals)):
        assert loaded.folder == animals
        assert loaded.to_pandas()["price"].tolist() == [*range(119), np.inf]
    (animals.parent / "animals.npz").unlink()
    with pytest.warns(UserWarning, match="Metadata columns are left out: The features of .* are no longer at"):
        table = Discovery.load(animals).to_pandas()
    assert "price" not in table
    assert len(table) == 120


def test_a_discovery_knows_where_it_was_saved(discovery, tmp_path):
    assert discovery.folder is None
    discovery.save(tmp_path / "run")
    assert discovery.folder == tmp_path / "run"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "price" in discovery.to_pandas()  # the features are in memory


def test_without_pandas_the_extra_is_named(discovery, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"needs pandas, .*: pip install 'rpim\[notebook\]'"):
        discovery.to_pandas()
