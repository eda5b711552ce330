"""``rpim.explore``: a decision over HTTP and back as a DataFrame, where it is saved, and what is refused."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import httpx
import numpy as np
import pytest

import rpim
from rpim import Discovery, FeatureSet

pytest.importorskip("fastapi")
pytest.importorskip("pandas")


@pytest.fixture(autouse=True)
def _no_map(monkeypatch):
    """UMAP takes longer than all of these tests."""
    monkeypatch.setattr("rpim.explorer.background.Background.map", lambda self: None)


@pytest.fixture
def discovery(animals_features, animals_model):
    """In memory only."""
    return Discovery.from_fit(animals_model, animals_features)


def rename(opened, name):
    """Rename the class 3 as the page does: the address is exchanged for a cookie."""
    address = httpx.URL(opened.url)
    origin = f"{address.scheme}://{address.host}:{address.port}"
    with httpx.Client(headers={"origin": origin}, follow_redirects=True) as client:
        assert client.get(opened.url).status_code == 200
        asked = {"key": f"rename-{name}", "version": 0, "kind": "rename", "number": 3, "name": name}
        assert client.post(f"{origin}/api/decisions", json=asked).status_code == 200


def test_a_decision_comes_back_as_a_data_frame(animals):
    with rpim.explore(animals, open_browser=False) as opened:
        before = opened.decisions()
        rename(opened, "foxes")
        after = opened.decisions()
        assert str(animals) in repr(opened)
    assert before["label"].tolist() == Discovery.load(animals).labels.tolist()
    assert after["found"].tolist() == before["found"].tolist()
    renamed = before["label"] == "new-1"
    assert renamed.any()
    assert after["label"].tolist() == np.where(renamed, "foxes", before["label"]).tolist()
    assert after["price"].tolist() == [*range(119), np.inf]
    with pytest.raises(httpx.ConnectError):
        httpx.get(opened.url)
    opened.close()  # a second time
    assert "closed" in repr(opened)
    assert "closed" in opened._repr_html_()
    assert opened.decisions()["label"].tolist() == after["label"].tolist()  # the decisions are in the run folder


@pytest.mark.slow
def test_a_discovery_in_memory_is_saved_where_the_user_says_and_found_again(discovery, tmp_path, capsys):
    run = tmp_path / "run"
    with discovery.explore(run, open_browser=False) as opened:
        rename(opened, "foxes")
    assert capsys.readouterr().out == f"The discovery was saved to {run}, with all decisions about it.\n"
    for again in (discovery, run, Discovery.load(run)):
        with rpim.explore(again, open_browser=False) as opened:
            assert "foxes" in opened.decisions()["label"].tolist()
    with rpim.explore(discovery, run, open_browser=False) as opened:  # the same cell, run again
        assert "foxes" in opened.decisions()["label"].tolist()
    assert capsys.readouterr().out == ""


def test_without_a_name_the_folder_is_temporary_and_printed(discovery, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with rpim.explore(discovery, open_browser=False) as opened:
        assert len(opened.decisions()) == 120
    said = capsys.readouterr().out
    assert said == f"The discovery was saved to {opened.run}, a temporary folder: give run= to choose another.\n"
    assert opened.run.is_relative_to(tmp_path)


def test_the_features_of_a_saved_run_may_be_given(discovery, animals_features, tmp_path, raises_input_error):
    discovery.save(tmp_path / "run")
    run = Discovery.load(tmp_path / "run")
    before = sorted(path.name for path in run.folder.iterdir())
    raises_input_error(rpim.explore, r"run does not record where .*: give features=, the rows of the fit\.$", run)
    assert sorted(path.name for path in run.folder.iterdir()) == before
    animals_features.write(tmp_path / "moved.npz")
    with rpim.explore(run, features=tmp_path / "moved.npz", open_browser=False) as opened:
        assert len(opened.decisions()) == 120
    with rpim.explore(run.folder, features=animals_features, open_browser=False) as opened:
        assert len(opened.decisions()) == 120
    with rpim.explore(run, open_browser=False) as opened:  # they are in the run folder now
        assert "price" in opened.decisions()


def test_what_is_refused(discovery, animals, animals_features, raises_input_error, monkeypatch, tmp_path):
    refused = raises_input_error
    other = Discovery.from_fit(discovery.model, animals_features)
    other.assignments.labels[:5] = "bee"
    other.assignments.labels[5:10] = "cat"
    refused(rpim.explore, "holds another discovery, which is not replaced: give another run=", other, animals)
    refused(rpim.explore, "is a run folder, so run='b' is not needed", animals, "b")
    refused(rpim.explore, "images='gone' is not a folder", animals, images="gone")
    refused(rpim.explore, "Port 99999 cannot be used", animals, port=99999)
    refused(rpim.explore, "is not a run folder", tmp_path)
    few = FeatureSet.from_arrays(animals_features.X[:5])
    refused(rpim.explore, "The features have 5 rows but the discovery has 120", discovery, "new", features=few)
    without = Discovery(discovery.assignments, discovery.model, discovery.provenance, discovery.space)
    refused(rpim.explore, "The discovery does not record where its features are", without, "new")
    assert not Path("new").exists()
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "fastapi" else name)
    refused(rpim.explore, r"needs fastapi, which is not installed: pip install 'rpim\[explore\]'", animals)


@pytest.mark.slow
def test_in_a_notebook_the_cell_shows_the_page_and_elsewhere_the_browser(animals, monkeypatch):
    started = []
    monkeypatch.setattr("webbrowser.open", started.append)
    with rpim.explore(animals) as opened:
        shown, again = opened._repr_html_(), opened._repr_html_()
        token = opened.url.partition("token=")[2]
        for _ in range(200):
            if started:
                break
            time.sleep(0.01)
        codes = re.findall(r"code=([\w-]+)", f"{started} {shown} {again}")
        assert len(set(codes)) == len(codes) == 5
        assert token not in f"{started} {shown}"

        def status(code, **headers):
            return httpx.get(opened.url.replace(f"token={token}", f"code={code}"), headers=headers).status_code

        assert [status(code) for code in codes] == [303] * 5
        assert [status(code) for code in codes] == [401] * 5, "each is good once"
        assert status("no") == 401
        of_page = httpx.get(opened.url).headers
        assert "frame-ancestors http://127.0.0.1:* http://localhost:*" in of_page["content-security-policy"]
        assert "x-frame-options" not in of_page
        assert status("no", **{"sec-fetch-site": "same-site"}) == 401, "a notebook may open the page"
        assert status("no", **{"sec-fetch-site": "cross-site"}) == 403
        api = opened.url.partition("?")[0] + "api/state"
        assert httpx.get(api, headers={"sec-fetch-site": "same-site"}).status_code == 403, "and only that"
