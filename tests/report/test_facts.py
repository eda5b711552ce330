"""The report's section on a metadata column: its figures by hand, and what is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rpim import Discovery, InputError, write_report
from rpim.report.facts import by_column


@pytest.fixture(scope="module")
def features(animals_features):
    days = (np.datetime64("2024-01-01") + np.arange(120)).astype(str)
    columns = {
        **animals_features.columns,
        "seen <i>": np.array([*days[:119], ""], dtype=object),
        "half": np.array([*days[:100], *["soon"] * 20], dtype=object),
        "nothing": np.array([""] * 120, dtype=object),
    }
    return dataclasses.replace(animals_features, columns=columns)


@pytest.fixture(scope="module")
def discovery(animals_model, features):
    return Discovery.from_fit(animals_model, features)


def test_shares_of_the_classes_by_value(discovery, features):
    found = by_column(discovery, features, "city <i>")
    assert (found.labels, found.totals, found.trends) == (("Ulm", "<b>Bern</b>"), [80, 40], None)
    from_bern = np.arange(120) % 3 == 0
    for number, name in enumerate(discovery.classes):
        is_one = discovery.labels == name
        assert found.shares[number].tolist() == [is_one[~from_bern].sum() / 80, is_one[from_bern].sum() / 40]
    assert found.shade(found.shares.max()) == 5
    assert found.shade(0.0) == found.shade(np.nan) == 0


def test_the_section_is_on_the_page_and_escaped(discovery, features, tmp_path):
    for column, words in (("seen <i>", "before 2024-03-01 and since"), ("city <i>", "Each column adds up to 100 %")):
        since = "2024-03-01" if column == "seen <i>" else None
        page = write_report(discovery, tmp_path / "r.html", features=features, by=column, since=since, overwrite=True)
        text = page.read_text()
        assert words in text
        assert "<bdi>" + column.replace("<i>", "&lt;i&gt;") + "</bdi>" in text
        assert "<b>Bern" not in text
    assert "by-column" not in write_report(discovery, tmp_path / "plain.html").read_text()


@pytest.mark.parametrize(
    ("column", "since", "says"),
    [
        ("nope", None, "no metadata column 'nope': there are city <i>, price, seen <i>, half, nothing."),
        ("half", None, "The column 'half' has dates and 1 other value, such as 'soon': write them like 2024-01-31"),
        ("price", "2024-01-01", "--since needs dates, but the column 'price' holds values such as '0'"),
        ("seen <i>", "soon", "'soon' is not a day"),
        ("nothing", None, "The metadata column 'nothing' has no values"),
    ],
)
def test_columns_that_are_refused(discovery, features, column, since, says):
    with pytest.raises(InputError) as refused:
        by_column(discovery, features, column, since)
    assert says in str(refused.value)


def test_the_command(animals, command, refused):
    np.save(animals / "map.npy", np.random.RandomState(0).rand(120, 2).astype(np.float32))  # UMAP would take a minute
    refused("no metadata column 'day': there are city <i>, price.", "report", animals, "--by", "day")
    refused("add --by COLUMN", "report", animals, "--since", "2024-01-01")
    assert not (animals / "report.html").exists()
    code, _, _ = command("report", animals, "--by", "price")
    assert code == 0
    assert "by <bdi>price</bdi>" in (animals / "report.html").read_text()


def test_without_features_there_are_no_columns(discovery, tmp_path):
    with pytest.raises(InputError, match="needs the features"):
        write_report(discovery, tmp_path / "r.html", by="price")
    assert not (tmp_path / "r.html").exists()
