"""Finding rows in the explorer: by meaning, by charts that filter each other, and classes over time."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest

from rpim import Discovery, FeatureSet, InputError

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from rpim.explorer.background import Background
from rpim.explorer.columns import parse_filters
from rpim.explorer.server import make_app
from rpim.explorer.workbench import Ranking, Workbench

OURS = "http://127.0.0.1:8000"
DAYS = (np.datetime64("2024-01-01") + np.arange(120)).astype(str)


@pytest.fixture(scope="module")
def run(animals_features, animals_model, tmp_path_factory):
    """The animals with a day each, one after the other; nothing here changes the run."""
    tmp_path = tmp_path_factory.mktemp("finding")
    given = animals_features
    columns = {**given.columns, "seen": [*DAYS[:119], ""], "note": [f"note {k}" for k in range(120)]}
    FeatureSet.from_arrays(given.X, given.labels, given.ids, texts=given.texts, columns=columns).write(
        tmp_path / "animals.npz"
    )
    features = FeatureSet.read(tmp_path / "animals.npz")
    Discovery.from_fit(animals_model, features, source=tmp_path / "animals.npz").save(tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="module")
def bench(run):
    opened = Workbench(run)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def client(bench):
    app = make_app(bench, Background(bench), "the-key", 8000)
    found = TestClient(app, base_url=OURS, headers={"origin": OURS}, follow_redirects=False)
    assert found.get("/", params={"token": "the-key"}).status_code == 303
    return found


def charts(client, **filters):
    answer = client.get("/api/charts", params={"filters": json.dumps(filters)} if filters else {})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    return {one["title"]: one for one in found["charts"]}, found


def ranked(client, **asked):
    answer = client.post("/api/rank", json=asked)
    if answer.status_code != 200:
        return answer.status_code, answer.json()["problem"]
    n = len(answer.content) // 8
    return np.frombuffer(answer.content, "<i4", n), np.frombuffer(answer.content, "<f4", n, 4 * n)


# By meaning


class _Words:
    """An encoder of which the rows are known: "cat" points along the first axis."""

    prepare = str

    def encode(self, prepared):
        return np.array([[2.0, 0.0] if "cat" in one else [0.0, 3.0] for one in prepared], dtype=np.float32)


def test_rows_by_their_cosine_similarity_to_words(monkeypatch):
    monkeypatch.setattr("rpim.embedding.open_encoder.encoders_of", lambda metadata, weights: _Words())
    rows = np.array([[0, 1], [1, 0], [0.6, 0.8]], dtype=np.float32)
    found = Ranking(5 * rows, np.asarray, {"embedding": {"kind": "texts"}})
    order, similarity = found.by_words(" cat ")
    assert order.tolist() == [1, 2, 0]
    np.testing.assert_allclose(similarity, [1, 0.6, 0], atol=1e-6)
    order, similarity = found.by_rows(np.array([0, 2], dtype=np.int32))  # their mean is (0.3, 0.9)
    assert order.tolist() == [0, 2, 1]
    np.testing.assert_allclose(similarity, np.array([0.9, 0.9, 0.3]) / np.hypot(0.3, 0.9), atol=1e-6)


@pytest.mark.parametrize(
    ("metadata", "says"),
    [
        ({}, "were not embedded by rpim"),
        ({"embedding": "?"}, "were not embedded by rpim"),
        ({"embedding": {"kind": "images", "encoder": "dinov2-vits14"}}, "dinov2-vits14, which does not embed words"),
    ],
)
def test_words_without_an_encoder_of_words(metadata, says):
    with pytest.raises(InputError, match=says):
        Ranking(np.eye(2, dtype=np.float32), np.asarray, metadata).by_words("cat")


def test_no_file_that_a_run_names_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr("rpim.embedding.open_encoder.open_encoder", lambda *given: pytest.fail("opened"))
    said = {"kind": "texts", "encoder": "mine", "weights": str(tmp_path), "weights_sha256": "00"}
    with pytest.raises(InputError, match="are not opened unasked: give --weights"):
        Ranking(np.eye(2, dtype=np.float32), np.asarray, {"embedding": said}).by_words("cat")


def test_an_encoder_of_another_width(bench, animals_model, monkeypatch):
    monkeypatch.setattr("rpim.embedding.open_encoder.encoders_of", lambda metadata, weights: _Words())
    found = Ranking(bench.refined, animals_model.transform, {"embedding": {"kind": "texts"}})
    with pytest.raises(InputError, match=r"does not give rows like those of the run \(X has 2 features, but RPIM is"):
        found.by_words("cat")


def test_more_like_a_row(client, bench):
    order, similarity = ranked(client, rows=[7])
    assert sorted(order.tolist()) == list(range(120))
    assert order[0] == 7
    assert (np.diff(similarity) <= 0).all()
    codes = bench.versions.state().class_of
    assert set(codes[order[:5]]) == {codes[7]}


@pytest.mark.parametrize(
    ("asked", "status", "says"),
    [
        ({"words": "  "}, 409, "The search is empty"),
        ({"words": "cat"}, 409, "were not embedded by rpim"),
        ({"rows": [120]}, 409, "There is no row 120: the run has 120."),
        ({}, 409, "by words or by rows"),
        ({"words": "cat", "rows": [1]}, 409, "by words or by rows"),
        ({"rows": []}, 422, "not understood"),
        ({"words": "x" * 5000}, 422, "not understood"),
    ],
)
def test_searches_that_are_refused(client, asked, status, says):
    found = ranked(client, **asked)
    assert found[0] == status
    assert says in found[1]


# Charts


def test_charts_of_numbers_dates_and_values(client):
    found, answer = charts(client)
    assert list(found) == ["city <i>", "price", "seen", "confidence"]  # every note is another
    assert (answer["mask"], answer["rows"]) == (None, 120)
    city = found["city <i>"]
    assert (city["kind"], city["labels"], city["rows"]) == ("values", ["Ulm", "<b>Bern</b>"], [80, 40, 0])
    price = found["price"]
    assert (price["kind"], price["labels"][0], price["all"][-1]) == ("numbers", "0 to 5", 1)  # an infinite one
    seen = found["seen"]
    assert (seen["kind"], seen["labels"][0], seen["all"][-1]) == ("dates", "week of 2024-01-01", 1)
    assert sum(seen["all"]) == 120


def test_charts_filter_each_other_but_not_themselves(client):
    bern = {"own-0": [1]}
    found, answer = charts(client, **bern)
    assert answer["rows"] == 40
    assert found["city <i>"]["rows"] == [80, 40, 0]
    assert found["price"]["rows"][0] == 2  # rows 0 and 3 of the first five
    both, answer = charts(client, **bern, **{"own-1": [0, 1]})
    assert answer["rows"] == 4
    assert both["city <i>"]["rows"] == [6, 4, 0]
    assert both["price"]["rows"] == found["price"]["rows"]
    bits = np.unpackbits(np.frombuffer(base64.b64decode(answer["mask"]), np.uint8), bitorder="little")[:120]
    assert np.flatnonzero(bits).tolist() == [0, 3, 6, 9]


def test_rows_without_a_value_can_be_chosen(client):
    _, answer = charts(client, **{"own-1": [24]})
    assert answer["rows"] == 1


def test_filters_hold_for_the_rows_of_a_class(client, bench):
    state = bench.versions.state()
    params = {"filters": json.dumps({"own-0": [1]})}
    rows = [row for row in state.rows_of(3).tolist() if row % 3 == 0]
    for order in ("typical", "doubtful"):
        found = client.get("/api/classes/3/items", params={**params, "order": order}).json()
        assert sorted(item["row"] for item in found["items"]) == rows
    nearby = client.get("/api/classes/3/items", params={**params, "order": "nearby"}).json()
    assert nearby["total"] == 40 - len(rows)
    assert {item["row"] % 3 for item in nearby["items"]} == {0}


@pytest.mark.parametrize("said", ["{", "[]", '{"own-0": 1}', '{"own-0": [-1]}', '{"own-0": [true]}', "[" * 5000])
def test_filters_that_are_none(said):
    with pytest.raises(InputError, match="filters are not understood"):
        parse_filters(said)


def test_a_filter_of_no_column(client):
    answer = client.get("/api/charts", params={"filters": '{"own-9": [1]}'})
    assert (answer.status_code, answer.json()["problem"]) == (409, "The column does not exist: choose another.")


# Over time


def test_classes_over_time(client, bench):
    answer = client.get("/api/over-time", params={"column": "own-2", "since": "2024-03-01"}).json()
    assert (answer["since"], answer["first"], answer["last"]) == ("2024-03-01", "2024-01-01", "2024-04-28")
    codes = bench.versions.state().class_of[:119]
    by_number = {one["number"]: one for one in answer["classes"]}
    assert set(by_number) == set(codes.tolist())
    for number, one in by_number.items():
        assert (one["before"], one["since"]) == ((codes[:60] == number).sum(), (codes[60:] == number).sum())
        assert one["share_before"] == pytest.approx(one["before"] / 60)
    growth = [one["share_since"] - one["share_before"] for one in answer["classes"]]
    assert growth == sorted(growth, reverse=True)


@pytest.mark.parametrize(
    ("column", "since", "says"),
    [
        ("own-2", "yesterday", "'yesterday' is not a day: give one such as 2024-01-31."),
        ("own-2", "2024-02-30", "'2024-02-30' is not a day"),
        ("own-0", "", "The column holds no dates"),
        ("own-9", "", "The column does not exist"),
    ],
)
def test_times_that_are_none(client, column, since, says):
    answer = client.get("/api/over-time", params={"column": column, "since": since})
    assert answer.status_code == 409
    assert says in answer.json()["problem"]
