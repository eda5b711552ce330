"""Extending a model: its exemplars, how many classes a batch brings, what they are called, and the command."""

import copy
import dataclasses
import os
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from rpim import PIM, RPIM, Discovery, FeatureSet, InfoMaxObjective, InputError
from rpim.core.novelty import (
    NewBatch,
    PairSimilarity,
    added_interval,
    is_there,
    n_classes_to_add,
    one_of_each,
    two_parts,
)
from rpim.core.sampling import ROWS_PER_CLASS, Exemplars, select_exemplars
from rpim.estimators import KMeans
from rpim.estimators.extending import name_classes

QUICK = {"objective": InfoMaxObjective(trade_off=0.1, weight_decay=0.01), "n_members": 1, "random_state": 0}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# -- exemplars ------------------------------------------------------------------------------------------------------


def test_memory_keeps_labelled_rows_first_and_not_too_many():
    n, n_labelled = 400, 50
    x = torch.arange(n, dtype=torch.float32)[:, None]  # a row says its number
    classes = torch.cat([torch.zeros(n_labelled, dtype=torch.long), torch.arange(n - n_labelled) % 3])
    exemplars = select_exemplars(x, classes, n_labelled, 3, torch.arange(n).float(), seeded())
    assert torch.bincount(exemplars.classes).tolist() == [ROWS_PER_CLASS] * 3
    assert torch.equal(classes[exemplars.rows[:, 0].long()], exemplars.classes)
    assert bool(exemplars.labelled[exemplars.classes == 0].all()), (
        "50 rows of class 0 are labelled, so no other is needed"
    )
    assert not bool(exemplars.labelled[exemplars.classes > 0].any())


def test_memory_leaves_out_rows_without_a_class_and_takes_small_classes_whole():
    classes = torch.tensor([0, 0, 1, -1, -1, 1, 1])
    exemplars = select_exemplars(torch.eye(7), classes, 2, 2, torch.zeros(7), seeded())
    assert sorted(exemplars.rows.argmax(dim=1).tolist()) == [0, 1, 2, 5, 6]


def test_unfamiliarity_by_hand():
    # Rows of class 1 fit less well by 10, all of them: that is nothing special.
    classes = torch.tensor([0, 0, 0, 1, 1, 1])
    exemplars = select_exemplars(torch.eye(6), classes, 6, 2, torch.tensor([1.0, 2.0, 3.0, 11.0, 12.0, 13.0]), seeded())
    assert exemplars.typical.tolist() == [2.0, 12.0]
    assert exemplars.unfamiliarity(torch.tensor([0.0, 2.5, 9.0]), torch.tensor([0, 0, 0])).tolist() == pytest.approx(
        [0.0, 4 / 6, 1.0]
    )
    assert exemplars.unfamiliarity(torch.tensor([9.0]), torch.tensor([1])).tolist() == [0.0]


def test_memory_to_the_disk_and_back():
    exemplars = select_exemplars(torch.rand(9, 4), torch.arange(9) % 3, 3, 3, torch.rand(9), seeded())
    back = Exemplars.from_tensors(exemplars.tensors(), n_classes=3, n_features=4)
    assert torch.allclose(back.rows, exemplars.rows, atol=1e-3)
    for name in ("classes", "labelled", "scores"):
        assert torch.equal(getattr(back, name), getattr(exemplars, name))


@pytest.mark.parametrize("wrong", [{"n_classes": 2, "n_features": 4}, {"n_classes": 3, "n_features": 5}])
def test_memory_of_another_model_is_refused(wrong):
    exemplars = select_exemplars(torch.rand(9, 4), torch.arange(9) % 3, 3, 3, torch.rand(9), seeded())
    with pytest.raises(ValueError, match="exemplars"):
        Exemplars.from_tensors(exemplars.tensors(), **wrong)


# -- how many classes -----------------------------------------------------------------------------------------------


def labelled_blobs(blobs, n_classes=6, size=20):
    x, classes = blobs([size] * n_classes, n_features=30)
    return Exemplars(
        x, classes, torch.ones(len(x), dtype=torch.bool), torch.zeros(n_classes), torch.linspace(0, 1, 100)
    )


