"""Label issues in the explorer, and a new fit of a committee: from the run folder to the answers."""

from __future__ import annotations

import shutil
from itertools import count

import numpy as np
import pytest

from rpim import PIM, RPIM, Discovery, FeatureSet
from rpim.estimators.committee import LabelIssue
from rpim.explorer import background
from rpim.explorer.background import Plan, plan, refit_run, write_job
from rpim.runs.assignments import Assignments
from rpim.runs.decisions import Junk, Merge, Move, State
from rpim.runs.versions import LabelIssues, version_numbers

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from rpim.explorer.background import Background
from rpim.explorer.server import make_app
from rpim.explorer.workbench import Workbench

OURS = "http://127.0.0.1:8000"
WRONG, TRUTH = {0: "bee", 24: "dog", 36: "ant"}, {0: "ant", 24: "cat", 36: "dog"}
"""What rows are labelled as, and what they are."""


def rows(*numbers):
    return np.array(numbers, dtype=np.int32)


# Worked out by hand


@pytest.fixture
def found():
    """Five rows in classes a, b, new-1; the first two look wrong, the second more so."""
    n = 5
    return Assignments(
        ids=np.arange(n),
        labels=np.array(["a", "b", "b", "a", "new-1"]),
        known=np.arange(n) < 4,
        confidence=np.ones(n, np.float32),
        runner_up=np.array(["b"] * n),
        runner_up_confidence=np.zeros(n, np.float32),
        outlier=np.zeros(n, np.float32),
        given=np.array(["a", "b", "b", "a", ""]),
        label_quality=np.array([0.1, 0.2, 0.9, 0.8, np.nan], np.float32),
        suggested=np.array(["b", "new-1", "", "", ""]),
        suggested_confidence=np.array([0.5, 0.8, np.nan, np.nan, np.nan], np.float32),
    )


@pytest.fixture
def state():
    return State.of_classes(np.array(["a", "b", "b", "a", "new-1"]), np.array(["a", "b", "new-1"]), n_known=2)


@pytest.fixture
def label_issues(found):
    return LabelIssues.of(found, np.array(["a", "b", "new-1"]), np.arange(5))


def test_the_most_suspect_come_first(label_issues):
    assert label_issues.rows.tolist() == [1, 0]  # 0.8 - 0.2 is more than 0.5 - 0.1
    assert label_issues.suggested.tolist() == [2, 1]
    assert label_issues.quality.tolist() == pytest.approx([0.2, 0.1])


def test_rows_of_a_later_fit_have_the_numbers_of_the_run(found):
    assert LabelIssues.of(found, np.array(["a", "b", "new-1"]), np.array([3, 7, 8, 9, 11])).rows.tolist() == [7, 3]


def test_without_a_committee_no_label_is_suspect(found):
    single = Assignments(**{**vars(found), "label_quality": None, "suggested": None, "suggested_confidence": None})
    assert len(LabelIssues.of(single, np.array(["a", "b", "new-1"]), np.arange(5))) == 0


@pytest.mark.parametrize(
    ("decision", "left"),
    [
        (Move(rows(1), 2), [(0, 1)]),  # to the suggested class
        (Move(rows(1), 1), [(0, 1)]),  # to its own: the label is kept
        (Junk(rows(0)), [(1, 2)]),
        (Merge((0, 1)), [(1, 2)]),  # label and suggestion of row 0 are one class now
        (Merge((0, 2)), [(1, 0), (0, 1)]),  # what is suggested for row 1 is called otherwise now
        (Merge((1, 2)), [(0, 1)]),
    ],
)
def test_what_is_decided_is_no_longer_suspect(label_issues, state, decision, left):
    now = decision.apply(state)
    still = label_issues.open(state, now, now.by_hand)
    assert list(zip(still.rows.tolist(), still.suggested.tolist(), strict=True)) == left


