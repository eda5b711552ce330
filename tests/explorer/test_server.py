"""The explorer's server: who may ask, what it answers, what it refuses, and what is in the exports."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import socket
import time
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from rpim import Discovery, InputError
from rpim.explorer import exports
from rpim.explorer.background import inherited_names, plan
from rpim.explorer.from_python import listen
from rpim.explorer.pictures import Pictures, recorded_folders
from rpim.runs.decisions import Accept, Junk, Merge, Move, Rename, State

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from rpim.explorer.background import Background
from rpim.explorer.server import make_app
from rpim.explorer.workbench import Workbench
from rpim.runs.maps import N_DIRECTIONS, leading
from rpim.runs.run_folder import features_of

TOKEN, PORT = "the-key", 8000
OURS = "http://127.0.0.1:8000"


@pytest.fixture
def bench(animals):
    opened = Workbench(animals)
    yield opened
    opened.versions.store.close()


@pytest.fixture
def stranger(bench):
    """Somebody without the key."""
    app = make_app(bench, Background(bench), TOKEN, PORT)
    return TestClient(app, base_url=OURS, headers={"origin": OURS}, follow_redirects=False)


@pytest.fixture
def client(stranger):
    assert stranger.get("/", params={"token": TOKEN}).status_code == 303
    return stranger


@pytest.fixture
def post(client):
    keys = count()

    def ask(path, expect=200, version=0, **facts):
        answer = client.post(f"/api/{path}", json={"key": f"request-{next(keys)}", "version": version, **facts})
        assert answer.status_code == expect, answer.text
        return answer.json()

    return ask


@pytest.fixture
def decide(post):
    return lambda kind, expect=200, **facts: post("decisions", expect, kind=kind, **facts)


def names(state):
    return [one["name"] for one in state["classes"]]


def test_new_classes_have_a_suggested_name_until_they_get_one(client, decide, bench):
    before = bench.stamp()
    bench.suggest_names()
    assert bench.stamp() != before  # so that pages look again
    state = client.get("/api/state").json()
    suggested = [one["suggested"] for one in state["classes"]]
    assert suggested[:3] == ["", "", ""]
    assert sorted(name.split()[0] for name in suggested[3:]) == ["dog", "elk"]
    assert decide("rename", number=3, name=suggested[3])["classes"][3]["suggested"] == ""


def test_names_stored_with_the_run_are_suggested(client, animals, bench):
    facts = json.loads((animals / "run.json").read_text())
    facts["suggested_names"] = ["", "", "", "good dogs", ""]
    (animals / "run.json").write_text(json.dumps(facts))
    bench.suggest_names()
    suggested = [one["suggested"] for one in client.get("/api/state").json()["classes"]]
    assert suggested[:4] == ["", "", "", "good dogs"]
    assert suggested[4].split()[0] in ("dog", "elk")


def rows_in(client, number):
    return np.flatnonzero(np.frombuffer(client.get("/api/codes").content, "<i4") == number).tolist()


# Who may ask


def test_the_opened_address_gives_a_cookie_and_loses_the_key(stranger):
    answer = stranger.get("/", params={"token": TOKEN})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "HttpOnly; SameSite=Strict" in answer.headers["set-cookie"]
    assert stranger.get("/").status_code == 200


NO_KEY = "The key is missing or outdated: open the address that rpim explore printed."


@pytest.mark.parametrize("path", ["/static/main.js", "/api/state", "/api/pictures/0", "/api/events", "/nowhere"])
def test_nothing_without_the_key(stranger, path):
    answer = stranger.get(path)
    assert answer.status_code == 401
    assert answer.json()["problem"] == NO_KEY


@pytest.mark.parametrize(
    ("headers", "status", "says"),
    [
        ({}, 401, NO_KEY),
        ({"host": "127.0.0.1:9999"}, 421, "This page is only served to this machine"),
        ({"origin": "http://evil.example"}, 403, "The request came from another page"),
    ],
)
def test_the_page_without_the_key_says_what_to_do(stranger, headers, status, says):
    answer = stranger.get("/", headers=headers)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert says in answer.text
    assert "run <code>rpim explore RUN</code> again" in answer.text
    assert "unsafe" not in answer.headers["content-security-policy"]
    sources = re.findall(r'(?:src|href)="([^"]+)"', answer.text)
    assert len(sources) == 3
    assert [stranger.get(source).status_code for source in sources] == [200] * 3  # its styles need no key
    assert stranger.post(sources[0], json={}).status_code == 401


@pytest.mark.parametrize("token", ["wrong", "the-ke", "the-key ", "ключ", ""])
def test_nor_with_a_wrong_one(stranger, token):
    assert stranger.get("/", params={"token": token}).status_code == 401
    stranger.get("/", params={"token": TOKEN})
    (name,) = stranger.cookies
    assert re.fullmatch(r"rpim-8000-[0-9a-f]{16}", name)  # which no server of another port can guess
    stranger.cookies.clear()
    for value in ("wrong", TOKEN):
        stranger.cookies.set(name, value)
        assert stranger.get("/api/state").status_code == 401


@pytest.mark.parametrize("host", ["evil.example:8000", "127.0.0.1", "127.0.0.1:9999", "127.0.0.1:8000.evil", ""])
def test_another_host_is_refused_even_with_the_key(client, host):
    assert client.get("/api/state", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "https://127.0.0.1:8000"])
def test_another_origin_is_refused_even_with_the_key(client, origin):
    assert client.get("/api/state", headers={"origin": origin}).status_code == 403
    assert client.post("/api/undo", json={}, headers={"origin": origin}).status_code == 403


def test_what_changes_something_needs_an_origin_and_no_other_site(client):
    del client.headers["origin"]
    assert client.get("/api/state").status_code == 200
    assert client.post("/api/undo", json={}).status_code == 403
    assert client.get("/api/state", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_large_bodies_are_refused(client):
    answer = client.post("/api/decisions", content=b"x" * (4 << 20) + b"x")
    assert answer.status_code == 413
    assert "larger than 4 MB" in answer.json()["problem"]


@pytest.mark.parametrize("path", ["/", "/api/state", "/nowhere"])
def test_every_answer_keeps_the_page_to_itself(client, path):
    headers = client.get(path).headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("row", ["..%2F..%2Fetc%2Fpasswd", "/etc/passwd", "-1", "120", "1e3", "0x1", "%00"])
def test_no_path_reaches_the_disk(client, row):
    assert client.get(f"/api/pictures/{row}").status_code in (404, 409, 422)
    assert client.get(f"/static/{row}").status_code == 404


# What there is to see


def test_the_state_is_that_of_the_run(client, animals):
    found = Discovery.load(animals)
    state = client.get("/api/state").json()
    assert names(state) == found.classes.tolist()
    assert sum(one["rows"] for one in state["classes"]) == 120
    assert [one["labelled"] > 0 for one in state["classes"]] == [True, True, True, False, False]
    codes = np.frombuffer(client.get("/api/codes").content, "<i4")
    np.testing.assert_array_equal(found.classes[codes], found.labels)
    assert np.frombuffer(client.get("/api/map").content, "<f4").reshape(-1, 2).shape == (120, 2)


def test_items_of_a_class_in_three_orders(client, animals):
    table = Discovery.load(animals).classes_table()
    typical = client.get("/api/classes/3/items").json()
    assert [item["id"] for item in typical["items"][:3]] == table[3].typical
    doubtful = client.get("/api/classes/3/items?order=doubtful").json()["items"]
    assert [item["id"] for item in doubtful[:3]] == table[3].doubtful
    assert {item["class"] for item in typical["items"]} == {3}
    nearby = client.get("/api/classes/3/items?order=nearby").json()["items"]
    assert 3 not in {item["class"] for item in nearby}
    assert client.get("/api/classes/3/items?order=size").status_code == 409
    assert client.get("/api/classes/99/items").status_code == 409


def test_items_by_number(client):
    assert [item["row"] for item in client.get("/api/items?rows=5,2").json()["items"]] == [5, 2]


def test_search_wants_all_words_in_text_or_id(client):
    def found(words):
        return np.frombuffer(client.get("/api/search", params={"words": words}).content, "<i4").tolist()

    assert found("number row-11") == [11, *range(110, 120)]
    assert found("NUMBER 7 row-17") == [17]
    assert found("  ") == []


def test_columns_are_amounts_or_kinds(client, bench):
    columns = client.get("/api/run").json()["columns"]
    assert columns == {
        "confidence": "confidence",
        "outlier": "outlier score",
        "given": "given label",
        "split": "split",
        "own-0": "city <i>",
        "own-1": "price",
    }
    legend = {key: client.get(f"/api/columns/{key}/legend").json() for key in columns}
    values = {key: np.frombuffer(client.get(f"/api/columns/{key}").content, "<f4") for key in columns}
    assert legend["confidence"] == {"ends": ["0%", "100%"], "kinds": [], "others": 0}
    np.testing.assert_array_equal(values["confidence"], bench.versions[0].confidence)
    assert legend["outlier"]["ends"] == ["inlier", "outlier"]
    assert sorted(legend["given"]["kinds"]) == ["ant", "bee", "cat"]
    np.testing.assert_array_equal(np.isnan(values["given"]), ~bench.labelled)
    assert legend["own-0"] == {"ends": None, "kinds": ["Ulm", "<b>Bern</b>"], "others": 0}
    assert values["own-0"][:4].tolist() == [1, 0, 0, 1]  # every third row is of Bern
    assert legend["own-1"]["ends"] == ["0", "118"]
    assert values["own-1"][[0, 59, 118]].tolist() == [0, 0.5, 1]
    assert np.flatnonzero(np.isnan(values["own-1"])).tolist() == [119]  # infinite
    for path in ("/api/columns/nothing", "/api/columns/own-7", "/api/columns/own-x/legend"):
        assert client.get(path).status_code == 409


def test_a_row_says_what_it_has_in_the_columns(client):
    assert client.get("/api/rows/3").json()["columns"] == {"own-0": "<b>Bern</b>", "own-1": "3"}
    assert client.get("/api/rows/119").json()["columns"] == {"own-0": "Ulm", "own-1": "inf"}


# Decisions


def test_decisions_are_in_the_answer_and_can_be_undone(client, decide, post):
    assert "red panda" in names(decide("rename", number=3, name="red panda"))
    merged = decide("merge", numbers=[3, 4])
    assert names(merged) == ["ant", "bee", "cat", "red panda"]
    assert merged["undo"] == "merge new-2 into red panda"
    rows = rows_in(client, 0)[:3]
    moved = decide("move", rows=rows, to=1)
    assert [one["rows"] for one in moved["classes"]][1] == len(rows_in(client, 1))
    assert set(rows) <= set(rows_in(client, 1))
    assert "fox" in names(decide("move", rows=rows, name="fox"))
    assert decide("junk", rows=rows[:1], junk=True)["junk"] == 1
    assert decide("accept", number=1, accepted=True)["classes"][1]["accepted"]
    for _ in range(6):
        state = post("undo")
    assert (names(state), state["undo"]) == (["ant", "bee", "cat", "new-1", "new-2"], None)
    assert "nothing to undo" in post("undo", 409)["problem"]
    assert names(post("redo"))[3] == "red panda"


def to_label(client, **asked):
    return np.frombuffer(client.get("/api/to-label", params=asked).content, "<i4").tolist()


def test_rows_to_label_next_are_unlabelled_and_of_new_classes_first(client, bench):
    rows = to_label(client, n=10)
    state = bench.versions.state()
    assert len(set(rows)) == 10
    assert not bench.labelled[rows].any()
    assert {int(number) for number in state.class_of[rows[:2]]} == {3, 4}
    found = Discovery.load(bench.run).suggest(10, features_of(bench.run))
    assert rows == [one.row for one in found]  # as rpim suggest
    assert sorted(to_label(client, n=1000)) == np.flatnonzero(~bench.labelled).tolist()
    assert client.get("/api/to-label", params={"n": 0}).status_code == 422


def test_decided_rows_are_not_to_label(client, bench, decide, post):
    rows = to_label(client, n=10)
    first, second, third = rows[:3]
    decide("move", rows=[first], to=int(bench.versions.state().class_of[first]))  # confirmed
    decide("move", rows=[second], name="fox")
    decide("junk", rows=[third], junk=True)
    assert not set(rows[:3]) & set(to_label(client, n=1000))
    post("undo")
    assert third in to_label(client, n=1000)
    bern = to_label(client, n=1000, filters='{"own-0": [1]}')
    assert bern
    assert all(row % 3 == 0 for row in bern)
    decide("move", rows=np.flatnonzero(~bench.labelled).tolist(), to=0)
    assert to_label(client) == []


def test_the_runner_up_follows_decisions(client, bench, decide):
    version, named = bench.versions[0], ["ant", "bee", "cat", "new-1", "new-2"]
    own, second = int(version.state.class_of[7]), named.index(version.runner_up[7])
    third = next(k for k in range(5) if k not in (own, second))
    item = client.get("/api/rows/7").json()
    assert item["runner_up"] == second
    assert item["runner_up_confidence"] == pytest.approx(version.runner_up_confidence[7], abs=1e-4)
    decide("merge", numbers=[third, second])
    assert client.get("/api/rows/7").json()["runner_up"] == third
    decide("merge", numbers=[own, third])
    assert client.get("/api/rows/7").json()["runner_up"] is None


def test_the_tree_follows_decisions(client, bench, decide):
    tree, found = client.get("/api/tree").json(), Discovery.load(bench.run).hierarchy()
    assert (tree["numbers"], tree["n_groups"]) == ([0, 1, 2, 3, 4], 5)
    assert (tree["merges"], tree["names"]) == ([list(pair) for pair in found.merges], found.names)
    first = [tree["numbers"][node] for node in tree["merges"][0]]
    decide("merge", numbers=first)
    decide("rename", number=first[0], name="red panda")
    tree = client.get("/api/tree").json()
    assert (sorted(tree["numbers"]), len(tree["merges"])) == (sorted({0, 1, 2, 3, 4} - {first[1]}), 3)
    assert tree["names"][tree["numbers"].index(first[0])].startswith("red panda")
    decide("merge", numbers=tree["numbers"])
    answer = client.get("/api/tree")
    assert answer.status_code == 409
    assert "tree" in answer.json()["problem"]


def test_a_split_divides_by_likeness(client, decide):
    apart = {frozenset(rows_in(client, 3)), frozenset(rows_in(client, 4))}
    decide("merge", numbers=[3, 4])
    state = decide("split", number=3, parts=2)
    assert names(state)[3:] == ["new-1", "new-1 (2)"]
    numbers = [one["number"] for one in state["classes"][3:]]
    assert numbers == [3, 5]  # 4 is not used again
    assert {frozenset(rows_in(client, number)) for number in numbers} == apart


def test_a_class_with_fewer_rows_than_parts_cannot_be_split(decide):
    decide("move", rows=[1, 2], name="fox")
    assert decide("split", 409, number=5, parts=3)["problem"] == "fox has 2 rows and cannot be split into 3."


def test_a_repeated_request_is_done_once(client):
    asked = {"key": "one-and-the-same", "version": 0, "kind": "rename", "number": 3, "name": "x"}
    client.post("/api/decisions", json=asked)
    client.post("/api/undo", json={"key": "undo-request", "version": 0})
    assert client.post("/api/decisions", json=asked).json()["undo"] is None  # not done again


@pytest.mark.parametrize(
    "facts",
    [
        {"kind": "explode"},
        {"kind": "rename", "number": "3; DROP TABLE decisions", "name": "x"},
        {"kind": "rename", "number": 3, "name": "x" * 201},
        {"kind": "rename", "number": 3},
        {"kind": "move", "rows": [], "to": 1},
        {"kind": "move", "rows": [2**40], "to": 1},
        {"kind": "split", "number": 3, "parts": 1000},
        {"kind": "junk", "rows": [0], "junk": True, "more": 1},
    ],
)
def test_requests_that_are_not_understood_change_nothing(client, facts):
    answer = client.post("/api/decisions", json={"key": "request-1", "version": 0, **facts})
    assert answer.status_code == 422
    assert answer.json()["problem"].startswith("The request is not understood (")
    assert client.get("/api/state").json()["undo"] is None


def test_decisions_that_do_not_fit_are_one_sentence(decide):
    assert "no longer exists" in decide("rename", 409, number=77, name="x")["problem"]
    assert "already called ant" in decide("rename", 409, number=3, name="ant")["problem"]
    assert "not among the 120" in decide("junk", 409, rows=[120], junk=True)["problem"]
    assert "1 to 200 printable" in decide("move", 409, rows=[1])["problem"]


def test_a_name_with_markup_stays_text(client, decide):
    state = decide("rename", number=3, name="<script>alert(1)</script>")
    assert names(state)[3] == "<script>alert(1)</script>"
    assert client.get("/api/state").headers["content-type"] == "application/json"
    assert b"<script>alert(1)" in client.get("/api/export/csv").content


def test_the_history_has_every_decision_also_those_undone(client, decide, post):
    decide("rename", number=3, name="fox")
    decide("merge", numbers=[3, 4])
    decide("move", rows=[1, 2], name="<b>")
    post("undo")
    (run,) = client.get("/api/history").json()
    assert (run["version"], run["changes"]) == (0, None)
    assert [(one["description"], one["undone"]) for one in run["decisions"]] == [
        ("rename new-1 to fox", False),
        ("merge new-2 into fox", False),
        ("move 2 rows to the new class <b>", True),
    ]
    assert [one["made"] for one in run["decisions"]] == sorted(one["made"] for one in run["decisions"])
    post("undo")
    decide("accept", number=4, accepted=True)  # takes the place of what was undone
    (run,) = client.get("/api/history").json()
    assert [one["description"] for one in run["decisions"]] == ["rename new-1 to fox", "accept new-2"]


def test_events_tell_of_what_another_has_decided(bench, client, decide):
    before = bench.stamp()
    decide("rename", number=3, name="x")
    assert bench.stamp() != before
    with client.stream("GET", "/api/events") as answer:
        line = next(answer.iter_lines())
    told = json.loads(line.removeprefix("data: "))
    assert told["stamp"] == bench.stamp()
    assert told["refit"]["status"] == "idle"


# Exports


def test_exports_agree_row_by_row(client, decide, animals):
    decide("rename", number=3, name='fox, "red"')
    decide("merge", numbers=[0, 1])
    decide("junk", rows=[5], junk=True)
    decide("move", rows=[6], to=2)
    codes = np.frombuffer(client.get("/api/codes").content, "<i4")
    called = {one["number"]: one["name"] for one in client.get("/api/state").json()["classes"]}
    expected = {f"row-{row}": called.get(code) for row, code in enumerate(codes.tolist())}
    assert expected["row-5"] is None
    assert expected["row-6"] == "cat"
    of_csv = list(csv.DictReader(io.StringIO(client.get("/api/export/csv").text)))
    assert {row["id"]: row["label"] or None for row in of_csv} == expected
    assert [row["id"] for row in of_csv if row["by_hand"] == "true"] == ["row-6"]
    of_parquet = pq.read_table(io.BytesIO(client.get("/api/export/parquet").content)).to_pylist()
    assert {row["id"]: row["label"] for row in of_parquet} == expected
    of_jsonl = [json.loads(line) for line in client.get("/api/export/jsonl").text.splitlines()]
    assert {row["id"]: row["label"] for row in of_jsonl} == expected
    tasks = client.get("/api/export/label-studio").json()
    assert {task["data"]["id"]: task["predictions"][0]["result"][0]["value"]["choices"][0] for task in tasks} == {
        name: label for name, label in expected.items() if label is not None
    }
    assert client.get("/api/export/xlsx").status_code == 409


def test_exports_carry_texts_and_metadata(client, bench):
    texts = bench.rows.texts
    assert texts is not None
    of_csv = list(csv.DictReader(io.StringIO(client.get("/api/export/csv").text)))
    assert [row["text"] for row in of_csv] == texts
    assert [row["city <i>"] for row in of_csv[:3]] == ["<b>Bern</b>", "Ulm", "Ulm"]
    of_parquet = pq.read_table(io.BytesIO(client.get("/api/export/parquet").content)).to_pylist()
    assert [row["price"] for row in of_parquet] == [*range(119), np.inf]
    of_jsonl = [json.loads(line) for line in client.get("/api/export/jsonl").text.splitlines()]
    assert [row["price"] for row in of_jsonl] == [*range(119), None]  # JSON has no infinity
    assert [row["text"] for row in of_jsonl] == texts


def test_a_metadata_column_with_the_name_of_ours_gets_a_prefix(bench):
    metadata = {"label": np.array(["x", ""] * 60, dtype=object), "junk": np.r_[np.nan, np.arange(119.0)]}
    columns = exports.Decided.of(bench.versions, metadata=metadata).columns()
    assert columns["label"][:2] == bench.versions.state().names()[:2]
    assert columns["data_label"].tolist()[:2] == ["x", None]
    assert columns["data_junk"].tolist()[:3] == [None, 0, 1]


def test_the_command_exports_what_was_decided(animals, client, decide, command):
    decide("rename", number=3, name="fox")
    code, out, err = command("export", animals, "-o", "rows.jsonl", "--decisions")
    assert (code, out, err) == (0, "120 rows of version 0 written to rows.jsonl.\n", "")
    labels = {json.loads(line)["label"] for line in Path("rows.jsonl").read_text().splitlines()}
    assert labels == {"ant", "bee", "cat", "fox", "new-2"}
    assert "exists already" in command("export", animals, "-o", "rows.jsonl", "--decisions")[2]
    (animals.parent / "animals.npz").unlink()
    out = command("export", animals, "-o", "rows.csv", "--decisions")[1]
    assert out.startswith("120 rows of version 0 written to rows.csv. Metadata columns are left out: The features of")
    assert "have no images" in command("export", animals, "-o", "folder", "--decisions")[2]
    assert not Path("folder").exists()
    assert "which cannot be written" in command("export", animals, "-o", "rows.xlsx", "--decisions")[2]


def test_pictures_are_small_and_found_again_where_they_are_now(pictured):
    bench = Workbench(pictured)
    shown = Image.open(io.BytesIO(bench.pictures.small(40, 160)))
    assert shown.size == (160, 80)
    assert bench.pictures.small(1, 160) is None
    assert not bench.pictures.missing()
    (pictured.parent / "old").rename(pictured.parent / "new")
    moved = Workbench(pictured)
    assert moved.pictures.missing()
    assert moved.pictures.small(40, 160) is None
    found = Workbench(pictured, images=pictured.parent / "new")
    assert found.pictures.path(41) == pictured.parent / "new" / "1" / "image 20.png"
    assert not found.pictures.missing()


def test_a_picture_that_cannot_be_read_is_none(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"no picture")
    (tmp_path / "secret.png").write_bytes(b"x")
    folder = tmp_path / "images"
    folder.mkdir()
    assert Pictures([str(tmp_path / "a.jpg")], ["a"]).small(0, 160) is None
    assert Pictures(["../secret.png"], ["../secret.png"], folder).path(0) is None


def test_image_folders_hold_every_image_once_and_nothing_outside(pictured):
    versions = Workbench(pictured).versions
    versions.timeline.decide(0, lambda state: Rename(3, "../../up: <b>"), "12345678")
    versions.timeline.decide(0, lambda state: Rename(4, "Ant"), "12345679")
    decided = exports.Decided.of(versions)
    target = pictured.parent / "out" / "folders"
    pictures = Pictures(versions.rows.paths, versions.rows.ids, recorded=[pictured.parent / "old"])
    with exports.new_folder(target) as folder:
        assert exports.image_folders(decided, pictures, folder) == (119, {"not found": 1})
    assert sorted(folder.name for folder in target.iterdir()) == sorted(["Ant (2)", "_.._up_ _b_", "ant", "bee", "cat"])
    sizes = {versions.state().classes[k].name: n for k, n in versions.state().sizes().items()}
    files = list(target.rglob("*.png"))
    assert len(files) == 119
    sizes[versions.state().classes[int(versions.state().class_of[1])].name] -= 1  # the image of row 1 is gone
    assert len(list((target / "bee").iterdir())) == sizes["bee"]
    assert len(list((target / "_.._up_ _b_").iterdir())) == sizes["../../up: <b>"]
    with pytest.raises(InputError, match="exists already"), exports.new_folder(target):
        pass


def test_only_images_in_the_image_folder_are_copied(pictured, command):
    """Whatever paths the run names: it may come from somebody else."""
    outside = pictured.parent / "private.png"
    Image.new("RGB", (8, 8)).save(outside)
    (pictured.parent / "old" / "link.png").symlink_to(outside)
    (pictured.parent / "old" / "secret.png").write_text("root:x:0:0")
    os.mkfifo(pictured.parent / "old" / "pipe.png")
    names = ["/etc/passwd", "/proc/self/environ", str(outside)]
    names += [str(pictured.parent / "old" / name) for name in ("link.png", "../private.png", "secret.png", "pipe.png")]
    table = pq.read_table(pictured / "assignments.parquet")
    paths = [*names, *table.column("path").to_pylist()[len(names) :]]
    place = table.column_names.index("path")
    pq.write_table(table.set_column(place, "path", [paths]), pictured / "assignments.parquet")
    code, out, _ = command("export", pictured, "-o", "all", "--decisions")
    assert code == 0
    assert out == (
        "113 images written to all. Left out: 5 outside of the image folder, which --images FOLDER names; "
        "1 no readable images; 1 not found.\n"
    )
    assert {path.name.partition(" ")[0] for path in Path("all").rglob("*.png")} == {"image"}
    shutil.rmtree("all")
    (pictured.parent / "moved").mkdir()
    (pictured.parent / "moved" / "private.png").symlink_to(outside)
    code, out, _ = command("export", pictured, "-o", "all", "--decisions", "--images", "moved")
    assert len(list(Path("all").rglob("private*.png"))) == 1, "in the folder that the user names, even if it is a link"


def test_exported_images_are_copies_unless_links_are_wanted(pictured, command, refused):
    source = pictured.parent / "old" / "0" / "image 3.png"
    before = source.read_bytes()
    for options, is_same in (((), False), (("--link",), True)):
        assert command("export", pictured, "-o", "all", "--decisions", *options)[0] == 0
        (made, *_) = (path for path in Path("all").rglob("image 3*.png") if path.read_bytes() == before)
        assert made.samefile(source) == is_same
        shutil.rmtree("all")
    refused("--link is for folders of images", "export", pictured, "-o", "a.csv", "--decisions", "--link")
    refused("--link is for a folder of images: add --format imagefolder", "export", pictured, "-o", "a.csv", "--link")
    refused("--images gone is not a folder", "export", pictured, "-o", "a", "--decisions", "--images", "gone")


def test_image_folders_of_a_run_and_of_what_it_extends(pictured):
    facts = json.loads((pictured / "run.json").read_text())
    before = json.loads(json.dumps(facts["provenance"]))
    before["data"]["metadata"] = {"source": str(pictured.parent)}
    facts["provenance"]["extends"] = before
    (pictured / "run.json").write_text(json.dumps(facts))
    assert recorded_folders(pictured) == [pictured.parent / "old", pictured.parent]


# A new fit


def test_labels_of_a_new_fit_worked_out_by_hand():
    state = State.of_classes(np.array([0, 0, 1, 2, 2, 2, 3]), np.array([0, 1, 2, 3]), n_known=2)

    def rows(*numbers):
        return np.array(numbers, dtype=np.int32)

    for decision in (Merge((0, 1)), Accept(2), Move(rows(6), 2), Junk(rows(3))):
        state = decision.apply(state)
    made = plan(state, np.array([True, False, True, False, False, False, False]), np.arange(7, dtype=np.float32) / 7)
    assert made.rows.tolist() == [0, 1, 2, 4, 5, 6]  # without junk
    # 0 and 2 came with labels; 0 to 2 are a merged class, 4 to 6 an accepted one: all of them among its surest 50.
    assert made.labels.tolist() == ["0", "0", "0", "2", "2", "2"]
    assert made.n_classes == 2  # class 3 has no rows any more


def test_new_classes_that_nobody_named_or_accepted_stay_new():
    state = State.of_classes(np.arange(8), np.arange(8), n_known=2)
    for decision in (
        Merge((2, 3)),
        Merge((4, 1)),
        Rename(5, "fox"),
        Accept(6),
        Move(np.array([7], np.int32), 8, "owl"),
    ):
        state = decision.apply(state)
    # 2 was merged but not named, 7 was left alone; 4 has the labels of the known class 1.
    assert plan(state, np.zeros(8, dtype=bool), np.zeros(8, dtype=np.float32)).unnamed == ("2", "7")


def test_of_a_reviewed_class_the_fifty_surest_are_labelled():
    state = State.of_classes(np.zeros(80, dtype=int), np.array([0]), n_known=0).changed(0, reviewed=True)
    made = plan(state, np.zeros(80, dtype=bool), np.linspace(0, 1, 80, dtype=np.float32))
    assert np.flatnonzero(made.labels == "0").tolist() == list(range(30, 80))


def test_discovered_classes_keep_their_names_by_their_rows():
    found = np.array([0, 1, 1, 2, 3])
    before = np.array(["cat", "new-2", "new-2", "new-1", "cat"])
    # Class 3 has no rows of a free name and its own, new-3, is free; class 1 and 2 swap names.
    assert inherited_names(["cat", "new-1", "new-2", "new-3"], 1, found, before) == ["cat", "new-2", "new-1", "new-3"]
    # A class that is not any of those before must not take a name that one of them has.
    assert inherited_names(["cat", "new-1", "new-2"], 1, np.array([1, 1, 0]), np.array(["new-2", "new-2", "cat"])) == [
        "cat",
        "new-2",
        "new-1",
    ]


def wait_for(job, seconds=180):
    end = time.monotonic() + seconds
    while job.progress()["status"] == "running":
        assert time.monotonic() < end
        time.sleep(0.05)
    return job.progress()


@pytest.mark.slow
def test_a_new_fit_is_a_version_of_its_own(bench, client, decide, post, animals):
    decide("rename", number=3, name="fox")
    decide("split", number=4, parts=2)
    decide("junk", rows=[0], junk=True)
    background = Background(bench)
    background.refit(0)
    with pytest.raises(InputError, match="A refit is already running"):
        background.refit(0)
    assert wait_for(background.refitting)["status"] == "done"
    state = client.get("/api/state").json()
    assert state["version"] == 1
    assert [one["number"] for one in state["versions"]] == [0, 1]
    assert sorted(names(state)) == ["ant", "bee", "cat", "fox", "new-2", "new-2 (2)"]
    assert {one["name"] for one in state["classes"] if one["known"]} == {"ant", "bee", "cat", "fox"}
    assert state["junk"] == 1  # was left out
    assert state["undo"] is None
    assert "Another version" in decide("rename", 409, number=3, name="x")["problem"]
    refitted, run = client.get("/api/history").json()
    assert (refitted["version"], refitted["decisions"], refitted["changes"]["compared"]) == (1, [], 119)
    assert refitted["changes"]["appeared"] == refitted["changes"]["vanished"] == []
    assert [one["description"] for one in run["decisions"]][1:] == ["split new-2 into 2", "mark 1 row as junk"]
    refitted = Discovery.load(animals / "refits" / "0001")
    assert len(refitted) == 119
    assert refitted.model.known_classes_.tolist() == ["ant", "bee", "cat", "fox"]
    assert refitted.model.new_classes_.tolist() == ["new-2", "new-2 (2)"]
    rows = features_of(animals / "refits" / "0001").rows()
    free = refitted.labels[refitted.given == ""]
    assert (refitted.model.predict(rows)[refitted.given == ""] == free).all()  # the head has the same order
    # The next refit has the labels of this one, without a new decision.
    again = plan(bench.versions.state(1), bench.versions[1].labelled, bench.versions[1].confidence)
    assert set(again.labels.tolist()) == {"", "ant", "bee", "cat", "fox", "new-2", "new-2 (2)"}
    assert again.unnamed == ("new-2", "new-2 (2)")
    assert refitted.model.objective.trade_off == 0.1
    np.testing.assert_array_equal(features_of(animals / "refits" / "0001").ids, refitted.ids)
    back = post("version", version=0)
    assert (back["version"], names(back)[3], back["junk"]) == (0, "fox", 1)
    assert post("version", 409, version=7)


@pytest.mark.slow
def test_a_new_fit_that_cannot_be_made_says_why_and_one_can_be_cancelled(bench, client, decide):
    background = Background(bench)
    background.refit(0)
    background.refitting.cancel()
    time.sleep(0.3)
    assert background.refitting.progress()["status"] == "cancelled"
    assert bench.versions.numbers() == [0]
    decide("merge", numbers=[0, 1, 2])
    background.refit(0)
    ended = wait_for(background.refitting)
    assert ended["status"] == "failed"
    assert "only one class" in ended["error"]


QUICK_UMAP = """
class UMAP:
    def __init__(self, **parameters):
        assert parameters["random_state"] == 0

    def fit_transform(self, rows):
        return 2 * rows[:, :2]