def arriving(blobs, sizes, unfamiliarity, spread=0.05):
    """Rows of new blobs, at directions that the exemplars do not have."""
    x, classes = blobs([0] * 10 + sizes, n_features=30, seed=1, spread=spread)
    return NewBatch(x, torch.full((len(x),), unfamiliarity)), classes


def test_rows_above_one_half_in_excess_are_new():
    batch = NewBatch(torch.eye(10), torch.tensor([0.1, 0.3, *[0.9] * 8]))
    assert batch.n_new_rows == pytest.approx(6.0)  # eight of ten are above one half, so 2 * 0.8 - 1 of ten
    assert NewBatch(torch.eye(10), torch.linspace(0, 1, 10)).n_new_rows == pytest.approx(0.0)


@pytest.mark.parametrize("n_new", [1, 3, 8])
def test_as_many_classes_as_blobs_arrive(blobs, n_new):
    batch, _ = arriving(blobs, [25] * n_new, unfamiliarity=0.95)
    assert n_classes_to_add(batch, PairSimilarity.among(labelled_blobs(blobs), seeded()), seeded()) == n_new


def test_familiar_rows_bring_no_class(blobs):
    similarity = PairSimilarity.among(labelled_blobs(blobs), seeded())
    assert n_classes_to_add(arriving(blobs, [25] * 3, unfamiliarity=0.4)[0], similarity, seeded()) == 0
    two_rows, _ = arriving(blobs, [2], unfamiliarity=0.99)
    assert n_classes_to_add(two_rows, similarity, seeded()) == 0


def test_memory_without_labelled_pairs_says_nothing(blobs):
    exemplars = labelled_blobs(blobs)
    assert PairSimilarity.among(dataclasses.replace(exemplars, labelled=exemplars.classes == 0), seeded()) is None


def test_memory_without_labels_takes_its_classes_for_labels(blobs):
    exemplars = dataclasses.replace(labelled_blobs(blobs), labelled=torch.zeros(120, dtype=torch.bool))
    assert PairSimilarity.among(exemplars, seeded()) == PairSimilarity.among(labelled_blobs(blobs), seeded())
    assert n_classes_to_add(arriving(blobs, [25], unfamiliarity=0.9)[0], None, seeded()) == 0


def test_the_variance_of_the_rate_within_a_class_by_hand():
    # Three pairs: the rows of the first two classes coincide, those of the third are as far apart as two classes are.
    rows = torch.eye(4)[[0, 0, 1, 1, 2, 3]]
    exemplars = Exemplars(rows, torch.tensor([0, 0, 1, 1, 2, 2]), torch.ones(6, dtype=torch.bool), *torch.zeros(2, 3))
    similarity = PairSimilarity.among(exemplars, seeded())
    assert similarity.of_one_class == pytest.approx(2 / 3)
    logs = np.log(np.array([1 / 2, 1 / 2, 1.0]) - 0.005)  # without the first, the second, the third class
    assert similarity.variance == pytest.approx(3 * 2 * logs.var())
    one_class = dataclasses.replace(exemplars, classes=torch.tensor([0, 0, 1, 2, 3, 4]))
    assert PairSimilarity.among(one_class, seeded()).variance == pytest.approx(np.log(2) ** 2), "nothing to compare"


def test_the_interval_of_added_classes(blobs):
    similarity = PairSimilarity.among(labelled_blobs(blobs), seeded())
    batch, _ = arriving(blobs, [25] * 8, unfamiliarity=0.95)
    low, high = added_interval(8, batch, similarity)
    assert low < 8 < high
    assert (round(low), round(high)) == (8, 8), "blobs are all alike"
    varied = dataclasses.replace(similarity, variance=0.25)
    low, high = added_interval(8, batch, varied)
    of_classes = 3 * np.sqrt(0.25 * (1 / 6 + 1 / 8))  # six known classes, eight new ones
    assert low == pytest.approx(8 * np.exp(-of_classes), rel=0.1)
    assert high == pytest.approx(8 * np.exp(of_classes), rel=0.1)
    few, _ = arriving(blobs, [8, 8], unfamiliarity=0.95)
    assert added_interval(2, few, dataclasses.replace(similarity, variance=9.0))[1] == 3, "16 rows are three times five"


