"""The objective as nested parameters, and the preset that must not be contradicted."""

import inspect
import json

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.utils._param_validation import InvalidParameterError

from rpim import (
    GCD,
    PIM,
    RIM,
    RPIM,
    TIM,
    Discovery,
    FeatureSet,
    InfoMaxObjective,
    InputError,
    KMeans,
    gcd_accuracy,
    gcd_scorer,
)
from rpim.estimators.objective import OBJECTIVE_DEFAULTS, nested_names

METHODS = [RPIM, PIM, RIM, TIM]


@pytest.fixture(scope="module")
def problem():
    """Six separated groups on a sphere; the last two have no label, the others have half of theirs."""
    random = np.random.RandomState(0)
    truth = np.repeat(np.arange(6), 20)
    X = np.eye(6, 12)[truth] + 0.15 * random.randn(120, 12)
    y = np.where((truth < 4) & (np.arange(120) % 2 == 0), truth, -1)
    return X, y, truth


@pytest.mark.parametrize("method", METHODS)
def test_an_estimator_has_14_parameters_at_most(method):
    assert len(inspect.signature(method).parameters) <= 14


@pytest.mark.parametrize("method", METHODS)
def test_nested_parameters_are_there_without_an_objective(method):
    model = method(6)
    assert model.get_params(deep=False)["objective"] is None
    listed = model.get_params()
    assert {name: listed[f"objective__{name}"] for name in OBJECTIVE_DEFAULTS} == OBJECTIVE_DEFAULTS
    model.set_params(objective__trade_off=0.3, n_members=2)
    assert (model.objective, model.n_members) == (InfoMaxObjective(trade_off=0.3), 2)
    assert model.get_params()["objective__trade_off"] == 0.3
    copy = clone(model)
    assert copy.objective == model.objective
    assert copy.objective is not model.objective
    copy.set_params(objective__trade_off=0.4)
    assert model.objective.trade_off == 0.3


def test_an_objective_and_one_of_its_parameters_together():
    model = RPIM().set_params(objective__eta=0.1, objective=InfoMaxObjective(beta=0.4))
    assert model.objective == InfoMaxObjective(eta=0.1, beta=0.4)
    assert model.objective != InfoMaxObjective()


def test_an_unknown_parameter_is_refused():
    with pytest.raises(ValueError, match="Invalid parameter 'etta' for estimator InfoMaxObjective"):
        RPIM().set_params(objective__etta=0.1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("h", "cubic"),
        ("rank", 0),
        ("trade_off", 0.0),
        ("eta", -1.0),
        ("beta", 2.0),
        ("threshold", -0.1),
        ("temperature", 0.0),
        ("weight_decay", -1.0),
        ("class_sizes", "unequal"),
        ("pseudo_labels", "yes"),
        ("mixed_labels", 3),
        ("supervision", "both"),
        ("sinkhorn_epsilon", 0.0),
        ("sinkhorn_iterations", 0),
    ],
)
def test_every_parameter_is_validated(name, value, problem):
    X, y, _ = problem
    with pytest.raises(InvalidParameterError, match=f"The '{name}' parameter of InfoMaxObjective must be"):
        RPIM(6, objective=InfoMaxObjective(**{name: value})).fit(X, y)


def test_something_else_is_no_objective(problem):
    X, y, _ = problem
    with pytest.raises(InvalidParameterError, match="The 'objective' parameter of RPIM must be"):
        RPIM(6, objective={"eta": 0.1}).fit(X, y)


def test_the_parameters_are_used(problem):
    X, y, _ = problem
    objective = InfoMaxObjective(trade_off=0.2, beta=0.3, weight_decay=0.02, temperature=10.0, h="linear")
    model = RPIM(6, n_members=1, objective=objective, max_iter=2, random_state=0).fit(X, y)
    assert (model.trade_off_, model.beta_, model.weight_decay_) == (0.2, 0.3, 0.02)
    assert (model.head_.temperature, type(model.head_.transform).name) == (10.0, "linear")