"""


@pytest.mark.slow
def test_a_map_is_made_in_the_background_and_kept(bench, animals, tmp_path, monkeypatch, environment):
    """By another process, which finds a UMAP that does not compile first; tests/runs/test_maps.py has the real one."""
    (tmp_path / "quick").mkdir()
    (tmp_path / "quick" / "umap.py").write_text(QUICK_UMAP)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'quick'}{os.pathsep}{environment['PYTHONPATH']}")
    monkeypatch.setattr("rpim.explorer.background.kind_of_map", lambda: "UMAP")
    background = Background(bench)
    assert bench.map_kind == "principal directions"
    before = bench.map
    background.map()
    assert wait_for(background.mapping)["status"] == "done"
    assert bench.map_kind == "UMAP"
    assert bench.map.shape == before.shape
    np.testing.assert_allclose(bench.map, 2 * leading(bench.refined, N_DIRECTIONS)[:, :2], rtol=1e-6)
    np.testing.assert_array_equal(Workbench(animals).map, bench.map)
    background.map()  # there is one, so that nothing is done
    assert background.mapping.status == "done"


# The page


def contrast(one, other):
    """The ratio of WCAG 2, section 1.4.3."""

    def luminance(colour):
        shares = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in shares]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    lighter, darker = sorted((luminance(one), luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def test_contrast_by_hand():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


def test_text_can_be_read_in_both_themes(client):
    themes = [
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", block))
        for block in client.get("/static/tokens.css").text.split("color-scheme:")[:-1]
    ]
    assert len(themes) >= 3  # light, and dark by the system's choice and by the user's
    assert themes[-1] == themes[-2]
    for theme in themes:
        if "ink" not in theme:
            continue
        for text, ground in (
            ("ink", "ground"),
            ("ink", "paper"),
            ("ink", "raised"),
            ("ink", "accent-soft"),
            ("quiet", "ground"),
            ("quiet", "paper"),
            ("quiet", "raised"),
            ("quiet", "accent-soft"),
            ("on-accent", "accent"),
            ("accent", "paper"),
            ("good", "good-soft"),
            ("warn", "warn-soft"),
            ("bad", "bad-soft"),
            ("paper", "bad"),
        ):
            assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground)
        assert contrast(theme["line-strong"], theme["paper"]) >= 3  # of fields


def test_nothing_of_the_page_comes_from_elsewhere_and_every_file_is_there(client):
    page = client.get("/").text
    sources = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert all(source.startswith("/static/") for source in sources)
    asked, seen = list(sources), set()
    while asked:
        path = asked.pop()
        if path not in seen:
            seen.add(path)
            answer = client.get(path)
            assert answer.status_code == 200, path
            assert "://" not in re.sub(r"http://www\.w3\.org/\d{4}/svg", "", answer.text), path
            asked += re.findall(r'from "(/static/[^"]+)"', answer.text)
    assert "<script>" not in page
    assert " style=" not in page


# Bad input


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda run: (run / "assignments.parquet").unlink(), "is missing, so the run folder is incomplete"),
        (lambda run: (run / "model.safetensors").write_bytes(b"x"), "is truncated or damaged"),
        (lambda run: (run / "run.json").unlink(), "is not a run folder"),
        (lambda run: (run / "run.json").write_text('{"format": 99}'), "newer version of rpim"),
        (lambda run: (run / "decisions.sqlite").write_bytes(b"?" * 2000), "cannot be used"),
        (lambda run: (run.parent / "animals.npz").unlink(), "give --features FILE"),
    ],
)
def test_a_run_that_cannot_be_opened_is_one_sentence(animals, command, spoil, says):
    spoil(animals)
    code, _, err = command("explore", animals, "--no-browser")
    assert code == 2
    assert says in err
    assert err.count("\n") == 1


def test_a_port_in_use_is_one_sentence(animals, command):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        code, _, err = command("explore", animals, "--port", port)
    assert code == 2
    assert err == f"rpim: Port {port} cannot be used (Address already in use): give another --port, or leave it out.\n"
    listen(0).close()


def test_an_image_folder_that_is_none_is_one_sentence(animals, command):
    assert "--images nowhere is not a folder" in command("explore", animals, "--images", "nowhere")[2]


def test_a_kept_map_is_taken_and_a_damaged_one_is_not(animals):
    np.save(animals / "map.npy", np.ones((120, 2), dtype=np.float32))
    assert (Workbench(animals).map == 1).all()
    (animals / "map.npy").write_bytes(b"x")
    assert Workbench(animals).map_kind == "principal directions"