def test_two_halves_of_a_blob_are_one_class(blobs):
    batch, classes = arriving(blobs, [20, 20, 20], unfamiliarity=0.95)
    found = classes - 10
    found[::2][:10] = 3  # half of the rows of the first blob under another number
    similarity = PairSimilarity.among(labelled_blobs(blobs), seeded())
    assert one_of_each(batch.x, found, 5, similarity, seeded()).tolist() == [
        0,
        1,
        2,
        0,
        4,
    ]  # 4 has no rows, and stays


def test_two_blobs_in_one_class_are_two_parts(blobs):
    similarity = PairSimilarity.among(labelled_blobs(blobs), seeded())
    assert two_parts(arriving(blobs, [30, 20], unfamiliarity=0.95)[0].x, similarity, seeded()) == (30, 20)
    assert two_parts(arriving(blobs, [50], unfamiliarity=0.95)[0].x, similarity, seeded()) is None
    assert two_parts(arriving(blobs, [30, 3], unfamiliarity=0.95)[0].x, similarity, seeded()) is None, "three rows"
    assert two_parts(arriving(blobs, [4, 4], unfamiliarity=0.95)[0].x, similarity, seeded()) is None, "few rows"


def test_a_class_needs_rows_that_are_unfamiliar():
    found = torch.tensor([5] * 6 + [6] * 6 + [7] * 3)
    unfamiliarity = torch.tensor([0.9] * 6 + [0.9] * 2 + [0.1] * 4 + [0.9] * 3)
    assert is_there(NewBatch(torch.eye(15), unfamiliarity), found, 5, 9).tolist() == [True, False, False, False]


# -- names ----------------------------------------------------------------------------------------------------------

OLD = np.array(["ant", "bee", "new-1", "new-2"])


def named(y, predicted, classes=OLD, n_known=2):
    return name_classes(classes, n_known, np.array(y), np.array(predicted))


def test_without_labels_nothing_changes():
    result = named(["", ""], [0, 3])
    assert result.classes.tolist() == OLD.tolist()
    assert (result.n_known, result.labels.tolist(), result.place.tolist()) == (2, [-1, -1], [0, 1, 2, 3])


def test_a_discovered_class_that_somebody_labels_by_its_name_is_known():
    result = named(["new-2", ""], [0, 3])
    assert result.classes.tolist() == ["ant", "bee", "new-2", "new-1"]
    assert (result.n_known, result.labels.tolist(), result.place.tolist()) == (3, [2, -1], [0, 1, 3, 2])


def test_a_name_for_a_discovered_class_and_a_class_of_its_own():
    result = named(["wasp", "wasp", "fly", "ant"], [3, 3, 0, 1])
    assert result.classes.tolist() == ["ant", "bee", "wasp", "fly", "new-1"]
    assert result.labels.tolist() == [2, 2, 3, 0]
    assert result.place.tolist() == [0, 1, 4, 2]


def test_of_two_names_for_one_class_the_one_with_more_rows_gets_it():
    result = named(["fly", "wasp", "wasp"], [2, 2, 2])
    assert result.classes.tolist() == ["ant", "bee", "wasp", "fly", "new-2"]


def test_numbers_for_numbers():
    result = named([7, -1, 2], [2, 2, 2], classes=np.array([0, 1, 2]), n_known=2)
    assert (result.classes.tolist(), result.labels.tolist()) == ([0, 1, 2, 7], [3, -1, 2])
    with pytest.raises(InputError, match=r"The new labels are text \(cat\) but the classes are numbers"):
        named(["cat"], [0], classes=np.array([0, 1]), n_known=2)


# -- the model ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def world():
    """Nine blobs: 0 to 3 known, 4 and 5 there without a name, 6 to 8 later."""
    random = np.random.RandomState(0)
    centres = np.eye(9, 20)
    truth = np.repeat(np.arange(9), 60)
    X = (centres[truth] + 0.08 * random.randn(len(truth), 20)).astype(np.float32)
    early = (truth < 6) & (np.arange(len(truth)) % 3 > 0)
    y = np.where((truth < 4) & (np.arange(len(truth)) % 2 == 0), truth, -1)
    return X, truth, y, early


@pytest.fixture(scope="module")
def first(world):
    X, _, y, early = world
    return RPIM(6, **QUICK).fit(X[early], y[early])