@pytest.mark.parametrize(("method", "trade_off"), [(PIM, 0.1), (RIM, 1.0), (TIM, 0.1)])
def test_other_methods_have_their_own_default_and_leave_absent_terms_out(method, trade_off, problem):
    X, y, _ = problem
    plain = method(6, max_iter=3, random_state=0).fit(X, y)
    given = method(6, objective=InfoMaxObjective(weight_decay=0.01), max_iter=3, random_state=0).fit(X, y)
    assert plain.trade_off_ == given.trade_off_ == trade_off
    assert plain.beta_ == 0.0
    assert np.array_equal(plain.predict_proba(X), given.predict_proba(X))
    assert method(6, objective=InfoMaxObjective(trade_off=0.2), max_iter=3).fit(X, y).trade_off_ == 0.2
    assert {step["L_R"] + step["L_S"] for step in plain.history_} == {0.0}


@pytest.mark.parametrize("method", [PIM, RIM, TIM])
@pytest.mark.parametrize("given", [{"eta": 0.1}, {"h": "mlp"}, {"beta": 0.2}, {"rank": 3}])
def test_a_parameter_of_a_term_that_a_method_has_not_is_refused(method, given, problem):
    X, y, _ = problem
    name, value = next(iter(given.items()))
    sentence = f"{method.__name__} has no {name}, but {name}={value!r} was given: leave it out, or use RPIM."
    with pytest.raises(InputError, match=sentence):
        method(6, objective=InfoMaxObjective(**given)).fit(X, y)


def test_grid_search_over_the_objective(problem):
    X, y, _ = problem
    search = GridSearchCV(
        RPIM(6, n_members=1, max_iter=20, random_state=0),
        {"objective__trade_off": [0.1, 5.0]},
        cv=KFold(2, shuffle=True, random_state=0),
        scoring=gcd_scorer,
    ).fit(X, y)
    assert search.best_params_ == {"objective__trade_off": 0.1}
    assert search.best_estimator_.trade_off_ == 0.1
    assert search.best_score_ > 0.95


def test_flat_names():
    assert nested_names(PIM, {"trade_off": 0.1, "objective__eta": 0.0}) == {
        "objective__trade_off": 0.1,
        "objective__eta": 0.0,
    }


@pytest.mark.parametrize("objective", [None, InfoMaxObjective(), InfoMaxObjective(eta=0.1, rank=2, beta=0.4)])
def test_a_saved_run_has_the_objective(objective, problem, tmp_path):
    X, y, _ = problem
    model = RPIM(6, n_members=1, objective=objective, max_iter=2, random_state=0)
    features = FeatureSet.from_arrays(X, labels=y)
    Discovery.from_fit(model.fit(features.rows(), y), features).save(tmp_path / "run")
    assert Discovery.load(tmp_path / "run").model.get_params() == model.get_params()
    facts = json.loads((tmp_path / "run" / "run.json").read_text())
    facts["parameters"]["eta"] = 0.03  # as before there were nested parameters
    (tmp_path / "run" / "run.json").write_text(json.dumps(facts))
    with pytest.raises(InputError, match=r"run\.json is truncated or damaged \(.*'eta'\): run rpim discover again"):
        Discovery.load(tmp_path / "run")


