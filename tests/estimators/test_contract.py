"""The contract of DESIGN: RPIM and PIM as scikit-learn estimators."""

from __future__ import annotations

import pickle
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from rpim import PIM, RPIM, InfoMaxObjective, InputError, RowFiles, gcd_accuracy
from rpim import estimators as methods
from rpim.estimators import GCD, RIM, TIM, UMAPHDBSCAN, KMeans, SelfTraining, SpreadLabels, infomax
from rpim.estimators.nearest_centroid import TransductiveEstimator

needs_umap = pytest.mark.skipif(find_spec("umap") is None, reason="umap-learn, of the extra maps, is not installed")
QUICK = {
    "objective": InfoMaxObjective(trade_off=0.1, weight_decay=0.01),
    "n_members": 1,
    "max_iter": 20,
    "random_state": 0,
}


def quick(n_classes=6, **objective):
    """A short single fit of RPIM with these parameters of the objective."""
    return RPIM(n_classes, **{**QUICK, "objective": InfoMaxObjective(trade_off=0.1, weight_decay=0.01, **objective)})


@pytest.fixture(scope="module")
def problem():
    """Six separated groups on a sphere; the last two have no label, the others have half of theirs."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(6), 30)
    X = np.eye(6, 12)[truth] + 0.15 * random.randn(180, 12)
    y = np.where((truth < 4) & (np.arange(180) % 2 == 0), truth, -1)
    return X, y, truth


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator",
    [
        RPIM(**QUICK),
        RPIM(n_members=2),
        PIM(**QUICK),
        RIM(max_iter=20),
        TIM(max_iter=20),
        GCD(n_init=2),
        KMeans(n_init=2),
        SelfTraining(),
        SpreadLabels(),
        pytest.param(UMAPHDBSCAN(), marks=needs_umap),
    ],
    ids=lambda estimator: f"{type(estimator).__name__}-{estimator.get_params().get('n_members', 1)}",
)
def test_check_estimator(estimator, check_estimator):
    check_estimator(estimator)


@pytest.mark.parametrize("method", [RPIM, PIM])
def test_finds_the_separated_groups_by_default(method, problem):
    X, y, truth = problem
    model = method(n_classes=6, random_state=0).fit(X, y)
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4)).all == 1.0
    assert model.known_classes_.tolist() == [0, 1, 2, 3]
    assert model.new_classes_.tolist() == [4, 5]
    assert model.n_members_ == (16 if method is RPIM else 1)
    assert model.search_ == {}, "nothing is searched"


def test_the_number_of_classes_is_estimated_when_it_is_not_given(problem):
    X, y, _ = problem
    model = RPIM(**QUICK).fit(X, y)
    assert 5 <= model.n_classes_ <= 8
    assert len(model.n_classes_curve_) > 3


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_rpim_without_its_parts_is_pim_to_the_last_bit(preset, problem):
    X, y, _ = problem
    shared = {"n_classes": 6, "preset": preset, "max_iter": 30, "n_init": 3, "random_state": 3}
    if preset == "default":
        shared["n_members"] = 1
    pim = PIM(**shared).fit(X, y)
    # As published, RPIM searches the weight decay, and PIM does not.
    without_parts = InfoMaxObjective(h="none", pseudo_labels=False, mixed_labels=False, weight_decay=0.01)
    bare = RPIM(**shared, objective=without_parts).fit(X, y)
    assert np.array_equal(pim.head_.prototypes.numpy(), bare.head_.prototypes.numpy())
    assert (pim.trade_off_, pim.weight_decay_) == (bare.trade_off_, bare.weight_decay_)


@pytest.mark.parametrize("h", ["none", "semantic-bias"])
@pytest.mark.parametrize("pseudo_labels", [False, True])
@pytest.mark.parametrize("mixed_labels", [False, True])
def test_every_row_of_the_ablation_can_be_set(h, pseudo_labels, mixed_labels, problem):
    X, y, _ = problem
    model = quick(h=h, pseudo_labels=pseudo_labels, mixed_labels=mixed_labels, beta=0.2).fit(X, y)
    last = model.history_[-1]
    assert (last["L_R"] > 0) == pseudo_labels
    assert (last["L_S"] > 0) == mixed_labels
    assert (last["CE"] > 0) == (not mixed_labels)
    assert ("B" in model.head_.transform.parameters) == (h != "none")


@pytest.mark.parametrize("h", ["linear", "linear-bias", "semantic-scale-bias", "mlp"])
def test_the_other_transformations_train(h, problem):
    X, y, truth = problem
    model = quick(h=h).fit(X, y)
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4)).all > 0.95


def test_low_rank(problem):
    X, y, _ = problem
    model = quick(rank=2).fit(X, y)
    assert sum(p.numel() for p in model.head_.transform.parameters.values()) == 12 * 2 * 2 + 12


def test_the_same_random_state_gives_the_same_bits(problem):
    X, y, _ = problem
    first, second = (RPIM(6, n_members=4, random_state=5).fit(X, y).predict_proba(X) for _ in range(2))
    assert np.array_equal(first, second)


def test_labelled_rows_keep_their_label_even_where_the_model_disagrees(problem):
    X, y, truth = problem
    y = y.copy()
    wrong = np.flatnonzero(truth == 0)[0]
    y[wrong] = 3
    model = quick(h="none").fit(X, y)  # the semantic bias has room to learn even this label
    assert model.predict(X[[wrong]])[0] == 0
    assert model.labels_[wrong] == 3


@pytest.mark.parametrize("unlabelled", ["", None, np.nan])
def test_string_labels_come_back_as_strings(unlabelled, problem):
    X, y, truth = problem
    names = np.array(["ant", "bee", "cat", "dog"], dtype=object)
    labels = np.array([names[c] if c >= 0 else unlabelled for c in y], dtype=object)
    model = RPIM(6, **QUICK).fit(X, labels)
    assert model.classes_.tolist() == ["ant", "bee", "cat", "dog", "new-1", "new-2"]
    assert set(model.labels_[truth == 1]) == {"bee"}
    assert len(set(model.predict(X[truth == 4]))) == 1
    assert model.predict(X[truth == 4])[0].startswith("new-")


def test_pipeline_clone_pickle_and_dataframe(problem):
    X, y, _ = problem
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(12)])
    pipeline = make_pipeline(StandardScaler(), RPIM(6, **QUICK)).fit(frame, pd.Series(y))
    expected = pipeline.predict(frame)
    assert np.array_equal(clone(pipeline).fit(frame, y).predict(frame), expected)
    assert np.array_equal(pickle.loads(pickle.dumps(pipeline)).predict(frame), expected)
    assert pipeline.transform(frame).shape == (180, 12)


def test_grid_search(problem):
    X, y, _ = problem
    search = GridSearchCV(
        RPIM(6, **QUICK),
        {"objective__trade_off": [0.05, 0.1]},
        cv=KFold(2, shuffle=True, random_state=0),
        scoring=lambda model, X, y: float(np.mean(model.predict(X)[y >= 0] == y[y >= 0])),
    )
    search.fit(X, y)
    assert search.best_score_ > 0.95
    by_default = clone(search).set_params(scoring=None).fit(X, y)
    np.testing.assert_allclose(by_default.cv_results_["mean_test_score"], search.cv_results_["mean_test_score"])


def test_probabilities_are_rows_of_one_in_the_order_of_classes(problem):
    X, y, truth = problem
    model = RPIM(6, **QUICK).fit(X, y)
    probabilities = model.predict_proba(X)
    assert np.allclose(probabilities.sum(axis=1), 1.0, atol=1e-5)
    assert (model.classes_[probabilities.argmax(axis=1)][truth < 4] == truth[truth < 4]).mean() > 0.95


def test_nothing_depends_on_the_truth_of_unlabelled_rows(problem):
    """fit sees X and y alone; another truth behind the same X and y cannot change a bit."""
    X, y, truth = problem
    results = []
    for seed in (0, 1):
        shuffled = truth.copy()
        hidden = np.flatnonzero(y < 0)
        shuffled[hidden] = np.random.RandomState(seed).permutation(truth[hidden])
        seen = np.where(y >= 0, shuffled, -1)
        results.append(RPIM(6, n_members=4, random_state=0).fit(X, seen))
    assert np.array_equal(results[0].predict_proba(X), results[1].predict_proba(X))
    assert np.array_equal(results[0].stability_, results[1].stability_)
    assert results[0].label_issues_ == results[1].label_issues_


def test_principal_directions_are_kept_and_used_for_new_rows(problem):
    X, y, truth = problem
    model = RPIM(6, n_components=6, **QUICK).fit(X, y)
    assert model.transform(X[:3]).shape == (3, 6)
    assert isinstance(model.components_, np.ndarray)
    assert model.components_.shape == (6, 12)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(6), atol=1e-5)
    assert GCD(6, n_init=1, random_state=0).fit(X, y).components_ is None, "there are no more than 256 features"
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4)).all > 0.95


@pytest.mark.parametrize(
    ("labels", "parameters", "message"),
    [
        (lambda y: np.where(y == 0, 0, -1), {}, "only one class, 0"),
        (lambda y: y, {"n_classes": 3}, r"n_classes=3 is smaller than the number of known classes \(4\)"),
        (lambda y: y, {"n_classes": 500}, r"n_classes=500 is larger than the number of rows \(180\)"),
        (lambda y: np.where(y == 0, np.inf, y), {}, "infinity"),
    ],
)
def test_bad_input_is_one_clear_sentence(labels, parameters, message, problem):
    X, y, _ = problem
    with pytest.raises(InputError, match=message):
        RPIM(**{"n_classes": 6, **QUICK, **parameters}).fit(X, labels(y))


@pytest.mark.parametrize("labels", [None, [""] * 180])
def test_methods_that_need_labels_say_so(labels, problem):
    with pytest.raises(InputError, match="GCD requires y" if labels is None else "No row has a label, and GCD needs"):
        GCD(6).fit(problem[0], labels)


@pytest.mark.parametrize("method", [RPIM, PIM, RIM, TIM, KMeans])
@pytest.mark.slow
def test_rows_without_labels_are_clustered(method, problem):
    X, _, truth = problem
    model = method(6, random_state=0).fit(X)
    assert model.classes_.tolist() == list(range(6))
    assert len(model.known_classes_) == 0
    assert gcd_accuracy(truth, model.labels_, known=[]).all > 0.95
    assert (model.predict(X) == model.labels_).all()
    named = method(6, random_state=0).fit(X, [""] * len(X))
    assert named.classes_.tolist() == [f"group-{k}" for k in range(1, 7)]


def test_the_number_of_groups_is_estimated_and_extended(problem):
    X, _, truth = problem
    model = RPIM(n_members=2, random_state=0).fit(X[truth < 5])
    assert (model.n_classes_, model.n_classes_low_ <= 5 <= model.n_classes_high_) == (5, True)
    model.extend(X[truth == 5])
    assert model.classes_.tolist() == list(range(6))
    assert (model.labels_ == 5).all()


def test_the_published_search_needs_labels(problem):
    with pytest.raises(InputError, match="search='paper' compares with labels, but no row has one"):
        PIM(6, preset="paper").fit(problem[0])


def test_everything_labelled_warns_and_trains(problem):
    X, _, truth = problem
    with pytest.warns(UserWarning, match="nothing to discover"):
        model = RPIM(**QUICK).fit(X, truth)
    assert model.n_classes_ == 6
    assert (model.predict(X) == truth).mean() > 0.95


@pytest.mark.parametrize("n_members", [1, 2])
def test_nothing_is_searched_by_default(n_members, problem):
    X, y, _ = problem
    model = RPIM(6, n_members=n_members, max_iter=5, random_state=0).fit(X, y)
    assert model.search_ == {}
    assert (model.trade_off_, model.beta_, model.weight_decay_) == (0.1, 0.2, 0.01)
    assert model.class_sizes_ == "equal"


def test_too_few_known_classes_for_the_search_of_the_weight_decay_use_the_default(problem):
    X, y, _ = problem
    y = np.where(y > 1, -1, y)
    model = RPIM(6, search="paper", n_members=1, n_init=1, max_iter=3, random_state=0).fit(X, y)
    assert set(model.search_) == {"trade_off"}
    assert model.weight_decay_ == 0.01


@pytest.mark.parametrize("n_members", [1, 2])
def test_the_search_of_the_paper(n_members, problem):
    X, y, _ = problem
    model = RPIM(6, search="paper", n_members=n_members, n_init=1, max_iter=3, random_state=0).fit(X, y)
    assert set(model.search_) == {"trade_off", "weight_decay"}
    assert model.trade_off_ in model.search_["trade_off"]
    scores = model.search_["weight_decay"]
    assert scores[2 * model.weight_decay_] == max(scores.values()), "halved, as the whole problem is twice as large"
    assert model.n_members_ == n_members


@pytest.mark.parametrize("method", [RPIM, PIM])
def test_the_published_procedure_is_one_fit(method, problem):
    X, y, _ = problem
    model = method(6, preset="paper", n_members="auto", objective=QUICK["objective"], n_init=2, max_iter=5)
    model.fit(X, y)
    assert (model.n_members_, model.n_iter_) == (1, 5)
    assert not hasattr(model, "stability_")
    assert model.label_issues_ == []
    assert np.isnan(model.label_quality_).all()


@pytest.mark.parametrize("n_init", [None, 3])
def test_a_single_fit_starts_at_merged_clusters_or_at_the_best_of_restarts(n_init, problem, monkeypatch):
    X, y, truth = problem
    called = []
    for name in ("merged_start", "single_start"):
        real = getattr(infomax, name)
        monkeypatch.setattr(infomax, name, lambda *a, real=real, name=name, **k: called.append(name) or real(*a, **k))
    model = RPIM(6, n_init=n_init, **QUICK).fit(X, y)
    assert called == ["merged_start" if n_init is None else "single_start"]
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4)).all > 0.95


SLOW = {"UMAPHDBSCAN": [needs_umap, pytest.mark.slow], "UNO": [pytest.mark.slow]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW.get(name, ())) for name in methods.__all__])
def test_every_method_finds_separated_groups_and_keeps_the_contract(name, problem):
    X, y, truth = problem
    named = np.where(y < 0, "", np.array([f"class {c}" for c in truth]))
    model = getattr(methods, name)(n_classes=6, random_state=0).fit(X, named)
    # These take the rows that look least like their class for new ones, and predict by another rule than they decide.
    rowwise = isinstance(model, TransductiveEstimator)
    right = 0.95 if rowwise else 0.98
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], known=range(4)).all > right
    assert model.known_classes_.tolist() == [f"class {c}" for c in range(4)]
    assert model.new_classes_.tolist() == ["new-1", "new-2"]
    assert (model.labels_[y >= 0] == named[y >= 0]).all(), "labelled rows keep their label"
    known = (truth < 4) & (y < 0)
    assert np.mean(model.labels_[known] == np.array([f"class {c}" for c in truth[known]])) > right, "by their own name"
    probabilities = model.predict_proba(X)
    assert probabilities.shape == (180, 6)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)
    assert np.mean(model.predict(X)[y < 0] == model.labels_[y < 0]) >= (right if rowwise else 1.0)
    assert model.history_
    assert model.n_iter_ >= 1


def test_kmeans_and_gcd_predict_the_nearest_centroid(problem):
    X, y, _ = problem
    for method in (KMeans, GCD):
        model = method(n_classes=6, normalize=False, random_state=0).fit(X, y)
        far = np.linalg.norm(X[:, None] - model.head_.prototypes.numpy()[None], axis=2)
        assert (model.predict(X) == model.classes_[far.argmin(axis=1)]).all()
        # A Gaussian of variance 1 / tau around each centroid.
        expected = np.exp(-0.5 * 25.0 * far**2)
        np.testing.assert_allclose(
            model.predict_proba(X), expected / expected.sum(axis=1, keepdims=True), rtol=1e-3, atol=1e-6
        )


def test_kmeans_does_not_look_at_labels_to_cluster(problem):
    X, y, _ = problem
    other = np.where(y >= 0, (y + 1) % 4, -1)  # other names for the same classes
    first, second = (KMeans(n_classes=6, random_state=0).fit(X, labels) for labels in (y, other))
    rows = y < 0
    assert gcd_accuracy(first.labels_[rows], second.labels_[rows], known=range(4)).all == 1.0
    assert not (first.labels_[rows] == second.labels_[rows]).all()
    assert first.history_ == second.history_


def test_rim_is_pim_at_lambda_one(problem):
    X, y, _ = problem
    rim = RIM(n_classes=6, objective=InfoMaxObjective(weight_decay=0.02), max_iter=15, random_state=0).fit(X, y)
    objective = InfoMaxObjective(trade_off=1.0, weight_decay=0.02)
    pim = PIM(n_classes=6, objective=objective, n_members=1, max_iter=15, random_state=0).fit(X, y)
    assert (rim.head_.prototypes == pim.head_.prototypes).all()


def test_several_embeddings_are_one_matrix_with_known_columns(problem):
    X, y, truth = problem
    parts = [X[:, :7], 1000.0 * X[:, 5:] + 3.0]
    model = RPIM(6, n_members=4, random_state=0).fit(parts, y)
    assert model.widths_ == (7, 7)
    assert model.score(parts, truth) > 0.95
    together = np.hstack(parts)
    again = RPIM(6, n_members=4, random_state=0).fit(together, y, widths=[7, 7])
    np.testing.assert_array_equal(model.predict_proba(parts), again.predict_proba(together))
    assert model.transform(parts).shape == (180, 14)
    assert len(model.extend([part[:20] for part in parts]).labels_) == 20


def test_no_embedding_outweighs_another(problem):
    """Neither by its scale nor by its number of columns; each is normalized and projected on its own."""
    X, y, _ = problem
    parts = [X, 1000.0 * np.repeat(X, 3, axis=1)]
    rows = GCD(6, random_state=0).fit(parts, y)._preparation(torch.device("cpu"))(np.hstack(parts))
    np.testing.assert_allclose(rows[:, :12].norm(dim=1), 0.5**0.5, rtol=1e-5)
    np.testing.assert_allclose(
        rows[:, :12], X / np.linalg.norm(X, axis=1, keepdims=True) / 2**0.5, rtol=1e-4, atol=1e-6
    )
    model = RPIM(6, n_members=2, n_components=5, random_state=0).fit(parts, y)
    rows = model._preparation(torch.device("cpu"))(np.hstack(parts))
    assert rows.shape == (180, 10)
    np.testing.assert_allclose(rows[:, 5:].norm(dim=1), 0.5**0.5, rtol=1e-5)
    assert not model.components_[:5, 12:].any()


def test_square_roots_are_taken_of_the_embeddings_that_they_suit(problem):
    X, y, _ = problem
    sparse = np.maximum(X, 0.0) ** 4 + 1e-3
    assert RPIM(6, n_members=2, random_state=0).fit([X, sparse], y).normalize_ == (True, "sqrt")
    assert RPIM(6, n_members=1, random_state=0).fit([X, sparse], y).normalize_ is True


def test_embeddings_that_do_not_fit_together_are_one_clear_sentence(problem, raises_input_error, tmp_path):
    X, y, _ = problem
    np.save(tmp_path / "x.npy", X)
    model = GCD(6, random_state=0).fit([X, X[:, :3]], y)
    raises_input_error(GCD(6).fit, "X is an empty list: give a matrix", [], y)
    raises_input_error(GCD(6).fit, "X has embeddings of 180, 9 rows: give embeddings of the same rows", [X, X[:9]], y)
    raises_input_error(GCD(6).fit, "type RowFiles, but several have to be arrays", [X, RowFiles(tmp_path / "x.npy")], y)
    raises_input_error(GCD(6).fit, "widths are 3, 4, but X has 12 columns", X, y, widths=[3, 4])
    raises_input_error(GCD(6).fit, "widths are for one matrix, but X is a list", [X, X], y, widths=[12, 12])
    for wrong in ([X], [X[:, :3], X], [X, X[:, :2]]):
        raises_input_error(model.predict, "but the model was fitted on 12, 3 columns: give the same", wrong)
    with pytest.raises(ValueError, match="X has 12 features, but GCD is expecting 15 features"):
        model.predict(X)


def test_views_of_another_shape_are_refused(problem):
    X, y, _ = problem
    with pytest.raises(InputError, match=r"View 2 has shape \(180, 11\), but X has \(180, 12\)"):
        methods.UNO(n_classes=6).fit(X, y, views=[X[:, :11]])