copied = copy.deepcopy


@pytest.mark.parametrize(("method", "n_members"), [(RPIM, 1), (RPIM, 4), (PIM, 1), (PIM, 2)])
def test_new_classes_are_added_and_old_ones_keep_their_names(world, method, n_members):
    X, truth, y, early = world
    model = method(6, **{**QUICK, "n_members": n_members}).fit(X[early], y[early])
    before = model.predict(X[~early & (truth < 6)])
    model.extend(X[~early])
    assert model.known_classes_.tolist() == [0, 1, 2, 3]
    assert model.new_classes_.tolist() == [4, 5, 6, 7, 8]
    labels = model.labels_
    old = truth[~early] < 6
    assert np.array_equal(labels[old], before)
    for c in (6, 7, 8):
        assert len(set(labels[truth[~early] == c].tolist())) == 1
    assert set(labels[~old].tolist()) == {6, 7, 8}
    assert np.array_equal(model.predict(X[~early]), labels)
    assert model.predict_proba(X[:5]).shape == (5, 9)


def test_what_a_committee_said_does_not_outlive_it(world):
    X, _, y, early = world
    model = RPIM(6, **{**QUICK, "n_members": 4}).fit(X[early], y[early])
    assert (model.n_members_, model.stability_.shape) == (4, (6,))
    model.extend(X[~early])
    assert model.n_members_ == 1
    assert not hasattr(model, "stability_")
    assert not hasattr(model, "expected_accuracy_")
    assert model.label_issues_ == []
    assert model.label_quality_.shape == model.labels_.shape


