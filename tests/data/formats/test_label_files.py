"""Labels from Label Studio and FiftyOne: which annotation counts, and one sentence for what is no label."""

from __future__ import annotations

import json

import pytest

from rpim import FeatureSet

IDS = ["birds/a b.jpg", "birds/c.jpg", "birds/d.jpg"]
MIN = [{"text": "x", "id": 4, "class": "ant", "annotator": 1}]


@pytest.fixture
def labels_of(tmp_path):
    """The labels of three rows, read from a file with this content."""

    def read(content, label_column=None, ids=IDS):
        (tmp_path / "labels.json").write_text(json.dumps(content), encoding="utf-8")
        FeatureSet.from_arrays([[1.0, 0], [0, 1], [1, 1]], ids=ids).write(tmp_path / "a.npz", overwrite=True)
        found = FeatureSet.read(tmp_path / "a.npz", tmp_path / "labels.json", label_column=label_column)
        return found.labels.tolist()

    return read


def choose(label, name="class", **facts):
    labels = label if isinstance(label, list) else [label]
    region = {"from_name": name, "to_name": "item", "type": "choices", "value": {"choices": labels}}
    return {"result": [region], **facts}


def task(row, *annotations, **more):
    return {"id": 900 + row, "data": {"id": IDS[row]}, "annotations": list(annotations), **more}


def sample(row, **fields):
    facts = {name: {"_cls": "Classification", "label": label} for name, label in fields.items()}
    return {"filepath": f"/home/ann/{IDS[row]}", "tags": [], **facts}


def test_what_a_person_chose_in_label_studio_is_the_label(labels_of):
    skipped = choose("bee", was_cancelled=True)
    of_model = {"predictions": [{"score": 1, "result": choose("cat")["result"]}]}
    assert labels_of([task(2, choose("bee")), task(0, skipped, choose("ant")), task(1, **of_model)]) == [
        "ant",
        "",
        "bee",
    ]
    assert labels_of([task(0, choose("ant"), choose("ant"))]) == ["ant", "", ""]
    assert labels_of([task(0, choose("ant"), choose("bee", ground_truth=True))]) == ["bee", "", ""]
    assert labels_of([task(0, choose("7")), task(1, choose("12"))]) == [7, 12, -1]  # as from a .csv
    two = [task(0, choose("ant"), choose("red", "colour"))]
    assert labels_of(two) == ["ant", "", ""]
    assert labels_of(two, "colour") == ["red", "", ""]


def test_images_are_recognised_by_the_end_of_their_path(labels_of):
    address = {"image": "/data/local-files/?d=home/ann/birds/a%20b.jpg"}
    assert labels_of([{"data": address, "annotations": [choose("ant")]}]) == ["ant", "", ""]
    assert labels_of({"samples": [sample(1, ground_truth="bee"), sample(0, ground_truth="ant")]}) == ["ant", "bee", ""]


def test_a_field_of_fiftyone_is_the_label(labels_of):
    both = {"samples": [sample(0, ground_truth="ant", prediction="bee"), sample(1, prediction="bee")]}
    assert labels_of(both) == ["ant", "", ""]
    assert labels_of(both, "prediction") == ["bee", "bee", ""]
    assert labels_of({"samples": [{**sample(0, mine="ant"), "rpim_id": IDS[2]}]}) == ["", "", "ant"]


@pytest.mark.parametrize(
    ("content", "column", "message"),
    [
        (MIN, None, r"is not Label Studio's JSON, because object 0 has no data: export JSON there \(JSON-MIN and CSV"),
        ([task(0), task(1)], None, "has 2 tasks without any annotation of choices, and predictions are no labels"),
        (
            [task(0, choose("ant"), choose("bee"))],
            None,
            r"has several labels for 'birds/a b.jpg' \(ant, bee\): keep one",
        ),
        ([task(0, choose(["ant", "bee"]))], None, r"several labels for 'birds/a b.jpg' \(ant, bee\): keep one"),
        ([task(0, choose("a", "x"), choose("b", "y"))], None, r"has several choices \(x, y\): name those with"),
        ([task(0, choose("a"))], "kind", "has no choices called 'kind', only class: give another --label-column"),
        ([task(0, choose("a")), task(0, choose("a"))], None, "has the id 'birds/a b.jpg' more than once"),
        ([{**task(0, choose("a")), "data": {"id": "z"}}], None, r"has 1 ids that the features have not \(z\)"),
        ([{**task(0, choose("a")), "data": {"image": "/z.jpg"}}], None, r"ids that the features have not \(/z.jpg\)"),
        ({"samples": [{"text": "a"}]}, None, "is not samples.json of FiftyOne, because sample 0 has no filepath"),
        ({"samples": [sample(0, prediction="a")]}, None, "has 1 sample without any classification by a person"),
        ({"samples": [sample(0, x="a", y="a")]}, None, r"has several classifications \(x, y\): name those with"),
        ({"samples": [sample(0, x="a")]}, "z", "has no classifications called 'z', only x: give another"),
        ({"samples": [sample(0, x="a"), sample(0, x="a")]}, None, "more than once"),
        (
            {"images": [], "annotations": []},
            None,
            "holds a JSON dict: give a list with one label per row",
        ),
        (["ant", "bee", ""], "class", "is for files with columns"),
    ],
)
def test_what_is_no_label_is_refused_in_one_sentence(labels_of, raises_input_error, content, column, message):
    raises_input_error(labels_of, message, content, column)