# -- preset="paper" -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "parameters", "said"),
    [
        (
            RPIM,
            {"n_members": 16},
            "n_members=16 contradicts preset='paper', which has n_members=1: leave n_members out",
        ),
        (RPIM, {"n_components": 256}, "n_components=256 contradicts preset='paper', which has n_components=None"),
        (RPIM, {"n_init": None}, "n_init=None contradicts preset='paper', which has n_init=100"),
        (
            RPIM,
            {"learning_rate": 5e-3},
            "learning_rate=0.005 contradicts preset='paper', which has learning_rate=0.001",
        ),
        (RPIM, {"objective__beta": 0.2}, "beta=0.2 contradicts preset='paper', which has beta=0.05"),
        (RPIM, {"objective__class_sizes": "estimated"}, "class_sizes='estimated' contradicts preset='paper'"),
        (RPIM, {"objective__threshold": 0.9}, "threshold=0.9 contradicts preset='paper', which has threshold=0.5"),
        (PIM, {"n_members": 4}, "n_members=4 contradicts preset='paper'"),
        (RIM, {"n_components": 64}, "n_components=64 contradicts preset='paper', which has n_components=None"),
        (TIM, {"learning_rate": 0.01}, "learning_rate=0.01 contradicts preset='paper'"),
        (TIM, {"objective__trade_off": 0.1}, "trade_off=0.1 contradicts preset='paper', which has trade_off=1.0"),
        (
            TIM,
            {"objective__label_weight": 0.1},
            "label_weight=0.1 contradicts preset='paper', which has label_weight=1",
        ),
        (RIM, {"objective__trade_off": 0.5}, "trade_off=0.5 contradicts preset='paper', which has trade_off=1.0"),
        (
            RIM,
            {"objective__weight_decay": 0.1},
            "weight_decay=0.1 contradicts preset='paper', which has weight_decay=0",
        ),
        (GCD, {"n_components": 64}, "n_components=64 contradicts preset='paper', which has n_components=None"),
        (KMeans, {"n_components": 64}, "n_components=64 contradicts preset='paper', which has n_components=None"),
        (PIM, {"objective__temperature": 10.0}, "temperature=10.0 contradicts preset='paper'"),
        (PIM, {"normalize": "sqrt"}, "normalize='sqrt' contradicts preset='paper', which has normalize=True"),
    ],
)
def test_what_contradicts_the_published_procedure_is_refused(method, parameters, said, problem):
    X, y, _ = problem
    with pytest.raises(InputError, match=said) as caught:
        method(6, preset="paper").set_params(**parameters).fit(X, y)
    assert str(caught.value).endswith("or use preset='default'.")


@pytest.mark.parametrize(
    "parameters",
    [
        {"objective__beta": 0.05, "n_members": 1, "n_components": None, "learning_rate": 1e-3, "search": "paper"},
        {"abstain": 0.1, "normalize": False, "objective__eta": 0.1},
        {"objective__h": "none", "objective__pseudo_labels": False},
    ],
)
def test_what_the_paper_leaves_free_or_says_itself_may_be_given(parameters, problem):
    X, y, _ = problem
    model = RPIM(6, preset="paper", n_init=1, max_iter=2, random_state=0)
    model.set_params(objective__trade_off=0.1, objective__weight_decay=0.01, **parameters).fit(X, y)
    assert (model.n_members_, model.n_iter_, model.search_, model.components_) == (1, 2, {}, None)


@pytest.mark.parametrize(
    ("method", "trade_off", "shipped"),
    [(RIM, 1.0, 1.0), (TIM, 1.0, 0.1)],
)
def test_rim_and_tim_as_published_and_as_shipped(method, trade_off, shipped, problem):
    X, y, _ = problem
    published = method(6, preset="paper", n_init=2, max_iter=3, random_state=0).fit(X, y)
    assert (published.trade_off_, published.weight_decay_, published.n_iter_) == (trade_off, 0.01, 3)
    assert (published.search_, published.components_) == ({}, None)
    default = method(6, max_iter=3, random_state=0).fit(X, y)
    assert default.trade_off_ == shipped
    start = PIM(6, max_iter=1, objective=InfoMaxObjective(trade_off=shipped), random_state=0).fit(X, y)
    # The same start: after one step only the marginal of TIM differs, by the labelled rows.
    one_step = method(6, max_iter=1, random_state=0).fit(X, y)
    assert torch.allclose(one_step.head_.prototypes, start.head_.prototypes, atol=0.02)


@pytest.mark.parametrize(("method", "n_init", "max_iter"), [(GCD, 100, 200), (KMeans, 10, 300)])
def test_k_means_as_published(method, n_init, max_iter, problem):
    model = method(6, preset="paper")
    assert (model._resolved("n_init"), model._rule().max_iter, model._n_components()) == (n_init, max_iter, None)
    shipped = method(6)
    assert (shipped._resolved("n_init"), shipped._rule().max_iter, shipped._n_components()) == (10, 100, 256)
    X, y, _ = problem
    labels = method(6, preset="paper", n_init=3, random_state=0).fit(X, y).labels_
    assert (labels[y >= 0] == y[y >= 0]).all()