def test_two_classes_that_become_one_are_warned_of(world, first, monkeypatch):
    X, truth, _, _ = world
    monkeypatch.setattr("rpim.estimators.extending.n_classes_to_add", lambda *_: 1)
    with pytest.warns(
        UserWarning, match="The added class 6 may be two, of about 60 and 60 rows: inspect it, and split"
    ):
        copied(first).extend(X[(truth == 6) | (truth == 7)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copied(first).extend(X[truth == 6])


def test_the_number_of_a_renamed_class_is_not_used_again(world):
    X, truth, y, early = world
    model = RPIM(6, **QUICK).fit(X[early], np.where(y[early] < 0, "", y[early].astype(str)))
    assert model.new_classes_.tolist() == ["new-1", "new-2"]
    model.classes_ = np.array([*model.known_classes_, "elk", "new-2"])  # as a person decided
    model.new_classes_ = model.classes_[4:]
    model.extend(X[truth > 5])
    assert model.new_classes_.tolist() == ["elk", "new-2", "new-3", "new-4", "new-5"]


def test_added_classes_are_numbered_after_the_largest_number(world):
    """After a refit, in which most new classes were renamed and are known."""
    X, truth, y, early = world
    model = RPIM(6, **QUICK).fit(X[early], np.where(y[early] < 0, "", y[early].astype(str)))
    model.classes_ = np.array([*model.known_classes_, "elk", "new-7"])
    model.new_classes_ = model.classes_[4:]
    model.extend(X[truth > 5])
    assert model.new_classes_.tolist() == ["elk", "new-7", "new-8", "new-9", "new-10"]


def test_the_interval_of_the_number_of_classes_grows_with_each_batch(world):
    X, truth, y, early = world
    model = RPIM(**QUICK).fit(X[early], y[early])
    below, above = model.n_classes_ - model.n_classes_low_, model.n_classes_high_ - model.n_classes_
    model.extend(X[truth > 5])
    assert model.n_classes_ == 9
    assert model.n_classes_low_ <= 9 - below
    assert model.n_classes_high_ >= 9 + above
    assert not hasattr(model, "n_classes_curve_"), "that of the fit"


def test_a_given_number_of_classes_has_an_interval_once_classes_are_added(world, first):
    X, truth, y, early = world
    assert not hasattr(copied(first).extend(X[~early & (truth < 6)]), "n_classes_low_"), "nothing was estimated"
    model = copied(first).extend(X[~early])
    assert 6 <= model.n_classes_low_ <= 9 <= model.n_classes_high_ < 20
    assert not hasattr(model.fit(X[early], y[early]), "n_classes_low_"), "the number is given again"


def test_nothing_new_adds_nothing(world, first):
    X, truth, _, early = world
    model = copied(first).extend(X[~early & (truth < 6)])
    assert model.classes_.tolist() == first.classes_.tolist()
    assert np.array_equal(model.predict(X[early]), first.predict(X[early]))


def test_one_arrival_after_the_other(world, first):
    X, truth, _, early = world
    model = copied(first)
    for c, expected in ((6, 7), (7, 8), (8, 9)):
        rows = ~early & ((truth == c) | ((truth < c) & (np.arange(len(truth)) % 3 == 0)))
        model.extend(X[rows])
        assert model.n_classes_ == len(model.classes_) == expected
    assert len({model.predict(X[truth == c])[0] for c in range(9)}) == 9


def test_labels_given_since_are_honoured(world, first):
    X, truth, _, early = world
    y = np.full(len(X), -1)
    y[np.flatnonzero((truth == 6) & ~early)[:5]] = 60  # a class that nobody had
    y[np.flatnonzero((truth == 4) & ~early)[:5]] = 40  # a name for one that was found
    model = copied(first)
    found = int(model.predict(X[truth == 4])[0])
    model.extend(X[~early], y[~early])
    assert set(model.known_classes_.tolist()) == {0, 1, 2, 3, 40, 60}
    assert model.renamed_ == {found: 40}
    labels = model.labels_
    assert (labels[truth[~early] == 6] == 60).mean() > 0.9
    assert (labels[truth[~early] == 4] == 40).mean() > 0.9
    assert np.array_equal(labels[y[~early] >= 0], y[~early][y[~early] >= 0])


def test_the_same_rows_give_the_same_model(world, first):
    X, _, _, early = world
    one, two = (copied(first).extend(X[~early]) for _ in range(2))
    assert torch.equal(one.head_.prototypes, two.head_.prototypes)


def test_a_single_row(world, first):
    model = copied(first).extend(world[0][:1])
    assert len(model.labels_) == 1
    assert model.n_classes_ == 6


def test_abstaining_goes_on(world):
    X, _, y, early = world
    model = RPIM(6, **QUICK, abstain=0.1).fit(X[early], y[early]).extend(X[~early])
    assert (model.labels_ == -1).sum() == round(0.1 * (~early).sum())


def test_bad_rows_and_old_models_are_refused_in_one_sentence(world, first):
    X, _, _, _ = world
    with pytest.raises(ValueError, match="20 features"):
        copied(first).extend(X[:, :5])
    with pytest.raises(InputError, match="y has 3 values but X has 5 rows"):
        copied(first).extend(X[:5], [0, 1, -1])
    old = copied(first)
    del old.exemplars_
    with pytest.raises(InputError, match="The model has no exemplars"):
        old.extend(X[:5])


# -- the run --------------------------------------------------------------------------------------------------------


features_of = FeatureSet.from_arrays


def features(world, rows, labels=None, **more):
    X, truth, _, _ = world
    return FeatureSet.from_arrays(X[rows], labels=labels, truth=truth[rows], **more)


@pytest.fixture(scope="module")
def discovery(world, first):
    _, _, y, early = world
    return Discovery.from_fit(first, features(world, early, y[early]))


def test_a_discovery_grows_and_comes_back_from_the_disk(world, discovery, tmp_path):
    X, truth, _, early = world
    discovery.save(tmp_path / "one")
    after = Discovery.load(tmp_path / "one").extended(features(world, ~early))
    assert len(after) == len(X)
    assert np.array_equal(after.labels[: len(discovery)], discovery.labels), "earlier rows stay as they were"
    assert after.ids.tolist() == list(range(len(X))), "numbered on"
    assert after.classes.tolist() == list(range(9))
    assert discovery.classes.tolist() == list(range(6)), "the run that was extended is left alone"
    after.save(tmp_path / "two")
    back = Discovery.load(tmp_path / "two")
    assert np.array_equal(back.labels, after.labels)
    assert np.array_equal(back.predict(X[:50]), after.predict(X[:50]))
    again = back.extended(features(world, truth == 8))  # rows that it has seen, as another file
    assert again.classes.tolist() == list(range(9))


def test_rows_of_the_same_id_take_their_place(world, discovery):
    _, truth, _, early = world
    places = [7, 3, 11, 5]
    ids, rows = discovery.ids[places], np.flatnonzero(early)[places]
    after = discovery.extended(features(world, rows, labels=truth[rows], ids=ids))
    assert len(after) == len(discovery)
    assert after.ids.tolist()[-4:] == ids.tolist()
    assert after.given[-4:].tolist() == truth[rows].tolist()


def test_text_labels_given_to_some_rows_alone(world):
    X, truth, y, early = world
    names = np.array(["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis"])
    given = np.where(y[early] >= 0, names[truth[early]], "")
    first = Discovery.from_fit(RPIM(6, **QUICK).fit(X[early], given), features_of(X[early], labels=given))
    after = first.extended(features_of(X[~early], texts=[f"row {i}" for i in range(int((~early).sum()))]))
    assert after.given.dtype.kind == "U"
    assert after.given[: len(first)].tolist() == given.tolist()
    assert not after.assignments.labelled[len(first) :].any()
    assert after.assignments.texts[: len(first)] == [""] * len(first)
    assert after.assignments.texts[-1] == f"row {int((~early).sum()) - 1}"


def test_nothing_new_is_said(world, discovery):
    _, _, y, early = world
    with pytest.raises(InputError, match="The new rows are those of the run, with the same labels"):
        discovery.extended(features(world, early, y[early]))
    after = discovery.extended(features(world, ~early))  # without ids of their own, so numbered on
    with pytest.raises(InputError, match="The new rows are those of the run, with the same labels"):
        after.extended(features(world, ~early))
    with pytest.raises(InputError, match="All ids of the new rows are already in the run"):
        discovery.extended(features(world, np.arange(3), ids=discovery.ids[[4, 2, 9]]))


def test_only_infomax_runs_can_be_extended(world):
    X, _, y, early = world
    run = Discovery.from_fit(KMeans(6, random_state=0).fit(X[early], y[early]), features(world, early, y[early]))
    with pytest.raises(InputError, match="A run of kmeans cannot be extended, only runs of rpim, pim, tim and rim"):
        run.extended(features(world, ~early))


@pytest.fixture
def extend(command, world, discovery):
    """Run ``rpim extend`` with these arguments in a folder with a run and new rows."""
    _, _, y, early = world
    discovery.save("run")
    features(world, early, y[early]).write("first.npz")
    features(world, ~early).write("new.npz")
    return partial(command, "extend", "--features", "first.npz")


@pytest.mark.slow
def test_the_command_says_what_it_added(extend):
    code, out, err = extend("run", "new.npz", "-o", "two")
    assert (code, err) == (0, "")
    assert "300 new rows: 120 in existing classes, 180 in 3 added classes." in out
    two = Discovery.load("two")
    assert len(two) == 540
    interval = f"95 % interval {two.model.n_classes_low_} to {two.model.n_classes_high_}"
    assert f"The number of classes was estimated: 9 classes ({interval})." in out
    assert interval in Path("two/report.html").read_text()
    assert extend("run", "new.npz", "-o", "run", "--overwrite", "-q", "--no-report") == (0, "", "")
    assert Discovery.load("run").classes.tolist() == list(range(9))


def test_labels_from_a_file(extend, world):
    _, truth, _, early = world
    Path("labels.csv").write_text("id,label\n" + "".join(f"{i},99\n" for i in np.flatnonzero(truth[~early] == 7)[:6]))
    code, _, _ = extend("run", "new.npz", "-o", "two", "--labels", "labels.csv", "--no-report")
    assert code == 0
    assert 99 in Discovery.load("two").model.known_classes_.tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "run", "-o", "two"), "run is a run folder, and rows are wanted"),
        (("run", "new.npz", "-o", "run"), "run exists already"),
        (("nothing", "new.npz", "-o", "two"), "nothing is not a run folder"),
        (("run", "narrow.npz", "-o", "two"), "The rows have 3 features but the model was fitted on rows of 20"),
    ],
)
def test_bad_input_leaves_nothing(extend, refused, arguments, message):
    np.savez("narrow.npz", features=np.eye(3, dtype=np.float32))
    before = sorted(os.listdir())
    refused(message, "extend", *arguments)
    assert sorted(os.listdir()) == before