# A run with some labels that are wrong


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A committee on six separated blobs, four of them known, with three labels that are wrong."""
    folder = tmp_path_factory.mktemp("committee")
    generator = np.random.default_rng(0)
    truth = np.arange(240) // 12 % 6
    X = np.eye(8)[truth] + 0.08 * generator.normal(size=(240, 8))
    words = np.array(["ant", "bee", "cat", "dog", "elk", "fox"])[truth]
    labels = np.where((truth < 4) & (np.arange(240) % 2 == 0), words, "")
    labels[list(WRONG)] = list(WRONG.values())
    ids = [f"row-{i}" for i in range(240)]
    features = FeatureSet.from_arrays(X, labels=labels, ids=ids, texts=[f"{w} {i}" for i, w in enumerate(words)])
    features.write(folder / "features.npz")
    features = FeatureSet.read(folder / "features.npz")
    model = RPIM(6, n_members=8, random_state=0).fit(features.rows(), features.labels)
    Discovery.from_fit(model, features, source=folder / "features.npz").save(folder / "run")
    return folder / "run"


@pytest.fixture
def bench(fitted, tmp_path):
    shutil.copytree(fitted, tmp_path / "run")
    opened = Workbench(tmp_path / "run")
    yield opened
    opened.versions.store.close()


@pytest.fixture
def client(bench):
    app = make_app(bench, Background(bench), "the-key", 8000)
    client = TestClient(app, base_url=OURS, headers={"origin": OURS}, follow_redirects=False)
    client.get("/", params={"token": "the-key"})
    return client


@pytest.fixture
def post(client):
    keys = count()

    def ask(path, **facts):
        answer = client.post(f"/api/{path}", json={"key": f"request-{next(keys)}", "version": 0, **facts})
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask


def listed(client, **query):
    return client.get("/api/label-issues", params=query).json()


def test_the_state_says_what_the_committee_found(client, fitted):
    state = client.get("/api/state").json()
    model = Discovery.load(fitted).model
    assert (state["members"], state["label_issues"]) == (8, 3)
    assert state["expected_accuracy"] == model.expected_accuracy_
    assert 0.9 < state["expected_accuracy"] <= 81 / 84  # three of the 84 labels are wrong
    assert all(one["stability"] > 0.8 for one in state["classes"])


def test_suspect_labels_are_listed_with_the_class_that_is_suggested(client):
    found = listed(client)
    assert found["total"] == 3
    items = {one["row"]: one for one in found["items"]}
    called = {one["number"]: one["name"] for one in client.get("/api/state").json()["classes"]}
    assert {row: called[one["class"]] for row, one in items.items()} == WRONG
    assert {row: called[one["suggested"]] for row, one in items.items()} == TRUTH
    assert all(one["text"].startswith(TRUTH[row]) and one["label_quality"] < 0.2 for row, one in items.items())
    assert [one["row"] for one in listed(client, start=1, count=1)["items"]] == [found["items"][1]["row"]]
    assert listed(client, start=3) == {"total": 3, "items": []}
    assert client.get("/api/label-issues", params={"count": 1000}).status_code == 422
    assert client.get("/api/label-issues", params={"start": -1}).status_code == 422


def test_a_suggestion_is_accepted_by_a_move_that_can_be_undone(client, post):
    first = listed(client)["items"][0]
    state = post("decisions", kind="move", rows=[first["row"]], to=first["suggested"])
    assert state["label_issues"] == 2
    assert first["row"] not in [one["row"] for one in listed(client)["items"]]
    assert client.get(f"/api/rows/{first['row']}").json()["class"] == first["suggested"]
    assert post("undo")["label_issues"] == 3
    assert listed(client)["items"][0] == first


def test_a_label_is_kept_by_a_move_to_its_own_class(client, post):
    first = listed(client)["items"][0]
    assert post("decisions", kind="move", rows=[first["row"]], to=first["class"])["label_issues"] == 2
    kept = client.get(f"/api/rows/{first['row']}").json()
    assert (kept["class"], kept["by_hand"]) == (first["class"], True)
    assert post("undo")["label_issues"] == 3


def test_a_single_fit_has_nothing_of_it(animals):
    bench = Workbench(animals)
    summary = bench.summary()
    assert (summary["members"], summary["expected_accuracy"], summary["label_issues"]) == (1, None, 0)
    assert bench.label_issue_items(0, 60) == {"total": 0, "items": []}
    bench.versions.store.close()


# A new fit


def again(model, **found):
    for name, value in found.items():
        setattr(model, name, value)
    return background._unfitted_copy(model, 7).get_params()


def test_a_committee_is_fitted_again_with_what_its_members_differ_in():
    default = RPIM(6, random_state=3)
    found = {"trade_off_": 0.1, "beta_": 0.2, "weight_decay_": 0.01, "class_sizes_": "equal"}
    assert again(default, search_={}, n_members_=16, **found) == {**default.get_params(), "n_classes": 7}


def test_what_was_searched_is_not_searched_again():
    searched = again(
        RPIM(6, preset="paper"),
        search_={"trade_off": {0.1: 1.0}, "weight_decay": {0.02: 1.0}},
        trade_off_=0.1,
        weight_decay_=0.01,
        beta_=0.05,
        n_members_=1,
    )
    assert [searched[f"objective__{name}"] for name in ("trade_off", "weight_decay", "beta")] == [0.1, 0.01, "auto"]
    assert (searched["preset"], searched["n_members"]) == ("paper", "auto")


@pytest.mark.parametrize("method", [RPIM, PIM])
def test_a_single_fit_stays_one(method):
    assert again(method(6, n_members=1), search_={}, n_members_=1, trade_off_=0.1)["n_members"] == 1


def test_what_belongs_to_a_class_follows_it_behind_the_known_ones(fitted):
    model = Discovery.load(fitted).model
    old = {name: k for k, name in enumerate(model.classes_.tolist())}
    prototypes, exemplars, stability = model.head_.prototypes, model.exemplars_, model.stability_
    background._keep_new(model, ("bee", "nobody"))
    assert model.known_classes_.tolist() == ["ant", "cat", "dog"]
    assert model.new_classes_.tolist() == ["bee", "new-1", "new-2"]
    order = [old[name] for name in model.classes_.tolist()]
    np.testing.assert_array_equal(model.head_.prototypes, prototypes[order])
    np.testing.assert_array_equal(model.exemplars_.typical, exemplars.typical[order])
    np.testing.assert_array_equal(np.array(order)[model.exemplars_.classes], exemplars.classes)
    np.testing.assert_array_equal(model.stability_, stability[order])
    background._keep_new(model, ("ant", "cat", "dog"))  # a model needs a known class
    assert model.known_classes_.tolist() == ["ant", "cat", "dog"]


def test_suggested_classes_keep_their_names_too():
    model = RPIM(3)
    model.classes_ = np.array(["cat", "new-1", "new-2"])
    model.known_classes_, model.new_classes_ = model.classes_[:1], model.classes_[1:]
    model.labels_ = np.array(["cat", "new-1", "new-2"])
    model.label_issues_ = [LabelIssue(0, "cat", np.str_("new-1"), 0.1, 0.9)]
    background._keep_names(model, Plan(rows(0, 1, 2), model.labels_, np.array(["cat", "new-2", "elk"]), 3))
    assert model.classes_.tolist() == ["cat", "new-2", "elk"]
    assert model.label_issues_ == [LabelIssue(0, "cat", "new-2", 0.1, 0.9)]


def test_a_new_fit_of_a_committee_is_a_committee_and_tells_of_its_members(bench, client, post, tmp_path, monkeypatch):
    accepted, kept, left = listed(client)["items"]
    post("decisions", kind="move", rows=[accepted["row"]], to=accepted["suggested"])
    post("decisions", kind="move", rows=[kept["row"]], to=kept["class"])
    versions = bench.versions
    made = plan(versions.state(0), bench.labelled, versions[0].confidence)
    write_job(tmp_path / "job.npz", made, 0, 1)
    told = []
    monkeypatch.setattr(background, "emit", lambda **facts: told.append(facts))
    refit_run(versions.run, tmp_path / "job.npz", versions.folder(1))
    stages = [one["stage"] for one in told]
    assert "training 8 members" in stages
    assert stages.index("training 8 members") < stages.index("distilling the committee")
    model = Discovery.load(versions.folder(1)).model
    assert (model.n_members_, model.n_members, model.objective) == (8, 8, None)
    post("version", version=1)
    # A label that a person has decided about is not asked about again; the third still is.
    assert [one["row"] for one in listed(client)["items"]] == [left["row"]]
    assert client.get("/api/state").json()["members"] == 8


def test_only_folders_with_the_name_of_a_version_are_versions(tmp_path):
    for name in ("0001", "12345", "9" * 30, "1", "0002²", "0003.tmp"):
        (tmp_path / "refits" / name).mkdir(parents=True)
        (tmp_path / "refits" / name / "run.json").touch()
    assert version_numbers(tmp_path) == [0, 1, 12345]