def test_the_weight_of_the_labels_is_that_of_their_gradient(problem):
    """w scales CE: with w = 0 labels do not act, and the objective is M + lambda C + w CE."""
    X, y, _ = problem
    for weight in (0.0, 0.1, 2.0):
        model = PIM(6, objective=InfoMaxObjective(label_weight=weight, trade_off=0.3), max_iter=1, random_state=0)
        first = model.fit(X, y).history_[0]
        assert first["objective"] == pytest.approx(first["M"] + 0.3 * first["C"] + weight * first["CE"])
        assert first["CE"] > 0.0


@pytest.mark.parametrize("h", ["linear", "linear-bias", "mlp", "semantic-bias", "semantic-scale-bias"])
def test_h_starts_as_the_identity_or_as_torch_draws_linear_layers(h, problem):
    X, y, _ = problem

    def first(h_init):
        objective = InfoMaxObjective(h=h, h_init=h_init, trade_off=0.1)
        model = RPIM(6, n_members=1, objective=objective, max_iter=1, learning_rate=1e-9, random_state=0)
        return model.fit(X, y).head_.transform.parameters

    identity, random, again = first("identity"), first("random"), first("random")
    width = max(len(value) for value in random.values())
    for name, value in random.items():
        assert torch.equal(value, again[name])
        assert not torch.allclose(value, identity[name], atol=1e-3)
        assert float(value.abs().max()) <= width**-0.5 + 1e-6
        if value.ndim == 2:
            assert float(value.std()) == pytest.approx((3 * width) ** -0.5, rel=0.2)


@pytest.mark.parametrize("method", METHODS)
def test_weight_decay_falls_with_many_classes_unless_it_is_given_or_published(method):
    assert [method()._hyperparameters(k).weight_decay for k in (6, 300, 600, 1000)] == [0.01, 0.01, 0.005, 0.003]
    given = method(objective=InfoMaxObjective(weight_decay=0.02))
    assert given._hyperparameters(1000).weight_decay == 0.02
    assert method(preset="paper")._hyperparameters(1000).weight_decay == 0.01


@pytest.mark.slow
@pytest.mark.parametrize("n_members", [1, 2])
def test_a_weight_decay_that_empties_classes_is_halved_unless_it_is_given(n_members):
    random = np.random.default_rng(1)
    truth = np.arange(200).repeat(20)
    X = random.standard_normal((200, 128))[truth] + 2.5 * random.standard_normal((len(truth), 128))
    y = np.where((truth < 100) & (np.arange(len(truth)) % 2 == 0), truth, -1)
    unknown = []
    for objective in (None, InfoMaxObjective(weight_decay=0.01)):
        model = RPIM(200, objective=objective, n_members=n_members, random_state=0).fit(X, y)
        assert model.weight_decay_ == (0.005 if objective is None else 0.01)
        unknown.append(gcd_accuracy(truth[y < 0], model.labels_[y < 0], range(100)).unknown)
    assert unknown[0] > unknown[1] + 0.05


@pytest.mark.parametrize("method", METHODS)
def test_initial_prototypes_grow_with_many_classes_unless_published(method):
    centroids = torch.nn.functional.normalize(torch.randn(1000, 4, generator=torch.Generator().manual_seed(0)))
    assert torch.equal(method()._new_head(centroids[:200]).prototypes, centroids[:200])
    assert float(method()._new_head(centroids).prototypes.norm(dim=1).mean()) == pytest.approx(1.304, abs=1e-3)
    assert torch.equal(method(preset="paper")._new_head(centroids).prototypes, centroids)


@pytest.mark.slow
def test_a_thousand_classes_keep_their_rows():
    """With a weight decay of 0.01 all rows ended in known classes."""
    random = np.random.default_rng(0)
    truth = np.repeat(np.arange(800), 10)
    X = random.standard_normal((800, 128))[truth] + 1.5 * random.standard_normal((8000, 128))
    y = np.where((truth < 400) & (np.arange(8000) % 2 == 0), truth, -1)
    model = RPIM(800, n_members=1, random_state=0).fit(X, y)
    assert gcd_accuracy(truth[y < 0], model.labels_[y < 0], range(400)).unknown > 0.95
